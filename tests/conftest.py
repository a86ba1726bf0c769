"""Fixtures that all tests share."""

from __future__ import annotations

import pytest
import torch

from longtake.backbones.backbone import Backbone
from longtake.backbones.load import load
from models import FULL_ONLY, HYBRID, random_backbone


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> None:
    """The models of the tests are so small that a second thread only waits."""
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def toy() -> Backbone:
    """The embedded model with its trained weights."""
    return load("toy")


@pytest.fixture(scope="session", params=["toy", "random-hybrid"])
def backbone(request: pytest.FixtureRequest) -> Backbone:
    """Each model that has recurrent states."""
    return load("toy") if request.param == "toy" else random_backbone(HYBRID)


@pytest.fixture(scope="session")
def full_attention() -> Backbone:
    """A model without recurrent states."""
    return random_backbone(FULL_ONLY)
