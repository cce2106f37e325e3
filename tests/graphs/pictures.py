"""Families of operators on pictures and signals: convolutions, pools, resampling, pads, shuffles, norms of groups."""

from __future__ import annotations

import math
from typing import Any

from tests.graphs.movement import same, size_of
from tests.graphs.program import Ref
from tests.graphs.writer import LARGE, WHOLE, Known, Writer

# With a batch and channels, in one dimension and in two.
FORMS: dict[int, tuple[tuple[Any, ...], ...]] = {
    3: ((1, 4, "S"), (1, 24, "S"), ("T", 6, "S"), (2, 3, "T")),
    4: ((1, 4, "T", "S"), (2, 3, "T", 7), ("T", 2, 5, 6), (1, 8, "S", 9), (1, 16, "T", 4)),
}


def picture(w: Writer, exact: bool = False) -> Ref:
    """A batch of signals or pictures whose channels never move."""
    found = w.choose(
        lambda x: x.floating and x.rank in FORMS and x.steady(1) and x.span <= LARGE and (x.exact or not exact)
    )
    if found is not None and w.chance.random() < 0.6:
        return found
    kind = w.chance.choice(("float32", "float32", "float32", "float16"))
    exact = exact or w.chance.random() < 0.3
    return w.input(w.shapes(*w.chance.choice(FORMS[w.chance.choice((3, 4))])), kind, -2, 2, exact)


def few(w: Writer, dims: int, *numbers: int) -> tuple[int, ...]:
    """One of some numbers for each dimension."""
    return tuple(w.chance.choice(numbers) for _ in range(dims))


def divisors(number: int) -> list[int]:
    return [each for each in range(1, number + 1) if number % each == 0]


