"""The picture of what is held."""

from __future__ import annotations

import dataclasses
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from families import family_backbone
from longtake.engine import Engine
from longtake.errors import LongtakeError
from longtake.report import layers as picture
from longtake.report.canvas import EMPTY, FAINTEST, HELD, draw_strip, require_writable
from longtake.report.holdings import AGES, Holdings, LayerHolding, held_shares, take_stock
from longtake.report.layers import FOLDED, PAID, draw_layers
from longtake.report.timeline import Mark, draw_timeline, held_share
from longtake.session import Session
from models import noise, random_backbone


def test_shares_tell_which_chunks_are_held() -> None:
    session = Engine(random_backbone()).open("recency", 60)
    for i, frame in enumerate(noise(60, seed=70)):
        session.push(frame, i * 0.5)
    shares = held_share(session)
    assert len(shares) == session.chunks == 30
    ledger = session.memory.ledger
    assert {c for c in range(30) if shares[c] > 0} == set(ledger["chunk"][ledger["patch"] >= 0].tolist())
    assert shares[-1] > 0.8


def test_a_stream_that_forgot_nothing_is_whole_everywhere() -> None:
    """Seen to fail when timestamps count: their length grows with the time."""
    session = Engine(random_backbone()).open("full")
    for i, frame in enumerate(noise(24, seed=71)):
        session.push(frame, i * 100.0)
    assert held_share(session).tolist() == [1.0] * 12


@given(st.integers(1, 5000), st.data())
def test_a_lone_chunk_is_seen_however_long_the_stream(chunks: int, data: st.DataObject) -> None:
    """Seen to fail when columns show the last instead of the fullest of their chunks."""
    lone = data.draw(st.integers(0, chunks - 1))
    shares = np.zeros(chunks)
    shares[lone] = 1.0
    image = Image.new("RGB", (700, 10))
    draw_strip(image, shares, (0, 0, 700, 10))
    row = np.asarray(image)[5]
    dark = np.flatnonzero((row == HELD).all(axis=1))
    assert len(dark) >= 1
    assert abs(dark.mean() - (lone + 0.5) * 700 / chunks) <= 1.5 + 350 / chunks
    assert ((row == HELD).all(axis=1) | (row == EMPTY).all(axis=1)).all()


def test_a_picture_of_any_stream_can_be_drawn(tmp_path: Path) -> None:
    marks = [Mark(1.0, 2.0, "red circle", (255, 0, 0)), Mark(1.5, 2.5, "blue star", (0, 0, 255))]
    path = draw_timeline({"a": np.zeros(0), "b": np.ones(3)}, 3.0, tmp_path / "new" / "a.png", marks, "title")
    with Image.open(path) as image:
        assert image.format == "PNG"
        assert (np.asarray(image) == (255, 0, 0)).all(axis=2).any(), "the mark bears its colour"


def test_a_picture_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(LongtakeError, match="could not be written"):
        draw_timeline({"a": np.ones(1)}, 1.0, tmp_path / "file" / "a.png")


# Layer by layer ---------------------------------------------------------------------------------------


def watched(policy: str, budget: int | None = None, frames: int = 60, **options: object) -> Session:
    session = Engine(random_backbone()).open(policy, budget, **options)  # type: ignore[arg-type]
    for i, frame in enumerate(noise(frames, seed=72)):
        session.push(frame, i * 0.5)
    return session


def test_each_layer_tells_its_own_chunks() -> None:
    session = watched("hermes", 120, chunk_frames=4)
    first, second = session.memory.ledgers
    assert len(first) != len(second) or first["index"].sort().values.tolist() != second["index"].sort().values.tolist()
    assert session.visual_tokens is not None
    for shares, ledger in zip(held_shares(session), (first, second), strict=True):
        visual = ledger["chunk"][ledger["patch"] >= 0].tolist()
        assert shares.tolist() == [visual.count(chunk) / (2 * session.visual_tokens) for chunk in range(15)]


