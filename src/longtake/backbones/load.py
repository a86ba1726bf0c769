"""From a name to a backbone: the embedded toy, a local checkpoint folder, or a hub id."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from importlib.util import find_spec
from os import PathLike
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForImageTextToText, AutoProcessor

from longtake.backbones.backbone import Backbone
from longtake.backbones.footprint import check_fits, weight_bytes
from longtake.backbones.internvl import InternVL
from longtake.backbones.llava_onevision import LlavaOneVision
from longtake.backbones.qwen2_5_vl import Qwen25VL
from longtake.backbones.qwen2_vl import Qwen2VL
from longtake.backbones.qwen3_5 import Qwen35
from longtake.backbones.qwen3_vl import Qwen3VL
from longtake.errors import LongtakeError
from longtake.kv import attention
from longtake.memory import LINEAR

FAMILIES: tuple[type[Backbone], ...] = (Qwen3VL, Qwen35, Qwen25VL, Qwen2VL, LlavaOneVision, InternVL)
DTYPES = ("auto", "float32", "bfloat16", "float16")
TOY = "toy"
"""The embedded model that everything runs on by default; `EMBEDDED` has all."""
HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
EMBEDDED = {name: Path(__file__).parents[1] / "toy" / "weights" / name for name in (TOY,)}


def load(
    name: str = TOY,
    *,
    dtype: str | torch.dtype = "auto",
    device: str | None = None,
    device_map: str | Mapping[str, Any] | None = None,
    vision_attention: str | None = None,
    adapter: str | PathLike[str] | None = None,
    **options: Any,
) -> Backbone:
    """Load a model for streaming.

    Args:
        name: "toy" (the embedded model), a folder with a checkpoint, or a hub id (the only case that downloads).
            Quantized checkpoints load as transformers loads them.
        dtype: as transformers takes it; "auto" is the checkpoint's own.
        device: where to run; by default "cuda" if there is one, else "cpu".
        device_map: spread the layers over devices instead, as transformers does (needs accelerate).
        vision_attention: the vision tower's attention, a name the library knows; the text model has longtake's.
        adapter: folder or hub id of a LoRA adapter (needs peft).
        options: the family's own, e.g. `text_positions` of Qwen2.5-VL.

    Raises:
        LongtakeError: when there is no such model, its family is not supported, it does not fit in memory (said
            before it is loaded), or a package that an option needs is missing.
    """
    folder = EMBEDDED.get(name, Path(name))
    local = folder.is_dir()
    source = str(folder) if local else name
    if local and not (folder / "config.json").is_file():
        raise LongtakeError(f"{folder} has no config.json; {_known()}.")
    if not local and not HUB_ID.fullmatch(name):
        raise LongtakeError(f"There is no model '{name}'; {_known()}.")
    config = _library(AutoConfig.from_pretrained, name, source, local)
    family = by_model_type(config.model_type, name)
    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    _check_place(dtype, device)
    processor = _library(AutoProcessor.from_pretrained, name, source, local)
    settings: dict[str, Any] = {"dtype": dtype}
    if device_map is not None:
        _require("accelerate", "device_map")
        settings["device_map"] = device_map
    else:
        check_fits(name, weight_bytes(config, dtype, folder if local else None), device)
    if vision_attention is not None:
        settings["attn_implementation"] = {"vision_config": vision_attention}
    model = _library(AutoModelForImageTextToText.from_pretrained, name, source, local, **settings)
    if adapter is not None:
        _require("peft", "adapter")
        _library(lambda source, **_: model.load_adapter(source), str(adapter), str(adapter), True)
    if device_map is None and getattr(model, "hf_quantizer", None) is None:
        model = model.to(device)  # a quantizer has placed its weights itself
    return adopt(model, processor, name, family, **options)


def has_recurrent_states(name: str) -> bool:
    """Whether a model on this machine, the toy or a folder, is a hybrid; its weights are not loaded.

    Raises:
        LongtakeError: when there is no such model.
    """
    folder = EMBEDDED.get(name, Path(name))
    if not (folder / "config.json").is_file():
        raise LongtakeError(f"There is no model '{name}' here; give {_embedded()} or a checkpoint folder.")
    config = _library(AutoConfig.from_pretrained, name, str(folder), True)
    return LINEAR in (getattr(config.get_text_config(), "layer_types", None) or ())


def adopt(model: Any, processor: Any, name: str, family: type[Backbone] | None = None, **options: Any) -> Backbone:
    """Make a backbone of a model and a processor already in memory. The model becomes the backbone's own."""
    family = family or by_model_type(model.config.model_type, name)
    known = set(inspect.signature(family.__init__).parameters) - {"self", "model", "processor", "name"}
    if unknown := sorted(set(options) - known):
        raise LongtakeError(
            f"{family.family} models have no option '{unknown[0]}'; they have {sorted(known) or 'none'}."
        )
    attention.install(model)
    return family(model.eval().requires_grad_(False), processor, name, **options)


def by_model_type(model_type: str, name: str) -> type[Backbone]:
    """The family of a config's `model_type`; LongtakeError names those that exist."""
    for family in FAMILIES:
        if model_type in family.model_types:
            return family
    raise LongtakeError(f"{name} is a {model_type} model, which is not supported; {_known()}.")


def _known() -> str:
    families = ", ".join(f"{family.family} (model_type {', '.join(family.model_types)})" for family in FAMILIES)
    return (
        f"give {_embedded()} (embedded), a checkpoint folder, or a hub id owner/name, of a supported family: {families}"
    )


def _embedded() -> str:
    return " or ".join(f"'{name}'" for name in EMBEDDED)


def _check_place(dtype: str | torch.dtype, device: str) -> None:
    if isinstance(dtype, str) and dtype not in DTYPES:
        raise LongtakeError(f"There is no dtype '{dtype}' to load in; there are {', '.join(DTYPES)}.")
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:  # torch has both for a device that is not there
        raise LongtakeError(
            f"There is no device '{device}' here; leave it out, or give cpu, cuda or cuda:0."
        ) from error


def _require(package: str, option: str) -> None:
    if find_spec(package) is None:
        raise LongtakeError(f"The option {option} needs the package {package}: pip install {package}.")


def _library(call: Any, name: str, source: str, local: bool, **options: Any) -> Any:
    """A loading call of the library, its many errors told in one sentence."""
    try:
        return call(source, local_files_only=local, **options)
    except (OSError, ValueError, KeyError, ImportError) as error:
        reason = " ".join(str(error).split()).split(". ")[0].rstrip(".")
        raise LongtakeError(f"'{name}' cannot be loaded ({reason}); {_known()}.") from error
