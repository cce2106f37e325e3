"""Padding: elements around a tensor that are a constant, its mirror image, or copies of its border."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from liveshape.errors import ShapeError, UnsupportedError
from liveshape.graph.elements import is_complex, is_packed, prod, storage_type
from liveshape.graph.live import LiveTensor
from liveshape.kernels import Dispatch, Kernel
from liveshape.ops.copies import copy_values
from liveshape.ops.moved_rows import rows_of
from liveshape.ops.registry import Ints, Number, exported, op
from liveshape.ops.shapes import MAX_RANK, Strided

PAD = Kernel.load("movement/pad")


def _pairs(x: Strided | LiveTensor, pad: Ints) -> list[Ints]:
    """What is added before and after each dimension of x; pads of the last dimension come first."""
    if len(pad) % 2 or len(pad) > 2 * x.rank:
        raise ShapeError(f"pad {pad} does not fit the {x.rank} dimensions of {x.shape}")
    pairs = [pad[first : first + 2] for first in range(0, len(pad), 2)]
    return [(0, 0)] * (x.rank - len(pairs)) + pairs[::-1]


def padded(x: Strided, pad: Ints, *_: Any) -> Strided:
    """How a padded tensor lies in x: it begins before x, and ends behind it."""
    result = x
    for axis, (low, high) in enumerate(_pairs(x, pad)):
        result = result.put(axis, low + x.shape[axis] + high, x.strides[axis], -low * x.strides[axis])
    if any(size < 0 for size in result.shape):
        raise ShapeError(f"pad {pad} cuts more than {x.shape} has")
    return result


@op(*exported("constant_pad_nd"), rows=rows_of(padded), epilogues=True)
def constant_pad_nd(x: LiveTensor, pad: Ints, value: Number, out: LiveTensor) -> Iterator[Dispatch]:
    yield from _pad(x, pad, "CONSTANT", value, out)


@op(*(name for dims in (1, 2, 3) for name in exported(f"reflection_pad{dims}d")), rows=rows_of(padded))
def reflection_pad(x: LiveTensor, pad: Ints, out: LiveTensor) -> Iterator[Dispatch]:
    # The border itself is not repeated, so a mirror image has one element less than x.
    if any(max(pair) >= size for pair, size in _edges(x, pad)):
        raise ShapeError(f"a mirror image of {x.shape} cannot be {pad} wide; each must be below its dimension")
    yield from _pad(x, pad, "REFLECT", 0, out)


@op(*(name for dims in (1, 2, 3) for name in exported(f"replication_pad{dims}d")), rows=rows_of(padded))
def replication_pad(x: LiveTensor, pad: Ints, out: LiveTensor) -> Iterator[Dispatch]:
    if any(size < 1 for _, size in _edges(x, pad)):
        raise ShapeError(f"{x.shape} has no border to repeat")
    yield from _pad(x, pad, "REPLICATE", 0, out)


def _edges(x: LiveTensor, pad: Ints) -> list[tuple[Ints, int]]:
    """What is added before and after each dimension that is padded, with its size."""
    dims = len(pad) // 2
    if len(pad) % 2 or x.rank not in (dims + 1, dims + 2):
        raise ShapeError(f"pad {pad} does not fit the last {dims} dimensions of {x.shape}")
    return [*zip(_pairs(x, pad), x.shape, strict=True)][x.rank - dims :]


def _pad(x: LiveTensor, pad: Ints, fill: str, value: Number, out: LiveTensor) -> Iterator[Dispatch]:
    out.shape = padded(Strided.contiguous(x.shape), pad).shape
    if not any(pad):
        yield from copy_values(x, out)
        return
    if is_packed(x.dtype):
        raise UnsupportedError(f"{x.dtype} tensors cannot be padded; cast before export")
    if is_complex(x.dtype) and value != 0:
        raise UnsupportedError(f"complex tensors are padded with zeros, {value} was given; pad their parts instead")
    dims = [(size, low, extent) for size, (low, _), extent in zip(out.shape, _pairs(x, pad), x.shape, strict=True)]
    # A complex number is a dimension of two more.
    merged = _merge_whole(dims + [(2, 0, 2)] * is_complex(x.dtype), fill == "CONSTANT")
    sizes, before, extents = zip(*merged, strict=True)
    integer, count = storage_type(out.dtype) in ("i32", "u32"), prod(sizes)
    yield PAD(
        out, x, count=count, rank=len(sizes), high=value // 65536 if integer else 0,
        low=value % 65536 if integer else value, sizes=sizes, before=before, extents=extents, INTEGER=integer,
        FILL=fill, threads=count,
    )  # fmt: skip


def _merge_whole(dims: list[tuple[int, int, int]], blocks: bool) -> list[tuple[int, int, int]]:
    """Merge every dimension (its size, what is before x, and how much x has) that x fills into the one outside of it.

    Unless `blocks` of a constant are added, what is outside of it must be whole as well: rows are mirrored one by one.
    """
    merged: list[tuple[int, int, int]] = []
    for size, low, extent in dims:
        outer = merged[-1] if merged else None
        if outer and low == 0 and size == extent and (blocks or (outer[1] == 0 and outer[0] == outer[2])):
            merged[-1] = (outer[0] * size, outer[1] * size, outer[2] * size)
        else:
            merged.append((size, low, extent))
    if len(merged) > MAX_RANK:
        raise UnsupportedError(f"padding {len(merged)} dimensions {dims}, kernels take {MAX_RANK}")
    return merged
