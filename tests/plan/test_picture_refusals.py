"""Windows, factors, places and pads that torch refuses are refused at planning, and the message has the numbers."""

from __future__ import annotations

from typing import Any

import pytest

from liveshape.errors import ShapeError, UnsupportedError
from liveshape.plan.compiling import compile
from tests.support.graphs import In, OpCase, Out, build

X, OUT = In("float32", (1, 2, 4, 5)), Out("float32", (1, 2, 9, 9))
PAIRS = In("float32", (1, 3, 3, 2))


@pytest.mark.parametrize(
    ("op", "args", "message"),
    [
        ("aten.max_pool2d.default", [X, (5, 2), (), (0,), (1,), False, OUT], "kernel of (5, 2)"),
        ("aten.max_pool2d.default", [X, (2, 2), (), (2,), (1,), False, OUT], "padding (2,)"),
        ("aten.max_pool2d.default", [X, (2, 2), (0,), (0,), (1,), False, OUT], "stride (0, 0)"),
        ("aten.max_pool2d.default", [X, (2, 2, 2), (), (0,), (1,), False, OUT], "kernel (2, 2, 2)"),
        ("aten.max_pool1d.default", [X, (2,), (), (0,), (1,), False, OUT], "(1, 2, 4, 5) has 4 dimensions"),
        ("aten.avg_pool2d.default", [X, (3, 3), (), (0,), False, True, 1 << 40, OUT], "1099511627776"),
        ("aten._adaptive_avg_pool2d.default", [X, (3, 3, 3), OUT], "output size (3, 3, 3)"),
        ("aten.upsample_nearest2d.vec", [X, None, None, OUT], "by None"),
        ("aten.upsample_bilinear2d.vec", [X, None, False, (2.0,), OUT], "by (2.0,)"),
        ("aten.upsample_bilinear2d.vec", [X, None, False, (0.1, 2.0), OUT], "to (0, 10)"),
        ("aten.upsample_nearest2d.default", [X, (9,), None, None, OUT], "to (9,)"),
        ("aten.pixel_shuffle.default", [X, 2, OUT], "channels of (1, 2, 4, 5)"),
        ("aten.pixel_unshuffle.default", [X, 2, OUT], "(1, 2, 4, 5) are not multiples of 2"),
        ("aten.grid_sampler_2d.default", [X, X, 0, 0, False, OUT], "grid of (1, 2, 4, 5)"),
        ("aten.grid_sampler_2d.default", [X, PAIRS, 3, 0, False, OUT], "interpolation 3"),
        ("aten.reflection_pad2d.default", [X, (0, 0, 4, 0), OUT], "(0, 0, 4, 0)"),
        ("aten.replication_pad1d.default", [X, (1, 1), OUT], "last 1 dimensions of (1, 2, 4, 5)"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_named(op: str, args: list[Any], message: str) -> None:
    with pytest.raises((ShapeError, UnsupportedError)) as caught:
        compile(build(OpCase(op, op, lambda size: args, lambda *inputs: None), 1))
    assert message in str(caught.value)
