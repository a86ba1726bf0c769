"""HERMES' parts, each by itself and at work on a stream."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from families import FAMILIES, family_backbone
from longtake.backbones.backbone import Backbone
from longtake.engine import Engine
from longtake.errors import LongtakeError
from longtake.kv.ledger import Kind
from longtake.policies.hermes import Hermes, HermesLlava, HermesQwen
from longtake.policies.registry import make_policy
from longtake.policies.signals.guidance import GLOBAL, LOCAL, Prompts, conversation
from longtake.policies.signals.roles import normalised, recency, smoothed
from longtake.session import Session
from models import noise

QUESTION = "What colour was the circle?"


def watched(backbone: Backbone, frames: int, **options: Any) -> Session:
    """A stream in chunks of two temporal steps, with the smallest room that works unless said otherwise."""
    step = backbone.frames_per_step
    policy = Hermes(**{"budget": 60, "chunk": 2 * step, **options})
    session = Engine(backbone).open(policy)
    for i, frame in enumerate(noise(frames, seed=71, size=(60, 90))):
        session.push(frame, i * 0.5)
    return session


# Scores ---------------------------------------------------------------------------------------------------


def test_layers_are_split_as_in_the_code_of_28_layers() -> None:
    parts = Hermes(100).parts(28)
    assert [parts.count(part) for part in ("shallow", "middle", "deep")] == [2, 17, 9]
    nearest = Hermes(100, rounding="nearest").parts(28)
    assert [nearest.count(part) for part in ("shallow", "middle", "deep")] == [3, 17, 8]
    assert Hermes(100).parts(1) == ["deep"], "a single attention layer remembers for long"
    assert Hermes(100, roles="shallow").parts(3) == ["shallow"] * 3


@pytest.mark.parametrize(
    ("variant", "omega_0", "gamma", "k"),
    [(Hermes, 0.75, 0.6, 8.0), (HermesLlava, 1.0, 0.9, 0.5), (HermesQwen, 0.75, 0.6, 8.0)],
)
def test_scores_are_equations_1_to_4_written_out(variant: type[Hermes], omega_0: float, gamma: float, k: float) -> None:
    policy = variant(100, smoothing="off")
    parts, n = policy.parts(28), 11
    paid = [torch.rand(n, generator=torch.Generator().manual_seed(layer)) for layer in range(28)]
    scores = policy.scores(paid, parts)

    def minmax(values: list[float]) -> list[float]:
        return [(v - min(values)) / (max(values) - min(values) + 1e-6) for v in values]

    for layer in range(28):
        p = (layer - 2) / 17
        omega = 1.0 if layer < 2 else 0.0 if layer > 18 else omega_0 - gamma * p
        rate = 20 - (20 - k) * p if parts[layer] == "middle" else 20.0
        new = minmax([math.exp(-rate * (n - 1 - i) / (n - 1)) for i in range(n)])
        seen = minmax(paid[layer].tolist())
        expected = [omega * a + (1 - omega) * b for a, b in zip(new, seen, strict=True)]
        assert scores[layer].tolist() == pytest.approx(expected, abs=1e-5)


def test_smoothing_takes_raw_scores_in_the_paper_and_smoothed_ones_in_the_code() -> None:
    raw = [torch.tensor([1.0, 0.0]), torch.tensor([0.0, 1.0]), torch.tensor([1.0, 1.0])]
    weight = [0.1, 0.3, 0.4]
    paper, code = smoothed(raw, weight, cascade=False), smoothed(raw, weight, cascade=True)
    assert paper[0].tolist() == pytest.approx([0.9, 0.1])
    assert paper[1].tolist() == code[1].tolist() == pytest.approx([0.3, 1.0])
    assert code[0].tolist() == pytest.approx([0.9 + 0.1 * 0.3, 0.1])
    assert torch.equal(paper[2], raw[2]), "the deepest layer has none above it"


def test_smoothing_between_layers_of_different_lengths_interpolates() -> None:
    blended = smoothed([torch.zeros(4), torch.tensor([0.0, 1.0])], [0.5, 0.5], cascade=False)
    assert blended[0].tolist() == pytest.approx([0.0, 0.125, 0.375, 0.5])


def test_normalisations() -> None:
    score = torch.tensor([1.0, 3.0])
    assert normalised(score, "min-max").tolist() == pytest.approx([0, 1], abs=1e-5)
    assert normalised(score, "sum").tolist() == pytest.approx([0.25, 0.75], abs=1e-5)
    assert normalised(score, "none") is score
    assert recency(1, 20.0).tolist() == [1.0]


def test_budgets_follow_the_weights_and_their_sum_stays() -> None:
    policy = Hermes(100, weights=(2.0, 1.0, 1.0))
    budgets = policy.budgets(28)
    assert sum(budgets) == 2800
    assert budgets[0] > 1.9 * budgets[5] > 100
    assert Hermes(100).budgets(28) == [100] * 28


# Prompts --------------------------------------------------------------------------------------------------


def test_prompts_have_the_published_wording() -> None:
    plain = Prompts.after(None)
    assert (
        plain.local
        == LOCAL
        == (
            "Describe the current scene in detail, focusing on specific objects, fine-grained actions, and spatial "
            "relationships."
        )
    )
    assert plain.joined == f"{LOCAL}; {GLOBAL}"
    spoken = Prompts.after("what is it? a cat")
    assert spoken.local == f"Find recent details related to: what is it? a cat. {LOCAL}"
    assert spoken.overall == f"Context summary: what is it? a cat. {GLOBAL}"


@pytest.mark.parametrize(
    ("question", "answer", "line"),
    [
        ("What is it?", "A cat.", "What is it? A cat"),
        ("What is it?\nA. a dog\nB. a cat", "B", "What is it? a cat"),
        ("What is it? (A) a dog (B) a cat", "(B)", "What is it? a cat"),
        ("What is it? A) a dog B) a cat", "B. a cat", "What is it? a cat"),
        ("What is it?\nA. a dog\nB. a cat", "I cannot tell", "What is it? I cannot tell"),
        ("What is it?\nA. a dog\nB. a cat", "Both", "What is it? Both"),
    ],
)
def test_a_letter_becomes_the_options_text(question: str, answer: str, line: str) -> None:
    assert conversation(question, answer) == line


def prompts_asked(session: Session, frames: int) -> list[list[int]]:
    """The token ids that the policy hands to its probe while more frames come in."""
    asked: list[list[int]] = []
    probe = session.policy._probe
    attention = probe.attention

    def spy(prompts: Any, guidance: Any) -> Any:
        asked.extend(list(prompt) for prompt in prompts)
        return attention(prompts, guidance)

    probe.attention = spy  # type: ignore[method-assign]
    start = session.frames
    for i, frame in enumerate(noise(start + frames, seed=71, size=(60, 90))[start:], start):
        session.push(frame, i * 0.5)
    del probe.attention
    return asked


@pytest.mark.parametrize("history", [True, False])
def test_the_last_question_and_the_models_own_answer_go_into_the_prompts(
    full_attention: Backbone, history: bool
) -> None:
    session = watched(full_attention, 12, history=history)
    answer = session.ask("was the circle shown ?", max_new_tokens=2)
    spoken = Prompts.after(conversation("was the circle shown ?", answer.text) if history else None)
    asked = prompts_asked(session, 8)
    assert full_attention.ids(spoken.overall) in asked
    assert all(ids != full_attention.ids(Prompts.after(None).overall) for ids in asked) or not history


def test_without_history_a_question_leaves_no_trace(full_attention: Backbone) -> None:
    """With it, it may: the paper's own design, told in the policy's description."""
    asked, silent = (watched(full_attention, 12, history=False) for _ in range(2))
    asked.ask(QUESTION, max_new_tokens=2)
    for i, frame in enumerate(noise(24, seed=71, size=(60, 90))[12:], 12):
        asked.push(frame, i * 0.5)
        silent.push(frame, i * 0.5)
    assert torch.equal(asked.logits(QUESTION), silent.logits(QUESTION))


# At work --------------------------------------------------------------------------------------------------


@pytest.fixture(params=FAMILIES)
def family(request: pytest.FixtureRequest) -> Backbone:
    return family_backbone(request.param)


def room(family: Backbone) -> int:
    """A budget for a few chunks: without words between them Qwen2-VL's are small."""
    return 40 if family.family.startswith("Qwen2") else 100


