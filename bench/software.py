"""Tuning a software adapter: cooperating threads and workgroup size, in one run.

Run: python -m bench.software [--activations float32] [--invocations 16,32,64,128] [--cooperating 4,8,16,32]

Each pair is a device of its own on the same adapter; prefill and decode are measured interleaved, the fastest run of
each counts, and ratios are to the pair that the device chooses by default (device/required.py).
Set VK_DRIVER_FILES to the driver to measure.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import replace
from itertools import product

from rich.console import Console
from rich.table import Table

from bench.rows import numbers
from liveshape.device.backends import open_device
from liveshape.graph.activation_kinds import ACTIVATIONS
from liveshape.llm.language_model import LanguageModel
from liveshape.llm.sampling_settings import Sampling
from liveshape.shipped import shipped_model

PROMPT, TOKENS, TURNS = 64, 24, 3
Pair = tuple[int, int]


def seconds(model: LanguageModel) -> tuple[float, float]:
    """Seconds of prefill, and of each decoded token."""
    model.reset()
    begin = time.perf_counter()
    model.prefill([1 + place % 100 for place in range(PROMPT)])
    model.device.flush()
    between = time.perf_counter()
    count = sum(1 for _ in model.stream([5], Sampling(), max_tokens=TOKENS))
    return between - begin, (time.perf_counter() - between) / count


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--activations", choices=ACTIVATIONS, default="float32")
    parser.add_argument("--invocations", type=numbers, default=[16, 32, 64, 128])
    parser.add_argument("--cooperating", type=numbers, default=[4, 8, 16, 32])
    given = parser.parse_args(arguments)
    usual = open_device(0)
    own = usual.limits.max_invocations, usual.limits.max_cooperating_threads
    models: dict[Pair, LanguageModel] = {}
    for pair in dict.fromkeys([own, *product(given.invocations, given.cooperating)]):
        limits = replace(usual.limits, max_invocations=pair[0], max_cooperating_threads=pair[1])
        device = open_device(0, limits=limits)
        models[pair] = LanguageModel.load(shipped_model(), device=device, activations=given.activations)
        seconds(models[pair])
        print(f"{pair} is loaded", file=sys.stderr)
    found: dict[Pair, list[tuple[float, float]]] = {pair: [] for pair in models}
    for _ in range(TURNS):
        for pair, model in models.items():
            found[pair].append(seconds(model))
    best = {pair: [min(column) for column in zip(*rows, strict=True)] for pair, rows in found.items()}
    table = Table("threads", "cooperating", f"prompt of {PROMPT}, ms", "ratio", "token, ms", "ratio")
    for pair, (prompt, token) in best.items():
        ratios = prompt / best[own][0], token / best[own][1]
        cells = f"{prompt * 1e3:.1f}", f"{ratios[0]:.2f}", f"{token * 1e3:.2f}", f"{ratios[1]:.2f}"
        table.add_row(str(pair[0]), str(pair[1]), *cells, style="bold" if pair == own else None)
    Console().print(f"{usual.name}, {given.activations}", table)


if __name__ == "__main__":
    main()
