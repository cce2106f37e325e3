"""Host arrays and device bytes: what a caller may give, how the device stores it, and how it comes back."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from liveshape.errors import InputError
from liveshape.graph import Shape, SymInt, Tensor
from liveshape.graph.constants import pieces
from liveshape.graph.elements import is_packed, prod, storage_type

_CHUNK = 4 << 20  # elements of a constant that are converted at a time
_STORED: dict[str, np.dtype[Any]] = {
    "f32": np.dtype("<f4"),
    "f16": np.dtype("<f2"),
    "i32": np.dtype("<i4"),
    "u32": np.dtype("<u4"),
}


def checked(value: Any, given: Any, rows: int | None = None) -> Any:
    """An input as what the graph expects, or an InputError that says what was given and what is allowed.

    `rows` is the size of the table that its elements are rows of, where they are.
    """
    if isinstance(value, SymInt):
        scalar = given.item() if hasattr(given, "item") else given
        if not isinstance(scalar, (bool, int, float)):
            raise InputError(f"{value.name} is a number, {type(given).__name__} was given")
        return scalar
    if not isinstance(value, Tensor):
        return given
    array = _as_array(given)
    if array.dtype != np.dtype(value.dtype):
        exact = isinstance(given, (bool, int, float, list, tuple)) and np.can_cast(
            array.dtype, value.dtype, "same_kind"
        )
        if not exact:
            raise InputError(
                f"{value.name} is {value.dtype}, {array.dtype} was given; convert it with .astype('{value.dtype}')"
            )
        array = array.astype(value.dtype)
    check_shape(value, array.shape)
    if rows is not None and array.size and (array.min() < 0 or array.max() >= rows):
        outside = array.min() if array.min() < 0 else array.max()
        raise InputError(f"{value.name}: {outside} is outside of a table of {rows} rows")
    return np.ascontiguousarray(array).reshape(array.shape)


def check_shape(value: Tensor, shape: Shape) -> None:
    """Raise unless an input may have this shape."""
    if value.static and shape != value.max_shape:
        raise InputError(
            f"{value.name} has the fixed shape {value.max_shape}, {shape} was given; "
            "export with a dynamic dimension to vary it"
        )
    value.check(shape)


def _as_array(given: Any) -> Any:
    """Anything with DLPack, the buffer protocol or the array interface, without a copy where that can be."""
    if isinstance(given, np.ndarray):
        return given
    if hasattr(given, "detach"):
        given = given.detach()
    if hasattr(given, "__dlpack__"):
        try:
            return np.from_dlpack(given)
        except (BufferError, RuntimeError, TypeError, AttributeError):
            pass  # bool and read-only arrays have no DLPack form in NumPy
    return np.asarray(given)


def stored(array: Any, tensor: Tensor, half: bool) -> Any:
    """Host data as the device holds it, padded to whole words."""
    flat = array.reshape(-1)
    if flat.dtype == np.int64 and flat.size and (flat.max() > 0x7FFFFFFF or flat.min() < -0x80000000):
        raise InputError(f"{tensor.name}: 64-bit values are kept in 32 bits on the device, {flat.max()} does not fit")
    if not is_packed(tensor.dtype):
        flat = flat.astype(_STORED[storage_type(tensor.dtype, half)], copy=False)
    data = flat.view(np.uint8)
    return data if data.size % 4 == 0 else np.pad(data, (0, -data.size % 4))


def stored_pieces(tensor: Tensor, half: bool) -> Iterator[Any]:
    """A constant as the device holds it, converted piece by piece so that only pieces are ever in host memory."""
    assert tensor.constant is not None
    dtype = np.dtype(tensor.dtype)
    for piece in pieces(tensor.constant, _CHUNK * dtype.itemsize):
        yield stored(np.frombuffer(piece, dtype), tensor, half)


def restored(data: Any, place: int, tensor: Tensor, shape: Shape, half: bool) -> Any:
    """The array of a live shape from bytes that were read back."""
    kind = np.dtype(tensor.dtype) if is_packed(tensor.dtype) else _STORED[storage_type(tensor.dtype, half)]
    if prod(shape) == 0:
        return np.empty(shape, tensor.dtype)
    flat = np.frombuffer(data, kind, prod(shape), place)
    return flat.astype(tensor.dtype, copy=False).reshape(shape)
