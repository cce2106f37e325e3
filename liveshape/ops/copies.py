"""Copies between tensors: whole, converted, or along strides. Movement operators plan through these."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Any

from liveshape.errors import UnsupportedError
from liveshape.graph.elements import by_itself, is_complex, is_packed, prod, stored_alike
from liveshape.graph.live import LiveTensor
from liveshape.kernels import Dispatch, Kernel
from liveshape.kernels.requests import Scratch
from liveshape.ops.pointwise import Viewed, apply
from liveshape.ops.shapes import Strided, ceil_div, merge_dims, strides_of, without

PACKED_PART = Kernel.load("movement/packed_part")
STRIDED_COPY = Kernel.load("movement/strided_copy")
TRANSPOSE = Kernel.load("movement/transpose")
_TILE = 32  # of movement/transpose.wgsl
_NARROW = 8  # below this a tile is mostly empty


def copy_values(x: LiveTensor, out: LiveTensor) -> Iterator[Dispatch]:
    """Every live element of x to out, converted to out's type; nothing at all where they share memory."""
    if out.storage is not x.storage:
        yield from _copy_flat(x, out, x.numel)


def _copy_flat(x: LiveTensor, out: LiveTensor, count: int) -> Iterator[Dispatch]:
    yield from apply(conversion(x.dtype, out.dtype), Viewed(x, (count,)), out=out, shape=out.shape)


def copy_pairs(x: LiveTensor, out: LiveTensor, count: int) -> Dispatch:
    """So many complex numbers to a tensor of their parts, or from one."""
    whole = Strided.contiguous((count,))
    return _copy_in_vectors(x, out, whole, whole, 2)


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


def copy_strided(x: LiveTensor, out: LiveTensor, source: Strided, target: Strided | None = None) -> Iterator[Any]:
    """Elements of x, as `source` reads it, to out, in order or as `target` writes it; both hold elements alike.

    Contiguous copies and rows move vec4s; where the contiguous dimension of x is not that of out, tiles are transposed
    in workgroup memory.
    """
    into = target or Strided.contiguous(source.shape)
    count = prod(source.shape)
    if count == 0:
        return
    sizes, (reads, writes) = merge_dims(source.shape, source.strides, into.strides)
    read = Strided(sizes or (1,), reads or (1,), source.start)
    write = Strided(sizes or (1,), writes or (1,), into.start)
    whole = write.start == 0 and count == out.numel
    if whole and read.start == 0 and read.strides == write.strides == (1,):
        yield from _copy_flat(x, out, count)
        return
    transposed = _transposed_axis(read, write) if by_itself(x.dtype) else -1
    if transposed >= 0:
        yield _transpose(x, out, transposed, read, write)
        return
    if is_packed(x.dtype) and not _is_in_rows(read, write, 4):
        if whole and write.strides == strides_of(write.shape):
            yield from apply("copy", Viewed(x, *read[:3]), out=out, shape=out.shape)
            return
        # Elements into a part of out; what else lies in the words that it cuts stays.
        last = write.start + sum((size - 1) * stride for size, stride in zip(write.shape, write.strides, strict=True))
        words = last // 4 - write.start // 4 + 1
        yield _copy(PACKED_PART, x, out, read, write, count=words, threads=words)
        return
    if is_packed(x.dtype):
        read, write = (_in_vectors(layout, 4) for layout in (read, write))
    yield _copy_in_vectors(x, out, read, write, 2 if is_complex(x.dtype) else 1)


def _copy_in_vectors(x: LiveTensor, out: LiveTensor, read: Strided, write: Strided, lanes: int) -> Dispatch:
    """Elements of one or two lanes, as many as are a vector."""
    width = next(width for width in (4 // lanes, 2 // lanes, 1) if _is_in_rows(read, write, width))
    read, write = (_in_vectors(layout, width) for layout in (read, write))
    count = prod(read.shape)
    return _copy(STRIDED_COPY, x, out, read, write, count=count, threads=count, VEC=lanes * width)


def _copy(kernel: Kernel, x: LiveTensor, out: LiveTensor, read: Strided, write: Strided, **more: Any) -> Dispatch:
    return kernel(
        out, x, rank=read.rank, source_start=read.start, target_start=write.start, sizes=read.shape,
        source_strides=read.strides, target_strides=write.strides, **more,
    )  # fmt: skip


def _is_in_rows(read: Strided, write: Strided, width: int) -> bool:
    """Whether every row is contiguous on both sides and begins and ends on a multiple of `width`."""
    steps = (read.shape[-1], read.start, write.start, *read.strides[:-1], *write.strides[:-1])
    return width == 1 or (read.strides[-1] == write.strides[-1] == 1 and all(step % width == 0 for step in steps))


def _in_vectors(layout: Strided, width: int) -> Strided:
    shape = (*layout.shape[:-1], layout.shape[-1] // width)
    strides = (*(stride // width for stride in layout.strides[:-1]), layout.strides[-1])
    return Strided(shape, strides, layout.start // width)


def _transposed_axis(read: Strided, write: Strided) -> int:
    """The axis along which x is contiguous, if out is contiguous along the last one and both are long; else -1."""
    if write.strides[-1] == 1 and read.strides[-1] > 1 and read.shape[-1] >= _NARROW:
        for axis in range(read.rank - 1):
            if read.strides[axis] == 1 and read.shape[axis] >= _NARROW:
                return axis
    return -1


def _transpose(x: LiveTensor, out: LiveTensor, axis: int, read: Strided, write: Strided) -> Dispatch:
    across, along = read.shape[axis], read.shape[-1]
    outer = without(read.shape[:-1], axis)
    tiles = prod(outer) * ceil_div(across, _TILE) * ceil_div(along, _TILE)
    rest = (Strided(outer, without(each.strides[:-1], axis), each.start) for each in (read, write))
    return _copy(
        TRANSPOSE, x, out, *rest, tiles=tiles, across=across, along=along, across_stride=write.strides[axis],
        along_stride=read.strides[-1], groups=tiles,
    )  # fmt: skip
