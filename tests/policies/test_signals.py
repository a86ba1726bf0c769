"""Each signal against its formula written out slowly, on streams that a model really watched."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from longtake.backbones.backbone import Backbone
from longtake.engine import Engine
from longtake.errors import LongtakeError
from longtake.kv.ledger import Kind
from longtake.policies.scored import Scored, _spoken_for
from longtake.policies.signals.guidance import GLOBAL
from longtake.policies.signals.key_difference import key_difference
from longtake.policies.signals.lag import lag_score
from longtake.policies.signals.shelf import SIGNALS
from longtake.policies.signals.vision_queries import pooled, window_attention
from longtake.session import Session
from models import noise, random_backbone
from toy.worlds import pushed

GOLDEN = Path(__file__).parents[3] / "shared" / "golden" / "kvpress_scores.npz"
BUDGET = 120


def watched(backbone: Backbone, score: str, rule: str = "spans", frames: int = 40, **options: str) -> Session:
    """A session that has evicted many times, and just taken a chunk in."""
    session = Engine(backbone).open(
        "scored", BUDGET, policy_options={"score": score, "rule": rule, **options}, chunk_frames=2
    )
    for i, frame in enumerate(noise(frames, seed=7)):
        session.push(frame, i * 0.5)
    return session


def judged(session: Session) -> Tensor:
    """What the signal says of the rows now held, oldest first."""
    policy = session.policy
    assert isinstance(policy, Scored)
    ledger = session.memory.ledger
    return policy._signal.score(session.memory)[ledger["index"].argsort()]


def in_order(session: Session, name: str) -> Tensor:
    ledger = session.memory.ledger
    return ledger[name][ledger["index"].argsort()]


def standardised(heads: list[list[float]]) -> list[float]:
    """Mean over heads of z-scores."""
    rows = np.array(heads, dtype=np.float64)
    return list(((rows - rows.mean(1, keepdims=True)) / rows.std(1, keepdims=True)).mean(0))


@pytest.mark.parametrize("score", SIGNALS)
@pytest.mark.parametrize("rule", ["global", "spans"])
def test_under_every_score_and_rule_the_budget_holds_and_sinks_stay(score: str, rule: str) -> None:
    session = watched(random_backbone(), score, rule)
    index = in_order(session, "index").tolist()
    assert len(index) == BUDGET
    assert index[:4] == [0, 1, 2, 3]
    if rule == "spans":
        window = BUDGET // 8
        assert index[-window:] == list(range(session.memory.seen - window, session.memory.seen))
    assert torch.isfinite(session.logits("what colour was the ring ?")).all()


@pytest.mark.parametrize("score", SIGNALS)
def test_a_score_is_the_same_each_time_it_is_asked_for(score: str) -> None:
    session = watched(random_backbone(), score)
    first, second = judged(session), judged(session)
    assert torch.equal(first.nan_to_num(-1), second.nan_to_num(-1))


def test_recency_under_the_global_rule_is_the_policy_recency() -> None:
    backbone = random_backbone()
    one, two = watched(backbone, "recency", "global"), Engine(backbone).open("recency", BUDGET)
    for i, frame in enumerate(noise(40, seed=7)):
        two.push(frame, i * 0.5)
    # Words that follow their chunk are as old as its middle.
    lone = Engine(backbone).open(
        "scored", BUDGET, policy_options={"score": "recency", "rule": "global", "words": "compete"}
    )
    for i, frame in enumerate(noise(40, seed=7)):
        lone.push(frame, i * 0.5)
    assert torch.equal(in_order(lone, "index"), in_order(two, "index"))
    assert len(set(in_order(one, "index").tolist()) ^ set(in_order(two, "index").tolist())) <= 10


def test_drift_under_spans_is_deltas() -> None:
    backbone = random_backbone()
    one = watched(backbone, "drift", words="compete")
    two = Engine(backbone).open("deltas", BUDGET)
    for i, frame in enumerate(noise(40, seed=7)):
        two.push(frame, i * 0.5)
    assert torch.equal(in_order(one, "index"), in_order(two, "index"))


def test_chance_is_a_number_per_chunk_and_flat_in_time() -> None:
    backbone = random_backbone()
    session = watched(backbone, "random", "global", frames=200)
    chunk, score = in_order(session, "chunk"), judged(session)
    for number in chunk[chunk >= 0].unique():
        assert len(score[chunk == number].unique()) == 1
    old = int((chunk[chunk >= 0] < 50).sum()) / int((chunk >= 0).sum())
    assert 0.2 < old < 0.8


def test_value_norm_is_the_norm_of_the_values() -> None:
    session = watched(random_backbone(), "van")
    order = session.memory.ledger["index"].argsort()
    heads = [
        [float(sum(float(x) ** 2 for x in value) ** 0.5) for value in head]
        for slab in session.memory.slabs
        for head in slab.values[0][:, order]
    ]
    assert judged(session).tolist() == pytest.approx(standardised(heads), rel=1e-4, abs=1e-5)


def test_unturned_keys_are_those_at_position_zero() -> None:
    session = watched(random_backbone(), "keydiff")
    memory = session.memory
    there = memory.ledger["position"]
    for keys, slab in zip(memory.unturned_keys(), memory.slabs, strict=True):
        back = session.backbone.rotation.move(keys[None], torch.zeros_like(there), there)
        assert (back - slab.keys).abs().max() < 1e-4
        assert (keys - slab.keys[0]).abs().max() > 1e-2


def test_key_redundancy_is_the_mean_cosine_with_the_newest_frames_at_the_same_place() -> None:
    session = watched(random_backbone(), "tar")
    memory = session.memory
    order = memory.ledger["index"].argsort()
    frame, patch, kind = (in_order(session, name).tolist() for name in ("frame", "patch", "kind"))
    visual = [i for i, k in enumerate(kind) if k == int(Kind.VISUAL)]
    frames = sorted({frame[i] for i in visual})
    newest = frames[-max(1, round(0.125 * len(frames))) :]
    old = [
        i for i in visual if frame[i] not in newest and any(frame[j] in newest and patch[j] == patch[i] for j in visual)
    ]
    heads = []
    for keys in memory.unturned_keys():
        for head in keys[:, order]:
            unit = head / head.norm(dim=-1, keepdim=True)
            scores = []
            for i in old:
                there = [j for j in visual if frame[j] in newest and patch[j] == patch[i]]
                scores.append(-sum(float(unit[i] @ unit[j]) for j in there) / len(there))
            heads.append(scores)
    found = judged(session)
    assert found[old].tolist() == pytest.approx(standardised(heads), rel=1e-3, abs=1e-4)
    assert all(found[i] == float("inf") for i in visual if frame[i] in newest)
    assert torch.isnan(found[[i for i, k in enumerate(kind) if k == int(Kind.TIMESTAMP)]]).all()


def test_identical_frames_get_the_same_redundancy_however_old(full_attention: Backbone) -> None:
    """Rotated keys would tell the distance: the duplicate-frame test of the field."""
    session = Engine(full_attention).open("scored", 400, policy_options={"score": "tar", "rule": "global"})
    still, other = noise(2, seed=3)
    for i in range(40):
        session.push(other if i // 2 in (4, 9, 14) else still, i * 0.5)
    ledger = session.memory.ledger
    policy = session.policy
    assert isinstance(policy, Scored)
    # The first attention layer's keys depend on a token and its position alone.
    signal = policy._signal
    memory = session.memory
    keys = memory.unturned_keys()[0]
    place = (ledger["patch"] == 0).nonzero().squeeze(1)
    same = {int(ledger["chunk"][row]): keys[:, row] for row in place}
    assert (same[4] - same[9]).abs().max() < 1e-4
    assert (same[2] - same[12]).abs().max() < 1e-4
    assert signal.score(memory).shape == (len(ledger),)


def test_key_difference_is_the_cosine_with_the_mean_key() -> None:
    session = watched(random_backbone(), "keydiff")
    order = session.memory.ledger["index"].argsort()
    heads = []
    for keys in session.memory.unturned_keys():
        for head in keys[:, order].double():
            units = [key / key.norm() for key in head]
            anchor = sum(units) / len(units)  # type: ignore[call-overload]
            heads.append([-float(unit @ anchor / anchor.norm()) for unit in units])
    assert judged(session).tolist() == pytest.approx(standardised(heads), rel=1e-3, abs=1e-4)


def test_lag_ranks_a_chunk_by_the_range_of_the_next() -> None:
    backbone = random_backbone()
    session = Engine(backbone).open("scored", 10_000, policy_options={"score": "lagkv"})
    for i, frame in enumerate(noise(12, seed=7)):
        session.push(frame, i * 0.5)
    memory, chunk = session.memory, session.memory.ledger["chunk"]
    heads = []
    for slab in memory.slabs:
        for part in (slab.keys[0], slab.values[0]):
            for head in part:
                mine, following = head[chunk == 3], head[chunk == 4]
                low, high = following.min(0).values, following.max(0).values
                stds = torch.tensor([float(((x - low) / (high - low)).std()) for x in mine])
                heads.append(stds.softmax(0))
    mean = torch.stack(heads).mean(0)
    ranks = [float((mean < value).sum()) / (len(mean) - 1) for value in mean]
    assert memory.ledger["lagkv"][chunk == 3].tolist() == pytest.approx(ranks)
    assert memory.ledger["lagkv"][chunk == 5].tolist() == [float("inf")] * int((chunk == 5).sum())


def test_vision_queries_are_the_newest_chunk_s_and_see_what_its_forward_saw() -> None:
    """Against the attention of the library's own eager layers over the whole stream."""
    import copy

    from models import one_shot

    backbone = random_backbone()
    session = Engine(backbone).open("scored", 10_000, policy_options={"score": "snapkv"})
    frames = noise(12, seed=7)
    for i, frame in enumerate(frames):
        session.push(frame, i * 0.5)
    model, inputs = one_shot(backbone, frames, [i * 0.5 for i in range(12)], "x ?")
    model = copy.deepcopy(model)
    model.set_attn_implementation("eager")
    with torch.no_grad():
        attentions = [a for a in model(**inputs, output_attentions=True).attentions if a is not None]
    chunk, kind = in_order(session, "chunk"), in_order(session, "kind")
    asking = ((chunk == 5) & (kind == int(Kind.VISUAL))).nonzero().squeeze(1)
    past = (chunk < 5).nonzero().squeeze(1)
    layers = []
    for attention in attentions:
        look = attention[0][:, asking][:, :, past].mean(dim=1)
        smooth = torch.stack(
            [
                torch.stack([sum(row[max(0, i - 2) : i + 3]) / 5 for i in range(len(row))])  # type: ignore[arg-type]
                for row in look
            ]
        )
        layers.append(smooth.mean(dim=0))
    expected = torch.stack(layers).mean(dim=0)
    assert judged(session)[past].tolist() == pytest.approx(expected.tolist(), rel=1e-3, abs=1e-6)


