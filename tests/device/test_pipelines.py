"""Pipelines go with the last plan that uses them, and the most recent ones a little later."""

from __future__ import annotations

import gc
import random
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from liveshape.device.adapters import usable_adapters
from liveshape.device.pipelines import Pipeline, Pipelines
from liveshape.device.webgpu import WebGpuDevice
from liveshape.graph import Graph, Node, Tensor
from liveshape.graph.live import LiveTensor
from liveshape.kernels import Dispatch, Kernel, Variant, specialize
from liveshape.run.executor import Executor
from tests.device.library import LIBRARY
from tests.support.chains import executor_of

PLUS = Kernel.parse(
    "plus",
    "@group(0) @binding(0) var<storage, read_write> out: array<f32>;\n"
    "@group(0) @binding(1) var<storage, read> x: array<f32>;\n"
    "@group(0) @binding(2) var<uniform> params: Params;\n"
    "struct Params { count: u32 }\n"
    "override WG: u32 = 64;\n"
    "override TERM: u32 = 1;\n"
    "@compute @workgroup_size(WG) fn main(@builtin(global_invocation_id) id: vec3<u32>) {\n"
    "    if (id.x < params.count) { out[id.x] = f32(TERM) + x[id.x]; }\n"
    "}",
)
KINDS = ("GPUComputePipeline", "GPUShaderModule", "GPUBindGroupLayout", "GPUPipelineLayout", "GPUBindGroup")


def plus(*terms: int) -> Graph:
    """x -> x and the sum of the terms, with a kernel for each of them."""

    def run(term: int, x: LiveTensor, out: LiveTensor) -> Iterator[Dispatch]:
        out.shape = x.shape
        yield PLUS(out, x, TERM=term, count=x.shape[0], threads=x.shape[0])

    values = [Tensor(f"value {place}", "float32", (7,)) for place in range(len(terms) + 1)]
    nodes = [
        Node(place, f"plus {term}", "plus", run, (term, *values[place : place + 2])) for place, term in enumerate(terms)
    ]
    return Graph("plus", tuple(nodes), tuple(values), (values[0],), (values[-1],))


def check(executor: Executor, term: int) -> None:
    for size in (7, 1, 5):
        x = np.arange(size, dtype=np.float32)
        np.testing.assert_array_equal(executor.execute([x])[0], term + x)


def objects() -> dict[str, int]:
    """What wgpu-py holds of each kind in this process."""
    gc.collect()
    counts = LIBRARY.wgpu.diagnostics.object_counts.tracker.counts
    return {kind: counts[kind] for kind in KINDS}


def device_with(most: int, raw: bool = True) -> WebGpuDevice:
    device = WebGpuDevice(LIBRARY, usable_adapters(LIBRARY)[0], 0, raw=raw)
    device._pipelines = Pipelines(device._compile, most)
    return device


def grown(before: dict[str, int]) -> dict[str, int]:
    return {kind: count - before[kind] for kind, count in objects().items() if count != before[kind]}


