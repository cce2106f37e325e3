"""Attention over a KV cache by rows and context: time, bandwidth and FLOP/s of every kernel choice.

Run: python -m bench.attention [--shape 1b|8b|135m|stories] [--context 512 2048] [--rows 1 8] [--half] [--ways all]
With `--sequences 8 64`, a row each of as many sequences over one pool of pages, instead of rows of one.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from rich.console import Console
from rich.table import Table

from bench.gpu_time import gpu_seconds, warm_up
from liveshape import ops
from liveshape.device.backends import open_device
from liveshape.device.protocol import Device
from liveshape.graph import Graph, SymInt, Tensor
from liveshape.ops import attention_heuristics
from liveshape.plan.compiling import compile
from liveshape.plan.plan import Choices
from liveshape.run.executor import Executor

CACHE = 1 << 28  # bytes of keys and values, more than any L2 cache
ENOUGH = 0.1  # seconds of work per measurement
PAGE = 16  # keys


class Heads(NamedTuple):
    """Query heads, KV heads, head size."""

    queries: int
    keys: int
    size: int


SHAPES = {"1b": Heads(32, 8, 64), "8b": Heads(32, 8, 128), "135m": Heads(9, 3, 64), "stories": Heads(6, 6, 48)}


class Way(NamedTuple):
    """Constants of ops/attention_heuristics.py and limits of the device, other than they are."""

    constants: dict[str, Any]
    limits: dict[str, int]


BLOCKS = {"subgroup": 0}  # without subgroup shuffles
FEW = {
    "as planned": Way({}, {}),
    "shuffles, always split": Way({"ROW_WORKGROUP_VEC4S": 0}, {}),
    "shuffles, never split": Way({"ROW_WORKGROUP_VEC4S": 1 << 30}, {}),
    "shuffles, 8 lanes": Way({"MAX_LANES": 8}, {}),
    "shuffles, 256 threads": Way(
        {"ROW_WORKGROUP_THREADS": 256, "SUBGROUP_THREADS": 256, "SUBGROUP_WORKGROUPS": 264}, {}
    ),
    "shuffles, twice the prefetch": Way({"PREFETCH_VEC4S": 8}, {}),
    "shuffles, splits of 64": Way({"SUBGROUP_MIN_SPLIT_KEYS": 64}, {}),
    "in blocks": Way({}, BLOCKS),
    "never a workgroup per row": Way({"ROW_WORKGROUP_KEYS": 0}, BLOCKS),
    "a workgroup per row": Way({"ROW_WORKGROUP_KEYS": 1 << 20}, BLOCKS),
    "a workgroup per row, 128 threads": Way({"ROW_WORKGROUP_KEYS": 1 << 20}, BLOCKS | {"max_invocations": 128}),
    "never split": Way({"ROW_WORKGROUP_KEYS": 0, "UNSPLIT_KEYS": 1 << 20}, BLOCKS),
    "splits of 32": Way({"ROW_WORKGROUP_KEYS": 0, "MIN_SPLIT_KEYS": 32}, BLOCKS),
    "splits of 128": Way({"ROW_WORKGROUP_KEYS": 0, "MIN_SPLIT_KEYS": 128}, BLOCKS),
    "splits of 256": Way({"ROW_WORKGROUP_KEYS": 0, "MIN_SPLIT_KEYS": 256}, BLOCKS),
    "512 groups of splits": Way({"ROW_WORKGROUP_KEYS": 0, "ENOUGH_WORKGROUPS": 512}, BLOCKS),
    "split in blocks of 4 rows": Way({"ROW_WORKGROUP_KEYS": 0, "BLOCK_ROWS": 4}, BLOCKS),
    "lines of 8 rows": Way({"LINE_ROWS": 8}, {}),
    "lines of one query": Way({"LINE_ROWS": 1}, {}),
    "split in rows": Way({"ROW_WORKGROUP_KEYS": 0, "BLOCK_ROWS": 1}, BLOCKS),
    "in tiles": Way({"FEW_ROWS": 0}, {}),
}
MANY = {
    "as planned": Way({}, {}),
    "tiles that reduce in workgroup memory": Way({}, BLOCKS),
    "tiles in 32 KB": Way({}, {"max_workgroup_bytes": 32768}),
    "tiles in 16 KB": Way({}, {"max_workgroup_bytes": 16384}),
    "32 keys, 16 vec4s": Way({"TILE_SHAPES": ((32, 16), (32, 8), (32, 4))}, {}),
    "64 keys, 8 vec4s": Way({"TILE_SHAPES": ((64, 8), (32, 4))}, {}),
    "64 keys, 4 vec4s": Way({"TILE_SHAPES": ((64, 4), (32, 4))}, {}),
    "large tiles": Way({"ENOUGH_TILES": 1, "ENOUGH_LARGE_TILES": 1}, {}),
    "small tiles": Way({"LARGE_HEAD": 0}, {}),
    "64 threads": Way({}, {"max_invocations": 64}),
    "tiles never split": Way({"MIN_TILE_SPLIT_KEYS": 1 << 20}, {}),
    "tiles in splits of 256": Way({"MIN_TILE_SPLIT_KEYS": 256}, {}),
    "256 tiles enough": Way({"ENOUGH_TILES": 256}, {}),
    "in blocks of rows": Way({"FEW_ROWS": 1 << 20}, {}),
}


@contextmanager
def planned(way: Way) -> Iterator[None]:
    """Other constants for as long as this lasts."""
    before = {name: getattr(attention_heuristics, name) for name in way.constants}

    def put(constants: dict[str, Any]) -> None:
        for name, value in constants.items():
            setattr(attention_heuristics, name, value)
        attention_heuristics.split_results_shape.cache_clear()
        attention_heuristics.line_results_shape.cache_clear()

    put(way.constants)
    try:
        yield
    finally:
        put(before)


def layers_of(heads: Heads, rows: int, context: int, layers: int, dtype: str) -> Graph:
    """The same queries over one KV cache after the other, at its last positions."""
    shape = (1, context, heads.keys, heads.size)
    data = np.random.default_rng(0).standard_normal(shape).astype(dtype)
    q, position = Tensor("input 0", "float32", (1, rows, heads.queries, heads.size)), SymInt("position")
    values: list[Any] = [q, position]
    nodes = []
    for index in range(layers):
        # Copied, since views of the same bytes would be one buffer.
        caches = [Tensor(f"{n} {index}", dtype, shape, memoryview(data.copy()).cast("B")) for n in ("keys", "values")]
        out = Tensor(f"output {index}", "float32", q.max_shape)
        values += [*caches, out]
        args = (q, *caches, position, None, 0.0, True, None, out)
        nodes.append(ops.OPS["custom_sdpa.default"].bind(index, f"attention {index}", args))
    return Graph("attention", tuple(nodes), tuple(values), (q, position), (values[-1],))


def paged_layers_of(heads: Heads, sequences: int, context: int, layers: int, dtype: str) -> Graph:
    """The last row of each sequence over the pages of one pool after the other, which lie in it at random."""
    random = np.random.default_rng(0)
    pages = -(-context // PAGE)
    shape = (1, sequences * pages * PAGE, heads.keys, heads.size)
    data = random.standard_normal(shape, np.float32).astype(dtype)
    table = random.permutation(sequences * pages).astype(np.int32).reshape(sequences, pages)
    lines = np.array([(row, 1, context - 1, row) for row in range(sequences)], np.int32)
    q = Tensor("input 0", "float32", (1, sequences, heads.queries, heads.size))
    tables = [Tensor("table", "int32", each.shape, memoryview(each).cast("B")) for each in (lines, table)]
    values: list[Any] = [q, *tables]
    nodes = []
    for index in range(layers):
        caches = [Tensor(f"{n} {index}", dtype, shape, memoryview(data.copy()).cast("B")) for n in ("keys", "values")]
        out = Tensor(f"output {index}", "float32", q.max_shape)
        values += [*caches, out]
        args = (q, *caches, *tables, PAGE, sequences, 0, context, 0, None, 0, 0.0, None, out)
        nodes.append(ops.OPS["liveshape.paged_attention"].bind(index, f"attention {index}", args))
    return Graph("paged attention", tuple(nodes), tuple(values), (q,), (values[-1],))


def measured(device: Device, way: Way, graph: Graph, inputs: list[Any], tries: int) -> tuple[float, float, str]:
    """Seconds of one layer, seconds of the first call including compilation, and the kernels."""
    changes = {name: min(value, getattr(device.limits, name)) for name, value in way.limits.items()}
    with planned(way):
        began = time.perf_counter()
        limits = replace(device.limits, **changes)
        executor = Executor(compile(graph, limits, Choices(warm=False)), device)
        executor.execute(inputs)
        first = time.perf_counter() - began
    commands = executor.encoder.commands(executor.live, 0, len(graph.nodes))
    kernels = " + ".join(dict.fromkeys(command.label.rpartition(" ")[2] for command in commands))
    software = device.adapter.software
    once = gpu_seconds(device, commands, 1, 2) if software else warm_up(device, commands)
    turns = max(1, min(200, round(ENOUGH / once)))
    return gpu_seconds(device, commands, turns, tries) / len(graph.nodes), first, kernels


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--shape", choices=SHAPES, default="1b")
    parser.add_argument("--context", nargs="*", type=int, default=[512, 2048, 8192])
    parser.add_argument("--rows", nargs="*", type=int, default=[1, 8, 64, 512])
    parser.add_argument("--sequences", nargs="*", type=int, default=[], help="of one row each, in pages")
    parser.add_argument("--half", action="store_true", help="a float16 KV cache")
    parser.add_argument("--ways", choices=("all", "planned"), default="all")
    parser.add_argument("--tries", type=int, default=4)
    options = parser.parse_args()
    device, heads = open_device(), SHAPES[options.shape]
    console, dtype = Console(), "float16" if options.half else "float32"
    for rows in options.sequences or options.rows:
        table = Table("context", "way", "us", "TB/s", "TFLOP/s", "first s", "kernels")
        for context in (each for each in options.context if options.sequences or each >= rows):
            caches = rows if options.sequences else 1
            nbytes = 2 * caches * context * heads.keys * heads.size * np.dtype(dtype).itemsize
            # Under the causal mask the first row sees all keys but those of the rows after it.
            hidden = 0 if options.sequences else rows * (rows - 1) // 2
            work = 4 * heads.queries * heads.size * (rows * context - hidden)
            layers = 1 if device.adapter.software else max(2, min(64, CACHE // nbytes))
            graph = (paged_layers_of if options.sequences else layers_of)(heads, rows, context, layers, dtype)
            q = np.random.default_rng(1).standard_normal((1, rows, heads.queries, heads.size)).astype(np.float32)
            inputs = [q] if options.sequences else [q, context - rows]
            few = options.sequences or attention_heuristics.is_few_rows(rows, heads.queries // heads.keys)
            found = FEW if few else MANY
            ways = found if options.ways == "all" else {"as planned": found["as planned"]}
            for name, way in ways.items():
                each, first, kernels = measured(device, way, graph, inputs, options.tries)
                rate = f"{nbytes / each / 1e12:.2f}", f"{work / each / 1e12:.2f}"
                table.add_row(f"{context}", name, f"{1e6 * each:,.1f}", *rate, f"{first:.1f}", kernels)
        counted = f"{rows} sequences" if options.sequences else f"{rows} rows"
        table.title = f"{counted}, {options.shape} {heads}, {dtype}, {device.adapter.name}"
        console.print(table)


if __name__ == "__main__":
    main()
