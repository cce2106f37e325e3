"""Copies between tensors: whole, converted, or along strides. Movement operators plan through these."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Any

from liveshape.errors import UnsupportedError
from liveshape.graph import Shape
from liveshape.graph.elements import is_complex, is_packed, prod, stored_alike
from liveshape.graph.live import LiveTensor
from liveshape.kernels import Dispatch, Kernel
from liveshape.kernels.requests import Scratch
from liveshape.ops.pointwise import Viewed, apply
from liveshape.ops.shapes import Layout, ceil_div, merge_dims, strides_of

PACKED_PART = Kernel.load("movement/packed_part")
STRIDED_COPY = Kernel.load("movement/strided_copy")
PAIR_COPY = Kernel.load("movement/strided_copy", ELEMENTS="complex")
WORD_COPY = Kernel.load("movement/strided_copy", ELEMENTS="words")
TRANSPOSE = Kernel.load("movement/transpose")
_TILE = 32  # of movement/transpose.wgsl
_NARROW = 8  # below this a tile is mostly empty

_Place = tuple[int, Shape]  # the first element, and a stride per dimension


def copy_values(x: LiveTensor, out: LiveTensor) -> Iterator[Dispatch]:
    """Every live element of x to out, converted to out's type; nothing at all where they share memory."""
    if out.storage is not x.storage:
        yield from _copy_flat(x, out, x.numel)


def _copy_flat(x: LiveTensor, out: LiveTensor, count: int) -> Iterator[Dispatch]:
    yield from apply(conversion(x.dtype, out.dtype), Viewed(x, (count,)), out=out, shape=out.shape)


def copy_pairs(x: LiveTensor, out: LiveTensor, count: int) -> Dispatch:
    """So many complex numbers to a tensor of their parts, or from one."""
    return _copy(PAIR_COPY, x, out, (count,), (0, (1,)), (0, (1,)))


def _copy(
    kernel: Kernel, x: LiveTensor, out: LiveTensor, sizes: Shape, source: _Place, target: _Place, **constants: Any
) -> Dispatch:
    count = constants.pop("count", prod(sizes))
    return kernel(
        out, x, count=count, rank=len(sizes), source_start=source[0], target_start=target[0], sizes=sizes,
        source_strides=source[1], target_strides=target[1], threads=count, **constants,
    )  # fmt: skip


def conversion(source: str, target: str) -> str:
    """The function of the table that converts a dtype to another; a number is tested for a boolean, not truncated.

    >>> conversion("float32", "bool"), conversion("float32", "int32")
    ('to_bool', 'copy')
    """
    if is_complex(source) and not is_complex(target):
        raise UnsupportedError(f"{source} cannot be copied to {target}; take its parts by view_as_real")
    return "to_bool" if target == "bool" and source != "bool" else "copy"


def as_dtype(x: LiveTensor, dtype: str) -> Generator[Dispatch | Scratch, Any, LiveTensor]:
    """x itself, or a converted copy of it where `dtype` is stored otherwise. Ask before any routing."""
    if stored_alike(x.dtype, dtype):
        return x
    copy: LiveTensor = yield Scratch(dtype, x.max_shape)
    copy.shape = x.shape
    yield from _copy_flat(x, copy, x.numel)
    return copy


def copy_strided(x: LiveTensor, out: LiveTensor, source: Layout, target: Layout | None = None) -> Iterator[Any]:
    """Elements of x, as `source` reads it, to out, in order or as `target` writes it; both hold elements alike.

    Contiguous copies and rows move vec4s; where the contiguous dimension of x is not that of out, tiles are transposed
    in workgroup memory.
    """
    into = target or Layout.contiguous(source.shape)
    count = prod(source.shape)
    if count == 0:
        return
    sizes, (reads, writes) = merge_dims(source.shape, source.strides, into.strides)
    if not sizes:
        sizes, reads, writes = (1,), (1,), (1,)
    begins, whole = (source.start, into.start), into.start == 0 and count == out.numel
    if whole and source.start == 0 and reads == writes == (1,):
        yield from _copy_flat(x, out, count)
        return
    by_element = is_packed(x.dtype) or is_complex(x.dtype)
    transposed = -1 if by_element else _transposed_axis(sizes, reads, writes)
    if transposed >= 0:
        yield _transpose(x, out, transposed, sizes, (source.start, reads), (into.start, writes))
        return
    widths = (1,) if is_complex(x.dtype) else (4, 2, 1)
    width = next(width for width in widths if _in_rows_of(width, sizes, reads, writes, begins))
    if is_packed(x.dtype) and width != 4:
        if whole and writes == strides_of(sizes):
            yield from apply("copy", Viewed(x, sizes, reads, source.start), out=out, shape=out.shape)
            return
        # Elements into a part of out; what else lies in the words that it cuts stays.
        last = into.start + sum((size - 1) * stride for size, stride in zip(sizes, writes, strict=True))
        words = last // 4 - into.start // 4 + 1
        yield _copy(PACKED_PART, x, out, sizes, (source.start, reads), (into.start, writes), count=words)
        return
    sizes = (*sizes[:-1], sizes[-1] // width)
    reads, writes = ((*(stride // width for stride in row[:-1]), row[-1]) for row in (reads, writes))
    kernel = WORD_COPY if is_packed(x.dtype) else PAIR_COPY if is_complex(x.dtype) else STRIDED_COPY
    vectors = {} if by_element else {"VEC": width}
    yield _copy(kernel, x, out, sizes, (begins[0] // width, reads), (begins[1] // width, writes), **vectors)


def _in_rows_of(width: int, sizes: Shape, reads: Shape, writes: Shape, starts: tuple[int, int]) -> bool:
    """Whether every row is contiguous on both sides and begins and ends on a multiple of `width`."""
    if width == 1:
        return True
    steps = (sizes[-1], *starts, *reads[:-1], *writes[:-1])
    return reads[-1] == 1 and writes[-1] == 1 and all(step % width == 0 for step in steps)


def _transposed_axis(sizes: Shape, reads: Shape, writes: Shape) -> int:
    """The axis along which x is contiguous, if out is contiguous along the last one and both are long; else -1."""
    if writes[-1] == 1 and reads[-1] > 1 and sizes[-1] >= _NARROW:
        for axis in range(len(sizes) - 1):
            if reads[axis] == 1 and sizes[axis] >= _NARROW:
                return axis
    return -1


def _transpose(x: LiveTensor, out: LiveTensor, axis: int, sizes: Shape, source: _Place, target: _Place) -> Dispatch:
    (source_start, reads), (target_start, writes) = source, target
    rest = [other for other in range(len(sizes) - 1) if other != axis]
    outer = tuple(sizes[other] for other in rest)
    tiles = prod(outer) * ceil_div(sizes[axis], _TILE) * ceil_div(sizes[-1], _TILE)
    return TRANSPOSE(
        out,
        x,
        tiles=tiles,
        rank=len(rest),
        across=sizes[axis],
        along=sizes[-1],
        across_stride=writes[axis],
        along_stride=reads[-1],
        source_start=source_start,
        target_start=target_start,
        sizes=outer,
        source_strides=tuple(reads[other] for other in rest),
        target_strides=tuple(writes[other] for other in rest),
        groups=tiles,
    )
