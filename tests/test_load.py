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


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_another_dtype_is_taken(folder: Path, dtype: str) -> None:
    session = Engine(load(str(folder), dtype=dtype)).open("deltas", 60)
    for i, frame in enumerate(noise(30)):
        session.push(frame, i * 0.5)
    assert session.memory.slabs[0].keys.dtype == getattr(torch, dtype)
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


def test_a_checkpoint_larger_than_memory_is_told_before_it_is_loaded(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both numbers are in the sentence. Seen to fail when float32 is counted for a bfloat16 request."""
    weights = sum(p.numel() for p in stock(HYBRID)[0].parameters())
    loaded: list[object] = []
    monkeypatch.setattr("longtake.backbones.load.AutoModelForImageTextToText.from_pretrained", loaded.append)
    for dtype, size in (("float32", 4), ("bfloat16", 2)):
        needed = weights * size
        monkeypatch.setattr("longtake.backbones.footprint.free_bytes", lambda device, n=needed: n - 1)
        with pytest.raises(LongtakeError, match=f"needs {needed:,} bytes .* cpu has {needed - 1:,} free"):
            load(str(folder), dtype=dtype, device="cpu")
    assert not loaded


def test_free_memory_is_read_from_the_machine() -> None:
    from longtake.backbones.footprint import free_bytes

    assert 1 << 20 < free_bytes("cpu") < 1 << 50


def test_a_lora_adapter_is_applied(folder: Path, tmp_path: Path) -> None:
    """Against the same adapter merged into the weights by peft itself."""
    import copy

    from peft import LoraConfig, get_peft_model

    from longtake.backbones.load import adopt

    model, processor = stock(HYBRID)
    torch.manual_seed(3)
    tuned = get_peft_model(copy.deepcopy(model), LoraConfig(r=4, target_modules=["q_proj", "v_proj"]))
    with torch.no_grad():
        for name, weight in tuned.named_parameters():
            if "lora_B" in name:
                weight.normal_(std=0.3)
    tuned.save_pretrained(tmp_path)
    merged = adopt(tuned.merge_and_unload(), processor, "merged")
    adapted, plain = load(str(folder), adapter=tmp_path), load(str(folder))
    logits = []
    for backbone in (merged, adapted, plain):
        session = Engine(backbone).open("full")
        for i, frame in enumerate(noise(6)):
            session.push(frame, i * 0.5)
        logits.append(session.logits(QUESTION))
    assert torch.allclose(logits[0], logits[1], atol=1e-4)
    assert not torch.allclose(logits[0], logits[2], atol=1e-2)


def test_layers_can_be_spread_by_a_device_map(folder: Path) -> None:
    session = Engine(load(str(folder), device_map="cpu")).open("deltas", 60)
    for i, frame in enumerate(noise(30)):
        session.push(frame, i * 0.5)
    assert session.ask(QUESTION, max_new_tokens=2).tokens_held == 60


def test_the_vision_tower_takes_another_attention(folder: Path) -> None:
    backbone = load(str(folder), vision_attention="eager")
    assert backbone.model.config.vision_config._attn_implementation == "eager"
    assert backbone.model.config.text_config._attn_implementation == "longtake"


@pytest.mark.parametrize(("package", "options"), [("peft", {"adapter": "x"}), ("accelerate", {"device_map": "auto"})])
def test_a_missing_package_is_named(
    folder: Path, package: str, options: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("longtake.backbones.load.find_spec", lambda name: None)
    with pytest.raises(LongtakeError, match=f"pip install {package}"):
        load(str(folder), **options)


def test_an_unknown_option_of_a_family_is_told(folder: Path) -> None:
    with pytest.raises(LongtakeError, match="no option 'text_position'"):
        load(str(folder), text_position="hf")


@pytest.mark.parametrize("kind", ["dynamic", "longrope"])
def test_rotary_kinds_that_change_with_the_length_are_refused(kind: str) -> None:
    """Cached keys would no longer fit the frequencies of the next ones."""
    import copy

    from longtake.backbones.load import adopt

    model, processor = copy.deepcopy(stock(HYBRID)[0]), stock(HYBRID)[1]
    model.model.language_model.rotary_emb.rope_type = kind
    with pytest.raises(LongtakeError, match=f"'{kind}'.*frequencies change"):
        adopt(model, processor, "changing")


def test_what_runs_the_linear_layers_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Here no kernel package is installed; a package that can be imported would be named."""
    backbone = random_backbone(HYBRID)
    assert backbone.kernels == {"gated delta rule": "torch reference", "causal convolution": "torch reference"}
    monkeypatch.setattr("longtake.backbones.kernels.import_module", lambda name: None)
    assert backbone.kernels == {"gated delta rule": "fla", "causal convolution": "causal_conv1d"}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"dtype": "float8"}, "there are auto, float32, bfloat16, float16"),
        ({"device": "gpu"}, "no device 'gpu'"),
        ({"device": "cuda:77"}, "no device 'cuda:77'"),
        ({"vision_attention": "none such"}, "cannot be loaded"),
        ({"adapter": "/nowhere/at/all"}, "cannot be loaded"),
    ],
)
def test_settings_that_do_not_exist_are_told(folder: Path, options: dict[str, str], words: str) -> None:
    with pytest.raises(LongtakeError, match=words):
        load(str(folder), **options)
