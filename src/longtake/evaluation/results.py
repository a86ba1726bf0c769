"""Results as JSON lines: one per trial, with all that it was made with, appended as they come."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from longtake.errors import LongtakeError

Result = dict[str, Any]
_IDENTITY = ("model", "seconds", "seed", "number", "every", "scenery", "policy", "percent", "chunk")


def identity(result: Result) -> str:
    """What tells one trial from another: model, stream, policy with its options, budget, chunk."""
    return json.dumps([result[name] for name in _IDENTITY])


class Results:
    """A file of results. Two runs with the same file go on where the first stopped."""

    def __init__(self, path: Path) -> None:
        self.path = path
        if path.exists():
            _mend(path)
        self._done = {identity(result) for result in read(path)} if path.exists() else set()

    def __contains__(self, trial: Result) -> bool:
        return identity(trial) in self._done

    def add(self, result: Result) -> None:
        """Append a result; it is on the disk when this returns.

        Raises:
            LongtakeError: when it cannot be written.
        """
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(result, ensure_ascii=False) + "\n")
        except OSError as error:
            raise LongtakeError(f"The results could not be written to {self.path}: {error}.") from error
        self._done.add(identity(result))


def read(path: Path) -> Iterator[Result]:
    """The results of a file; a last line that an interrupt tore is left out.

    Raises:
        LongtakeError: for a file that is not there, or is something else.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise LongtakeError(f"The results {path} cannot be read: {error}.") from error
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            result = json.loads(line)
            identity(result)
        except (json.JSONDecodeError, KeyError, TypeError) as error:
            if number == len(lines):
                return
            raise LongtakeError(
                f"Line {number} of {path} is not a result of longtake eval; give the file that --out named."
            ) from error
        yield result


def _mend(path: Path) -> None:
    """Cut off a last line that an interrupt tore."""
    content = path.read_bytes()
    whole = content.rfind(b"\n") + 1
    if whole < len(content):
        with path.open("r+b") as file:
            file.truncate(whole)
