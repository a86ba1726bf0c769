"""From a name to a model, or to a sentence."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from transformers import Qwen3Config

from longtake.backbones.load import load
from longtake.engine import Engine
from longtake.errors import LongtakeError
from models import HYBRID, QUESTION, noise, random_backbone, stock


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint as the library saves it."""
    path = tmp_path_factory.mktemp("checkpoint")
    model, processor = stock(HYBRID)
    model.save_pretrained(path)
    processor.save_pretrained(path)
    return path


def test_a_checkpoint_folder_streams_like_the_model_it_holds(folder: Path) -> None:
    loaded, original = Engine(load(str(folder))).open("full"), Engine(random_backbone(HYBRID)).open("full")
    for i, frame in enumerate(noise(7)):
        for session in (loaded, original):
            session.push(frame, i * 0.5)
    assert torch.allclose(loaded.logits(QUESTION), original.logits(QUESTION), atol=1e-5)


def test_another_dtype_is_taken(folder: Path) -> None:
    session = Engine(load(str(folder), dtype="bfloat16")).open("deltas", 60)
    for i, frame in enumerate(noise(30)):
        session.push(frame, i * 0.5)
    assert session.memory.slabs[0].keys.dtype == torch.bfloat16
    assert session.memory.recurrent_states()[0].dtype == torch.float32
    session.ask(QUESTION, max_new_tokens=2)


def test_the_toy_loads_without_a_network(monkeypatch: pytest.MonkeyPatch) -> None:
    import socket

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("the network was asked")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    assert load("toy").family == "Qwen3.5"


@pytest.mark.parametrize("name", ["nope", "./nowhere", "a/b/c", ""])
def test_an_unknown_name_lists_what_there_is(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(LongtakeError, match=r"give 'toy'.*Qwen3\.5"):
        load(name)


def test_a_folder_without_a_model_is_told(tmp_path: Path) -> None:
    with pytest.raises(LongtakeError, match="no config"):
        load(str(tmp_path))
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(LongtakeError, match="cannot be loaded"):
        load(str(tmp_path))


def test_a_family_that_is_not_supported_is_told_by_its_name(tmp_path: Path) -> None:
    Qwen3Config().save_pretrained(tmp_path)
    with pytest.raises(LongtakeError, match=r"qwen3 model, which is not supported; .*qwen3_5"):
        load(str(tmp_path))


def test_a_folder_without_processor_files_is_told(folder: Path, tmp_path: Path) -> None:
    for name in ("config.json", "model.safetensors"):
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    with pytest.raises(LongtakeError, match="cannot be loaded"):
        load(str(tmp_path))


def test_sliding_window_layers_are_refused(folder: Path, tmp_path: Path) -> None:
    for file in folder.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    config = json.loads((folder / "config.json").read_text())
    config["text_config"]["layer_types"][2] = "sliding_attention"
    config["text_config"]["sliding_window"] = 8
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(LongtakeError, match=r"sliding|cannot be loaded"):
        load(str(tmp_path))
