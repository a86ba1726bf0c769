"""longtake watches video without end in a fixed memory and answers questions about it at any moment.

Names are loaded when they are used, so that reading a video or listing policies does not load a model library.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

from longtake.errors import LongtakeError

if TYPE_CHECKING:
    from longtake.answer import Answer, AnswerStream
    from longtake.engine import Engine
    from longtake.policies.policy import Policy
    from longtake.session import Session

__version__ = "0.1.0"
__all__ = ["Answer", "AnswerStream", "Engine", "LongtakeError", "Policy", "Session", "__version__", "open"]

_HOMES = {
    "Answer": "longtake.answer",
    "AnswerStream": "longtake.answer",
    "Engine": "longtake.engine",
    "Policy": "longtake.policies.policy",
    "Session": "longtake.session",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'longtake' has no attribute '{name}'")
    return getattr(import_module(_HOMES[name]), name)


def open(
    model: str = "toy",
    policy: str | Policy = "deltas",
    budget: int | None = None,
    *,
    policy_options: Mapping[str, Any] | None = None,
    fps: float | None = None,
    chunk_frames: int | None = None,
    frame_pixels: int | None = None,
    frame_tokens: int | None = None,
    **model_options: Any,
) -> Session:
    """Load a model and open a session on it; `Engine` shares one model among sessions.

    Args:
        model: "toy" (embedded), a checkpoint folder, or a hub id.
        policy: a name from `longtake policies`, or a `Policy`.
        budget: tokens per attention layer after each step; by default 8,192.
        policy_options: the policy's hyperparameters by their published names.
        fps: frames per second taken from a watched source; by default what the model was made for.
        chunk_frames: frames prefilled at once; by default one second.
        frame_pixels, frame_tokens: the most pixels of a frame, or visual tokens of a temporal step, chosen once.
        model_options: `dtype`, `device` and more, see `longtake.backbones.load.load`.

    Raises:
        LongtakeError: for a name or value that cannot be used, in one sentence.
    """
    from longtake.engine import Engine

    engine = Engine.load(model, **model_options)
    return engine.open(
        policy,
        budget,
        policy_options=policy_options,
        fps=fps,
        chunk_frames=chunk_frames,
        frame_pixels=frame_pixels,
        frame_tokens=frame_tokens,
    )
