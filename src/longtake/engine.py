"""One loaded model on one device, and the sessions that share it."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

from longtake.backbones.backbone import Backbone
from longtake.backbones.load import TOY, load
from longtake.policies.policy import Policy
from longtake.policies.registry import make_policy
from longtake.session import Session


class Engine:
    """Holds a model and opens sessions on it. Sessions never see each other; the device runs one at a time."""

    def __init__(self, backbone: Backbone) -> None:
        self.backbone = backbone
        self._device_lock = threading.RLock()

    @classmethod
    def load(cls, model: str = TOY, **options: Any) -> Engine:
        """Load a model by name; options are those of `longtake.backbones.load.load`."""
        return cls(load(model, **options))

    def open(
        self,
        policy: str | Policy = "deltas",
        budget: int | None = None,
        *,
        policy_options: Mapping[str, Any] | None = None,
        fps: float | None = None,
        chunk_frames: int | None = None,
    ) -> Session:
        """Open a session for one stream.

        Args:
            policy: a name (see `longtake policies`) or a fresh policy of one's own.
            budget: tokens per attention layer after each step; by default 8,192.
            policy_options: the policy's hyperparameters by their published names.
            fps, chunk_frames: see `Session`.

        Raises:
            LongtakeError: for a name or value that cannot be used.
        """
        if isinstance(policy, str):
            policy = make_policy(policy, budget, policy_options)
        return Session(self.backbone, policy, fps=fps, chunk_frames=chunk_frames, device_lock=self._device_lock)