@pytest.mark.parametrize(
    ("score", "ids"), [("guidance", lambda b: b.ids(GLOBAL)), ("proxy", lambda b: b.ids(b.prompt.after_question))]
)
def test_prompted_scores_are_the_attention_of_the_text(score: str, ids: Callable[[Backbone], list[int]]) -> None:
    backbone = random_backbone()
    session = watched(backbone, score)
    with_text = session._retention.probe.attention([ids(backbone)])
    expected = torch.stack([layer[0] for layer in with_text]).mean(dim=0)
    order = session.memory.ledger["index"].argsort()
    assert judged(session).tolist() == pytest.approx(expected[order].double().tolist())


def test_frame_redundancy_compares_with_the_newest_chunk_still_held(toy: Backbone) -> None:
    session = Engine(toy).open("scored", 400, policy_options={"score": "frames"})
    world = pushed(session, seconds=30)
    ledger = session.memory.ledger
    means = []
    for chunk in range(session.chunks):
        segment = toy.encode(world.chunk(chunk), toy.new_cursor())
        visual = segment.rows.kind == int(Kind.VISUAL)
        means.append(segment.embeddings[0, visual].mean(dim=0))
    for chunk in range(1, session.chunks):
        rows = ledger["frames"][ledger["chunk"] == chunk]
        if len(rows):
            cosine = float(means[chunk] @ means[chunk - 1] / means[chunk].norm() / means[chunk - 1].norm())
            assert rows.tolist() == pytest.approx([1 - cosine] * len(rows), abs=1e-5)


