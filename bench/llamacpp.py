"""llama.cpp's Vulkan backend as a peer: a folder with a `run.sh` that makes a random Q4_0 model, runs llama-bench and
llama-batched-bench, and leaves their JSON lines. Nothing of llama.cpp is part of this repository.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean
from typing import Any

from liveshape.tools.commands.bench import deviation
from liveshape.tools.measuring.subject import Work

SHAPES = ("1b", "8b")  # that its folder can make
VARIANTS = {"default": "llama.cpp Vulkan", "nocoopmat": "llama.cpp Vulkan, no tensor cores"}
_BATCH_TOKENS = 32  # decoded by each sequence of a batch
_TRIES = 3  # of a noisy run
_SECONDS = 300  # timeout of each of its programs


class NotHere(Exception):
    """Why a peer cannot be measured."""


@dataclass(frozen=True)
class Settings:
    """What to run: prompts, the first of them at each depth, generated tokens and batch sizes."""

    shape: str
    prompts: Sequence[int]
    tokens: int
    depths: Sequence[int]
    rows: Sequence[int]
    rows_depth: int
    repeats: int


@dataclass
class Found:
    """tokens/s of each test, and milliseconds of a decode step by batch size, for each variant.

    `dropped` is what the tests had reached in the run before, which does not count.
    """

    version: str
    speeds: dict[str, dict[str, tuple[float, float]]]
    rows: dict[str, dict[int, float]]
    dropped: dict[str, dict[str, float]] = field(default_factory=dict)


def measure(folder: Path, settings: Settings) -> Found:
    """Run it, on the adapter that its driver names first, each program once before it counts: its first run after a
    start compiles shaders, and takes several times as long. Of the run that counts the first repetition is dropped,
    too: clocks fall while a program loads its model.

    Example: `measure(Path("llamacpp"), settings).speeds["llama.cpp Vulkan"]["pp512"]`.
    """
    script = folder / "run.sh"
    if not script.is_file():
        raise NotHere(f"{folder} has no run.sh")
    if settings.shape not in SHAPES:
        raise NotHere(f"its folder makes {' and '.join(SHAPES)}, not {settings.shape}")
    first, rest = settings.prompts[0], settings.prompts[1:]
    depths = _joined(settings.depths)
    # llama-bench crosses every prompt with every depth, so the longer prompts are a run of their own.
    runs = [{"ONLY": "pp tg batch", "PP": f"{first} -d {depths}"}]
    if rest:
        runs.append({"ONLY": "pp", "PP": _joined(rest)})
    found = Found("", {name: {} for name in VARIANTS.values()}, {}, {name: {} for name in VARIANTS.values()})
    for run in runs:
        cold = _measure_once(script, settings, {**run, "REPS": "1"}, dropped=0)
        tries = (_measure_once(script, settings, run) for _ in range(_TRIES))
        steady = next((each for each in tries if not _scatters(each)), None)
        if steady is None:
            raise NotHere(f"its speeds scatter by more than half of their mean in {_TRIES} runs: the machine is busy")
        found.version = steady.version
        found.rows |= steady.rows
        for name, speeds in steady.speeds.items():
            found.speeds[name] |= speeds
            found.dropped[name] |= {test: speed for test, (speed, _) in cold.speeds[name].items()}
    return found


def _measure_once(script: Path, settings: Settings, run: dict[str, str], dropped: int = 1) -> Found:
    found = Found("", {}, {})
    with tempfile.TemporaryDirectory() as results:
        said = _run(script, settings, {**run, "RES": results})
        for variant, name in VARIANTS.items():
            base = Path(results) / f"{settings.shape}.{variant}"
            lines = [line for what in ("pp", "tg") for line in _lines(Path(f"{base}.{what}.jsonl"))]
            if not lines:
                raise NotHere(f"it gave nothing: {said}")
            found.speeds[name] = speeds_of(lines, dropped)
            found.version = f"{lines[0]['build_commit']} on {lines[0]['gpu_info']}"
            batches = _lines(Path(f"{base}.batch.jsonl"))
            if batches:
                found.rows[name] = steps_of(batches, len(settings.rows))
    return found


def _scatters(found: Found) -> bool:
    return any(deviation > mean / 2 for speeds in found.speeds.values() for mean, deviation in speeds.values())


def speeds_of(lines: Sequence[dict[str, Any]], dropped: int) -> dict[str, tuple[float, float]]:
    """tokens/s and their standard deviation from lines of llama-bench without the first repetitions, by the row names
    of `liveshape bench`.

    >>> speeds_of([{"n_prompt": 512, "n_gen": 0, "n_depth": 64, "samples_ts": [2.0, 7.0, 7.0]}], 1)
    {'pp512 @ d64': (7.0, 0.0)}
    """
    found = {}
    for line in lines:
        counted = line["samples_ts"][dropped:]
        found[Work(line["n_prompt"], line["n_gen"], line["n_depth"]).name] = mean(counted), deviation(counted)
    return found


def steps_of(lines: Sequence[dict[str, Any]], sizes: int) -> dict[int, float]:
    """Milliseconds of a decode step from lines of llama-batched-bench; the first pass over the sizes is a warm-up.

    >>> steps_of([{"pl": 8, "tg": 32, "t_tg": seconds} for seconds in (9.0, 0.32, 0.64)], 1)
    {8: 15.0}
    """
    found: dict[int, list[float]] = {}
    for line in lines[sizes:]:
        found.setdefault(line["pl"], []).append(1e3 * line["t_tg"] / line["tg"])
    return {size: mean(steps) for size, steps in found.items()}


def _run(script: Path, settings: Settings, more: dict[str, str]) -> str:
    environment = {
        **os.environ,
        "MODELS": settings.shape,
        "VARIANTS": " ".join(VARIANTS),
        "FA": "on",
        "REPS": str(settings.repeats + 1),  # the first one is dropped
        "TG": str(settings.tokens),
        "DEPTH": _joined(settings.depths),
        "BATCHES": " ".join(map(str, settings.rows)),
        "BPP": str(settings.rows_depth),
        "BTG": str(_BATCH_TOKENS),
        "TMO": str(_SECONDS),
        "PY": sys.executable,
        **more,
    }
    # The Vulkan loader is whatever this process has.
    done = subprocess.run(["bash", str(script), "none"], env=environment, capture_output=True, text=True, check=False)
    said = (done.stdout + done.stderr).strip().splitlines()
    if done.returncode:
        raise NotHere(f"run.sh ended with {done.returncode}: {' / '.join(said[-3:])}")
    return " / ".join(said[-3:])


def _lines(file: Path) -> list[dict[str, Any]]:
    if not file.is_file():
        return []
    return [json.loads(line) for line in file.read_text().splitlines() if line.startswith("{")]


def _joined(numbers: Sequence[int]) -> str:
    return ",".join(map(str, numbers))
