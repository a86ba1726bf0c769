"""Trains the shipped toy model from nothing: `python -m longtake.toy.train`.

Everything follows from the seed and the numbers of steps. On one core of 2025 it takes about forty-five minutes.
"""

import argparse
import json
import os
import platform
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import torch
import transformers
from transformers import Qwen3_5ForConditionalGeneration, Qwen3VLProcessor

from longtake.errors import LongtakeError
from longtake.toy import WEIGHTS
from longtake.toy.delta import fast_training
from longtake.toy.evaluation import evaluate
from longtake.toy.frames import FramePool, build_frames
from longtake.toy.language_stage import Progress, train_language
from longtake.toy.model import build_model, build_processor
from longtake.toy.script import Script
from longtake.toy.streams import encode_pool
from longtake.toy.vision_stage import train_vision, vision_accuracy

_VISION_STEPS, _LANGUAGE_STEPS = 2200, 1300
_MINUTES = 45
_TRAIN_SCENES, _TEST_SCENES = (1_000_000, 320), (2_000_000, 32)  # first seed and number of backgrounds
_LANGUAGE_SCENES = 128  # of the training backgrounds, whose chunks are encoded for the second stage
_SAVE_EVERY = 100

# Tensors of these sizes are given back to the system and fetched again at every step; keeping them halves the time.
_ENVIRONMENT = {
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TRIM_THRESHOLD_": "100000000000",
    "MALLOC_TOP_PAD_": "268435456",
}


def train(
    seed: int, vision_steps: int, language_steps: int, checkpoint: Path | None, say: Callable[[str], None]
) -> tuple[Qwen3_5ForConditionalGeneration, Qwen3VLProcessor, dict[str, Any]]:
    """Both stages and the evaluation. Returns model, processor and the record that goes beside the weights.

    With `checkpoint`, the state is kept in that file and a run goes on from it.
    """
    began = time.monotonic()
    processor = build_processor()
    model = build_model(processor.tokenizer, seed)
    script = Script(processor)
    train_frames, test_frames = (build_frames(processor, *scenes) for scenes in (_TRAIN_SCENES, _TEST_SCENES))
    state: dict[str, Any] = {}
    if checkpoint is not None and checkpoint.exists():
        state = torch.load(checkpoint, weights_only=True)
        model.load_state_dict(state.pop("model"))
        began -= 60 * state.get("minutes", 0.0)
        say(f"going on from {checkpoint} at step {state.get('step', 0)} of the second stage")
    else:

        def vision_report(step: int, loss: float) -> None:
            if step % 100 == 0:
                say(f"vision step {step}/{vision_steps} loss {loss:.3f} {_minutes(began)}")

        train_vision(model, processor, train_frames, vision_steps, seed, vision_report)
        _keep(checkpoint, model, state, began)
    vision = vision_accuracy(model, processor, test_frames, seed)
    say(f"vision on new backgrounds: {vision}")

    part = FramePool(train_frames.quiet[:_LANGUAGE_SCENES], train_frames.events[:_LANGUAGE_SCENES])
    pool = encode_pool(model, processor, part, seed)
    test_pool = encode_pool(model, processor, test_frames, seed + 1)

    def language_report(progress: Progress) -> None:
        step = progress.step + 1
        if step % 20 == 0:
            say(
                f"language step {step}/{language_steps} grade {progress.grade} loss {progress.loss:.3f} "
                + ", ".join(f"{kind} {share:.3f}" for kind, share in progress.smooth.items())
                + f" {_minutes(began)}"
            )
        if step % _SAVE_EVERY == 0:
            _keep(checkpoint, model, state, began)

    with fast_training():
        train_language(model, script, pool, language_steps, seed, language_report, state)
    _keep(checkpoint, model, state, began)
    model.eval()
    metrics = {"vision": vision} | evaluate(model, script, test_pool, seed)
    record = {
        "seed": seed,
        "steps": {"vision": vision_steps, "language": language_steps},
        "minutes": round((time.monotonic() - began) / 60, 1),
        "versions": {
            "python": platform.python_version(),
            "torch": torch.__version__,
            "transformers": transformers.__version__,
            "numpy": numpy.__version__,
        },
        "metrics": metrics,
    }
    return model, processor, record


