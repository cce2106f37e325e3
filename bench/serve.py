"""Many sequences in one graph: tokens per second in all, by how many run at once, without a server.

Run: python -m bench.serve [--shape 1b] [--sequences 1,8,32,64] [--prompt 256] [--tokens 256] [--activations int8]

Every sequence has its own prompt of random tokens; decode counts the steps in which all of them decode, and the
whole is all tokens over all the time, prompts included.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from bench.rows import numbers
from liveshape.device.backends import open_device
from liveshape.device.protocol import Device
from liveshape.llm.batch.loading import PAGE_SIZE
from liveshape.llm.batch.pages import PagePool
from liveshape.llm.batch.runner import BatchRunner
from liveshape.llm.batch.scheduler import Scheduler, Sequence, Step
from liveshape.llm.sampling_settings import Sampling
from liveshape.lower.activations import ACTIVATIONS
from liveshape.tools.measuring.capacity import random_batch
from liveshape.tools.measuring.random_llamas import SHAPES

WARM_TOKENS = 64


@dataclass(frozen=True)
class Found:
    """What one run of some sequences took."""

    sequences: int
    prefill: float  # seconds until all decode
    decode: float  # tokens per second in all
    whole: float  # tokens per second in all, prompts included in the time
    step: float  # median seconds of a decode step


def runner_of(shape: str, device: Device, sequences: int, context: int, activations: str, half: bool) -> BatchRunner:
    """A runner of random weights with room for all sequences at that context."""
    pages = sequences * (-(-context // PAGE_SIZE) + 1)
    made = random_batch(
        shape, device, sequences=sequences, context=context, half=half, activations=activations, pages=pages
    )
    return BatchRunner(made, device)


def measured(runner: BatchRunner, sequences: int, prompt: int, tokens: int, seed: int) -> Found:
    """Run so many sequences to their end."""
    bounds = runner.bounds
    pool = PagePool(bounds.pages, bounds.page_size)
    scheduler = Scheduler(pool, bounds.rows, sequences)
    draw = np.random.default_rng(seed)
    for _ in range(sequences):
        scheduler.add(Sequence(draw.integers(1, 1000, prompt).tolist(), prompt + tokens))
    flight: tuple[Step, Any] | None = None
    begin = time.perf_counter()
    times: list[float] = []  # when the tokens of a step were read
    all_decode: list[int] = []  # these steps, in which all sequences decode
    generated = 0
    while scheduler.running or scheduler.waiting:
        step = scheduler.schedule()
        pending = runner.submit(step, [Sampling()] * step.lines) if step is not None else None
        if flight is not None:
            for sequence in scheduler.read(flight[0], flight[1].result()[0].reshape(-1).tolist()):
                generated += 1
                if len(sequence.tokens) == sequence.limit:
                    scheduler.finish(sequence)
            if flight[0].rows == flight[0].lines == sequences:
                all_decode.append(len(times))
            times.append(time.perf_counter())
        flight = None if step is None else (step, pending)
    steps = np.diff(times)[all_decode[1:][0] - 1 : all_decode[-1]] if len(all_decode) > 1 else np.diff(times)
    return Found(
        sequences,
        times[all_decode[0]] - begin if all_decode else times[-1] - begin,
        sequences / float(steps.mean()),
        generated / (times[-1] - begin),
        float(np.median(steps)),
    )


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", choices=SHAPES, default="1b")
    parser.add_argument("--sequences", type=numbers, default=[1, 8, 32, 64])
    parser.add_argument("--prompt", type=int, default=256)
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--activations", choices=ACTIVATIONS, default="float32")
    parser.add_argument("--half-cache", action="store_true")
    parser.add_argument("--repetitions", type=int, default=2)
    given = parser.parse_args(arguments)
    device = open_device()
    most, context = max(given.sequences), given.prompt + given.tokens
    runner = runner_of(given.shape, device, most, context, given.activations, given.half_cache)
    measured(runner, most, given.prompt, WARM_TOKENS, 0)
    table = Table("sequences", "prefill of all, ms", "decode, tokens/s", "whole, tokens/s", "step, ms")
    for count in given.sequences:
        runs = [measured(runner, count, given.prompt, given.tokens, 1 + turn) for turn in range(given.repetitions)]
        best = max(runs, key=lambda run: run.decode)
        cells = f"{best.prefill * 1e3:,.1f}", f"{best.decode:,.0f}", f"{best.whole:,.0f}", f"{best.step * 1e3:.3f}"
        table.add_row(str(count), *cells)
    Console().print(f"{device.name}, {given.shape}, {given.activations}, prompts of {given.prompt}", table)


if __name__ == "__main__":
    main()