@pytest.mark.parametrize("variant", ["hermes", "hermes-llava", "hermes-qwen"])
def test_every_variant_runs_on_every_family_within_its_budgets(family: Backbone, variant: str) -> None:
    policy: Any = make_policy(variant, room(family), {"chunk": 2 * family.frames_per_step, "weights": (1.0, 1.5, 1.0)})
    session = Engine(family).open(policy)
    layers = len(session.memory.slabs)
    opening = session.memory.held
    for i, frame in enumerate(noise(28, seed=72, size=(60, 90))):
        session.push(frame, i * 0.5)
    budgets = policy.budgets(layers)
    for slab, ledger, budget, part in zip(
        session.memory.slabs, session.memory.ledgers, budgets, policy.parts(layers), strict=True
    ):
        kinds = ledger["kind"]
        assert slab.length == len(ledger) == opening + budget
        assert int((kinds == int(Kind.SYSTEM)).sum()) == opening
        assert bool((kinds == int(Kind.SUMMARY)).any()) == (part == "deep")
    assert session.ask(QUESTION, max_new_tokens=2).tokens >= 1
    assert session.logits(QUESTION).isfinite().all()


def test_the_newest_token_follows_the_summary(family: Backbone) -> None:
    """Positions go on after the largest one held, whatever stands there. Seen to fail without `resume`."""
    session = watched(family, 16, budget=room(family))
    reach = session.memory.reach
    segment_start = session._cursor.position
    assert segment_start > int(reach.max()) or not session.memory.evictions
    before = session.memory._next_index
    for i, frame in enumerate(noise(16 + 2 * family.frames_per_step, seed=71, size=(60, 90))[16:], 16):
        session.push(frame, i * 0.5)
    for ledger in session.memory.ledgers:
        fresh = ledger["index"] >= before
        old = ~fresh & (ledger["kind"] != int(Kind.SYSTEM))
        if fresh.any() and old.any():
            assert int(ledger["position"][fresh, 0].min()) > int(ledger["position"][old, 0].max())


