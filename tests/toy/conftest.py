"""One untrained toy checkpoint for all tests of this folder."""

from pathlib import Path

import pytest
from transformers import Qwen3_5ForConditionalGeneration, Qwen3VLProcessor

from longtake.training.hybrid import build_model, build_processor
from longtake.training.script import Script


@pytest.fixture(scope="session")
def processor() -> Qwen3VLProcessor:
    return build_processor()


@pytest.fixture(scope="session")
def model(processor: Qwen3VLProcessor) -> Qwen3_5ForConditionalGeneration:
    return build_model(processor.tokenizer, seed=0).eval()


@pytest.fixture(scope="session")
def script(processor: Qwen3VLProcessor) -> Script:
    return Script(processor)


@pytest.fixture(scope="session")
def folder(
    tmp_path_factory: pytest.TempPathFactory,
    model: Qwen3_5ForConditionalGeneration,
    processor: Qwen3VLProcessor,
) -> Path:
    path = tmp_path_factory.mktemp("toy")
    model.save_pretrained(path)
    processor.save_pretrained(path)
    return path
