"""Long reductions, scans, softmaxes and products go in stages: no thread of theirs makes more turns of loops than the
driver of Debian 12, which these tests run on, lets it make, and rounding errors do not grow with the length."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch

from liveshape.device.backends import open_device
from liveshape.ops import scattering as scattering_operators
from liveshape.plan.compiling import compile
from liveshape.run.executor import Executor
from tests.ops.cases import convolution, indexing, matmul, normalization, reduction, scan, scattering, softmax, training
from tests.support.graphs import Const, In, OpCase, Out, build, sweep

FEW_TURNS = 128  # so that the sizes of the sweep are long ones
STAGED = [
    case
    for cases in (reduction, scan, softmax, normalization, training, matmul, convolution)
    for case in cases.CASES
    if not any(name in case.op for name in ("adamw", "requant", "no_training", "rms_norm"))
]
ONE_EACH = {case.op: case.name for case in STAGED if "float16" not in case.name}
QUICK = {name for op, name in ONE_EACH.items() if any(word in op for word in ("var", "max.dim", "_softmax", "cumsum"))}


@pytest.mark.parametrize(
    "case", [pytest.param(case, marks=() if case.name in QUICK else pytest.mark.slow, id=case.name) for case in STAGED]
)
def test_the_sweep_in_stages(case: OpCase) -> None:
    device = open_device()
    sweep(case, replace(device.limits, max_turns=FEW_TURNS), device, rounds=1)


ADDED = [
    case
    for case in (*scattering.CASES, *indexing.CASES)
    if "scatter" in case.op or ("index_put" in case.op and case.args_at(2)[3] is True)
]
LAST_ADDED = {case.op: case.name for case in ADDED}
QUICK_ADDED = {name for op, name in LAST_ADDED.items() if "reduce" in op or "index" in op}


@pytest.mark.parametrize(
    "case",
    [pytest.param(case, marks=() if case.name in QUICK_ADDED else pytest.mark.slow, id=case.name) for case in ADDED],
)
def test_additions_to_one_place_in_passes(case: OpCase, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scattering_operators, "MAX_PASS", 3)
    sweep(case, rounds=1)


def test_very_many_additions_to_one_place() -> None:
    """70,000 of them: more than a loop of the driver of Debian 12 may turn."""
    most, device = 70_000, open_device()
    case = OpCase(
        "scatter_add", "aten.scatter_add.default",
        lambda s: [In("float32", (3,)), 0, In("int64", (s,)), In("float32", (s,)), Out("float32", (3,))],
        lambda *_: None, sizes=(1, most),
    )  # fmt: skip
    executor = Executor(compile(build(case, most), device.limits), device)
    for live in (most, 5, 40_000, most):
        executor.poison()
        found = executor.execute([np.zeros(3, np.float32), np.full(live, 1, np.int64), np.ones(live, np.float32)])[0]
        np.testing.assert_array_equal(found, [0, live, 0])


@dataclass(frozen=True)
class Long:
    """An operator over long rows; `shape` is what the largest input has, whose `live` sizes are of one dimension."""

    op: str
    shape: tuple[int, ...]
    axis: int
    args: tuple[Any, ...]
    function: Callable[[torch.Tensor], torch.Tensor]
    out: str = "float32"

    def case(self) -> OpCase:
        def args(size: int) -> list[Any]:
            shape = tuple(size if axis == self.axis else kept for axis, kept in enumerate(self.shape))
            result = self.function(torch.ones(shape, device="meta"))
            return [In("float32", shape), *self.args, Out(self.out, tuple(result.shape))]

        return OpCase(self.op, self.op, args, self.function, sizes=(1, self.shape[self.axis]))


class Errors:
    """The mean squares of ours and of torch's, over so many results that a lucky one does not count."""

    def __init__(self) -> None:
        self.ours = self.theirs = self.last_place = 0.0

    def add(self, found: Any, theirs: torch.Tensor, exact: torch.Tensor) -> None:
        wide = exact.numpy()
        self.ours += float(np.mean((np.asarray(found, np.float64) - wide) ** 2))
        self.theirs += float(np.mean((theirs.double().numpy() - wide) ** 2))
        self.last_place += float(np.mean((np.spacing(np.abs(wide).astype(np.float32)) / 2) ** 2))

    @property
    def ratio(self) -> float:
        """Half a unit in the last place of the results is what no float can do better than."""
        return float(np.sqrt(self.ours / max(self.theirs, self.last_place)))


