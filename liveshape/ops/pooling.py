"""Pooling in one to three dimensions: windows of x by kernel size and stride, or adaptive."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from liveshape.errors import ShapeError
from liveshape.graph import Shape
from liveshape.graph.elements import prod
from liveshape.graph.live import LiveTensor
from liveshape.kernels import Dispatch, Kernel
from liveshape.ops.registry import Ints, Tensors, op
from liveshape.ops.row_rules import leading
from liveshape.ops.scalars import are_integers, int_of
from liveshape.ops.shapes import ceil_div, in_three
from liveshape.ops.windows import check_windows, convolved_size, for_each, span_of

POOL_AVERAGE = Kernel.load("image/pool")
POOL_MAX = Kernel.load("image/pool", POOL="maximum")
POOL_MAX_INDEXED = Kernel.load("image/pool", POOL="maximum_and_index")
POOL_MAX_BACKWARD = Kernel.load("image/pool_max_backward")
FLAT = 2  # dimensions of images, whose channels may be last
MAX_LAST, AVERAGE_LAST = "liveshape.channels_last_max_pool", "liveshape.channels_last_average_pool"
_FAR = 1 << 29  # so that no place in a window is beyond 32 bits


def _spatial(x: LiveTensor, dims: int) -> tuple[Shape, Shape]:
    """The shape of x as planes, and the sizes of a plane; a batch may be missing."""
    if x.rank not in (dims + 1, dims + 2):
        raise ShapeError(f"{x.shape} has {x.rank} dimensions; channels and {dims} more are needed, with a batch or not")
    return x.shape[:-dims], x.shape[-dims:]


def pool_windows(
    sizes: Shape, kernel: Ints, stride: Ints, padding: Ints, dilation: Ints, ceil_mode: bool
) -> tuple[Shape, dict[str, Any]]:
    """How many windows there are along each dimension, and where they lie."""
    dims = len(sizes)
    window = for_each("kernel", kernel, dims)
    # No stride is that of windows side by side.
    steps = for_each("stride", stride, dims) if stride else window
    pads, gaps = for_each("padding", padding, dims), for_each("dilation", dilation, dims)
    counts = []
    for size, width, step, pad, gap in zip(sizes, window, steps, pads, gaps, strict=True):
        reach = span_of(width, gap)
        if width < 1 or step < 1 or gap < 1 or reach > _FAR or step > _FAR:
            raise ShapeError(f"kernel {window}, stride {steps} and dilation {gaps} must each be between 1 and {_FAR}")
        if pad < 0 or 2 * pad > reach:
            raise ShapeError(f"padding {padding} is not between 0 and half of a window that reaches over {reach}")
        counts.append(convolved_size(size, width, step, pad, gap, ceil_mode))
    check_windows(counts, sizes, window, padding, dilation)
    return tuple(counts), _places(sizes, tuple(counts), window, steps, pads, gaps)


def _places(sizes: Shape, outs: Shape, window: Ints, stride: Ints, padding: Ints, dilation: Ints) -> dict[str, Any]:
    return {
        "sizes": in_three(sizes),
        "outs": in_three(outs),
        "window": in_three(window),
        "stride": in_three(stride),
        "padding": in_three(padding, 0),
        "dilation": in_three(dilation),
        "turns": loop_turns(in_three(window)),
    }


def loop_turns(window: Shape) -> int:
    """Of the three loops over a window, one in the other.

    >>> loop_turns((1, 3, 3))
    13
    """
    depth, height, width = window
    return depth * (1 + height * (1 + width))


def _shares(sizes: Shape, output_size: Ints) -> tuple[Shape, dict[str, Any]]:
    """As `_windows`, for windows that share x out into `output_size`."""
    outs = for_each("output size", output_size, len(sizes))
    if any(size < 1 for size in sizes):
        raise ShapeError(f"a picture of {sizes} has nothing to share out into {output_size}")
    none, one = (0,) * len(sizes), (1,) * len(sizes)
    shares = tuple(ceil_div(size, max(out, 1)) + 1 for size, out in zip(sizes, outs, strict=True))
    return outs, {**_places(sizes, outs, one, one, none, one), "ADAPTIVE": True, "turns": loop_turns(in_three(shares))}


def _average(
    x: LiveTensor, lead: Shape, outs: Shape, places: dict[str, Any], out: LiveTensor, **divisor: Any
) -> Iterator[Dispatch]:
    out.shape = lead + outs
    given = {"divisor": 1, **divisor}
    yield POOL_AVERAGE(out, x, **places, **given, lowest=0.0, count=out.numel, threads=out.numel)


def _maximum(x: LiveTensor, lead: Shape, outs: Shape, places: dict[str, Any], out: Tensors) -> Iterator[Dispatch]:
    for each in out:
        each.shape = lead + outs
    count, integral = prod(lead + outs), are_integers(x)
    # Below every float is an infinity, below every integer the least of 32 bits.
    values = {**places, "divisor": 1, "lowest": -(2.0**31) if integral else float("-inf"), "INTEGER": integral}
    if len(out) == 1:
        yield POOL_MAX(out[0], x, **values, count=count, threads=count)
    else:
        yield POOL_MAX_INDEXED(out[0], x, out[1], **values, count=count, threads=count)


def _average_pool(
    x: LiveTensor,
    dims: int,
    steps: tuple[Ints, Ints, Ints],
    ceil_mode: bool,
    count_include_pad: bool,
    divisor: int | None,
    out: LiveTensor,
) -> Iterator[Dispatch]:
    lead, sizes = _spatial(x, dims)
    outs, places = pool_windows(sizes, *steps, (1,), ceil_mode)
    if divisor is None:
        yield from _average(x, lead, outs, places, out, DIVISOR="PADDED" if count_include_pad else "INSIDE")
    else:
        yield from _average(x, lead, outs, places, out, DIVISOR="GIVEN", divisor=int_of(divisor))


@op("aten.avg_pool1d.default", "aten::avg_pool1d.out", rows=leading("x", own=1))
def avg_pool1d(
    x: LiveTensor,
    kernel: Ints,
    stride: Ints,
    padding: Ints,
    ceil_mode: bool,
    count_include_pad: bool,
    out: LiveTensor,
) -> Iterator[Dispatch]:
    yield from _average_pool(x, 1, (kernel, stride, padding), ceil_mode, count_include_pad, None, out)


def _portable(dims: int, name: str) -> tuple[str, ...]:
    """The portable name, where PyTorch has one: maxima in one dimension are composed of others."""
    return (name,) if dims > 1 else ()


def _register(dims: int) -> None:
    name = f"max_pool{dims}d_with_indices"

    flat = dims == FLAT

    @op(
        f"aten.{name}.default",
        *_portable(dims, f"aten::{name}.out"),
        rows=leading("x", own=dims),
        channels_last=MAX_LAST if flat else "",
    )
    def max_pool_with_indices(
        x: LiveTensor, kernel: Ints, stride: Ints, padding: Ints, dilation: Ints, ceil_mode: bool, out: Tensors
    ) -> Iterator[Dispatch]:
        lead, sizes = _spatial(x, dims)
        yield from _maximum(x, lead, *pool_windows(sizes, kernel, stride, padding, dilation, ceil_mode), out)

    @op(f"aten.max_pool{dims}d.default", rows=leading("x", own=dims), channels_last=MAX_LAST if flat else "")
    def max_pool(
        x: LiveTensor, kernel: Ints, stride: Ints, padding: Ints, dilation: Ints, ceil_mode: bool, out: LiveTensor
    ) -> Iterator[Dispatch]:
        yield from max_pool_with_indices(x, kernel, stride, padding, dilation, ceil_mode, (out,))

    @op(
        f"aten.adaptive_max_pool{dims}d.default",
        *_portable(dims, f"aten::adaptive_max_pool{dims}d.out"),
        rows=leading("x", own=dims),
    )
    def adaptive_max_pool(x: LiveTensor, output_size: Ints, out: Tensors) -> Iterator[Dispatch]:
        lead, sizes = _spatial(x, dims)
        yield from _maximum(x, lead, *_shares(sizes, output_size), out)

    averages = f"{'_' if dims > 1 else ''}adaptive_avg_pool{dims}d"

    @op(f"aten.{averages}.default", f"aten::{averages}.out", rows=leading("x", own=dims))
    def adaptive_avg_pool(x: LiveTensor, output_size: Ints, out: LiveTensor) -> Iterator[Dispatch]:
        lead, sizes = _spatial(x, dims)
        yield from _average(x, lead, *_shares(sizes, output_size), out)

    # In one dimension PyTorch has neither a divisor nor a gradient by indices.
    if dims == 1:
        return

    @op(
        f"aten.avg_pool{dims}d.default",
        f"aten::avg_pool{dims}d.out",
        rows=leading("x", own=dims),
        channels_last=AVERAGE_LAST if flat else "",
    )
    def avg_pool(
        x: LiveTensor,
        kernel: Ints,
        stride: Ints,
        padding: Ints,
        ceil_mode: bool,
        count_include_pad: bool,
        divisor: int | None,
        out: LiveTensor,
    ) -> Iterator[Dispatch]:
        yield from _average_pool(x, dims, (kernel, stride, padding), ceil_mode, count_include_pad, divisor, out)

    @op(f"aten.{name}_backward.default", f"aten::{name}_backward.grad_input")
    def max_pool_backward(
        gradient: LiveTensor,
        x: LiveTensor,
        kernel: Ints,
        stride: Ints,
        padding: Ints,
        dilation: Ints,
        ceil_mode: bool,
        indices: LiveTensor,
        out: LiveTensor,
    ) -> Iterator[Dispatch]:
        lead, sizes = _spatial(x, dims)
        outs, places = pool_windows(sizes, kernel, stride, padding, dilation, ceil_mode)
        if gradient.shape != lead + outs or indices.shape != lead + outs:
            raise ShapeError(
                f"{x.shape} is pooled to {lead + outs}; a gradient of {gradient.shape} with indices of "
                f"{indices.shape} does not fit"
            )
        out.shape = x.shape
        yield POOL_MAX_BACKWARD(out, gradient, indices, **places, count=x.numel, threads=x.numel)


for _dims in (1, 2, 3):
    _register(_dims)
