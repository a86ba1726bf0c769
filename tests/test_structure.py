"""The house: a room imports only from floors below it, and nothing is patched at import."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "src" / "longtake"
FLOORS = {
    "errors": 0,
    "video": 1,
    "kv": 1,
    "memory": 2,
    "backbones": 2,
    "probe": 2,
    "trace": 2,
    "policies": 3,
    "answer": 4,
    "decoding": 4,
    "schedule": 4,
    "retention": 4,
    "session": 4,
    "engine": 4,
    "toy": 5,
    "report": 5,
    "evaluation": 5,
    "training": 6,
    "demo": 6,
    "cli": 6,
    "__init__": 6,
    "__main__": 7,
}
# Within a floor a room may still need another one; each pair is a decision told in docs/architecture.md.
SAME_FLOOR = {
    ("backbones", "memory"),
    ("probe", "backbones"),
    ("probe", "memory"),
    ("trace", "backbones"),
    ("session", "answer"),
    ("session", "decoding"),
    ("session", "retention"),
    ("session", "schedule"),
    ("engine", "session"),
    ("evaluation", "toy"),
    ("evaluation", "report"),
    ("report", "toy"),
    ("cli", "demo"),
    ("cli", "__init__"),
}


def room_of(module: str) -> str:
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else "__init__"


def imports(file: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
        elif isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
    return {name for name in found if name.split(".")[0] == "longtake"}


FILES = sorted(PACKAGE.rglob("*.py"))


@pytest.mark.parametrize("file", FILES, ids=lambda f: str(f.relative_to(PACKAGE)))
def test_a_room_imports_only_from_floors_below(file: Path) -> None:
    room = file.relative_to(PACKAGE).parts[0].removesuffix(".py")
    for module in imports(file):
        other = room_of(module)
        if other != room and (room, other) not in SAME_FLOOR:
            assert FLOORS[other] < FLOORS[room], f"{room} (floor {FLOORS[room]}) imports {other} ({FLOORS[other]})"


@pytest.mark.parametrize("file", FILES, ids=lambda f: str(f.relative_to(PACKAGE)))
def test_files_stay_small(file: Path) -> None:
    assert len(file.read_text().splitlines()) <= 360, "a file fits on a few screens; split it by nouns"


def test_video_needs_no_torch() -> None:
    code = "import sys, longtake.video; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_importing_the_package_changes_nothing_in_the_library() -> None:
    code = (
        "from transformers import AttentionInterface; before = set(AttentionInterface().valid_keys());"
        "import longtake.session, longtake.engine, longtake.policies.registry;"
        "assert set(AttentionInterface().valid_keys()) == before"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
