"""What the README shows is run as it stands."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from longtake.toy import World, render

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
DOCS = list((ROOT / "docs").glob("*.md"))
BLOCKS = re.findall(r"^```\n(.*?)^```$", re.sub(r"^```\w+\n.*?^```$", "", README, flags=re.S | re.M), re.S | re.M)
COMMANDS = [line for block in BLOCKS for line in block.splitlines()]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which the demonstration has run, with a shorter world."""
    folder = tmp_path_factory.mktemp("readme")
    render(World(1, 60.0), folder / "demo" / "world.mp4")
    return folder


def run(command: list[str], place: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run(command, cwd=place, capture_output=True, text=True, env=environment, check=False)


def test_the_library_example_runs_as_printed(place: Path) -> None:
    example = re.search(r"<!-- test: library example -->\n```python\n(.*?)```", README, re.S)
    assert example is not None
    code = example.group(1)
    assert len([line for line in code.splitlines() if line.strip()]) <= 11
    result = run([sys.executable, "-c", code], place)
    assert result.returncode == 0, result.stderr
    lines = result.stdout.splitlines()
    world = World(1, 60.0)
    truth = {q.text: q.answer for q in world.questions(60.0)}
    assert lines[1].endswith(f"what was shown last ? {truth['what was shown last ?']}")
    assert lines[-1].endswith("tokens held")


def test_the_readme_shows_commands() -> None:
    """So that the next test has something to run."""
    assert sum(line.startswith("longtake ") for line in COMMANDS) >= 5


@pytest.mark.parametrize("command", [line for line in COMMANDS if line.startswith("longtake ")])
def test_the_commands_of_the_readme_run_as_printed(command: str, place: Path) -> None:
    result = run([sys.executable, "-m", *shlex.split(command)], place)
    assert result.returncode == 0, result.stderr
    assert result.stdout


def test_make_has_the_targets_that_the_docs_name() -> None:
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.M))
    pages = [README, (ROOT / "CONTRIBUTING.md").read_text(), *(p.read_text() for p in DOCS)]
    named = {word for page in pages for word in re.findall(r"(?:`|^)make ([a-z-]+)", page, re.M)}
    assert {"demo", "test"} <= named <= targets
    assert any(line.startswith("make demo") for line in COMMANDS)


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md", *sorted(f"docs/{p.name}" for p in DOCS)])
def test_links_between_pages_lead_somewhere(page: str) -> None:
    text = (ROOT / page).read_text()
    for target in re.findall(r"\]\(([^)#]+)\)", text):
        if "://" not in target:
            assert (ROOT / page).parent.joinpath(target).exists(), target
