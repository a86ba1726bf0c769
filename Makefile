# Every target sets itself up: a fresh machine needs Python 3.11+ (with venv) and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
DEV_INSTALLED := $(VENV)/.installed-dev
PARALLEL := --numprocesses auto --maxprocesses 4 --dist worksteal

.PHONY: demo test test-slow check format clean

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip

$(INSTALLED): pyproject.toml | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --editable '.[plots]'
	touch $@

$(DEV_INSTALLED): pyproject.toml | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	touch $@ $(INSTALLED)

demo: $(INSTALLED)
	$(BIN)/longtake demo

# The whole suite but for the slow group; under ten minutes on two cores.
test: $(DEV_INSTALLED)
	$(BIN)/python -m pytest -m "not slow" $(PARALLEL)

test-slow: $(DEV_INSTALLED)
	$(BIN)/python -m pytest -m slow $(PARALLEL)

check: $(DEV_INSTALLED)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

format: $(DEV_INSTALLED)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:
	rm -rf $(VENV) build dist demo .pytest_cache .mypy_cache .ruff_cache
