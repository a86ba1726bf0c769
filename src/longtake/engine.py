"""One loaded model on one device, and the sessions that share it."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

from longtake.backbones.backbone import Backbone
from longtake.backbones.load import TOY, load
from longtake.errors import LongtakeError
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
        frame_pixels: int | None = None,
        frame_tokens: int | None = None,
    ) -> Session:
        """Open a session for one stream.

        Args:
            policy: a name (see `longtake policies`) or a fresh policy of one's own.
            budget: tokens per attention layer after each step; by default 8,192.
            policy_options: the policy's hyperparameters by their published names.
            fps, chunk_frames, frame_pixels: see `Session`.
            frame_tokens: the most visual tokens of a temporal step, instead of `frame_pixels`.

        Raises:
            LongtakeError: for a name or value that cannot be used.
        """
        if isinstance(policy, str):
            policy = make_policy(policy, budget, policy_options)
        if frame_tokens is not None:
            if frame_pixels is not None:
                raise LongtakeError("Give the frame size in pixels or in tokens, not both.")
            frame_pixels = frame_tokens * (self.backbone.pixels_per_token or 1)
        return Session(
            self.backbone,
            policy,
            fps=fps,
            chunk_frames=chunk_frames,
            frame_pixels=frame_pixels,
            device_lock=self._device_lock,
        )