def test_write_residuals_add_up_to_the_states_that_the_library_leaves(backbone: Backbone) -> None:
    """The recurrence token by token, from the gates that were overheard, ends in the library's own state."""
    session = watched(backbone, "residual", frames=20)
    memory, before = session.memory, session.memory.states_before
    gates = session._retention._trace.gates
    assert len(gates) == len(memory.linear)
    norms = []
    for gate, state, conv, after in zip(gates, before.recurrent, before.conv, memory.recurrent_states(), strict=True):
        assert state is not None
        key, value = gate.keys_and_values(conv)
        s, written = state[0].clone(), []
        for t in range(len(key)):
            s = s * gate.log_decay[t].exp()[:, None, None]
            known = torch.einsum("hk,hkv->hv", key[t], s)
            u = gate.beta[t][:, None] * (value[t] - known)
            s = s + torch.einsum("hk,hv->hkv", key[t], u)
            written.append(u)
        assert (s - after[0]).abs().max() < 1e-4 * after.abs().max()
        assert (torch.stack(written) - gate.writes(state, conv)).abs().max() < 1e-4
        norms.append([float(u.norm() / state.norm()) for u in written])
    newest = in_order(session, "chunk") == session.chunks - 1
    assert in_order(session, "residual")[newest].tolist() == pytest.approx(np.mean(norms, axis=0).tolist(), rel=1e-3)


