# Every target sets itself up: a fresh machine needs Python 3.11+ (with venv) and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: demo test test-slow check format clean

$(READY): pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	touch $(READY)

demo: $(READY)
	$(BIN)/longtake demo

# The whole suite but for the slow group; under ten minutes on two cores.
test: $(READY)
	$(BIN)/python -m pytest -m "not slow"

test-slow: $(READY)
	$(BIN)/python -m pytest -m slow

check: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

format: $(READY)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:
	rm -rf $(VENV) build dist demo .pytest_cache .mypy_cache .ruff_cache
