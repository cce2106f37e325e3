"""Integers of eight bits against torch, in forms that hypothesis draws: shapes, strides, paddings, groups, blocks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.ops.cases import int8, quantizing
from tests.support.graphs import OpCase, sweep

FEW = settings(max_examples=6, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
MANY = settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
SIZES = (1, 2, 5, 6)


def pairs(least: int, most: int) -> st.SearchStrategy[tuple[int, int]]:
    return st.tuples(st.integers(least, most), st.integers(least, most))


@st.composite
def convolutions(draw: st.DrawFn) -> OpCase:
    kind = draw(st.sampled_from(("plain", "depthwise", "transposed")))
    groups = draw(st.integers(1, 3)) if kind != "depthwise" else draw(st.integers(1, 9))
    inner = draw(st.integers(1, 9)) if kind != "depthwise" else 1
    outer = draw(st.integers(1, 6)) if kind != "depthwise" else 1
    kernel, stride, padding, dilation = (draw(pairs(*ends)) for ends in ((1, 3), (1, 3), (0, 2), (1, 2)))
    # The smallest live size must hold one window, and a transposed convolution must leave something.
    reach = tuple(step * (size - 1) + 1 for size, step in zip(kernel, dilation, strict=True))
    padding = tuple(min(pad, (size - 1) // 2) for pad, size in zip(padding, reach, strict=True))
    spare = tuple(draw(st.integers(0, max(step, gap) - 1)) for step, gap in zip(stride, dilation, strict=True))
    width = draw(st.integers(1, 6))
    images = draw(st.booleans())
    height = draw(st.integers(1, 4))

    def shape(s: int) -> tuple[int, ...]:
        lead = (s, groups * inner, height) if images else (1, groups * inner, s)
        return (*lead[:2], lead[2] + reach[0], width + reach[1])

    return int8.convolution(
        shape, groups * outer, kernel, stride, padding, dilation, groups, bias=draw(st.booleans()),
        relu=draw(st.booleans()), depthwise=kind == "depthwise", sizes=SIZES,
        output_padding=spare if kind == "transposed" else None,
    )  # fmt: skip


@st.composite
def linears(draw: st.DrawFn) -> OpCase:
    depth, columns = draw(st.integers(1, 300)), draw(st.integers(1, 40))
    lead = draw(st.sampled_from((lambda s: (s,), lambda s: (2, s), lambda s: (s, 1, 3))))
    op, dtype = draw(st.sampled_from((("q8ta_linear", "int8"), ("linear_q8ta_q8csw", "float32"))))
    bias, relu = draw(st.booleans()), dtype == "int8" and draw(st.booleans())
    return int8.linear(op, lead, depth, columns, bias=bias, relu=relu, dtype=dtype)


@st.composite
def elements(draw: st.DrawFn) -> OpCase:
    rank = draw(st.integers(1, 4))
    full = tuple(draw(st.integers(1, 5)) for _ in range(rank))
    live = draw(st.integers(0, rank - 1))
    shared = [draw(st.lists(st.booleans(), min_size=rank, max_size=rank)) for _ in range(2)]

    def of(ones: list[bool]) -> Callable[[int], tuple[int, ...]]:
        sizes = tuple(1 if one else size for size, one in zip(full, ones, strict=True))
        return lambda s: (*sizes[:live], s if not ones[live] else 1, *sizes[live + 1 :])

    if draw(st.booleans()):
        return int8.add(of(shared[0]), of(shared[1]), draw(st.sampled_from((1.0, 2.0, 0.5))))
    factor = draw(st.integers(1, 3))
    lead = draw(st.sampled_from((lambda s: (s, 3), lambda s: (s, 2, 3), lambda s: (2, 3, s))))
    return int8.pixel_shuffle(lead, draw(st.integers(1, 3)), factor)


@st.composite
def blocks(draw: st.DrawFn) -> OpCase:
    rank = draw(st.integers(1, 4))
    parts = tuple(draw(st.integers(1, 6)) for _ in range(rank))
    counts = tuple(draw(st.integers(1, 3)) for _ in range(rank))
    live = draw(st.integers(0, rank - 1))
    whole = draw(st.booleans())  # the live dimension is one block, or blocks of one element

    def shape(s: int) -> tuple[int, ...]:
        full = tuple(part * count for part, count in zip(parts, counts, strict=True))
        return (*full[:live], s, *full[live + 1 :])

    def block(s: int) -> tuple[int, ...]:
        return (*parts[:live], s if whole else 1, *parts[live + 1 :])

    zero = draw(st.sampled_from(("int8", "int32", "float32")))
    if draw(st.booleans()) and not all(size == 1 for size in block(2)):
        mapping = draw(st.sampled_from(("ASYMMETRIC", "SYMMETRIC", "SYMMETRIC_NO_CLIPPING_ERR")))
        return quantizing.choose_affine(mapping, shape, block, zero, True, -8, 7)
    return draw(st.sampled_from(quantizing.affine(shape, block, zero)))


FAMILIES: dict[str, Any] = {"convolutions": convolutions, "linears": linears, "elements": elements, "blocks": blocks}


@pytest.mark.parametrize("family", FAMILIES)
def test_a_few(family: str) -> None:
    FEW(given(FAMILIES[family]())(run))()


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_many(family: str) -> None:
    MANY(given(FAMILIES[family]())(run))()


def run(case: OpCase) -> None:
    sweep(case, rounds=1)
