"""Padding: elements around a tensor that are a constant, its mirror image, or copies of its border."""

from __future__ import annotations

from collections.abc import Iterator

from liveshape.errors import ShapeError, UnsupportedError
from liveshape.graph import Shape
from liveshape.graph.elements import is_complex, is_packed, prod, storage_type
from liveshape.graph.live import LiveTensor
from liveshape.kernels import Dispatch, Kernel
from liveshape.ops.copies import copy_values
from liveshape.ops.moved_rows import padded
from liveshape.ops.registry import Ints, Number, exported, op
from liveshape.ops.shapes import MAX_RANK

PAD = Kernel.load("movement/pad")
PAD_PAIRS = Kernel.load("movement/pad", ELEMENTS="complex")


@op(*exported("constant_pad_nd"), rows=padded(), epilogues=True)
def constant_pad_nd(x: LiveTensor, pad: Ints, value: Number, out: LiveTensor) -> Iterator[Dispatch]:
    yield from _pad(x, pad, "CONSTANT", value, out)


def _register(dims: int) -> None:
    @op(*exported(f"reflection_pad{dims}d"), rows=padded(dims))
    def reflection_pad(x: LiveTensor, pad: Ints, out: LiveTensor) -> Iterator[Dispatch]:
        # The border itself is not repeated, so a mirror image has one element less than x.
        if any(max(pair) >= size for pair, size in _pairs(x, pad, dims)):
            raise ShapeError(f"a mirror image of {x.shape} cannot be {pad} wide; each must be below its dimension")
        yield from _pad(x, pad, "REFLECT", 0, out)

    @op(*exported(f"replication_pad{dims}d"), rows=padded(dims))
    def replication_pad(x: LiveTensor, pad: Ints, out: LiveTensor) -> Iterator[Dispatch]:
        if any(size < 1 for _, size in _pairs(x, pad, dims)):
            raise ShapeError(f"{x.shape} has no border to repeat")
        yield from _pad(x, pad, "REPLICATE", 0, out)


for _dims in (1, 2, 3):
    _register(_dims)


def _pairs(x: LiveTensor, pad: Ints, dims: int) -> list[tuple[Ints, int]]:
    """What is added before and after each of the last dimensions, with its size, the last one first."""
    if len(pad) != 2 * dims or x.rank not in (dims + 1, dims + 2):
        raise ShapeError(f"pad {pad} does not fit the last {dims} dimensions of {x.shape}")
    return [(pad[2 * place : 2 * place + 2], x.shape[-1 - place]) for place in range(dims)]


def _pad(x: LiveTensor, pad: Ints, fill: str, value: Number, out: LiveTensor) -> Iterator[Dispatch]:
    if len(pad) % 2 or len(pad) > 2 * x.rank:
        raise ShapeError(f"pad {pad} does not fit the {x.rank} dimensions of {x.shape}")
    whole = x.rank - len(pad) // 2
    # Pairs of before and after, the last dimension first.
    before = (0,) * whole + tuple(reversed(pad[0::2]))
    after = (0,) * whole + tuple(reversed(pad[1::2]))
    shape = tuple(low + size + high for low, size, high in zip(before, x.shape, after, strict=True))
    if any(size < 0 for size in shape):
        raise ShapeError(f"pad {pad} cuts more than {x.shape} has")
    out.shape = shape
    if not any(pad):
        yield from copy_values(x, out)
        return
    if is_packed(x.dtype):
        raise UnsupportedError(f"{x.dtype} tensors cannot be padded; cast before export")
    pair = is_complex(x.dtype)
    if pair and value != 0:
        raise UnsupportedError(f"complex tensors are padded with zeros, {value} was given; pad their parts instead")
    given = x.shape
    if pair:  # a complex number is a dimension of two more
        shape, before, given = (*shape, 2), (*before, 0), (*given, 2)
    sizes, starts, extents = _merge_whole(shape, before, given, fill == "CONSTANT")
    integer = storage_type(out.dtype) in ("i32", "u32")
    count = prod(shape)
    yield (PAD_PAIRS if pair else PAD)(
        out,
        x,
        count=count,
        rank=len(sizes),
        high=value // 65536 if integer else 0,
        low=value % 65536 if integer else value,
        sizes=sizes,
        before=starts,
        extents=extents,
        INTEGER=integer,
        FILL=fill,
        threads=count,
    )


def _merge_whole(shape: Shape, before: Shape, extents: Shape, blocks: bool) -> tuple[Shape, Shape, Shape]:
    """Merge every dimension that nothing is added to or cut from into the one outside of it.

    Unless `blocks` of a constant are added, what is outside of it must be whole as well: rows are mirrored one by one.
    """
    merged: list[tuple[int, int, int]] = []
    for size, low, extent in zip(shape, before, extents, strict=True):
        outer = merged[-1] if merged else None
        if outer and low == 0 and size == extent and (blocks or (outer[1] == 0 and outer[0] == outer[2])):
            merged[-1] = (outer[0] * size, outer[1] * size, outer[2] * size)
        else:
            merged.append((size, low, extent))
    if len(merged) > MAX_RANK:
        raise UnsupportedError(f"padding {len(merged)} dimensions of {shape}, kernels take {MAX_RANK}")
    sizes, starts, lengths = zip(*merged, strict=True)
    return sizes, starts, lengths