@pytest.mark.parametrize("family", ["llava_onevision", "qwen2_5_vl", "qwen3_vl"])
def test_a_chunk_held_whole_is_one_in_every_kind_of_family(family: str) -> None:
    session = Engine(family_backbone(family)).open("full", chunk_frames=4)
    for i, frame in enumerate(noise(8, seed=73)):
        session.push(frame, i * 0.5)
    assert (held_shares(session) == 1.0).all()


def test_stock_says_what_the_ledgers_say_and_leaves_no_trace() -> None:
    session = watched("hermes", 120, frames=62, chunk_frames=4)
    before = session.logits("what is there now ?")
    stock = take_stock(session)
    assert (session.logits("what is there now ?") == before).all()
    assert stock.seconds == pytest.approx(session.time + 1 / session.fps)
    assert stock.edges[-1] < stock.seconds, "two frames wait for their chunk"
    assert [layer.number for layer in stock.layers] == [2, 4]
    assert [layer.role for layer in stock.layers] == session.policy.layer_labels(2) == ["middle", "deep"]
    for layer, ledger in zip(stock.layers, session.memory.ledgers, strict=True):
        kinds, times = ledger["kind"].tolist(), ledger["time"].tolist()
        assert layer.tokens == len(kinds)
        assert layer.visual == kinds.count(2)
        assert layer.oldest == min(time for time, kind in zip(times, kinds, strict=True) if kind == 2)
        assert layer.summaries == tuple(sorted(t for t, kind in zip(times, kinds, strict=True) if kind == 4))
    assert not stock.layers[0].summaries
    assert stock.layers[1].summaries, "deep layers fold what they let go"


def test_attention_by_age_is_a_mean_over_the_tokens_of_that_age() -> None:
    """Each layer with its own prompt; a slow reading of the same, token by token."""
    session = watched("hermes", 120, chunk_frames=4)
    stock = take_stock(session)
    prompts = session.policy.guidance_prompts(2)
    assert prompts[0] != prompts[1]
    for number, layer in enumerate(stock.layers):
        (look,) = session.attention([prompts[number]])[number]
        ledger = session.memory.ledgers[number]
        bins: list[list[float]] = [[] for _ in range(AGES)]
        for time, kind, paid in zip(ledger["time"].tolist(), ledger["kind"].tolist(), look.tolist(), strict=True):
            if kind == 2:
                bins[min(int((stock.seconds - time) / stock.seconds * AGES), AGES - 1)].append(paid)
        assert layer.prompt == prompts[number]
        assert layer.attention is not None
        assert [paid is None for paid in layer.attention] == [not paid for paid in bins]
        assert [p for p in layer.attention if p is not None] == pytest.approx(
            [float(np.mean(paid)) for paid in bins if paid], rel=1e-4
        )


def test_without_attention_no_prompt_is_read() -> None:
    stock = take_stock(watched("recency", 60), attention=False)
    assert {(layer.attention, layer.prompt, layer.role) for layer in stock.layers} == {(None, None, "")}


def test_a_stream_without_a_full_chunk_has_nothing_to_show() -> None:
    with pytest.raises(LongtakeError, match=r"after 3 frames, before the first chunk of 4"):
        take_stock(watched("recency", 120, frames=3, chunk_frames=4))


def holdings(attention: bool = True, roles: tuple[str, ...] = ("shallow", "deep"), seconds: float = 10.0) -> Holdings:
    """Ten chunks of one second; the layers hold one chunk each, the last also a summary at 7 seconds."""
    layers = [
        LayerHolding(
            number=number,
            role=role,
            tokens=40,
            visual=30,
            shares=tuple(float(chunk == number + 1) for chunk in range(10)),
            oldest=1.0,
            summaries=(7.0,) if number == len(roles) - 1 else (),
            attention=(0.25, None, *[0.0] * (AGES - 3), 0.5) if attention else None,
        )
        for number, role in enumerate(roles)
    ]
    edges = tuple(float(second) for second in range(11))
    return Holdings("toy", "hermes", {}, 50, seconds, 20, 10, 400, edges, tuple(layers))


def pixels(stock: Holdings, path: Path) -> np.ndarray:
    with Image.open(draw_layers(stock, path, "title")) as image:
        return np.asarray(image)


