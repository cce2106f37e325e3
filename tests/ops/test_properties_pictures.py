"""Windows, resampling, samples and pads of any shape, at two live sizes of one graph, against torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, reject, settings
from hypothesis import strategies as st

from tests.ops.cases.images import _places
from tests.ops.cases.movement import moved
from tests.ops.cases.reduction import _few, _special
from tests.support.graphs import In, OpCase, sweep
from tests.support.pictures import FLOATS, pictured

aten = torch.ops.aten
Draw = Callable[[Any], Any]


@st.composite
def shapes(draw: Draw, dims: int, batch: bool = False) -> tuple[Callable[[int], tuple[int, ...]], tuple[int, ...]]:
    """A shape with one live dimension, and the sizes that it takes."""
    lead = draw(st.integers(1 + batch, 2))
    sizes = draw(st.lists(st.integers(1, 3), min_size=lead, max_size=lead)) + draw(
        st.lists(st.integers(1, 13), min_size=dims, max_size=dims)
    )
    axis = draw(st.integers(0, len(sizes) - 1))
    live = draw(st.lists(st.integers(1, 13), min_size=1, max_size=3, unique=True))
    return lambda s: (*sizes[:axis], s, *sizes[axis + 1 :]), tuple(live)


def ints(low: int, high: int, dims: int) -> Any:
    """A number for each dimension."""
    return st.tuples(*[st.integers(low, high)] * dims)


@st.composite
def pools(draw: Draw) -> OpCase:
    dims = draw(st.integers(1, 3))
    shape, live = draw(shapes(dims))
    kernel, stride = draw(ints(1, 4, dims)), draw(st.one_of(st.just(()), ints(1, 4, dims)))
    ceil_mode = draw(st.booleans())
    kinds: tuple[str, ...] = FLOATS
    if draw(st.booleans()):
        dilation = draw(ints(1, 3, dims)) if dims > 1 else (1,)
        padding = tuple(draw(st.integers(0, ((k - 1) * d + 1) // 2)) for k, d in zip(kernel, dilation, strict=True))
        name = "max_pool1d" if dims == 1 else f"max_pool{dims}d_with_indices"
        args = [kernel, stride, padding, dilation, ceil_mode]
        kinds = (*FLOATS, "int32")
    else:
        padding = tuple(draw(st.integers(0, k // 2)) for k in kernel)
        name = f"avg_pool{dims}d"
        divisor = [draw(st.sampled_from((None, 1, 3, -5)))] if dims > 1 else []
        args = [kernel, stride, padding, ceil_mode, draw(st.booleans()), *divisor]
        kinds = (*FLOATS, "int64") if dims > 1 else FLOATS
    return _pooled(draw, name, shape, live, args, kinds)


@st.composite
def adaptive_pools(draw: Draw) -> OpCase:
    dims = draw(st.integers(1, 3))
    shape, live = draw(shapes(dims))
    name = f"adaptive_max_pool{dims}d" if draw(st.booleans()) else f"{'_' if dims > 1 else ''}adaptive_avg_pool{dims}d"
    return _pooled(draw, name, shape, live, [draw(ints(1, 9, dims))], FLOATS)


def _pooled(draw: Draw, name: str, shape: Any, live: Any, args: list[Any], kinds: Any) -> OpCase:
    kind = draw(st.sampled_from(kinds))
    make = _few if kind.startswith("int") else draw(st.sampled_from((_few, _special)))
    function = getattr(aten, name)
    return pictured(
        f"{name} {shape(7)} {args}", f"aten.{name}.default", lambda s: [In(kind, shape(s), make)], args,
        lambda x: function(x, *args), indexed="indices" in name or "adaptive_max" in name, sizes=live,
    )  # fmt: skip


RESAMPLES = [
    *((f"upsample_nearest{dims}d", dims) for dims in (1, 2, 3)),
    *((f"_upsample_nearest_exact{dims}d", dims) for dims in (1, 2, 3)),
    *(("upsample_linear1d", 1), ("upsample_bilinear2d", 2), ("upsample_trilinear3d", 3)),
    *((name, 2) for name in ("upsample_bicubic2d", "_upsample_bilinear2d_aa", "_upsample_bicubic2d_aa")),
]


@st.composite
def resamples(draw: Draw) -> OpCase:
    name, dims = draw(st.sampled_from(RESAMPLES))
    shape, live = draw(shapes(dims, batch=True))
    factors = st.floats(0.3, 3.0)
    aligned = [] if "nearest" in name else [draw(st.booleans())]
    if draw(st.booleans()):
        overload = "vec"
        args = [None, *aligned, tuple(draw(factors) for _ in range(dims))]
    else:
        overload = "default"
        # Antialiased beyond the picture, weights are next to nothing and what they are divided by as well.
        given_factors = st.none() if name.endswith("_aa") else st.one_of(st.none(), factors)
        args = [draw(ints(1, 20, dims)), *aligned, *(draw(given_factors) for _ in range(dims))]
    kind = draw(st.sampled_from(FLOATS))

    def function(x: torch.Tensor) -> torch.Tensor:
        found = getattr(getattr(aten, name), overload)(x, *args)
        # Eager PyTorch on the CPU repeats the first element of an antialiased column that stands alone.
        return reject() if name.endswith("_aa") and found.shape[-1] == 1 else found

    return pictured(
        f"{name} {shape(7)} {args}", f"aten.{name}.{overload}", lambda s: [In(kind, shape(s))], args, function,
        wide=False, sizes=live,
    )  # fmt: skip


@st.composite
def samples(draw: Draw) -> OpCase:
    shape, live = draw(shapes(2, batch=True))
    height, width = draw(ints(1, 9, 2))
    args = [draw(st.integers(0, 2)), draw(st.integers(0, 2)), draw(st.booleans())]
    return pictured(
        f"grid_sampler_2d {shape(7)} {args}", "aten.grid_sampler_2d.default",
        lambda s: [In("float32", shape(s)), In("float32", (shape(s)[0], height, width, 2), _places)], args,
        lambda x, places: aten.grid_sampler_2d(x, places, *args), wide=False, sizes=live,
    )  # fmt: skip


@st.composite
def moves(draw: Draw) -> OpCase:
    kind = draw(st.sampled_from((*FLOATS, "int32")))
    dims = draw(st.integers(1, 3))
    shape, live = draw(shapes(dims))
    name, argument = draw(
        st.one_of(
            st.tuples(st.sampled_from((f"reflection_pad{dims}d", f"replication_pad{dims}d")), ints(-1, 4, 2 * dims)),
            st.tuples(st.just("pixel_shuffle"), st.integers(1, 3)),
            st.tuples(st.just("pixel_unshuffle"), st.integers(1, 3)),
        )
    )
    function = getattr(aten, name)
    (case,) = moved(
        f"{name} {shape(7)} {argument}", f"aten.{name}.default", (kind,), lambda s: [shape(s)],
        lambda x, s: [x, argument], lambda x, s: function(x, argument), live,
    )  # fmt: skip
    return case


FAMILIES = {
    "pools": pools(),
    "adaptive pools": adaptive_pools(),
    "resamples": resamples(),
    "samples": samples(),
    "moves": moves(),
}


def check(case: OpCase) -> None:
    try:
        for size in case.sizes:
            case.args_at(size)
    except RuntimeError:
        reject()  # torch refuses it
    sweep(case, rounds=1)


def tried(family: str, examples: int) -> None:
    plenty = [HealthCheck.filter_too_much, HealthCheck.too_slow]
    settings(max_examples=examples, deadline=None, suppress_health_check=plenty)(given(FAMILIES[family])(check))()


@pytest.mark.parametrize("family", FAMILIES)
def test_few(family: str) -> None:
    tried(family, 8)


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_many(family: str) -> None:
    tried(family, 200)
