"""Many small pictures of the toy world, as a vision tower sees them, for training without rendering streams."""

import io
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from longtake.toy.events import Event, place
from longtake.toy.scenery import DISTRACTORS, Camera, Scenery
from longtake.toy.shapes import COLOURS, THINGS
from longtake.toy.world import World
from longtake.training.species import SIDE
from longtake.training.student import Student

CALM: Final = 0
"""The index of the undisturbed one among a background's empty pictures."""
QUIET_VIEWS: Final = 8
_QUALITIES = 6  # JPEG files per call of `weather`, each of its own quality
_WILD_LIGHT, _WILD_FLICKER = 0.35, 0.08


@dataclass(frozen=True, slots=True)
class FramePool:
    """Clean pictures of `n` backgrounds, each empty and with every thing in every colour.

    quiet: uint8 [n, 8, 3, 32, 32], the first as it is, the others shaken and with something moving in them.
    events: uint8 [n, 26, 8, 3, 32, 32], half of them disturbed like that.
    """

    quiet: Tensor
    events: Tensor


def build_frames(student: Student, first_seed: int, backgrounds: int) -> FramePool:
    """Draw the pool on the full canvas and shrink it with the processor's own resize."""
    quiet, events = [], []
    for seed in range(first_seed, first_seed + backgrounds):
        pictures = torch.from_numpy(_pictures(seed)).permute(0, 3, 1, 2)
        small = torch.cat([student.species.shrink(student.processor, part) for part in pictures.split(64)])
        quiet.append(small[:QUIET_VIEWS])
        events.append(small[QUIET_VIEWS:].view(len(THINGS), len(COLOURS), 3, SIDE, SIDE))
    return FramePool(torch.stack(quiet), torch.stack(events))


def weather(frames: Tensor, generator: torch.Generator, wild: float) -> Tensor:
    """What light, camera and codec do to small uint8 frames [n, frames, 3, 32, 32].

    Flicker, noise, and JPEG blocks in half of them; a share `wild` of the chunks is much darker or lighter too.
    """
    lead, single = frames.shape[:2], frames.shape[2:]
    count = lead.numel()
    gain = 1 + 0.03 * torch.randn(lead, generator=generator)
    light = 1 + _WILD_LIGHT * (2 * torch.rand(lead[0], 1, generator=generator) - 1)
    flicker = 1 + _WILD_FLICKER * torch.randn(lead, generator=generator)
    disturbed = torch.rand(lead[0], 1, generator=generator) < wild
    gain = torch.where(disturbed, gain * light * flicker, gain).view(count, 1, 1, 1)
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


def _pictures(seed: int) -> NDArray[np.uint8]:
    """[8 + 26 * 8, 128, 128, 3]: the background of world `seed`, then each thing in each colour somewhere on it."""
    world = World(seed, 1.0, 0, Scenery(distractors=DISTRACTORS))
    camera = Camera(seed, DISTRACTORS)
    rng = np.random.default_rng([seed, 5])

    def view(event: Event | None, disturbed: bool) -> NDArray[np.float32]:
        time = float(rng.uniform(0, 10_000))
        return camera.shaken(world.clean_frame(event, time), rng) if disturbed else world.clean_frame(event)

    views = [view(None, number != CALM) for number in range(QUIET_VIEWS)]
    for thing in THINGS:
        for colour in COLOURS:
            views.append(view(Event(0.0, 1.0, thing, colour, *place(rng)), bool(rng.integers(2))))
    return np.stack(views).astype(np.uint8)


def _jpeg(pictures: Tensor, quality: int) -> Tensor:
    """Through JPEG and back, uint8 [n, 3, 32, 32]. Stacked into one tall file: blocks of 8 never straddle pictures."""
    count = len(pictures)
    tall = pictures.permute(0, 2, 3, 1).reshape(count * SIDE, SIDE, 3)
    buffer = io.BytesIO()
    Image.fromarray(tall.numpy()).save(buffer, "JPEG", quality=quality, subsampling=0)
    back = torch.from_numpy(np.asarray(Image.open(buffer)).copy())
    return back.view(count, SIDE, SIDE, 3).permute(0, 3, 1, 2)