def places(image: np.ndarray, colour: tuple[int, int, int], row: tuple[int, int]) -> np.ndarray:
    """The columns of a row of the picture in which a colour is found."""
    return np.flatnonzero((image[row[0] : row[1]] == colour).all(axis=2).any(axis=0))


def test_the_picture_of_layers_has_everything_at_its_place(tmp_path: Path) -> None:
    stock = holdings()
    image = pixels(stock, tmp_path / "a.png")
    rows, _ = picture._rows(stock)
    left = picture.MARGIN + picture.ROLES + picture.NUMBERS
    right = picture.WIDTH - picture.MARGIN - picture.LARGEST - picture.LOOKS - picture.APART
    second = (right - left) / 10
    for number, row in enumerate(rows):
        held = places(image, HELD, row)
        assert held[[0, -1]] == pytest.approx([left + (number + 1) * second, left + (number + 2) * second], abs=1.5)
        bars = places(image, PAID, row) - (right + picture.APART)
        assert bars[0] == 0
        assert bars[-1] >= picture.LOOKS - 4
        assert len(bars) == pytest.approx(2 * picture.LOOKS / AGES, abs=6), "two ages are looked at"
        heights = (image[row[0] : row[1]] == PAID).all(axis=2).sum(axis=0)[right + picture.APART + bars[[0, -1]]]
        assert heights[0] == pytest.approx(heights[1] / 2, abs=1), "half the attention, half the height"
    assert not len(places(image, FOLDED, rows[0]))
    assert places(image, FOLDED, rows[1]).mean() == pytest.approx(left + 7 * second, abs=1)


def test_what_is_not_there_is_not_drawn(tmp_path: Path) -> None:
    without = holdings(attention=False, roles=("",))
    without = dataclasses.replace(without, layers=(dataclasses.replace(without.layers[0], summaries=()),))
    image = pixels(without, tmp_path / "a.png")
    for colour in (PAID, FOLDED):
        assert not (image == colour).all(axis=2).any(), "neither in the rows nor in the legend"
    assert (image == HELD).all(axis=2).any()


def test_frames_that_wait_are_neither_held_nor_forgotten(tmp_path: Path) -> None:
    stock = holdings(attention=False, roles=("",), seconds=20.0)
    row = picture._rows(stock)[0][0]
    image = pixels(stock, tmp_path / "a.png")
    left, right = picture.MARGIN + picture.NUMBERS, picture.WIDTH - picture.MARGIN - 12
    assert places(image, EMPTY, row)[-1] == pytest.approx((left + right) / 2, abs=2)
    assert places(image, HELD, row)[0] == pytest.approx(left + (right - left) / 20, abs=2)


def test_rows_never_overlap_however_many_layers(tmp_path: Path) -> None:
    for count in (1, 3, 28, 80):
        stock = holdings(roles=("shallow", *["middle"] * count, "deep"))
        rows, bottom = picture._rows(stock)
        assert all(end < top for (_, end), (top, _) in pairwise(rows))
        assert all(end - top >= 14 for top, end in rows), "a label fits"
        image = pixels(stock, tmp_path / f"{count}.png")
        assert image.shape[0] > bottom + 2 * picture.LINE


def test_one_token_of_many_can_still_be_seen() -> None:
    image = Image.new("RGB", (10, 4))
    draw_strip(image, np.array([0.0, 0.001]), (0, 0, 10, 4))
    none, little = np.asarray(image)[0, [0, 9]].astype(int)
    assert tuple(none) == EMPTY
    assert (none - little).max() >= FAINTEST * 100


def test_a_strip_follows_the_edges_it_is_given() -> None:
    image = Image.new("RGB", (100, 4))
    draw_strip(image, np.array([1.0, 0.0]), (0, 0, 100, 4), np.array([0.0, 0.3, 1.0]))
    assert np.flatnonzero((np.asarray(image)[0] == HELD).all(axis=1)).tolist() == list(range(30))


def test_a_place_that_cannot_be_written_is_told_before(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "file" / "a.png", tmp_path):
        with pytest.raises(LongtakeError, match="could not be written"):
            require_writable(path)
    require_writable(tmp_path / "new" / "a.png")
    assert list((tmp_path / "new").iterdir()) == [], "nothing is left behind"
