"""A chunk's pictures as the library's video processors take them."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers.image_utils import SizeDict
from transformers.video_processing_utils import BaseVideoProcessor

from longtake.video.chunker import Chunk


def resized(chunk: Chunk, size: tuple[int, int], video_processor: Any) -> Tensor:
    """Frames [n, 3, height, width] uint8, by the library's resize to a size that does not depend on n."""
    frames = [
        BaseVideoProcessor.resize(
            video_processor,
            torch.from_numpy(np.ascontiguousarray(frame.image)).permute(2, 0, 1)[None],
            size=SizeDict(height=size[0], width=size[1]),
            resample=video_processor.resample,
        )
        for frame in chunk.frames
    ]
    return torch.cat(frames)
