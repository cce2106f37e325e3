"""Elements at other places: views, slices, concatenation, padding, and what indices choose."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from liveshape.check.numpy_references.reference_table import axes_of, reference

_END = (1 << 62) - 1


@reference("fill")
def _filled(x: Any, value: Any) -> Any:
    return np.full(np.shape(x), value)


@reference("permute_copy")
def _permute(x: Any, dims: Sequence[int]) -> Any:
    return np.transpose(x, axes_of(dims, np.ndim(x)) if len(dims) else None)


@reference("transpose_copy")
def _transpose(x: Any, one: int, other: int) -> Any:
    return np.swapaxes(x, one, other) if np.ndim(x) else x


@reference("t_copy")
def _t(x: Any) -> Any:
    return np.transpose(x)


def _sliced(x: Any, dim: int, start: int | None, end: int | None, step: int) -> tuple[slice, ...]:
    size = np.shape(x)[dim]
    low, high = (size + each if each < 0 else each for each in (start or 0, _END if end is None else end))
    places: list[slice] = [slice(None)] * np.ndim(x)
    places[dim] = slice(min(max(low, 0), size), min(max(high, 0), size), step)
    return tuple(places)


@reference("slice_copy")
def _slice(x: Any, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1) -> Any:
    return np.asarray(x)[_sliced(x, dim, start, end, step)]


@reference("slice_scatter")
def _slice_scatter(
    x: Any, source: Any, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> Any:
    found = np.array(x)
    found[_sliced(x, dim, start, end, step)] = source
    return found


@reference("narrow_copy")
def _narrow(x: Any, dim: int, start: int, length: int) -> Any:
    return np.take(x, range(start, start + length), dim)


@reference("select_copy")
def _select(x: Any, dim: int, index: int) -> Any:
    return np.take(x, index, dim)


@reference("select_scatter")
def _select_scatter(x: Any, source: Any, dim: int, index: int) -> Any:
    found = np.array(x)
    np.moveaxis(found, dim, 0)[index] = source
    return found


@reference("cat")
def _cat(tensors: Sequence[Any], dim: int = 0) -> Any:
    # An empty tensor of one dimension goes with any.
    rank = max(np.ndim(each) for each in tensors)
    return np.concatenate([each for each in tensors if np.ndim(each) == rank], dim)


@reference("stack")
def _stack(tensors: Sequence[Any], dim: int = 0) -> Any:
    return np.stack(tensors, dim)


@reference("expand_copy")
def _expand(x: Any, sizes: Sequence[int], *_: Any) -> Any:
    shape = (1,) * (len(sizes) - np.ndim(x)) + np.shape(x)
    return np.broadcast_to(x, [old if new == -1 else int(new) for old, new in zip(shape, sizes, strict=True)])


def _split(x: Any, sizes: Sequence[int], dim: int) -> tuple[Any, ...]:
    return tuple(np.split(np.asarray(x), np.cumsum(sizes)[:-1].astype(int), dim))


@reference("split_with_sizes_copy")
def _split_with_sizes(x: Any, sizes: Sequence[int], dim: int = 0) -> Any:
    return _split(x, sizes, dim)


@reference("split_copy")
def _split_by(x: Any, size: int, dim: int = 0) -> Any:
    length = np.shape(x)[dim]
    return _split(x, [min(size, length - at) for at in range(0, length, size)] or [0], dim)


@reference("unbind_copy")
def _unbind(x: Any, dim: int = 0) -> Any:
    return tuple(np.moveaxis(np.asarray(x), dim, 0))


@reference("repeat")
def _repeat(x: Any, counts: Sequence[int]) -> Any:
    return np.tile(x, [int(count) for count in counts])


@reference("flip")
def _flip(x: Any, dims: Sequence[int]) -> Any:
    return np.flip(x, axes_of(dims, np.ndim(x))) if len(dims) else x


@reference("roll")
def _roll(x: Any, shifts: Sequence[int], dims: Sequence[int] = ()) -> Any:
    return np.roll(x, tuple(shifts), tuple(dims)) if len(dims) else np.roll(x, shifts[0])


@reference("constant_pad_nd")
def _pad(x: Any, widths: Sequence[int], value: float = 0) -> Any:
    pairs = [(0, 0)] * np.ndim(x)
    found = np.asarray(x)
    for place, (before, after) in enumerate(zip(widths[::2], widths[1::2], strict=True)):
        axis = np.ndim(x) - 1 - place
        cut = [slice(None)] * np.ndim(x)
        cut[axis] = slice(max(-before, 0), np.shape(x)[axis] - max(-after, 0))
        found = found[tuple(cut)]
        pairs[axis] = (max(before, 0), max(after, 0))
    return np.pad(found, pairs, constant_values=value)


@reference("copy")
def _copy(x: Any, source: Any, *_: Any) -> Any:
    return np.broadcast_to(source, np.shape(x))


@reference("squeeze_copy")
def _squeeze(x: Any, dims: Any = None) -> Any:
    axes = axes_of(dims, np.ndim(x)) if dims is not None else tuple(range(np.ndim(x)))
    return np.squeeze(x, tuple(axis for axis in axes if np.shape(x)[axis] == 1))


@reference("unsqueeze_copy")
def _unsqueeze(x: Any, dim: int) -> Any:
    return np.expand_dims(x, dim)


@reference("tril")
def _tril(x: Any, diagonal: int = 0) -> Any:
    return np.tril(x, diagonal)


@reference("triu")
def _triu(x: Any, diagonal: int = 0) -> Any:
    return np.triu(x, diagonal)


@reference("index_select")
def _index_select(x: Any, dim: int, index: Any) -> Any:
    return np.take(x, index, dim) if np.ndim(x) else x


@reference("gather")
def _gather(x: Any, dim: int, index: Any, *_: Any) -> Any:
    places = list(np.indices(np.shape(index)))
    places[dim] = np.asarray(index)
    return np.asarray(x)[tuple(places)]


@reference("embedding")
def _embedding(table: Any, index: Any, *_: Any) -> Any:
    """An id outside of the table, which torch refuses, gives NaN."""
    table, index = np.asarray(table), np.asarray(index)
    inside = (index >= 0) & (index < len(table))
    # An integer cannot be NaN: what a cast makes of it depends on the processor.
    outside = np.nan if table.dtype.kind == "f" else 0
    return np.where(inside[..., None], np.take(table, index, 0, mode="clip"), outside)
