"""Guidance prompts: one packed pass reads what three separate passes of the library's eager attention would."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor

from families import FAMILIES, family_backbone
from longtake.backbones.backbone import Backbone
from longtake.engine import Engine
from longtake.errors import LongtakeError
from longtake.kv.reading import Reading
from longtake.memory import Keep
from longtake.policies.signals.guidance import Prompts
from longtake.probe import Probe, _pack
from longtake.session import Session
from models import noise
from test_invariants import Scattered

QUESTION = "What colour was the circle?"


@pytest.fixture(params=FAMILIES)
def family(request: pytest.FixtureRequest) -> Backbone:
    return family_backbone(request.param)


def watched(backbone: Backbone, uneven: bool = False) -> Session:
    session = Engine(backbone).open(Scattered(4096) if uneven else "full", chunk_frames=2 * backbone.frames_per_step)
    for i, frame in enumerate(noise(8, seed=70, size=(60, 90))):
        session.push(frame, i * 0.5)
    return session


def probe_of(session: Session) -> Probe:
    return Probe(session.backbone, session.memory, lambda: session._cursor)


def prompts_of(backbone: Backbone) -> list[list[int]]:
    texts = Prompts.after("was the circle shown? yes")
    return [backbone.ids(text) for text in (texts.local, texts.joined, texts.overall)]


def eager_attention(session: Session, ids: list[int]) -> list[Tensor]:
    """The library alone: its eager attention with weights put out, over a copy of its own cache. Equal rows only."""
    backbone = session.backbone
    model = copy.deepcopy(backbone.model)
    model.set_attn_implementation({"text_config": "eager"})
    memory, cursor = copy.deepcopy(session.memory), copy.copy(session._cursor)
    position = torch.arange(cursor.position, cursor.position + len(ids))
    held = memory.held
    ledger_rows = backbone.text(ids, cursor).rows
    with memory.appending(ledger_rows) as cache, torch.no_grad():
        output = model.model.language_model(
            inputs_embeds=model.get_input_embeddings()(torch.tensor([ids])),
            position_ids=position.expand(backbone.axes, 1, -1) if backbone.axes > 1 else position[None],
            cache=cache,
            use_cache=True,
            output_attentions=True,
        )
    weights = [layer for layer in output.attentions if layer is not None]
    return [layer[0].mean(dim=(0, 1))[:held] for layer in weights]


def test_a_packed_pass_equals_separate_eager_passes(family: Backbone) -> None:
    """Seen to fail when blocks see each other, and on hybrids when all prompts share one pass."""
    session = watched(family)
    prompts = prompts_of(family)
    packed = probe_of(session).attention(prompts)
    for number, ids in enumerate(prompts):
        for layer, expected in enumerate(eager_attention(session, ids)):
            torch.testing.assert_close(packed[layer][number], expected, atol=1e-5, rtol=0)


def test_layers_of_different_lengths_are_read_each_by_itself(family: Backbone) -> None:
    """One prompt alone is the reference: nothing to pack, nothing to hide."""
    session = watched(family, uneven=True)
    prompts = prompts_of(family)
    lengths = {slab.length for slab in session.memory.slabs}
    assert len(lengths) > 1
    packed = probe_of(session).attention(prompts)
    for number, ids in enumerate(prompts):
        alone = probe_of(session).attention([ids])
        for layer, slab in enumerate(session.memory.slabs):
            assert packed[layer][number].shape == (slab.length,)
            torch.testing.assert_close(packed[layer][number], alone[layer][0], atol=1e-6, rtol=0)


@pytest.mark.parametrize("guidance", ["forward", "embedding"])
def test_a_look_leaves_no_trace(family: Backbone, guidance: Any) -> None:
    looked, silent = watched(family), watched(family)
    before = looked.memory.seen, [slab.length for slab in looked.memory.slabs]
    probe_of(looked).attention(prompts_of(family), guidance)
    assert (looked.memory.seen, [slab.length for slab in looked.memory.slabs]) == before
    for i, frame in enumerate(noise(12, seed=70, size=(60, 90))[8:], 8):
        looked.push(frame, i * 0.5)
        silent.push(frame, i * 0.5)
    assert torch.equal(looked.logits(QUESTION), silent.logits(QUESTION))


def test_the_embedding_shortcut_never_updates_the_hidden_state(family: Backbone) -> None:
    """In the first attention layer of a model without linear ones both ways begin alike; deeper they part."""
    session = watched(family)
    (ids,) = prompts_of(family)[:1]
    short, true = (probe_of(session).attention([ids], way)[:] for way in ("embedding", "forward"))
    model, cursor = family.language_model, copy.copy(session._cursor)
    segment = family.text(ids, cursor)
    number = family.attention_layers[-1]
    layer, slab = model.layers[number], session.memory.slabs[-1]
    captured: dict[str, Tensor] = {}

    def watch(module: Any, query: Tensor, key: Tensor) -> None:
        captured.update(query=query, key=key)

    # A slow look at the deepest layer: its own projections on word embeddings, then a plain softmax.
    keys = slab.keys.clone()

    class Spy(Reading):
        def attend(self, number: int, query: Tensor, key: Tensor, value: Tensor, scaling: float | None) -> Tensor:
            watch(layer, query, key)
            return super().attend(number, query, key, value, scaling)

    spy = Spy([len(ids)], [(0, len(ids))], causal=False)
    with torch.no_grad():
        layer.self_attn(
            hidden_states=layer.input_layernorm(segment.embeddings),
            position_embeddings=model.rotary_emb(segment.embeddings, family._position_ids(segment)),
            attention_mask=None,
            cache=None,
            reading=spy,
        )
    query, own = captured["query"], captured["key"]
    share = query.shape[1] // own.shape[1]
    every = torch.cat((keys, own), dim=2).repeat_interleave(share, dim=1)
    weights = (query @ every.transpose(2, 3) * layer.self_attn.scaling).softmax(-1)
    torch.testing.assert_close(short[-1][0], weights[0].mean(dim=(0, 1))[: slab.length], atol=1e-5, rtol=0)
    assert not torch.allclose(short[-1][0], true[-1][0], atol=1e-4)


def test_a_prompt_with_which_another_begins_has_no_rows_of_its_own() -> None:
    blocks, places = _pack([[1, 2], [1, 2, 3, 4], [5, 2]])
    assert blocks == [[1, 2, 3, 4], [5, 2]]
    assert places == [(0, 2), (0, 4), (1, 2)]


def test_eviction_inside_a_look_is_refused(full_attention: Backbone) -> None:
    session = watched(full_attention)
    with session.memory.untraced(), pytest.raises(RuntimeError, match="checkpoint"):
        session.memory.evict(Keep.shared(torch.arange(4)))
    with pytest.raises(LongtakeError):
        session.ask("")
