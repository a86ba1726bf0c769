"""Stage 1: the vision tower learns to name what a chunk of two frames shows, in the words of the vocabulary."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import Qwen3_5ForConditionalGeneration, Qwen3VLProcessor

from longtake.toy.frames import FramePool, batches, patches, weather
from longtake.toy.model import SIDE, TOKENS
from longtake.toy.shapes import COLOURS, SHAPES

_BATCH = 192
_PEAK_RATE = 3e-3
_SHARPNESS = 2.0
_TOKEN_SHARE = 0.3


@dataclass(frozen=True, slots=True)
class Chunks:
    """Labelled chunks. frames: uint8 [n, 2, 3, 32, 32]; shape and colour: int64 [n], one past the last for nothing."""

    frames: Tensor
    shape: Tensor
    colour: Tensor


def encode(model: Qwen3_5ForConditionalGeneration, flat: Tensor) -> Tensor:
    """The tower over many chunks at once: [n, 16, 384] to [n, 4, 128].

    Same weights and result as the library's forward, which walks over the chunks one by one in Python.
    """
    tower = model.model.visual
    count, length, _ = flat.shape
    order = _merge_order(length)
    hidden = tower.patch_embed(flat).view(count, length, -1) + tower.pos_embed.weight[order]
    side = round(length**0.5)
    rotary = tower.rotary_pos_emb(hidden, torch.stack([order // side, order % side], dim=1))
    cos, sin = rotary
    for block in tower.blocks:
        attention = block.attn
        qkv = attention.qkv(block.norm1(hidden)).view(count, length, 3, attention.num_heads, -1)
        query, key, value = qkv.permute(2, 0, 3, 1, 4)
        query, key = (x * cos + _turned(x) * sin for x in (query, key))
        mixed = F.scaled_dot_product_attention(query, key, value).transpose(1, 2).reshape(count, length, -1)
        hidden = hidden + attention.proj(mixed)
        hidden = hidden + block.mlp(block.norm2(hidden))
    merged = tower.merger(hidden)
    assert isinstance(merged, Tensor)
    return merged.view(count, length // TOKENS, -1)


def draw_chunks(pool: FramePool, count: int, generator: torch.Generator) -> Chunks:
    """Random chunks: a shape in both frames, in the second only or in the first only, or an empty scene."""

    def pick(high: int) -> Tensor:
        return torch.randint(high, (count,), generator=generator)

    scene, shape, colour = pick(len(pool.quiet)), pick(len(SHAPES)), pick(len(COLOURS))
    event, quiet = pool.events[scene, shape, colour], pool.quiet[scene]
    phase = torch.rand(count, generator=generator)[:, None]
    # Both frames 70 %, the first alone 12 %, the second alone 12 %, neither 6 %.
    present = torch.cat([phase < 0.82, (phase < 0.7) | ((phase >= 0.82) & (phase < 0.94))], dim=1)
    frames = torch.where(present[:, :, None, None, None], event[:, None], quiet[:, None])
    shown = present.any(dim=1)
    return Chunks(
        weather(frames, generator),
        torch.where(shown, shape, len(SHAPES)),
        torch.where(shown, colour, len(COLOURS)),
    )


def train_vision(
    model: Qwen3_5ForConditionalGeneration,
    processor: Qwen3VLProcessor,
    pool: FramePool,
    steps: int,
    seed: int,
    report: Callable[[int, float], None],
) -> None:
    """Train tower and word embeddings together; the features end up near the words for what they show."""
    generator = torch.Generator().manual_seed(seed)
    embedding = _words(model)
    parameters = [*model.model.visual.parameters(), embedding]
    optimizer = torch.optim.AdamW(parameters, lr=_PEAK_RATE, weight_decay=0.05)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, _PEAK_RATE, total_steps=steps, pct_start=0.2)
    shapes, colours = _word_ids(processor, SHAPES), _word_ids(processor, tuple(COLOURS))
    for step in range(steps):
        chunks = draw_chunks(pool, _BATCH, generator)
        features = encode(model, patches(processor, chunks.frames))
        loss = torch.zeros(())
        for words, target in ((shapes, chunks.shape), (colours, chunks.colour)):
            scores = _SHARPNESS * features @ embedding[words].T
            loss = loss + F.cross_entropy(scores.mean(dim=1), target)
            loss = loss + _TOKEN_SHARE * F.cross_entropy(scores.flatten(0, 1), target.repeat_interleave(TOKENS))
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        schedule.step()
        report(step, loss.item())


@torch.no_grad()
def vision_accuracy(
    model: Qwen3_5ForConditionalGeneration, processor: Qwen3VLProcessor, pool: FramePool, seed: int, count: int = 4096
) -> dict[str, float]:
    """Share of `count` random chunks of `pool` whose shape and colour the features name."""
    chunks = draw_chunks(pool, count, torch.Generator().manual_seed(seed))
    embedding = _words(model)
    right = {"shape": 0, "colour": 0}
    for part in batches(len(chunks.frames), 512):
        features = encode(model, patches(processor, chunks.frames[part])).mean(dim=1)
        for name, words, target in (
            ("shape", SHAPES, chunks.shape[part]),
            ("colour", tuple(COLOURS), chunks.colour[part]),
        ):
            guess = (features @ embedding[_word_ids(processor, words)].T).argmax(dim=-1)
            right[name] += int((guess == target).sum())
    return {name: count / len(chunks.frames) for name, count in right.items()}


def _words(model: Qwen3_5ForConditionalGeneration) -> torch.nn.Parameter:
    weight = model.get_input_embeddings().weight
    assert isinstance(weight, torch.nn.Parameter)
    return weight


def _word_ids(processor: Qwen3VLProcessor, words: tuple[str, ...]) -> Tensor:
    return torch.tensor(processor.tokenizer.convert_tokens_to_ids([*words, "nothing"]))


def _merge_order(length: int) -> Tensor:
    """Row-major index of each patch in the order in which the tower gets them: merged 2x2 blocks together."""
    side = round(length**0.5)
    grid = torch.arange(length).view(side // 2, 2, side // 2, 2)
    return grid.permute(0, 2, 1, 3).reshape(-1)


def _turned(x: Tensor) -> Tensor:
    first, second = x.chunk(2, dim=-1)
    return torch.cat((-second, first), dim=-1)


assert SIDE % 16 == 0