def check(long: Long, sizes: tuple[int, ...], low: float = -1.0) -> None:
    device = open_device()
    case = long.case()
    executor = Executor(compile(build(case, long.shape[long.axis]), device.limits), device)
    generator, errors = np.random.default_rng(7), {size: Errors() for size in sizes}
    for size in sizes:
        x = generator.uniform(low, 1.0, case.args_at(size)[0].shape).astype(np.float32)
        executor.poison()
        found = executor.execute([x])[0]
        exact = long.function(torch.from_numpy(x).double())
        if long.out == "float32":
            errors[size].add(found, long.function(torch.from_numpy(x)), exact)
        else:
            np.testing.assert_array_equal(found, exact.numpy())
    if long.out == "float32":
        assert {size: each.ratio for size, each in errors.items() if each.ratio > 4} == {}


def sums(op: str, function: Callable[..., torch.Tensor], *more: Any, out: str = "float32") -> list[Long]:
    return [
        Long(op, (5, 1_000_000), 1, ((1,), *more), lambda x: function(x, 1), out),
        Long(op, (200_000, 3), 0, ((0,), *more), lambda x: function(x, 0), out),
        Long(op, (7, 1000, 300), 1, ((0, 2, 1), *more), lambda x: function(x, (0, 1, 2)), out),
    ]


def along(op: str, function: Callable[..., torch.Tensor], *more: Any) -> list[Long]:
    return [
        Long(op, (2, 1_000_000), 1, (1, *more), lambda x: function(x, 1)),
        Long(op, (200_000, 3), 0, (0, *more), lambda x: function(x, 0)),
    ]


LONG = [
    *sums("aten.sum.dim_IntList", lambda x, dim: x.sum(dim), False, None),
    *sums("aten.mean.dim", lambda x, dim: x.mean(dim), False, None),
    *sums("aten.var.correction", lambda x, dim: x.var(dim), 1, False),
    *sums("aten.amax.default", lambda x, dim: x.amax(dim), False),
    Long("aten.argmax.default", (3, 1_000_000), 1, (1, False), lambda x: x.argmax(1), "int64"),
    Long("aten.argmin.default", (200_000, 3), 0, (0, False), lambda x: x.argmin(0), "int64"),
    *along("aten._softmax.default", torch.softmax, False),
    *along("aten._log_softmax.default", torch.log_softmax, False),
    *along("aten.cumsum.default", torch.cumsum, None),
]
QUICK_LONG = {("aten.sum.dim_IntList", 1), ("aten.var.correction", 0), ("aten._softmax.default", 1)} | {
    ("aten.argmax.default", 1), ("aten.cumsum.default", 0)
}  # fmt: skip


