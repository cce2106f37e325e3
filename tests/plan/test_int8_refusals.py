"""What the layers of eight bits cannot do is refused at planning, with what was given and what is allowed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from liveshape.errors import ShapeError, UnsupportedError
from liveshape.plan.compiling import compile
from tests.support.graphs import Const, In, OpCase, Out, build

SUMS, SCALES = Const(np.zeros(8, np.int32)), Const(np.ones(8, np.float32))


def _linear(x: str = "int8", depth: int = 12, activation: str = "none", scales: Const = SCALES) -> tuple[str, Any]:
    weight = Const(np.zeros((8, depth), np.int8))
    args = [In(x, (4, depth)), 0.5, 0, weight, SUMS, scales, 0.5, 0, None, activation, Out("int8", (4, 8))]
    return "et_vk.q8ta_linear.default", args


def _convolution(groups: int = 1, width: int = 36, kernel: tuple[int, ...] = (3, 3)) -> tuple[str, Any]:
    weight = Const(np.zeros((8, width), np.int8))
    ones = (1,) * len(kernel)
    args = [
        In("int8", (1, 4, 5, 5)), 0.5, 0, weight, SUMS, SCALES, 0.5, 0, None, kernel, ones, ones, ones, groups, "none",
        Out("int8", (1, 8, 5, 5)),
    ]  # fmt: skip
    return "et_vk.q8ta_conv2d.default", args


def _blocks(x: tuple[int, ...], block: tuple[int, ...]) -> tuple[str, Any]:
    args = [In("float32", x), block, SCALES, SUMS, None, None, None, Out("int8", x)]
    return "torchao.quantize_affine.default", args


@pytest.mark.parametrize(
    ("form", "error", "message"),
    [
        (_linear(activation="gelu"), UnsupportedError, "'gelu'; there are 'none' and 'relu'"),
        (_linear(x="float32"), UnsupportedError, "x of dtype float32: it must be int8"),
        (_linear(depth=70000), UnsupportedError, "70000 products of eight bits do not fit 32 bits"),
        (_linear(scales=Const(np.ones(7, np.float32))), ShapeError, r"\(7,\) is too short for 8 columns"),
        (_convolution(groups=3), ShapeError, "3 groups do not divide 4 channels and 8 of the output"),
        (_convolution(width=32), ShapeError, r"\(8, 32\) is too narrow for 36 products"),
        (_convolution(kernel=(8, 8)), ShapeError, r"kernel of \(8, 8\) .* live sizes \(5, 5\)"),
        (_convolution(kernel=(3,)), ShapeError, r"must be \[N, C, H, W\]"),
        (_blocks((4, 6), (1, 4)), ShapeError, r"blocks of \(1, 4\) do not divide \(4, 6\)"),
        (_blocks((4, 6), (1,)), ShapeError, r"do not have the rank of \(4, 6\)"),
        (_blocks((9, 6), (1, 6)), ShapeError, r"too few for 9 blocks of \(9, 6\)"),
    ],
)
def test_what_is_refused(form: tuple[str, Any], error: type[Exception], message: str) -> None:
    op, args = form
    with pytest.raises((error, UnsupportedError), match=message):
        compile(build(OpCase(op, op, lambda size: args, lambda *inputs: None), 1))
