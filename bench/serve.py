"""Many sequences in one graph: tokens per second in all by how many run at once, and what clients of a server see.

Run: python -m bench.serve [--shape 1b] [--sequences 1,8,32,64] [--prompt 256] [--tokens 256] [--activations int8]
                           [--http] [--long 8192] [--common 2048] [--llamacpp FOLDER] [--deterministic]

Every sequence has its own prompt of random tokens; decode counts the steps in which all of them decode, and the
whole is all tokens over all the time, prompts included. With --http the same comes through the engine and the server,
to clients in another process, with the time to the first token at the most sequences, the longest gap between tokens
while a long prompt arrives, and the prefill of 32 prompts with one beginning. FOLDER is that of bench/llamacpp.py: its
batched decode at the same depth, on the same machine.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers
from rich.console import Console
from rich.table import Table

from bench.llamacpp import Settings, measure
from bench.rows import numbers
from bench.serve_client import RUNNING
from liveshape.device.backends import open_device
from liveshape.device.protocol import Device
from liveshape.graph.activation_kinds import ACTIVATIONS
from liveshape.llm.batch.loading import PAGE_SIZE
from liveshape.llm.batch.pages import PagePool
from liveshape.llm.batch.runner import BatchRunner
from liveshape.llm.batch.scheduler import Scheduler, Sequence, Step
from liveshape.llm.engine.step_period import StepPeriod
from liveshape.llm.program.token_graph import Description
from liveshape.llm.sampling_settings import Sampling
from liveshape.llm.serving.answer_channel import AnswerChannel
from liveshape.llm.serving.batch_engine import BatchEngine
from liveshape.llm.serving.queued_answer import LOCAL
from liveshape.llm.serving.remote_engine import RemoteEngine
from liveshape.llm.text.tokenizer import Tokenizer
from liveshape.program.compile_target import CompileTarget
from liveshape.serve.running import GracefulServer, listening
from liveshape.serve.service import Service
from liveshape.tools.measuring.capacity import random_batch
from liveshape.tools.measuring.random_llamas import SHAPES

WARM_TOKENS = 64
SHARING = 32  # sequences with a common beginning


@dataclass(frozen=True)
class Found:
    """What one run of some sequences took."""

    sequences: int
    prefill: float  # seconds until all decode
    decode: float  # tokens per second in all
    whole: float  # tokens per second in all, prompts included in the time
    step: float  # median seconds of a decode step


@dataclass(frozen=True)
class Asked:
    """What is measured: a model, how many sequences at most, and pages for how many tokens in all."""

    shape: str
    sequences: int
    context: int
    tokens_in_all: int
    activations: str
    half_cache: bool
    deterministic: bool


def runner_of(asked: Asked, device: Device) -> tuple[BatchRunner, Description]:
    """A runner of random weights."""
    target = CompileTarget(device, activations=asked.activations, deterministic=asked.deterministic)
    made, description = random_batch(
        asked.shape,
        target,
        sequences=asked.sequences,
        context=asked.context,
        half=asked.half_cache,
        pages=-(-asked.tokens_in_all // PAGE_SIZE) + asked.sequences,
    )
    return BatchRunner(made, device, limits=target.limits), description


def measured(runner: BatchRunner, sequences: int, prompt: int, tokens: int, seed: int) -> Found:
    """Run so many sequences to their end."""
    bounds = runner.bounds
    pool = PagePool(bounds.pages, bounds.page_size)
    scheduler = Scheduler(pool, bounds.rows, sequences)
    draw = np.random.default_rng(seed)
    for _ in range(sequences):
        scheduler.add(Sequence(draw.integers(1, 1000, prompt).tolist(), prompt + tokens))
    flights: deque[tuple[Step, Any]] = deque()
    period = StepPeriod(runner.device.latency)
    begin = time.perf_counter()
    times: list[float] = []  # when the tokens of a step were read
    all_decode: list[int] = []  # these steps, in which all sequences decode
    generated = 0
    while scheduler.running or scheduler.waiting:
        ahead = 1 if scheduler.waiting else period.steps_ahead(runner.device.steps_ahead)
        while len(flights) <= ahead and (step := scheduler.schedule()) is not None:
            flights.append((step, runner.submit(step, [Sampling()] * step.lines)))
        step, pending = flights.popleft()
        for sequence, lines in scheduler.read(step, pending.result()[0].reshape(-1).tolist()):
            generated += len(lines)
            if len(sequence.tokens) == sequence.limit:
                scheduler.finish(sequence)
        if step.rows == step.lines == sequences:
            all_decode.append(len(times))
        times.append(time.perf_counter())
        period.tick()
    steps = np.diff(times)[all_decode[1:][0] - 1 : all_decode[-1]] if len(all_decode) > 1 else np.diff(times)
    return Found(
        sequences,
        times[all_decode[0]] - begin if all_decode else times[-1] - begin,
        sequences / float(steps.mean()),
        generated / (times[-1] - begin),
        float(np.median(steps)),
    )


def words(size: int) -> Tokenizer:
    """A tokenizer of one word per token, since the weights are random."""
    return Tokenizer(tokenizers.Tokenizer(tokenizers.models.WordLevel({f"w{token}": token for token in range(size)})))


def asked(port: int, scene: str, sequences: int, prompt: int, tokens: int) -> dict[str, float]:
    """What clients in another process saw."""
    options = ["--sequences", str(sequences), "--prompt", str(prompt), "--tokens", str(tokens)]
    command = [sys.executable, "-m", "bench.serve_client", str(port), scene, *options]
    return dict(json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True).stdout))


def engine_of(asked: Asked, channel: AnswerChannel = LOCAL) -> BatchEngine:
    """An engine of such a model."""
    runner, description = runner_of(asked, open_device())
    return BatchEngine(runner, words(description.vocab_size), description, channel=channel)


def through_engine(engine: BatchEngine, sequences: int, prompt: int, tokens: int) -> float:
    """Tokens per second in all while all decode, through the engine and no server."""
    draw = np.random.default_rng(11)
    given = [draw.integers(1, 1000, prompt).tolist() for _ in range(sequences)]
    times: list[list[float]] = [[] for _ in given]

    async def read(ids: list[int], seen: list[float]) -> None:
        async for _ in engine.generate(ids, max_tokens=tokens, temperature=0):
            seen.append(time.perf_counter())

    async def all_of_them() -> None:
        await asyncio.gather(*(read(ids, seen) for ids, seen in zip(given, times, strict=True)))

    asyncio.run(all_of_them())
    start, stop = max(seen[0] for seen in times), min(seen[-1] for seen in times)
    return sum(start < moment <= stop for seen in times for moment in seen) / (stop - start)


@contextmanager
def most_pages(engine: RemoteEngine) -> Iterator[list[int]]:
    """The most pages in use meanwhile."""
    found, done = [0], threading.Event()

    def look() -> None:
        while not done.wait(0.002):
            found[0] = max(found[0], engine.status.pages_in_use)

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield found
    finally:
        done.set()
        thread.join()


def served(engine: RemoteEngine, ask: Callable[[int], None]) -> None:
    """Serve on a free port while clients ask."""
    service = Service(["random"])
    service.engine = engine
    server = GracefulServer(service, grace=0)
    with listening("127.0.0.1", 0) as bound:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [bound]})
        thread.start()
        try:
            ask(bound.getsockname()[1])
        finally:
            server.should_exit = True
            thread.join()


def over_http(engine: RemoteEngine, given: argparse.Namespace, console: Console) -> None:
    """Print what clients of the server see."""
    most = max(given.sequences)
    table = Table("sequences", "server, tokens/s")

    def ask(port: int) -> None:
        asked(port, "decode", most, given.prompt, WARM_TOKENS)
        for count in given.sequences:
            seen = [
                asked(port, "decode", count, given.prompt, given.tokens)["decode"] for _ in range(given.repetitions)
            ]
            table.add_row(str(count), f"{max(seen):,.0f}")
        console.print(table)
        first = asked(port, "first", most, given.prompt, given.tokens)
        console.print(
            f"time to the first token, prompt of {given.prompt}, {first['running']} running: "
            f"{first['first'] * 1e3:.0f} ms (median), {first['worst'] * 1e3:.0f} ms (worst)"
        )
        gap = asked(port, "gap", most, given.long, given.tokens)
        console.print(
            f"longest gap between tokens, {most - 1} running, while a prompt of {given.long:,} arrives: "
            f"{gap['gap'] * 1e3:.0f} ms; its own first token after {gap['first'] * 1e3:.0f} ms"
        )
        with most_pages(engine) as pages:
            common = asked(port, "shared", SHARING, given.common, given.tokens)
        console.print(
            f"common beginning of {given.common:,} tokens, {given.common // PAGE_SIZE} pages: prefill of one "
            f"{common['alone'] * 1e3:.0f} ms, of {SHARING} {common['all'] * 1e3:.0f} ms, in up to {pages[0]} pages"
        )

    served(engine, ask)


def peers(given: argparse.Namespace, console: Console) -> None:
    """Print the batched decode of llama.cpp."""
    settings = Settings(given.shape, [given.prompt], 32, [0], given.sequences, given.prompt, given.repetitions)
    for name, steps in measure(given.llamacpp, settings).rows.items():
        rates = ", ".join(f"{count}: {1e3 * count / step:,.0f}" for count, step in steps.items())
        console.print(f"{name}, decode, warm (its first run is dropped), tokens/s by sequences: {rates}")


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", choices=SHAPES, default="1b")
    parser.add_argument("--sequences", type=numbers, default=[1, 8, 32, 64])
    parser.add_argument("--prompt", type=int, default=256)
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--activations", choices=ACTIVATIONS, default="float32")
    parser.add_argument("--half-cache", action="store_true")
    parser.add_argument("--deterministic", action="store_true")
    parser.add_argument("--repetitions", type=int, default=2)
    parser.add_argument("--http", action="store_true", help="through the engine and the server, too")
    parser.add_argument("--long", type=int, default=8192, help="the long prompt that arrives (default 8192)")
    parser.add_argument("--common", type=int, default=2048, help="the common beginning of prompts (default 2048)")
    parser.add_argument("--llamacpp", type=Path, help="the folder of llama.cpp's run.sh")
    given = parser.parse_args(arguments)
    device = open_device()
    most, context = max(given.sequences), given.prompt + given.tokens
    in_all = most * context
    if given.http:
        context = max(given.long, given.prompt + RUNNING, given.common) + given.tokens
        in_all = most * (given.prompt + RUNNING) + context
    asked = Asked(given.shape, most, context, in_all, given.activations, given.half_cache, given.deterministic)
    runner, _ = runner_of(asked, device)
    measured(runner, most, given.prompt, WARM_TOKENS, 0)
    table = Table("sequences", "prefill of all, ms", "decode, tokens/s", "whole, tokens/s", "step, ms")
    for count in given.sequences:
        runs = [measured(runner, count, given.prompt, given.tokens, 1 + turn) for turn in range(given.repetitions)]
        best = max(runs, key=lambda run: run.decode)
        cells = f"{best.prefill * 1e3:,.1f}", f"{best.decode:,.0f}", f"{best.whole:,.0f}", f"{best.step * 1e3:.3f}"
        table.add_row(str(count), *cells)
    console = Console()
    console.print(f"{device.name}, {given.shape}, {given.activations}, prompts of {given.prompt}", table)
    runner.close()
    if given.http:
        engine = engine_of(asked)
        through_engine(engine, most, given.prompt, WARM_TOKENS)
        rates = {count: through_engine(engine, count, given.prompt, given.tokens) for count in given.sequences}
        console.print("engine, tokens/s by sequences:", ", ".join(f"{key}: {rate:,.0f}" for key, rate in rates.items()))
        asyncio.run(engine.close())
        over_http(RemoteEngine(partial(engine_of, asked)), given, console)
    if given.llamacpp is not None:
        peers(given, console)


if __name__ == "__main__":
    main()