def test_words_follow_their_chunk_or_compete(toy: Backbone) -> None:
    for words in ("follow", "compete"):
        session = Engine(toy).open("scored", 150, policy_options={"score": "van", "words": words, "rule": "global"})
        pushed(session, seconds=40)
        ledger = session.memory.ledger
        apart = sum(
            len(set(ledger["index"][(ledger["chunk"] == chunk)].tolist())) for chunk in ledger["chunk"].unique()
        )
        assert apart == 150
        kinds = ledger["kind"] == int(Kind.TIMESTAMP)
        assert (words == "follow") == bool(kinds.sum() > 0.3 * len(kinds)) or words == "compete"


def test_words_that_follow_get_the_mean_score_of_their_chunk_s_pictures() -> None:
    session = watched(random_backbone(), "van", frames=8)
    ledger = session.memory.ledger
    score = torch.arange(len(ledger), dtype=torch.float64)
    words, pictures = (ledger["kind"] == int(kind) for kind in (Kind.TIMESTAMP, Kind.VISUAL))
    followed, alone = _spoken_for(ledger, score, True), _spoken_for(ledger, score, False)
    assert torch.equal(alone, score)
    assert torch.equal(followed[~words], score[~words])
    for chunk in ledger["chunk"][words].unique():
        mine = ledger["chunk"] == chunk
        mean = float(score[mine & pictures].mean())
        assert followed[mine & words].tolist() == pytest.approx([mean] * int((mine & words).sum()))
    silent = torch.where(pictures, score, float("nan"))
    assert torch.equal(_spoken_for(ledger, silent, False)[words], followed[words])
    assert (_spoken_for(ledger, silent, False)[ledger["kind"] == int(Kind.SYSTEM)] == float("inf")).all()


def test_a_signal_of_states_is_refused_where_there_are_none(full_attention: Backbone) -> None:
    for score in ("drift", "residual"):
        with pytest.raises(LongtakeError, match="recurrent states"):
            Engine(full_attention).open("scored", 400, policy_options={"score": score})
    Engine(full_attention).open("scored", 400, policy_options={"score": "van"})


def test_nothing_is_traced_that_nobody_asked_for() -> None:
    session = watched(random_backbone(), "van", frames=6)
    trace = session._retention._trace
    assert trace.features is None
    assert not trace.queries
    assert not trace.gates


@pytest.mark.skipif(not GOLDEN.is_file(), reason="the reference arrays are not part of the project")
def test_the_cores_agree_with_kvpress() -> None:
    case = {name: torch.from_numpy(value) for name, value in np.load(GOLDEN).items()}
    keys, values, queries = case["keys"], case["values"], case["queries"]
    assert torch.allclose(key_difference(keys), case["keydiff"], atol=1e-5)
    count = keys.shape[1]
    places = torch.arange(count)
    attention = window_attention(queries[:, -8:], keys, places[-8:], places)[:, :, :-8]
    assert torch.allclose(attention, case["snapkv_window_attention8"], atol=1e-5)
    smooth = pooled(attention.mean(dim=1), 5).view(2, 2, -1).mean(dim=1)
    assert torch.allclose(smooth, case["snapkv_window8_kernel5"][:, :-8], atol=1e-5)
    expected = case["lagkv_sink4_lag16"]
    for start in range(4, count - 32, 16):
        mine, following = slice(start, start + 16), slice(start + 16, start + 32)
        ours = (lag_score(keys[:, mine], keys[:, following]) + lag_score(values[:, mine], values[:, following])) / 2
        assert torch.equal(ours.argsort(dim=-1).argsort(dim=-1), expected[:, mine].argsort(dim=-1).argsort(dim=-1))