@pytest.mark.parametrize("raw", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_300_graphs_that_are_loaded_and_closed_leave_only_the_recent_ones(raw: bool) -> None:
    device = device_with(8, raw)
    before = objects()
    for number in range(1, 301):
        executor = executor_of(plus(number), device)
        if number % 50 == 0:
            check(executor, number)
        executor.close()
        if number % 50 == 0:
            assert grown(before) == {"GPUComputePipeline": 8, "GPUBindGroupLayout": 8}
    assert device.counters.pipelines == 300
    assert {dict(variant.constants)["TERM"] for variant in device._pipelines} == {f"{n}u" for n in range(293, 301)}
    assert len(PLUS.variants) <= 64, "variants that no plan has are forgotten"


def test_graphs_that_are_forgotten_without_a_close_leave_nothing_either() -> None:
    device = device_with(2)
    before = objects()
    for number in range(1000, 1040):
        check(executor_of(plus(number), device), number)
    assert grown(before) == {"GPUComputePipeline": 2, "GPUBindGroupLayout": 2}


def test_a_file_that_is_loaded_again_compiles_nothing() -> None:
    device = device_with(3)
    for _ in range(4):
        executor = executor_of(plus(2001, 2002, 2003), device)
        check(executor, 2001 + 2002 + 2003)
        executor.close()
    assert device.counters.pipelines == 3


def test_a_plan_keeps_its_pipelines_whatever_else_is_loaded() -> None:
    device = device_with(2)
    terms = (3001, 3002, 3003, 3004)
    first = executor_of(plus(*terms[:3]), device)
    second = executor_of(plus(*terms[1:]), device)
    for number in range(3100, 3110):
        executor_of(plus(number), device).close()
    made = device.counters.pipelines
    check(first, 3001 + 3002 + 3003)
    first.close()
    check(second, 3002 + 3003 + 3004)
    third = executor_of(plus(*terms[1:]), device)
    check(third, 3002 + 3003 + 3004)
    assert device.counters.pipelines == made
    assert made == 4 + 10


def test_params_that_outgrow_their_room_keep_the_pipelines() -> None:
    device = device_with(1)
    executor = executor_of(plus(4001, 4002, 4003), device)
    check(executor, 4001 + 4002 + 4003)
    made = device.counters.pipelines
    executor.encoder._grow(executor.live)
    check(executor, 4001 + 4002 + 4003)
    assert device.counters.pipelines == made


def test_threads_load_run_and_close_graphs_that_share_kernels() -> None:
    device, wrong = device_with(2), list[str]()

    def work(seed: int) -> None:
        draw = random.Random(seed)
        try:
            for _ in range(25):
                terms = draw.choices(range(5001, 5007), k=2)
                executor = executor_of(plus(*terms), device)
                check(executor, sum(terms))
                executor.close()
        except BaseException as error:
            wrong.append(repr(error))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert len(list(device._pipelines)) == 2


def variants(count: int) -> list[Variant]:
    x = LiveTensor(Tensor("x", "float32", (4,)), bytearray())
    limits = WebGpuDevice(LIBRARY, usable_adapters(LIBRARY)[0], 0).limits
    return [specialize(PLUS(x, x, TERM=6000 + each, count=1, threads=1), limits) for each in range(count)]


def test_one_that_did_not_compile_is_not_kept() -> None:
    (variant,) = variants(1)
    tries: list[Variant] = []

    def compile(given: Variant) -> Pipeline:
        tries.append(given)
        if len(tries) == 1:
            raise KeyboardInterrupt
        return Pipeline(given, object(), object())

    made = Pipelines(compile, 0)
    with pytest.raises(KeyboardInterrupt):
        made.get(variant)
    kept = made.get(variant)
    assert made.get(variant) is kept
    assert len(tries) == 2
    del kept
    assert not list(made)


def test_one_that_has_the_place_of_another_in_memory_is_not_taken_for_it() -> None:
    """Pipelines are found by the identity of a variant, which a later one may have once the first is gone."""
    first, second = variants(2)
    made = Pipelines(lambda variant: Pipeline(variant, object(), object()))
    kept = made.get(first)
    made._known[id(second)] = made._known[id(first)]
    assert made.get(second) is not kept
    assert made.get(second).variant is second


def test_what_is_gone_is_forgotten() -> None:
    made = Pipelines(lambda variant: Pipeline(variant, object(), object()), 4)
    for variant in variants(100):
        made.get(variant)
        assert len(made._known) <= 2 * (4 + 4) + 1
    assert len(list(made)) == 4


def resident() -> int:
    """Bytes of this process in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="this system does not tell")
def test_memory_stays_where_it_is() -> None:
    device = device_with(16)
    found: list[int] = []
    for number in range(7000, 7600):
        executor = executor_of(plus(number, number + 1000), device)
        check(executor, 2 * number + 1000)
        executor.close()
        if number % 300 == 299:
            gc.collect()
            found.append(resident())
    assert found[1] < 1.05 * found[0], f"{found[0]:,} bytes after 300 graphs, {found[1]:,} after 600"
