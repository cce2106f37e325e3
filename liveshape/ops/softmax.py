"""Softmax and its logarithm along any dimension."""

from __future__ import annotations

from liveshape.graph import Limits
from liveshape.graph.elements import prod
from liveshape.graph.live import LiveTensor
from liveshape.kernels import Kernel
from liveshape.kernels.requests import GetLimits
from liveshape.ops.reduction import Steps, reduction_threads
from liveshape.ops.registry import op
from liveshape.ops.row_rules import but_dims
from liveshape.ops.shapes import axis_of

SOFTMAX = Kernel.load("reduction/softmax")


def _softmax(x: LiveTensor, dim: int, out: LiveTensor, *, log: bool) -> Steps:
    out.shape = x.shape
    axis = axis_of(dim, x.rank)
    length = x.shape[axis] if x.rank else 1
    inner = prod(x.shape[axis + 1 :])
    rows = prod(x.shape[:axis]) * inner if length else 0
    limits: Limits = yield GetLimits()
    threads = reduction_threads(rows, length, inner == 1, limits)
    yield SOFTMAX(out, x, rows=rows, length=length, inner=inner, LOG=log, **threads)


@op("aten._softmax.default", "aten::_softmax.out", rows=but_dims("x", "dim"), any_size=True)
def softmax(x: LiveTensor, dim: int, half_to_float: bool, out: LiveTensor) -> Steps:
    yield from _softmax(x, dim, out, log=False)


@op("aten._log_softmax.default", "aten::_log_softmax.out", rows=but_dims("x", "dim"))
def log_softmax(x: LiveTensor, dim: int, half_to_float: bool, out: LiveTensor) -> Steps:
    yield from _softmax(x, dim, out, log=True)