def test_eager_reindexing_leaves_no_gaps_and_keys_where_their_positions_say(family: Backbone) -> None:
    """Ranks on every axis; each key is its original turned once, however often it was moved."""
    session = watched(family, 32, budget=room(family), reindex="eager")
    assert session.memory.reindexed == session.memory.evictions > 3
    for slab, ledger in zip(session.memory.slabs, session.memory.ledgers, strict=True):
        position = ledger["position"]
        stream = ledger["kind"] != int(Kind.SYSTEM)
        prefix = int(position[~stream].max()) + 1
        for axis in range(family.axes):
            values = position[stream, axis].unique().tolist()
            assert values == list(range(prefix, prefix + len(values)))
        once = family.rotation.move(slab.originals, ledger["home"], position)
        moved = (position != ledger["home"]).any(dim=1)
        assert moved.any()
        torch.testing.assert_close(slab.keys[:, :, moved], once[:, :, moved], atol=0, rtol=0)


def test_lazy_reindexing_keeps_a_long_stream_within_the_models_limit(
    full_attention: Backbone, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A limit of 150 stands for 32,768. Seen to fail with `reindex="off"`."""
    monkeypatch.setattr(type(full_attention), "longest", 150)
    chunk = 20  # tokens and positions of a chunk of four frames here

    def largest(reindex: Any) -> int:
        session = watched(full_attention, 4, reindex=reindex, margin=50)
        most = 0
        for i, frame in enumerate(noise(120, seed=71, size=(60, 90))[4:], 4):
            session.push(frame, i * 0.5)
            most = max(most, session.memory.span)
        return most

    assert largest("lazy") <= 100 + chunk
    assert largest("off") > 150


def test_slack_evicts_seldom_and_then_back_to_the_budget(full_attention: Backbone) -> None:
    tight, slack = watched(full_attention, 4), watched(full_attention, 4, slack=90)
    lengths = []
    for i, frame in enumerate(noise(100, seed=71, size=(60, 90))[4:], 4):
        tight.push(frame, i * 0.5)
        slack.push(frame, i * 0.5)
        lengths.append(slack.memory.held)
    assert slack.memory.evictions * 3 < tight.memory.evictions
    opening = int((tight.memory.ledgers[0]["kind"] == int(Kind.SYSTEM)).sum())
    assert max(lengths) <= opening + 60 + 90
    assert tight.memory.held == opening + 60


def test_parts_can_be_switched_off(full_attention: Backbone) -> None:
    session = watched(full_attention, 24, summary=False, smoothing="off", reindex="off", roles="shallow")
    for ledger in session.memory.ledgers:
        assert not (ledger["kind"] == int(Kind.SUMMARY)).any()
        stream = ledger["kind"] != int(Kind.SYSTEM)
        newest = ledger["index"][stream].sort().values
        assert newest.tolist() == list(range(session.memory.seen - 60, session.memory.seen)), "recency alone"


def test_two_streams_of_the_same_frames_hold_the_same(full_attention: Backbone) -> None:
    one, two = (watched(full_attention, 30) for _ in range(2))
    for a, b in zip(one.memory.ledgers, two.memory.ledgers, strict=True):
        assert torch.equal(a["index"], b["index"])


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"shallow": 0.8, "deep": 0.3}, "shares of the layers"),
        ({"weights": (1.0, 0.0, 1.0)}, "three numbers above 0"),
        ({"slack": -1}, "0 or more"),
        ({"smoothing": "some"}, "one of raw, cascade, off"),
        ({"summary": "perhaps"}, "true or false"),
        ({"weights": "a,b"}, "numbers with commas"),
    ],
)
def test_what_cannot_be_used_is_told_in_a_sentence(options: dict[str, Any], words: str) -> None:
    with pytest.raises(LongtakeError, match=words):
        make_policy("hermes", 100, options)


def test_options_given_as_text(full_attention: Backbone) -> None:
    policy: Any = make_policy("hermes", 100, {"weights": "2,1,1", "summary": "off", "roles": "deep", "k": "3"})
    assert (policy.weights, policy.summary, policy.roles, policy.k) == ((2.0, 1.0, 1.0), False, "deep", 3.0)


class Stop(BaseException):
    """Stands for a keyboard interrupt."""


@pytest.mark.parametrize("layer", range(2))
def test_an_interrupt_in_the_guidance_loses_nothing(full_attention: Backbone, layer: int) -> None:
    """The chunk is in, nothing is decided; the next step decides first. Seen to fail when the decision is dropped."""
    session, undisturbed = watched(full_attention, 23), watched(full_attention, 24)
    decoder, calls = full_attention.language_model.layers[layer], []

    def stop_at_the_look(*_: Any) -> None:
        calls.append(1)
        if len(calls) == 2:  # the first forward is the chunk's own
            raise Stop

    hook = decoder.register_forward_hook(stop_at_the_look)
    with pytest.raises(Stop):
        session.push(noise(24, seed=71, size=(60, 90))[23], 11.5)
    hook.remove()
    assert session.chunks == undisturbed.chunks
    assert torch.equal(session.logits(QUESTION), undisturbed.logits(QUESTION))
    for mine, theirs in zip(session.memory.ledgers, undisturbed.memory.ledgers, strict=True):
        assert torch.equal(mine["index"], theirs["index"])