def convolution(w: Writer) -> Any:
    """Of any kind: plain, in groups, depthwise, of single pixels, transposed; whole numbers where x has them."""
    x = picture(w)
    known: Known = w[x]
    dims, channels, kind = known.rank - 2, known.bound[1], known.dtype
    form = w.chance.choice(("plain", "groups", "depthwise", "pointwise", "transposed"))
    groups = channels if form == "depthwise" else w.chance.choice(divisors(channels)) if form != "plain" else 1
    outputs = groups * w.chance.choice((1, 2, 5) if groups > 1 else (1, 6, 8, 13))
    kernel = (1,) * dims if form == "pointwise" else few(w, dims, 1, 2, 3, 3)
    stride, dilation = few(w, dims, 1, 1, 2), few(w, dims, 1, 1, 2)
    turned = form == "transposed"
    more = tuple(w.chance.randrange(max(pair)) for pair in zip(stride, dilation, strict=True))
    pair = (channels, outputs // groups) if turned else (outputs, channels // groups)
    reach = math.prod(kernel) * channels // groups
    whole = known.exact and known.span * 2 * reach + 2 < (2048 if kind == "float16" else WHOLE)
    span = 2 if whole else 0.5
    shape = (*pair, *kernel)
    if w.chance.random() < 0.2:
        weight = w.input([shape] * (w.count + 1), kind, -span, span, whole)
    else:
        weight = w.constant(shape, kind, -span, span, whole)
    bias = w.constant((outputs,), kind, -span, span, whole) if w.chance.random() < 0.5 else None
    padding = few(w, dims, 0, 1, 1, 2)
    args = (x, weight, bias, stride, padding, dilation, turned, more if turned else (0,) * dims, groups)
    if w.chance.random() < 0.2:
        return w.emit("et_vk.conv_with_clamp.default", *args, -1.0, 3.0, dtype=kind, low=-1, high=3, exact=whole)
    most = known.span * span * reach + span
    return w.emit("aten.convolution.default", *args, dtype=kind, low=-most, high=most, exact=whole)


def pool(w: Writer) -> Any:
    """The greatest or the mean of windows, which have a size or are as many as is asked for."""
    x = picture(w)
    known: Known = w[x]
    dims, span = known.rank - 2, known.span
    mean = {"dtype": known.dtype, "low": -span, "high": span}
    if w.chance.random() < 0.4:
        size = few(w, dims, 1, 2, 3, 7)
        if w.chance.random() < 0.5:
            name = "aten.adaptive_avg_pool1d.default" if dims == 1 else "aten._adaptive_avg_pool2d.default"
            return w.emit(name, x, size, **mean)
        return with_places(w, x, f"aten.adaptive_max_pool{dims}d.default", size)
    kernel, stride = few(w, dims, 1, 2, 3, 4), w.chance.choice(((), few(w, dims, 1, 2, 3)))
    padding = tuple(w.chance.randint(0, size // 2) for size in kernel)
    ceil = w.chance.random() < 0.5
    if w.chance.random() < 0.5:
        divisor = (w.chance.choice((None, 3)),) if dims == 2 else ()
        args = (kernel, stride, padding, ceil, w.chance.random() < 0.5, *divisor)
        mean["high"] = math.prod(kernel) * span
        return w.emit(f"aten.avg_pool{dims}d.default", x, *args, **{**mean, "low": -mean["high"]})
    # Steps of two may leave a small picture by padding alone, and the greatest of nothing is no number.
    dilation = few(w, dims, 1, 2) if not any(padding) else (1,) * dims
    if dims == 1 or w.chance.random() < 0.3:
        return w.emit(f"aten.max_pool{dims}d.default", x, kernel, stride, padding, dilation, ceil, **same(known))
    return with_places(w, x, "aten.max_pool2d_with_indices.default", kernel, stride, padding, dilation, ceil)


def with_places(w: Writer, x: Ref, operator: str, *args: Any) -> Any:
    """A node that gives elements and where they were: the places are seen only of what is exact, as ties are."""
    known: Known = w[x]
    pair = w.emit(operator, x, *args, **{**same(known), "dtype": (known.dtype, "int64"), "shown": known.exact})
    if pair is not None:
        w[pair[1]].low, w[pair[1]].high = 0, math.prod(known.bound)
        w.pool += () if known.exact else pair[:1]
    return pair


def resample(w: Writer) -> Any:
    """To a size, which may be live, or by factors of the live one."""
    x = picture(w)
    known: Known = w[x]
    dims = known.rank - 2
    nearest = w.chance.random() < 0.5
    name = f"upsample_nearest{dims}d" if nearest else ("upsample_linear1d", "upsample_bilinear2d")[dims - 1]
    aligned = () if nearest else (w.chance.random() < 0.5,)
    told = same(known) if nearest else {**same(known), "exact": False}
    if w.chance.random() < 0.5:
        factors = tuple(w.chance.choice((2.0, 2.0, 1.5, 0.5, 1.0)) for _ in range(dims))
        return w.emit(f"aten.{name}.vec", x, None, *aligned, factors, **told)
    live = [ref for ref in w.scalars if w[ref].values and w[ref].low >= 1 and w[ref].high <= 43]
    sizes = tuple(
        w.chance.choice(live) if live and w.chance.random() < 0.4 else w.chance.choice((1, 4, 9, 20))
        for _ in range(dims)
    )
    return w.emit(f"aten.{name}.default", x, sizes, *aligned, *(None,) * dims, **told)


def rearranged(w: Writer) -> Any:
    """Pads with what is there, and pixels to channels and back."""
    x = picture(w)
    known: Known = w[x]
    dims = known.rank - 2
    if dims == 2 and w.chance.random() < 0.4:
        name = w.chance.choice(("pixel_shuffle", "pixel_unshuffle"))
        return w.emit(f"aten.{name}.default", x, w.chance.choice((1, 2, 2, 3)), **same(known))
    name = w.chance.choice(("reflection_pad", "replication_pad"))
    return w.emit(f"aten.{name}{dims}d.default", x, few(w, 2 * dims, 0, 1, 2, -1), **same(known))


def group_norm(w: Writer) -> Any:
    x = picture(w)
    known: Known = w[x]
    if known.dtype != "float32":
        return None
    channels, groups = known.bound[1], w.chance.choice(divisors(known.bound[1]))
    weight = w.constant((channels,), "float32", 0.5, 1.5) if w.chance.random() < 0.7 else None
    bias = w.constant((channels,)) if weight is not None and w.chance.random() < 0.7 else None
    pixels = size_of(w, x, 2)
    if known.rank == 4:
        other = size_of(w, x, 3)
        pixels = w.set("mul", pixels, other) if Ref in (type(pixels), type(other)) else pixels * other
    span = max(1.5 * math.sqrt(math.prod(known.bound[1:]) / groups) + 1, 100.0, known.span)
    args = (weight, bias, size_of(w, x, 0), channels, pixels, groups, 1e-3)
    return w.emit("aten.native_group_norm.default", x, *args, dtype=("float32",) * 3, low=-span, high=span)
