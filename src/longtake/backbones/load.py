"""From a name to a backbone: the embedded toy, a local checkpoint folder, or a hub id."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForImageTextToText, AutoProcessor

from longtake.backbones.backbone import Backbone
from longtake.backbones.qwen3_5 import Qwen35
from longtake.backbones.qwen3_vl import Qwen3VL
from longtake.errors import LongtakeError
from longtake.kv import attention

FAMILIES: tuple[type[Backbone], ...] = (Qwen3VL, Qwen35)
TOY = "toy"
HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
TOY_FOLDER = Path(__file__).parents[1] / "toy" / "weights"


def load(name: str = TOY, *, dtype: str | torch.dtype = "auto", device: str | None = None) -> Backbone:
    """Load a model for streaming.

    Args:
        name: "toy" (the embedded model), a folder with a checkpoint, or a hub id (the only case that downloads).
        dtype: as transformers takes it; "auto" is the checkpoint's own.
        device: where to run; by default "cuda" if there is one, else "cpu".

    Raises:
        LongtakeError: when there is no such model, or its family is not supported.
    """
    folder = TOY_FOLDER if name == TOY else Path(name)
    local = folder.is_dir()
    source = str(folder) if local else name
    if local and not (folder / "config.json").is_file():
        raise LongtakeError(f"{folder} has no config.json; {_known()}.")
    if not local and not HUB_ID.fullmatch(name):
        raise LongtakeError(f"There is no model '{name}'; {_known()}.")
    config = _library(AutoConfig.from_pretrained, name, source, local)
    family = by_model_type(config.model_type, name)
    processor = _library(AutoProcessor.from_pretrained, name, source, local)
    model = _library(AutoModelForImageTextToText.from_pretrained, name, source, local, dtype=dtype)
    return adopt(model.to(device or ("cuda" if torch.cuda.is_available() else "cpu")), processor, name, family)


def adopt(model: Any, processor: Any, name: str, family: type[Backbone] | None = None) -> Backbone:
    """Make a backbone of a model and a processor already in memory. The model becomes the backbone's own."""
    family = family or by_model_type(model.config.model_type, name)
    attention.install(model)
    return family(model.eval().requires_grad_(False), processor, name)


def by_model_type(model_type: str, name: str) -> type[Backbone]:
    """The family of a config's `model_type`; LongtakeError names those that exist."""
    for family in FAMILIES:
        if model_type in family.model_types:
            return family
    raise LongtakeError(f"{name} is a {model_type} model, which is not supported; {_known()}.")


def _known() -> str:
    families = ", ".join(f"{family.family} (model_type {', '.join(family.model_types)})" for family in FAMILIES)
    return f"give '{TOY}' (embedded), a checkpoint folder, or a hub id owner/name, of a supported family: {families}"


def _library(call: Any, name: str, source: str, local: bool, **options: Any) -> Any:
    """A loading call of the library, its many errors told in one sentence."""
    try:
        return call(source, local_files_only=local, **options)
    except (OSError, ValueError, KeyError) as error:
        reason = " ".join(str(error).split()).split(". ")[0].rstrip(".")
        raise LongtakeError(f"'{name}' cannot be loaded ({reason}); {_known()}.") from error
