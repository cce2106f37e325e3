"""Graphs of one operator, built by hand at any bound, so that an operator is swept without exporting anything."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from liveshape import ops
from liveshape.device.backends import open_device
from liveshape.graph import Graph, Limits, SymInt, Tensor
from liveshape.plan.compiling import compile
from liveshape.run.bfloat16 import rounded
from liveshape.run.executor import Executor

MAX = 43
SIZES = (1, 2, 3, 5, 7, 11, 29, 37, 41, MAX - 1, MAX)


@dataclass(frozen=True)
class In:
    """An input tensor at its live shape; `make` draws its values."""

    dtype: str
    shape: tuple[int, ...]
    make: Callable[[np.random.Generator, tuple[int, ...]], Any] | None = None

    def draw(self, generator: np.random.Generator) -> np.ndarray:
        if self.dtype == "bfloat16":
            return rounded(replace(self, dtype="float32").draw(generator))
        if self.make is not None:
            return np.asarray(self.make(generator, self.shape)).astype(self.dtype)
        if self.dtype == "bool":
            return generator.integers(0, 2, self.shape).astype(bool)
        if self.dtype == "uint8":
            return generator.integers(0, 256, self.shape).astype(self.dtype)
        if self.dtype.startswith("int"):
            return generator.integers(-50, 50, self.shape).astype(self.dtype)
        return generator.standard_normal(self.shape).astype(self.dtype)


@dataclass(frozen=True)
class InOut(In):
    """An input that the operator writes in place; what it holds afterwards is checked like an output."""


@dataclass(frozen=True)
class Const:
    """A constant tensor, the same at every size."""

    array: np.ndarray


@dataclass(frozen=True)
class Sym:
    """A live scalar that the caller gives."""

    value: int


@dataclass(frozen=True)
class Out:
    """An output tensor; at the bound its shape is the allocation."""

    dtype: str
    shape: tuple[int, ...]


@dataclass(frozen=True)
class Unused(Out):
    """An output without meaning, which is not looked at."""


@dataclass(frozen=True)
class OpCase:
    """One operator in one form: its arguments at a size, and torch's answer for the drawn inputs.

    `golden` gets the input tensors (torch, in order) and the size, and returns one tensor or a tuple of them.
    """

    name: str
    op: str
    args_at: Callable[[int], list[Any]]
    golden: Callable[..., Any]
    atol: float = 1e-5
    rtol: float = 1e-5
    sizes: tuple[int, ...] = SIZES
    form: str = ""  # what of an operator it is a case of, where that runs others


def build(case: OpCase, size: int) -> Graph:
    """The graph of a case with its bound at `size`."""
    values: list[Any] = []
    inputs: list[Any] = []
    outputs: list[Any] = []
    # An input whose shape is the same at every size is static, as a file says it of its inputs.
    extremes = [flat_specs(case.args_at(end)) for end in (min(case.sizes), max(case.sizes))]

    def make(spec: Any) -> Any:
        if isinstance(spec, (list, tuple)):
            return tuple(make(item) for item in spec)
        if isinstance(spec, In):
            small, large = (specs[len(inputs)] for specs in extremes)
            value: Any = Tensor(
                f"input {len(inputs)}", spec.dtype, tuple(spec.shape), static=small.shape == large.shape
            )
            inputs.append(value)
            if isinstance(spec, InOut):
                outputs.append(value)
        elif isinstance(spec, Out):
            value = Tensor(f"output {len(outputs)}", spec.dtype, tuple(spec.shape))
            if not isinstance(spec, Unused):
                outputs.append(value)
        elif isinstance(spec, Const):
            data = memoryview(np.ascontiguousarray(spec.array)).cast("B")
            value = Tensor("constant", str(spec.array.dtype), spec.array.shape, data)
        elif isinstance(spec, Sym):
            value = SymInt("scalar", spec.value)
            inputs.append(value)
        else:
            return spec
        values.append(value)
        return value

    args = tuple(make(spec) for spec in case.args_at(size))
    node = ops.OPS[case.op].bind(0, f"{case.op} (node 0)", args)
    return Graph(case.name, (node,), tuple(values), tuple(inputs), tuple(outputs))


def flat_specs(specs: list[Any]) -> list[Any]:
    """Inputs and scalars of an argument list, in order."""
    found: list[Any] = []
    for spec in specs:
        if isinstance(spec, (list, tuple)):
            found += flat_specs(list(spec))
        elif isinstance(spec, (In, Sym)):
            found.append(spec)
    return found


def assert_close(got: Any, golden: Any, case: OpCase, context: str) -> None:
    """Shape and dtype equal, every element within tolerance; torch's NaN and infinities must be ours too."""
    expected = golden.detach().numpy() if isinstance(golden, torch.Tensor) else np.asarray(golden)
    assert got.shape == expected.shape, f"{context}: shape {got.shape}, torch has {expected.shape}"
    if got.dtype.kind in "biu":
        np.testing.assert_array_equal(got, expected.astype(got.dtype), err_msg=context)
    else:
        wide = np.complex128 if got.dtype.kind == "c" else np.float64
        np.testing.assert_allclose(got.astype(wide), expected.astype(wide), case.rtol, case.atol, err_msg=context)


def sweep(case: OpCase, limits: Limits | None = None, device: Any = None, rounds: int = 3) -> None:
    """One graph at the bound, run up and down at every size, tails poisoned; nothing is created after the build."""
    device = device or open_device()
    device._pipelines.clear()  # what another case compiled does not count
    executor = Executor(compile(build(case, max(case.sizes)), limits or device.limits), device)
    generator = np.random.default_rng(len(case.name))
    order = [case.sizes, generator.permutation(case.sizes), tuple(reversed(case.sizes))][-rounds:]
    counters = device.counters
    created, bound = (counters.buffers, counters.pipelines), 0
    for turn, size in enumerate(int(size) for row in order for size in row):
        specs = flat_specs(case.args_at(size))
        drawn = [spec.draw(generator) if isinstance(spec, In) else spec.value for spec in specs]
        tensors = [torch.from_numpy(array) for array in drawn if isinstance(array, np.ndarray)]
        golden = case.golden(*tensors, size)
        executor.poison()
        results = executor.execute(drawn)
        expected = golden if isinstance(golden, (tuple, list)) else (golden,)
        assert len(results) == len(expected)
        for position, (got, want) in enumerate(zip(results, expected, strict=True)):
            assert_close(got, want, case, f"{case.name} at {size}, output {position}")
        now = counters.buffers, counters.pipelines
        assert now == created, f"{case.name} at {size}: buffers and pipelines were {created}, are {now}"
        if turn < len(case.sizes):
            bound = counters.bind_groups
        assert counters.bind_groups == bound, f"{case.name} at {size}: a bind group was made again"
