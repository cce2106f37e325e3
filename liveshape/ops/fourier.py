"""Mixed-radix FFT of any length, and the real and imaginary parts of complex tensors, whose elements are two floats.

A length is a product of radices of at most 16, or of larger primes; each is one pass over the data, which costs as many
terms per element as the radix is large. So a prime length is a plain DFT, and 512 are three passes.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Iterator
from typing import Any

from liveshape.errors import ShapeError
from liveshape.graph import Shape
from liveshape.graph.elements import is_complex, prod
from liveshape.graph.live import LiveTensor
from liveshape.kernels import Dispatch, Kernel
from liveshape.kernels.requests import Scratch
from liveshape.ops.copies import copy_pairs, copy_values
from liveshape.ops.pointwise import Build, Viewed, apply, evaluate
from liveshape.ops.registry import Ints, op
from liveshape.ops.row_rules import but_dims, leading
from liveshape.ops.shapes import axis_of, strides_of

MIRRORED = Kernel.load("complex/mirrored")
FOURIER_PASS = Kernel.load("complex/fourier_pass")
_FACTOR = 16  # beyond which a pass costs more than another one

Steps = Generator[Dispatch | Scratch, Any, None]


def factors_of(length: int) -> list[int]:
    """The passes of a transform.

    >>> factors_of(400), factors_of(37), factors_of(1)
    ([16, 5, 5], [37], [])
    """
    factors, prime = [1], 2
    while length > 1:
        while prime * prime <= length and length % prime:
            prime = prime + 1
        step = prime if length % prime == 0 else length
        if factors[-1] * step <= _FACTOR:
            factors[-1] = factors[-1] * step
        else:
            factors.append(step)
        length = length // step
    return factors if factors[0] > 1 else factors[1:]


class _Memory:
    """Double buffering (ping-pong) of complex elements, and the twiddle factors of a dimension."""

    def __init__(self, here: LiveTensor, there: LiveTensor, twiddles: LiveTensor) -> None:
        self.here, self.there, self.twiddles = here, there, twiddles

    def transform(self, shape: Shape, axis: int, clockwise: bool) -> Iterator[Dispatch]:
        """Transform along one dimension."""
        length, done = shape[axis], 1
        yield from _twiddle(self.twiddles, length, clockwise)
        for radix in factors_of(length):
            yield FOURIER_PASS(
                self.there, self.here, self.twiddles, count=prod(shape), length=length, inner=prod(shape[axis + 1 :]),
                done=done, radix=radix, threads=prod(shape),
            )  # fmt: skip
            done = done * radix
            self.here, self.there = self.there, self.here


def _twiddle(out: LiveTensor, length: int, clockwise: bool) -> Iterator[Any]:
    """Element k becomes exp(-2 pi i k / length), or its conjugate: by the shorter way, where an angle is more exact."""
    e, k = Build(out.dtype), Viewed(None, (length,))
    beyond = e.call("gt", k, length // 2, dtype="bool")
    steps = e.call("where", beyond, e.call("sub", k, length, dtype="int32"), k, dtype="int32")
    turn = e.call("mul", steps, -math.tau if clockwise else math.tau, dtype="float32")
    e.call("polar", 1.0, e.call("div", turn, length, dtype="float32"))
    yield from evaluate(e.made(), out)


def _memory(bound: Shape, axes: Ints) -> Generator[Scratch, Any, _Memory]:
    here = yield Scratch("complex64", bound)
    there = yield Scratch("complex64", bound)
    twiddles = yield Scratch("complex64", (max(bound[axis] for axis in axes),))
    return _Memory(here, there, twiddles)


def _axes(dim: Ints, rank: int) -> Ints:
    if not dim or not rank:
        raise ShapeError(f"a Fourier transform along {dim} of {rank} dimensions: there must be one at least")
    return tuple(axis_of(each, rank) for each in dim)


def _scale(normalization: int, shape: Shape, axes: Ints) -> float:
    """What a result is multiplied by: nothing, one over the root of all lengths, or over all of them."""
    lengths = prod(shape[axis] for axis in axes)
    if lengths == 0:
        raise ShapeError(f"shape {shape} has nothing in dimensions {axes} to transform")
    scales = {0: 1.0, 1: 1.0 / math.sqrt(lengths), 2: 1.0 / lengths}
    return scales[normalization]


def _put(out: LiveTensor, x: LiveTensor, length: int, axis: int, scale: float) -> Iterator[Any]:
    """out = the first elements of a dimension that has `length`, scaled; of real results the real part."""
    shape = out.shape
    e, strides = Build(out.dtype), strides_of((*shape[:axis], length, *shape[axis + 1 :]))
    kept = Viewed(x, shape, strides)
    e.call("scale", kept if is_complex(out.dtype) else e.call("real", kept, dtype="float32"), scale)
    yield from evaluate(e.made(), out)


@op("aten._fft_r2c.default", "aten::_fft_r2c.out", rows=but_dims("x", "dim"))
def fft_r2c(x: LiveTensor, dim: Ints, normalization: int, onesided: bool, out: LiveTensor) -> Steps:
    axes, shape = _axes(dim, x.rank), x.shape
    memory = yield from _memory(x.max_shape, axes)
    last = axes[-1]
    length = shape[last]
    out.shape = (*shape[:last], length // 2 + 1 if onesided else length, *shape[last + 1 :])
    yield from apply("copy", x, out=memory.here)
    for axis in axes:
        yield from memory.transform(shape, axis, clockwise=True)
    yield from _put(out, memory.here, length, last, _scale(normalization, shape, axes))


@op("aten._fft_c2c.default", "aten::_fft_c2c.out", rows=but_dims("x", "dim"))
def fft_c2c(x: LiveTensor, dim: Ints, normalization: int, forward: bool, out: LiveTensor) -> Steps:
    axes, shape = _axes(dim, x.rank), x.shape
    memory = yield from _memory(x.max_shape, axes)
    last = axes[-1]
    out.shape = shape
    yield from copy_values(x, memory.here)
    for axis in axes:
        yield from memory.transform(shape, axis, clockwise=forward)
    yield from _put(out, memory.here, shape[last], last, _scale(normalization, shape, axes))


@op("aten._fft_c2r.default", "aten::_fft_c2r.out", rows=but_dims("x", "dim"))
def fft_c2r(x: LiveTensor, dim: Ints, normalization: int, last_dim_size: int, out: LiveTensor) -> Steps:
    """The other dimensions first: along the last one half of the numbers follow from the others only then."""
    axes, half = _axes(dim, x.rank), x.shape
    last = axes[-1]
    most = max(out.max_shape[last], x.max_shape[last])
    memory = yield from _memory((*out.max_shape[:last], most, *out.max_shape[last + 1 :]), axes)
    shape = (*half[:last], last_dim_size, *half[last + 1 :])
    if last_dim_size < 1 or half[last] <= last_dim_size // 2:
        raise ShapeError(f"{half[last]} numbers in dimension {dim[-1]} of {half} are no half of {last_dim_size}")
    out.shape = shape
    yield from copy_values(x, memory.here)
    for axis in axes[:-1]:
        yield from memory.transform(half, axis, clockwise=False)
    memory.here, memory.there = memory.there, memory.here
    yield MIRRORED(
        memory.here, memory.there, count=prod(shape), length=shape[last], given=half[last],
        inner=prod(shape[last + 1 :]), threads=prod(shape),
    )  # fmt: skip
    yield from memory.transform(shape, last, clockwise=False)
    yield from _put(out, memory.here, last_dim_size, last, _scale(normalization, shape, axes))


@op("aten.view_as_real_copy.default", "aten::view_as_real_copy.out", rows=leading("x", own=0), reads_as_written=True)
def view_as_real_copy(x: LiveTensor, out: LiveTensor) -> Iterator[Dispatch]:
    out.shape = (*x.shape, 2)
    yield copy_pairs(x, out, x.numel)


@op(
    "aten.view_as_complex_copy.default",
    "aten::view_as_complex_copy.out",
    rows=leading("x", own=1),
    reads_as_written=True,
)
def view_as_complex_copy(x: LiveTensor, out: LiveTensor) -> Iterator[Dispatch]:
    if x.shape[-1:] != (2,):
        raise ShapeError(f"{x.shape} does not end in the two parts of complex numbers")
    out.shape = x.shape[:-1]
    yield copy_pairs(x, out, out.numel)
