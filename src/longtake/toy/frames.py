"""Many small pictures of the toy world, as the vision tower sees them, for training without rendering streams."""

import io
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor
from transformers import Qwen3VLProcessor
from transformers.image_utils import SizeDict

from longtake.toy.model import FRAMES, MERGE, PATCH, SIDE
from longtake.toy.shapes import COLOURS, SHAPES
from longtake.toy.world import Event, World, place

_QUALITIES = 6  # JPEG files per call of `weather`, each of its own quality


@dataclass(frozen=True, slots=True)
class FramePool:
    """Clean pictures of `n` backgrounds, each empty and with every shape in every colour.

    quiet: uint8 [n, 3, 32, 32]; events: uint8 [n, 16, 8, 3, 32, 32].
    """

    quiet: Tensor
    events: Tensor


def build_frames(processor: Qwen3VLProcessor, first_seed: int, backgrounds: int) -> FramePool:
    """Draw the pool on the full canvas and shrink it with the processor's own resize."""
    quiet, events = [], []
    for seed in range(first_seed, first_seed + backgrounds):
        pictures = _pictures(seed)
        small = shrink(processor, torch.from_numpy(pictures).permute(0, 3, 1, 2))
        quiet.append(small[0])
        events.append(small[1:].view(len(SHAPES), len(COLOURS), 3, SIDE, SIDE))
    return FramePool(torch.stack(quiet), torch.stack(events))


def shrink(processor: Qwen3VLProcessor, frames: Tensor) -> Tensor:
    """uint8 [n, 3, 128, 128] to uint8 [n, 3, 32, 32], as the processor does for a chunk of two frames."""
    video = processor.video_processor
    pairs = frames.unsqueeze(1).expand(-1, FRAMES, -1, -1, -1)
    size = {"factor": PATCH * MERGE, "temporal_factor": FRAMES, "cap_pixels_per_frame": False}
    small = video.resize(pairs, size=_size(processor), resample=video.resample, **size)
    assert isinstance(small, Tensor)
    assert small.shape[-2:] == (SIDE, SIDE)
    return small[:, 0]


def patches(processor: Qwen3VLProcessor, chunks: Tensor) -> Tensor:
    """uint8 chunks [n, 2, 3, 32, 32] to the tower's input, float32 [n, 16, 384]."""
    video = processor.video_processor
    scaled = video.rescale_and_normalize(chunks, True, video.rescale_factor, True, video.image_mean, video.image_std)
    flat, _, _, _ = video.patchify(scaled, patch_size=PATCH, merge_size=MERGE, temporal_patch_size=FRAMES)
    assert isinstance(flat, Tensor)
    return flat


def weather(frames: Tensor, generator: torch.Generator) -> Tensor:
    """What a camera and a codec do to small uint8 frames: flicker, noise, and JPEG blocks in half of them."""
    lead, single = frames.shape[:-3], frames.shape[-3:]
    count = lead.numel()
    gain = 1 + 0.03 * torch.randn(count, 1, 1, 1, generator=generator)
    strength = 4.0 * torch.rand(count, 1, 1, 1, generator=generator)
    grain = torch.randn(count, *single, generator=generator)
    worn = (frames.reshape(count, *single) * gain + grain * strength).round().clamp(0, 255).to(torch.uint8)
    order = torch.randperm(count, generator=generator)[: count // 2]
    for group in order.tensor_split(_QUALITIES):
        if len(group):
            worn[group] = _jpeg(worn[group], int(torch.randint(40, 96, (), generator=generator)))
    return worn.view(*lead, *single)


def batches(count: int, size: int) -> Iterator[slice]:
    """Slices of at most `size` that cover `count`."""
    return (slice(start, min(start + size, count)) for start in range(0, count, size))


def _size(processor: Qwen3VLProcessor) -> SizeDict:
    return SizeDict(**dict(processor.video_processor.size))


def _pictures(seed: int) -> NDArray[np.uint8]:
    """[1 + 16 * 8, 128, 128, 3]: the background of world `seed`, then each shape in each colour somewhere on it."""
    world = World(seed, 1.0, 0)
    rng = np.random.default_rng([seed, 5])
    views: list[Event | None] = [None]
    for shape in SHAPES:
        for colour in COLOURS:
            views.append(Event(0.0, 1.0, shape, colour, *place(rng)))
    return np.stack([world.clean_frame(view) for view in views]).astype(np.uint8)


def _jpeg(pictures: Tensor, quality: int) -> Tensor:
    """Through JPEG and back, uint8 [n, 3, 32, 32]. Stacked into one tall file: blocks of 8 never straddle pictures."""
    count = len(pictures)
    tall = pictures.permute(0, 2, 3, 1).reshape(count * SIDE, SIDE, 3)
    buffer = io.BytesIO()
    Image.fromarray(tall.numpy()).save(buffer, "JPEG", quality=quality, subsampling=0)
    back = torch.from_numpy(np.asarray(Image.open(buffer)).copy())
    return back.view(count, SIDE, SIDE, 3).permute(0, 3, 1, 2)
