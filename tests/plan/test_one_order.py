"""One order of summation: no number of rows, lines or keys, and nothing that others sample, chooses another. No GPU.

Kernels that differ in nothing but which rows a thread or a workgroup has are one: `tests/ops/test_one_order.py` runs
them, row by row, and finds the same bytes.
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from bench.serve import Asked, runner_of
from liveshape.graph import Limits
from liveshape.kernels import Variant
from liveshape.llm.batch.loading import load_runner
from liveshape.llm.batch.runner import BatchRunner
from liveshape.ops.sampling import sample_rows
from tests.llm.batch.test_families import exported
from tests.support.paper import PaperDevice

LIMITS = {
    "few threads": Limits(max_cooperating_threads=4),
    "many threads": Limits(max_workgroup_bytes=49152),
    "subgroups": Limits(max_invocations=1024, max_workgroup_bytes=49152, subgroup=32),
}
everywhere = pytest.mark.parametrize(
    "limits", ["few threads", "subgroups", pytest.param("many threads", marks=pytest.mark.slow)]
)
# Constants that say which rows a thread or a workgroup has, and those of their staging.
ROWS = {
    "q4/few_rows": {"ROWS"},
    "q4/tiles": {"ROW_THREADS", "ROW_VEC4S", "COLUMN_VEC4S", "BUFFERS", "LARGE", "UNROLLED", "SCALE_SPAN", "WG"},
    "matmul/tiled": {"TILE_ROWS"},
    "matmul/lane_tiles": {"SHARES"},
    "matmul/register_tiles": {
        "WG",
        "TILE_ROWS",
        "TILE_COLUMNS",
        "THREAD_ROW_FOURS",
        "THREAD_COLUMN_FOURS",
        "STEP_FOURS",
        "AHEAD",
        "LEFT_LOADS",
        "RIGHT_LOADS",
        "UNROLLED",
    },
}
COPIES = {"elementwise", "indexing", "movement"}  # folders of kernels that sum nothing
# Params that divide a sum; more splits of a context than it has keys for are empty.
DIVIDING = {"q4": "splits", "attention": "split_keys"}


def file_of(variant: Variant) -> str:
    """That of a kernel, without what is composed with it."""
    return variant.kernel.file.partition("+")[0].strip()


def folder_of(variant: Variant) -> str:
    return variant.kernel.file.partition("/")[0]


def order_of(variant: Variant, params: bytes) -> tuple[Any, ...]:
    """All of a dispatch that an order of summation depends on."""
    kernel, file = variant.kernel, file_of(variant)
    constants = tuple(pair for pair in variant.constants if pair[0] not in ROWS.get(file, ()))
    dividing = None
    if (name := DIVIDING.get(folder_of(variant))) in kernel.fields:
        dividing = dict(zip(kernel.fields, kernel.layout.unpack(params), strict=True))[name]
    return file, kernel.others, variant.types, constants, variant.subgroup, dividing


def orders(runner: BatchRunner) -> dict[str, set[frozenset[Any]]]:
    """By node, the orders of every setting of live numbers that a load looks for kernels at; not of sampling."""
    live, found = runner.executor.live, defaultdict[str, set[frozenset[Any]]](set)
    for setting in runner._routes():
        live.restore()
        for symint, value in setting:
            live.set(symint, value)
        for node in live.nodes:
            steps = live.steps(node, lambda node, request: 0)
            if node.node.run is not sample_rows:
                summing = [step for step in steps if folder_of(step[0]) not in COPIES]
                orders = frozenset(order_of(variant, params) for variant, _, params, _ in summing)
                found[f"{node.index}: {node.node.label}"].add(orders)
    return {label: each - {frozenset()} for label, each in found.items()}


def llama(limits: Limits, activations: str, deterministic: bool) -> BatchRunner:
    return runner_of(Asked("tiny", 64, 2048, 64 * 2048, activations, False, deterministic), PaperDevice(limits))[0]


@everywhere
@pytest.mark.parametrize("activations", ["float32", "int8"])
def test_a_node_has_one_order(limits: str, activations: str) -> None:
    found = orders(llama(LIMITS[limits], activations, True))
    assert sum(len(each) for each in found.values()) > 20
    assert not {label: each for label, each in found.items() if len(each) > 1}


@everywhere
def test_without_it_rows_choose_the_order(limits: str) -> None:
    several = [each for each in orders(llama(LIMITS[limits], "float32", False)).values() if len(each) > 1]
    files = {file for each in several for kernels in each for file, *_ in kernels}
    assert {file.partition("/")[0] for file in files} >= {"q4", "attention"}


@pytest.mark.parametrize(
    ("name", "mode"),
    [
        ("gpt2", "none"),
        pytest.param("gpt_oss", "none", marks=pytest.mark.slow),
        pytest.param("mixtral", "4w", marks=pytest.mark.slow),
        pytest.param("gemma2", "8w", marks=pytest.mark.slow),
        pytest.param("qwen3", "8da4w", marks=pytest.mark.slow),
    ],
)
@everywhere
def test_families(name: str, mode: Any, limits: str, tmp_path: Path) -> None:
    runner, _ = load_runner(exported(name, tmp_path, mode), device=PaperDevice(LIMITS[limits]), deterministic=True)
    assert not {label: each for label, each in orders(runner).items() if len(each) > 1}


def test_others_that_draw_choose_no_kernel_of_a_draw() -> None:
    """Of all modes there are two: only the likeliest tokens, which no rounding changes, and everything."""
    runner = llama(LIMITS["subgroups"], "float32", True)
    live, found = runner.executor.live, set()
    for setting in runner._routes():
        live.restore()
        for symint, value in setting:
            live.set(symint, value)
        steps = [live.steps(node, lambda node, request: 0) for node in live.nodes][-1]
        found.add(tuple(variant for variant, *_ in steps))
    assert len(found) == 2
