"""Loops that a driver cuts short: found when a device is opened; what nothing bounds is refused there, never wrong."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from liveshape.device.backends import open_device
from liveshape.device.probes import max_turns, run_probe
from liveshape.errors import UnsupportedError
from liveshape.graph import Limits
from liveshape.graph.limits import MAX_TURNS
from liveshape.kernels import Kernel
from liveshape.plan.compiling import compile
from liveshape.run.executor import Executor
from liveshape.run.host import compile_with_host
from tests.device.library import LIBRARY
from tests.support.graphs import In, OpCase, Out, build


def test_a_loop_makes_all_its_turns_or_the_driver_is_known_for_it() -> None:
    opened = open_device()
    device = open_device(limits=replace(opened.limits))
    turns = max_turns(LIBRARY, device._device)
    # Both software drivers that tests run on: the stable one ends loops, the newest does not.
    old = device.adapter.software and "Mesa 22." in device.adapter.driver
    assert turns == (2 * MAX_TURNS - 1 if old else None)
    assert opened.limits.cuts_loops is old
    assert run_probe(LIBRARY, device._device, Kernel.load("measure/loops"), (60000, 0)) == (60000, 60000)


def pooled(size: int) -> tuple[list[Any], tuple[int, ...]]:
    window = (size, 300)
    return [In("float32", (2, size, 300)), window, (1, 1), (0, 0), False, True, None], (2, 1, 1)


def pool_case() -> OpCase:
    return OpCase(
        "a pool of a whole picture",
        "aten::avg_pool2d.out",
        lambda s: [*pooled(s)[0], Out("float32", pooled(s)[1])],
        None,
        sizes=(300,),
    )


LONG: list[tuple[str, list[Any]]] = [
    ("aten::avg_pool2d.out", [*pooled(300)[0], Out("float32", (2, 1, 1))]),
    ("aten::_adaptive_avg_pool2d.out", [In("float32", (2, 300, 300)), (1, 1), Out("float32", (2, 1, 1))]),
    ("aten._cdist_forward.default",
     [In("float32", (2, 40000)), In("float32", (3, 40000)), 2.0, None, Out("float32", (2, 3))]),
    ("et_vk.rms_norm.default",
     [In("float32", (1, 8_388_609)), In("float32", (8_388_609,)), 1e-6, Out("float32", (1, 8_388_609))]),
]  # fmt: skip


@pytest.mark.parametrize(("op", "args"), LONG, ids=[op for op, _ in LONG])
def test_what_nothing_bounds_is_refused_where_loops_are_cut_short(op: str, args: list[Any]) -> None:
    graph = build(OpCase(op, op, lambda _: args, None, sizes=(1,)), 1)
    compile(graph, Limits())
    with pytest.raises(UnsupportedError, match=rf"{op}.*turns of loops, which this driver ends all after 65,535"):
        compile(graph, Limits(cuts_loops=True))


def test_the_host_computes_what_is_refused() -> None:
    device = open_device()
    limits = replace(device.limits, cuts_loops=True)
    executor = Executor(compile_with_host(build(pool_case(), 300), limits), device)
    x = np.random.default_rng(1).random((2, 300, 300)).astype(np.float32)
    golden = torch.nn.functional.avg_pool2d(torch.from_numpy(x).double(), 300)
    np.testing.assert_allclose(executor.execute([x])[0], golden.numpy(), 1e-5)