def require_both_ends(metrics: dict[str, dict[str, float]]) -> None:
    """Refuse a model that cannot answer, or that answers about colours without its keys and values."""
    full = metrics["128 chunks, full"]["colour"]
    blind = metrics["128 chunks, no keys and values"]["colour"]
    if full < 0.95 or blind > 0.25:
        raise LongtakeError(
            f"The weights are not written: on colours the model is right {full:.0%} of the time (95% needed) and "
            f"{blind:.0%} without keys and values (at most 25% allowed); try another seed or more steps."
        )


def write(folder: Path, model: Qwen3_5ForConditionalGeneration, processor: Qwen3VLProcessor, record: object) -> None:
    """Weights, processor and record into `folder`, which appears only when all of it is there."""
    part = folder.with_name(f".{folder.name}.part-{os.getpid()}")
    old = folder.with_name(f".{folder.name}.old-{os.getpid()}")
    try:
        model.save_pretrained(part)
        processor.save_pretrained(part)
        (part / "training.json").write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
        for file in part.iterdir():
            file.chmod(0o644)
        if folder.exists():
            folder.replace(old)
        part.replace(folder)
    except OSError as error:
        raise LongtakeError(f"The weights could not be written to {folder}: {error}.") from error
    finally:
        shutil.rmtree(part, ignore_errors=True)
        shutil.rmtree(old, ignore_errors=True)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m longtake.toy.train", description=__doc__)
    parser.add_argument("--out", type=Path, default=WEIGHTS, help="folder for the checkpoint (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=_MINUTES, help="scales the numbers of steps")
    parser.add_argument("--checkpoint", type=Path, help="file that keeps the state, to go on after an interruption")
    arguments = parser.parse_args()
    if any(os.environ.get(name) != value for name, value in _ENVIRONMENT.items()):
        # The allocator reads these only when a process starts.
        command = [sys.executable, "-m", "longtake.toy.train", *sys.argv[1:]]
        os.execve(sys.executable, command, os.environ | _ENVIRONMENT)
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    # Another number of threads adds up in another order, and a second one gains little at these sizes.
    torch.set_num_threads(1)
    scale = arguments.minutes / _MINUTES
    vision_steps, language_steps = (max(1, round(steps * scale)) for steps in (_VISION_STEPS, _LANGUAGE_STEPS))
    print(
        f"{vision_steps} + {language_steps} steps, about {arguments.minutes:g} minutes on one core",
        flush=True,
    )
    try:
        model, processor, record = train(
            arguments.seed,
            vision_steps,
            language_steps,
            arguments.checkpoint,
            lambda line: print(line, flush=True),
        )
        for name, scores in record["metrics"].items():
            print(f"{name}: " + ", ".join(f"{key} {value:.3f}" for key, value in scores.items()))
        require_both_ends(record["metrics"])
        write(arguments.out, model, processor, record)
    except LongtakeError as error:
        sys.exit(str(error))
    print(f"{record['minutes']:g} minutes; written to {arguments.out}")


def _keep(checkpoint: Path | None, model: Qwen3_5ForConditionalGeneration, state: dict[str, Any], began: float) -> None:
    if checkpoint is not None:
        state["minutes"] = (time.monotonic() - began) / 60
        part = checkpoint.with_name(checkpoint.name + ".part")
        torch.save({"model": model.state_dict(), **state}, part)
        part.replace(checkpoint)


def _minutes(began: float) -> str:
    return f"({(time.monotonic() - began) / 60:.1f} min)"


if __name__ == "__main__":
    main()