@pytest.mark.parametrize(
    "long",
    [
        pytest.param(
            long,
            marks=() if (long.op, long.axis) in QUICK_LONG and len(long.shape) == 2 else pytest.mark.slow,
            id=f"{long.op} {long.shape} {long.axis}",
        )
        for long in LONG
    ],
)
def test_long_rows(long: Long) -> None:
    """Up and down on one graph, through one, two and more stages."""
    most = long.shape[long.axis]
    check(long, (most, 5, most // 7, min(most, 2049)))
    check(long, (most,), low=0.0)


@pytest.mark.parametrize("size", [1000, pytest.param(3000, marks=pytest.mark.slow)])
def test_all_of_a_square(size: int) -> None:
    """Ones that were 65,534 of a million."""
    all_of = Long("aten.sum.default", (size, size), 0, (None,), lambda x: x.sum())
    device = open_device()
    executor = Executor(compile(build(all_of.case(), size), device.limits), device)
    for live in (size, 3, size):
        executor.poison()
        assert executor.execute([np.ones((live, size), np.float32)])[0] == live * size
    check(all_of, (size, 1, size // 2) * 7)


def product(op: str, rows: int, depth: int, columns: int = 33) -> OpCase:
    """Of ragged depth, up to a long one."""
    transposed = op == "aten.linear.default"
    return OpCase(
        f"{op} {rows}", op,
        lambda s: [
            In("float32", (rows, s)), In("float32", (columns, s) if transposed else (s, columns)),
            *((None,) if transposed else ()), Out("float32", (rows, columns)),
        ],
        lambda x, weight: x @ (weight.T if transposed else weight),
        sizes=(1, depth),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("op", "rows"),
    [
        ("aten.mm.default", 3),
        ("aten.linear.default", 9),
        *(
            pytest.param(op, rows, marks=pytest.mark.slow)
            for op in ("aten.mm.default", "aten.linear.default")
            for rows in (1, 4, 70)
        ),
    ],
)
def test_a_long_depth(op: str, rows: int) -> None:
    device, depth = open_device(), 100_000
    case = product(op, rows, depth)
    executor = Executor(compile(build(case, depth), device.limits), device)
    generator = np.random.default_rng(rows)
    for live in (depth, 7, 65_537, depth):
        x, weight = (generator.standard_normal(spec.shape).astype(np.float32) for spec in case.args_at(live)[:2])
        executor.poison()
        found = executor.execute([x, weight])[0]
        factors = torch.from_numpy(x), torch.from_numpy(weight)
        exact = case.golden(*(factor.double() for factor in factors))
        errors = Errors()
        errors.add(found, case.golden(*factors), exact)
        assert errors.ratio <= 4, live


@pytest.mark.parametrize("threads", [4, 256])
def test_layer_and_group_norm_of_a_whole_picture(threads: int) -> None:
    """Statistics of a million elements, with a weight for each channel, in parts."""
    device = open_device()
    many = {"max_invocations": 256} if threads == 256 else {}
    device = open_device(limits=replace(device.limits, max_cooperating_threads=threads, **many))
    generator = np.random.default_rng(3)
    weight, bias = (generator.standard_normal(8).astype(np.float32) for _ in range(2))

    def args(size: int) -> list[Any]:
        shape, saved = (1, 8, size, 500), (1, 2)
        outs = Out("float32", shape), Out("float32", saved), Out("float32", saved)
        return [In("float32", shape), Const(weight), Const(bias), 1, 8, size * 500, 2, 1e-5, outs]

    def golden(x: torch.Tensor) -> torch.Tensor:
        wide = (torch.from_numpy(weight).double(), torch.from_numpy(bias).double())
        return torch.nn.functional.group_norm(x.double(), 2, *wide)

    case = OpCase("group_norm", "aten.native_group_norm.default", args, golden, sizes=(1, 400))
    executor = Executor(compile(build(case, 400), device.limits), device)
    for live in (400, 1, 333, 400):
        x = generator.uniform(3.0, 5.0, (1, 8, live, 500)).astype(np.float32)
        executor.poison()
        found, mean, scale = executor.execute([x])
        np.testing.assert_allclose(found, golden(torch.from_numpy(x)).numpy(), 1e-5, 1e-5)
        rows = x.astype(np.float64).reshape(1, 2, -1)
        np.testing.assert_allclose(mean, rows.mean(2), 1e-6)
        np.testing.assert_allclose(scale, 1 / np.sqrt(rows.var(2) + 1e-5), 1e-5)
    steps = executor.live.steps(executor.live.nodes[0], lambda node, request: 0)
    kernels = [step[0].kernel.name for step in steps]
    assert kernels == ["normalization/layer_norm+parts", "normalization/layer_norm+results"]


@pytest.mark.slow
@pytest.mark.parametrize(("size", "keys"), [(64, 32768), (256, 4096)])
def test_attention_of_many_rows_to_a_long_context(size: int, keys: int) -> None:
    """A key that is left out shows: equal weights, and values that grow along the keys."""
    device, heads = open_device(), 2
    case = OpCase(
        f"sdpa {size}", "et_vk.sdpa.default",
        lambda s: [
            In("float32", (1, heads, 40, size)), *(In("float32", (1, heads, s, size)) for _ in "kv"), None, None,
            Out("float32", (1, heads, 40, size)),
        ],
        lambda *_: None,
        sizes=(1, keys),
    )  # fmt: skip
    executor = Executor(compile(build(case, keys), device.limits), device)
    for live in (keys, 100, keys - 1):
        q, k, v = (np.zeros(spec.shape, np.float32) for spec in case.args_at(live)[:3])
        v += np.arange(live, dtype=np.float32)[:, None] / keys
        executor.poison()
        np.testing.assert_allclose(executor.execute([q, k, v])[0], (live - 1) / 2 / keys, 1e-3)
