"""Orders, counts and scatters of any shape, axis and type are torch's, at the bound and below it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.ops.cases import compaction, distances, embedding_bags, scattering, sorting
from tests.support.graphs import In, OpCase, Out, sweep

KINDS = ("float32", "float16", "int32", "bool")
Draw = Callable[[Any], Any]


def shapes(draw: Draw, least: int = 1, most: int = 4) -> tuple[Callable[[int], tuple[int, ...]], int, tuple[int, ...]]:
    """A shape with one live dimension, an axis, and two live sizes, some of them past a block of the sort."""
    rank = draw(st.integers(least, most))
    fixed = draw(st.lists(st.integers(1, 5), min_size=rank, max_size=rank))
    live, axis = draw(st.integers(0, rank - 1)), draw(st.integers(0, rank - 1))
    bound = draw(st.one_of(st.integers(2, 60), st.integers(500, 1100)))
    size = draw(st.integers(1, bound))
    return lambda s: (*fixed[:live], s, *fixed[live + 1 :]), axis, (size, bound)


@st.composite
def sorts(draw: Draw) -> OpCase:
    shape, axis, sizes = shapes(draw)
    kind = draw(st.sampled_from(KINDS))
    make = draw(st.sampled_from((sorting.few, sorting.odd, None))) if kind.startswith("float") else sorting.few
    return sorting.sort("any", kind, shape, axis, draw(st.booleans()), make, sizes=sizes)


@st.composite
def topks(draw: Draw) -> OpCase:
    least = draw(st.integers(1, 600))
    sizes = least, least + draw(st.integers(0, 600))
    kind = draw(st.sampled_from(KINDS[:3]))
    k = draw(st.integers(0, least))
    return sorting.topk("any", kind, k, draw(st.integers(0, 1)), draw(st.booleans()), sizes)


@st.composite
def scatters(draw: Draw) -> OpCase:
    """An index that is smaller than both what it writes and what it reads, in every dimension but its own."""
    rank = draw(st.integers(1, 4))
    full = draw(st.lists(st.integers(1, 5), min_size=rank, max_size=rank))
    axis = draw(st.integers(0, rank - 1))
    less = [draw(st.integers(1, size)) for size in full]
    more = [size + draw(st.integers(0, 2)) for size in less]
    kind = draw(st.sampled_from(KINDS[:3]))
    op = draw(st.sampled_from(("scatter.src_out", "scatter_add.out", "scatter_reduce.two_out")))
    how = ("sum", "amax", "amin") if kind == "int32" else ("sum", "prod", "mean", "amax", "amin")
    reduce = (draw(st.sampled_from(how)), draw(st.booleans())) if op == "scatter_reduce.two_out" else ()
    bound = draw(st.integers(2, 40))
    live = draw(st.booleans())  # the axis of what is written, or of the index

    def put(sizes: list[int], s: int, moves: bool) -> tuple[int, ...]:
        return (*sizes[:axis], s, *sizes[axis + 1 :]) if moves else tuple(sizes)

    return scattering.scatter(
        op, kind, axis, lambda s: put(full, s, live), lambda s: put(less, s, not live),
        lambda s: put(more, s, not live), reduce, (draw(st.integers(1, bound)), bound),
    )  # fmt: skip


@st.composite
def counts(draw: Draw) -> OpCase:
    shape, axis, sizes = shapes(draw)
    kind = draw(st.sampled_from(KINDS))
    which = draw(st.sampled_from(("nonzero", "unique", "select", "index")))
    if which == "nonzero":
        return compaction.nonzero(kind, shape, compaction.sparse, sizes=sizes)
    if which == "unique":
        make = compaction.sparse if kind == "bool" else sorting.few
        return compaction.unique(
            kind, make, shape, draw(st.sampled_from(("_unique2", "unique_consecutive"))), sizes=sizes
        )
    if which == "select":
        # The mask repeats along one dimension.
        case = compaction.masked_select("any", kind, shape, lambda s: (*shape(s)[:axis], 1, *shape(s)[axis + 1 :]))
    else:
        rank = draw(st.integers(1, len(shape(1)) - axis))
        case = compaction.by_mask("any", kind, shape, axis, rank)
    return OpCase(case.name, case.op, case.args_at, case.golden, 0.0, 0.0, sizes)


@st.composite
def others(draw: Draw) -> OpCase:
    kind = draw(st.sampled_from(KINDS[:2]))
    if draw(st.booleans()):
        mode = draw(st.integers(0, 2))
        return embedding_bags.bag(
            kind, mode, mode == 0 and draw(st.booleans()), draw(st.booleans()), draw(st.integers(-1, 3))
        )
    return distances.cdist(kind, draw(st.sampled_from((0.0, 0.5, 1.0, 2.0, 3.0, torch.inf))))


@st.composite
def strided(draw: Draw) -> OpCase:
    """as_strided over rows: sizes and strides that stay inside of what the least live size has."""
    sizes = tuple(draw(st.lists(st.integers(1, 3), min_size=1, max_size=4)))
    strides = tuple(draw(st.integers(0, 4)) for _ in sizes)
    start = draw(st.integers(0, 3))
    reach = start + sum((size - 1) * stride for size, stride in zip(sizes, strides, strict=True))
    least = reach // 8 + 1
    kind = draw(st.sampled_from(KINDS))
    return OpCase(
        "as_strided any",
        "aten::as_strided_copy.out",
        lambda s: [In(kind, (s, 8)), sizes, strides, start, Out(kind, sizes)],
        lambda x, s: torch.as_strided(x, sizes, strides, start),
        sizes=(least, least + 5),
    )


ANY = st.one_of(sorts(), topks(), scatters(), counts(), others(), strided())


def check(examples: int) -> None:
    @settings(max_examples=examples, deadline=None, suppress_health_check=list(HealthCheck))
    @given(ANY)
    def holds(case: OpCase) -> None:
        sweep(case, rounds=2)

    holds()


def test_a_few_of_any_shape() -> None:
    check(10)


@pytest.mark.slow
def test_many_of_any_shape() -> None:
    check(200)
