"""Carries out a plan: encodes each stream once, tries everything on it, and keeps each result as it comes."""

from __future__ import annotations

import multiprocessing as mp
import platform
import queue
import time as clock
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
import transformers

from longtake.backbones.backbone import Backbone
from longtake.backbones.load import load
from longtake.errors import LongtakeError
from longtake.evaluation.presets import Unit
from longtake.evaluation.recording import Recording
from longtake.evaluation.results import Result, Results
from longtake.evaluation.streams import Stream
from longtake.evaluation.trial import Case, try_out

_SAMPLE = 20.0  # seconds of the stream on which the time of everything is estimated
Tell = Callable[[str, float], None]


@contextmanager
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def run(units: Sequence[Unit], results: Results, workers: int, tell: Tell) -> None:
    """Try what is not among the results yet.

    Args:
        workers: processes; with one everything runs in this one. Each computes on one thread, so that figures do not
            depend on the number of cores.
        tell: called with a word on what was done last, and the share of all chunks that are done.

    Raises:
        LongtakeError: for what cannot be loaded or written, or a worker that died.
    """
    left = [unit for unit in (_left(unit, results) for unit in units) if unit.cases]
    total = sum(_work(unit) for unit in left)
    done = 0.0
    for result in _inline(left) if workers == 1 else _spread(left, workers):
        results.add(result)
        done += result["seconds"]
        tell(f"{result['model']}, {result['seconds']:g} s, {result['policy']}", done / total)


@_one_thread()
def estimate(units: Sequence[Unit], results: Results, workers: int) -> float:
    """Seconds that `run` will take, from a try of every policy on a short stream. Larger memories take longer."""
    seconds, sample = 0.0, Stream(_SAMPLE, 0)
    recordings: dict[str, tuple[Recording, float]] = {}
    pace: dict[tuple[str, str, float | None], float] = {}
    for unit in (_left(unit, results) for unit in units):
        if not unit.cases:
            continue
        if unit.model not in recordings:
            backbone = load(unit.model)
            began = clock.perf_counter()
            recordings[unit.model] = _record(backbone, sample), (clock.perf_counter() - began) / _SAMPLE
        recording, encoding = recordings[unit.model]
        seconds += encoding * unit.stream.seconds
        for case in unit.cases:
            key = unit.model, case.label, case.chunk
            if key not in pace:
                began = clock.perf_counter()
                _attempt(recording, sample, Case(case.policy, case.options, case.percent and 50.0, case.chunk))
                pace[key] = (clock.perf_counter() - began) / _SAMPLE
            seconds += pace[key] * unit.stream.seconds
    return seconds / workers


def _inline(units: Sequence[Unit]) -> Iterator[Result]:
    models: dict[str, Backbone] = {}
    with _one_thread():
        for unit in units:
            if unit.model not in models:
                models[unit.model] = load(unit.model)
            yield from _try_all(models[unit.model], unit)


def _spread(units: Sequence[Unit], workers: int) -> Iterator[Result]:
    context = mp.get_context("spawn")
    tasks: Any = context.Queue()
    found: Any = context.Queue()
    for unit in units:
        tasks.put(unit)
    for _ in range(workers):
        tasks.put(None)
    crew = [context.Process(target=_labour, args=(tasks, found), daemon=True) for _ in range(workers)]
    for worker in crew:
        worker.start()
    try:
        waiting = sum(len(unit.cases) for unit in units)
        while waiting:
            try:
                result = found.get(timeout=1.0)
            except queue.Empty:
                if all(worker.exitcode is not None for worker in crew):
                    raise LongtakeError(
                        "The workers died before all was done; what they found is kept. Run the same command again."
                    ) from None
                continue
            if isinstance(result, LongtakeError):
                raise result
            waiting -= 1
            yield result
    finally:
        for worker in crew:
            worker.terminate()
            worker.join()


def _labour(tasks: Any, found: Any) -> None:
    """What a worker process does."""
    transformers.utils.logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    transformers.utils.logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    try:
        for result in _inline(iter(tasks.get, None)):  # type: ignore[arg-type]
            found.put(result)
    except LongtakeError as error:
        found.put(error)
    except KeyboardInterrupt:
        return


def _try_all(backbone: Backbone, unit: Unit) -> Iterator[Result]:
    recording = _record(backbone, unit.stream)
    for case in unit.cases:
        yield _identified(unit.model, unit.stream, case) | {
            **_attempt(recording, unit.stream, case),
            "dtype": backbone.dtype,
            "kernels": backbone.kernels,
            "versions": {
                "python": platform.python_version(),
                "torch": torch.__version__,
                "transformers": transformers.__version__,
            },
        }


def _attempt(recording: Recording, stream: Stream, case: Case) -> Result:
    """What came of it, or the sentence that tells why it cannot be."""
    try:
        return try_out(recording, stream, case)
    except LongtakeError as error:
        return {"error": str(error)}


def _record(backbone: Backbone, stream: Stream) -> Recording:
    return Recording.of(backbone, stream.frames(backbone.default_fps))


def _identified(model: str, stream: Stream, case: Case) -> Result:
    return {
        "model": model,
        "seconds": stream.seconds,
        "seed": stream.seed,
        "number": stream.number,
        "every": stream.every,
        "scenery": stream.scenery,
        "policy": case.label,
        "percent": case.percent,
        "chunk": case.chunk,
    }


def _left(unit: Unit, results: Results) -> Unit:
    cases = tuple(case for case in unit.cases if _identified(unit.model, unit.stream, case) not in results)
    return Unit(unit.model, unit.stream, cases)


def _work(unit: Unit) -> float:
    return unit.stream.seconds * len(unit.cases)
