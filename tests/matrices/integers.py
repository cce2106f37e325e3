"""Layers between integers that are large enough for matrix units; every integer must be equal."""

from __future__ import annotations

from dataclasses import replace

from tests.matrices.products import ROWS
from tests.ops.cases.int8 import convolution, linear
from tests.support.graphs import OpCase


def layer(op: str, depth: int, columns: int, **others: bool | str) -> OpCase:
    return replace(linear(op, lambda s: (s,), depth, columns, **others), sizes=ROWS)  # type: ignore[arg-type]


LAYERS = [
    layer("q8ta_linear", 272, 148, relu=True),
    layer("q8ta_linear", 1040, 516, bias=False),
    layer("linear_q8ta_q8csw", 528, 260, dtype="float32"),
    replace(linear("q8ta_linear", lambda s: (2, s), 272, 148), sizes=ROWS),
    convolution(lambda s: (1, 48, s, 8), 70, (3, 3), padding=(1, 1), sizes=(21, 16, 2, 7), relu=True),
    convolution(lambda s: (s, 32, 9, 7), 66, (3, 2), (2, 1), (1, 2), (1, 2), sizes=(11, 5, 1), bias=False),
    convolution(lambda s: (2, 144, s, 4), 76, (1, 1), sizes=(20, 33, 4)),
]
# Integers that lie in no whole vectors, or are too few: by threads.
OTHERS = [
    layer("q8ta_linear", 264, 148),
    layer("q8ta_linear", 272, 149),
    layer("q8ta_linear", 16, 16),
    convolution(lambda s: (1, 40, s, 8), 70, (3, 3), padding=(1, 1), sizes=(16, 7)),
    convolution(lambda s: (1, 32, s, 9), 66, (3, 3), sizes=(23, 12)),  # pixels that are no whole words
    convolution(lambda s: (1, 32, s, 16), 64, (3, 3), padding=(1, 1), groups=2, sizes=(16, 7)),
]
