"""The machine a figure was taken on, and what it has left."""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass
from pathlib import Path

import torch
import transformers


@dataclass(frozen=True, slots=True)
class Machine:
    """What a reader must know to read a time."""

    cpu: str
    cores: int
    torch_threads: int
    memory_gib: float
    python: str
    torch: str
    transformers: str

    @classmethod
    def here(cls) -> Machine:
        """This machine, with the number of threads that torch uses now."""
        return cls(
            cpu=_cpu(),
            cores=os.cpu_count() or 1,
            torch_threads=torch.get_num_threads(),
            memory_gib=round(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30, 1),
            python=platform.python_version(),
            torch=torch.__version__,
            transformers=transformers.__version__,
        )


def available_bytes() -> int:
    """Memory that can be taken without swapping; all of it where the system does not tell."""
    for line in _lines("/proc/meminfo"):
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def resident_bytes() -> int:
    """Resident memory of this process (RSS).

    Raises:
        OSError: where there is no /proc.
    """
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _cpu() -> str:
    facts = dict(line.split(":", 1) for line in _lines("/proc/cpuinfo") if ":" in line)
    named = {key.strip(): value.strip() for key, value in facts.items()}
    name = named.get("model name") or platform.processor() or platform.machine()
    return f"{name} (family {named['cpu family']}, model {named['model']})" if "cpu family" in named else name


def _lines(path: str) -> list[str]:
    file = Path(path)
    return file.read_text(encoding="utf-8").splitlines() if file.is_file() else []
