"""Softmax and its logarithm along any dimension."""

from __future__ import annotations

from typing import Any

from liveshape.graph import Limits
from liveshape.graph.elements import prod
from liveshape.graph.live import LiveTensor
from liveshape.kernels import Kernel
from liveshape.kernels.requests import GetLimits
from liveshape.ops.reduction import Steps
from liveshape.ops.registry import exported, op
from liveshape.ops.row_rules import but_dims
from liveshape.ops.shapes import axis_of, ceil_div
from liveshape.ops.stages import Units, is_long, partials_of, reduction_threads, share_of

SOFTMAX = Kernel.load("reduction/softmax")
LOG_SUM_EXPS = Kernel.load("reduction/softmax", STAGE="parts")
SOFTMAX_BY_PARTS = Kernel.load("reduction/softmax", STAGE="results")
LANE_SOFTMAX = {4: Kernel.load("reduction/lane_softmax"), 1: Kernel.load("reduction/lane_softmax", WIDTH="one")}
LANE_TURNS = 4  # for a vector: it is read three times, and there are blocks
MANY_ROWS, GROUP_ROWS = 256, 4  # from which on a workgroup has some: it costs as much as some hundred elements


def _softmax(x: LiveTensor, dim: int, out: LiveTensor, *, log: bool) -> Steps:
    axis = axis_of(dim, x.rank)
    limits: Limits = yield GetLimits()
    totals = yield from partials_of(_units(x.max_shape, axis), limits)
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
    if totals is None or not is_long(units, limits):
        yield SOFTMAX(out, x, **reduction_threads(units, limits), inner=inner, LOG=log)
        return
    parts = reduction_threads(units, limits, share_of(units, limits))
    yield LOG_SUM_EXPS(totals, x, **parts, inner=inner)
    yield SOFTMAX_BY_PARTS(out, x, totals, **parts, inner=inner, LOG=log)


def _units(shape: tuple[int, ...], axis: int) -> Units:
    length = shape[axis] if shape else 1
    inner = prod(shape[axis + 1 :])
    return Units(prod(shape[:axis]) * inner if length else 0, length, inner == 1)


def _register(name: str, *, log: bool) -> None:
    traits: dict[str, Any] = {"rows": but_dims("x", "dim"), "epilogues": True, "loads": "x", "load_times": 3}

    @op(*exported(name), schema="x dim half_to_float out", any_size=not log, **traits)
    def along(x: LiveTensor, dim: int, out: LiveTensor) -> Steps:
        yield from _softmax(x, dim, out, log=log)


_register("_softmax", log=False)
_register("_log_softmax", log=True)
