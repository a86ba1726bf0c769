"""Whether a checkpoint fits, told before it is loaded."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForImageTextToText

from longtake.errors import LongtakeError


def weight_bytes(config: Any, dtype: str | torch.dtype, folder: Path | None) -> int | None:
    """Bytes of the weights once loaded; None where only loading would tell (a quantized checkpoint on a hub).

    Counted on a model without storage; a quantized checkpoint in a folder is counted by its files.
    """
    if getattr(config, "quantization_config", None) is not None:
        return sum(f.stat().st_size for f in folder.glob("*.safetensors")) if folder is not None else None
    if dtype == "auto":
        dtype = getattr(config, "dtype", None) or torch.float32
    size = (getattr(torch, dtype) if isinstance(dtype, str) else dtype).itemsize
    with torch.device("meta"):
        model = AutoModelForImageTextToText.from_config(config)
    return int(sum(p.numel() for p in model.parameters())) * int(size)


def free_bytes(device: str) -> int:
    """Bytes free on a device: of the accelerator, or of the machine's memory."""
    if torch.device(device).type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    meminfo = Path("/proc/meminfo")
    if meminfo.exists():  # counts caches that the system would give up
        fields = dict(line.split(":", 1) for line in meminfo.read_text().splitlines())
        return int(fields["MemAvailable"].split()[0]) * 1024
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def check_fits(name: str, needed: int | None, device: str) -> None:
    """Raises LongtakeError when the weights need more bytes than the device has free."""
    if needed is None:
        return
    free = free_bytes(device)
    if needed > free:
        raise LongtakeError(
            f"{name} needs {needed:,} bytes for its weights and {device} has {free:,} free; "
            "choose a smaller dtype, another device, or a device map."
        )
