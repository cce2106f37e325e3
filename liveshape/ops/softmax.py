"""Softmax and its logarithm along any dimension."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from liveshape.graph import Limits
from liveshape.graph.elements import prod
from liveshape.graph.live import LiveTensor
from liveshape.kernels import Dispatch, Kernel
from liveshape.kernels.requests import GetLimits, Scratch
from liveshape.ops.pointwise import Build, Viewed, evaluate
from liveshape.ops.reduction import Steps, layout_of
from liveshape.ops.registry import Tensors, op
from liveshape.ops.row_rules import but_dims
from liveshape.ops.shapes import axis_of, ceil_div
from liveshape.ops.stages import Carry, Units, in_stages, is_long, partials_of, reduction_threads

SOFTMAX = Kernel.load("reduction/softmax")
LANE_SOFTMAX = {4: Kernel.load("reduction/lane_softmax"), 1: Kernel.load("reduction/lane_softmax", WIDTH="one")}
LANE_TURNS = 4  # for a vector: it is read three times, and there are blocks
MANY_ROWS, GROUP_ROWS = 256, 4  # from which on a workgroup has some: it costs as much as some hundred elements
EXPONENTIALS = Carry.load("exponentials")


def totals_of(bound: Units, limits: Limits) -> Generator[Scratch, Any, Tensors]:
    """Scratch for the stages of a log-sum-exp, the last for its results; none where one dispatch does."""
    partials = yield from partials_of(bound, "float32", limits, lanes=2)
    if not partials:
        return ()
    totals: LiveTensor = yield Scratch("float32", (2 * bound.number,))
    return (*partials, totals)


def log_sum_exps(x: LiveTensor, axis: int, scratch: Tensors, limits: Limits) -> Generator[Dispatch, Any, LiveTensor]:
    """The log-sum-exps of long rows, in stages: (maximum, sum of exponentials of what is below it)."""
    *partials, totals = scratch
    layout = layout_of(x.dtype, x.shape, [axis])
    last = yield from in_stages(EXPONENTIALS, (x,), layout, tuple(partials), limits)
    yield last(totals)
    return totals


def _softmax(x: LiveTensor, dim: int, out: LiveTensor, *, log: bool) -> Steps:
    axis = axis_of(dim, x.rank)
    limits: Limits = yield GetLimits()
    scratch = yield from totals_of(_units(x.max_shape, axis), limits)
    out.shape = x.shape
    units, inner = _units(x.shape, axis), prod(x.shape[axis + 1 :])
    lanes = limits.few_threads_lanes if inner == 1 else 0
    width = 4 if units.length % 4 == 0 else 1
    group_rows = GROUP_ROWS if units.number >= MANY_ROWS else 1
    if lanes and LANE_TURNS * group_rows * ceil_div(units.length // width, lanes) <= limits.max_turns:
        yield LANE_SOFTMAX[width](
            out, x, rows=units.number, length=units.length // width, group_rows=group_rows, WG=lanes, LOG=log,
            groups=ceil_div(units.number, group_rows),
        )  # fmt: skip
        return
    rows = {"rows": units.number, "length": units.length, "inner": inner, "LOG": log}
    if not is_long(units, limits):
        yield SOFTMAX(out, x, **rows, **reduction_threads(units, limits))
        return
    totals = yield from log_sum_exps(x, axis, scratch, limits)
    sizes = (units.number // inner, units.length, inner)
    # Of each row its maximum, and beside it the sum of exponentials of what is below that.
    largest, sums = (Viewed(totals, (sizes[0], 1, inner), (2 * inner, 0, 2), start) for start in (0, 1))
    e = Build(out.dtype)
    below = e.exact("sub", Viewed(x, sizes), largest)
    if log:
        e.call("sub", below, e.exact("log", sums))
    else:
        e.call("div", e.exact("exp", below), sums)
    yield from evaluate(e.made(), out, shape=x.shape)


def _units(shape: tuple[int, ...], axis: int) -> Units:
    length = shape[axis] if shape else 1
    inner = prod(shape[axis + 1 :])
    return Units(prod(shape[:axis]) * inner if length else 0, length, inner == 1)


@op(
    "aten._softmax.default",
    "aten::_softmax.out",
    rows=but_dims("x", "dim"),
    any_size=True,
    epilogues=True,
    loads="x",
    load_times=3,
)
def softmax(x: LiveTensor, dim: int, half_to_float: bool, out: LiveTensor) -> Steps:
    yield from _softmax(x, dim, out, log=False)


@op(
    "aten._log_softmax.default",
    "aten::_log_softmax.out",
    rows=but_dims("x", "dim"),
    epilogues=True,
    loads="x",
    load_times=3,
)
def log_softmax(x: LiveTensor, dim: int, half_to_float: bool, out: LiveTensor) -> Steps:
    yield from _softmax(x, dim, out, log=True)
