"""Conversion between host arrays and device storage: input validation, dtype conversion, readback."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np

from liveshape.errors import InputError, ShapeError
from liveshape.graph import Shape, SymInt, Tensor
from liveshape.graph.constants import RoundedConstant, ScaledConstant, all_bytes, pieces
from liveshape.graph.elements import is_complex, is_packed, prod, storage_type
from liveshape.run.bfloat16 import rounded, to_float32

_CHUNK = 4 << 20  # elements of a constant converted per chunk
_STORED: dict[str, np.dtype[Any]] = {
    "f32": np.dtype("<f4"),
    "f16": np.dtype("<f2"),
    "i32": np.dtype("<i4"),
    "u32": np.dtype("<u4"),
}
_LOOSE = (bool, int, float, list, tuple)  # Python scalars and lists have no dtype, so they take that of the input
# Advice for unsupported dtypes, by numpy's dtype.kind.
_ADVICE = {
    "c": "give .real, .imag or its absolute value",
    "O": "give numbers alone, all rows of one length",
    "U": "text is no tensor: encode it first",
    "S": "text is no tensor: encode it first",
    "V": "give one field of it",
    "M": "give numbers",
    "m": "give numbers",
}


class Stored(NamedTuple):
    """A validated and converted input: the array, and a row of device bytes per element."""

    host: Any
    data: Any

    def rows(self, begin: int, end: int) -> Stored:
        """A slice of the elements.

        Example: `executor.prepared(position, np.arange(2048)).rows(7, 8)`.
        """
        return Stored(self.host[begin:end], self.data[begin:end])


def numpy_dtype(dtype: str) -> np.dtype[Any]:
    """The numpy dtype of a tensor's arrays: bfloat16 is float32 at the interface, which is lossless.

    >>> numpy_dtype("bfloat16"), numpy_dtype("int64")
    (dtype('float32'), dtype('int64'))
    """
    return np.dtype("float32" if dtype == "bfloat16" else dtype)


def file_dtype(dtype: str) -> np.dtype[Any]:
    """The numpy dtype of a tensor's bytes in a file: uint16 for bfloat16."""
    return np.dtype("uint16" if dtype == "bfloat16" else dtype)


def from_file(data: Any, dtype: str) -> Any:
    """File bytes as a flat array, without a copy except for bfloat16."""
    array = np.frombuffer(data, file_dtype(dtype))
    return to_float32(array) if dtype == "bfloat16" else array


def checked(value: Any, given: Any, rows: int | None = None, name: str = "an input") -> Any:
    """Validate an input and convert it to what the graph expects; else an InputError with what is allowed.

    `rows` is the size of the embedding table that its elements index, if any; `name` is for values that have none.
    """
    if isinstance(value, SymInt):
        return _number(value.name, value.kind, given)
    if not isinstance(value, Tensor):
        return _fixed(name, value, given)
    if value.dtype == "bfloat16" and _attribute(given, "dtype") == "torch.bfloat16":
        given = given.detach().float()
    array = _as_array(value.name, given)
    if value.dtype == "bfloat16":
        array = _from_bfloat16(array)
    wanted = numpy_dtype(value.dtype)
    loose = isinstance(given, _LOOSE)
    # Only the byte order is converted silently; casts are for the caller to choose.
    swapped = array.dtype.newbyteorder("=") == wanted
    if not swapped and not (loose and (array.size == 0 or _castable(array.dtype, wanted))):
        how = f"np.asarray(..., '{wanted}')" if loose else f".astype('{wanted}')"
        if _attribute(given, "dtype").startswith("torch."):
            how = f".to(torch.{value.dtype})"
        advice = _ADVICE.get(array.dtype.kind, f"convert it with {how}")
        raise InputError(f"{value.name} is {wanted}, {array.dtype} was given; {advice}")
    check_shape(value, array.shape)
    if array.dtype != wanted:
        array = _converted(value.name, array, wanted)
    if rows is not None and array.size and (array.min() < 0 or array.max() >= rows):
        outside = array.min() if array.min() < 0 else array.max()
        raise InputError(f"{value.name}: {outside} is outside of a table of {rows} rows")
    if wanted == np.float64:
        _check_range(value.name, array, np.dtype(np.float32), "numbers are kept in 32 bits on the device")
    return _in_rows(array, value.dtype)


def _from_bfloat16(array: Any) -> Any:
    """bfloat16 as float32, from uint16 or from the bfloat16 dtype of other packages."""
    if array.dtype == np.uint16 or array.dtype.name == "bfloat16":
        return to_float32(np.ascontiguousarray(array).view(np.uint16)).reshape(array.shape)
    return array


def check_shape(value: Tensor, shape: Shape) -> None:
    """Raise ShapeError unless an input may have this shape."""
    bound = value.max_shape
    if len(shape) != value.rank or shape == bound:
        value.check(shape)
        return
    for axis, (size, most) in enumerate(zip(shape, bound, strict=True)):
        if value.static and size != most:
            raise ShapeError(
                f"{value.name}: dimension {axis} is {size}, it is static at {most}: {shape} was given; "
                "export with a dynamic dimension to vary it"
            )
        if size > most:
            raise ShapeError(
                f"{value.name}: dimension {axis} is {size}, up to {most} is allowed: live shape {shape} does not fit "
                f"the allocated {bound}; pass a smaller shape, or export with a larger bound: of one that was asked "
                "for ExecuTorch's own passes may have left the size of the example, liveshape export keeps it"
            )


def _number(name: str, kind: type, given: Any) -> Any:
    """Convert a scalar to the type in the file; another type is accepted only if the value is equal."""
    try:
        if _is_masked(given):
            raise InputError("it is masked")
        bare = isinstance(given, np.generic) or (hasattr(given, "item") and getattr(given, "ndim", None) == 0)
        scalar = given.item() if bare else given
    except Exception as error:  # a tensor of another library, on its own device
        raise InputError(f"{name} is a number, and none can be had from {_named(given)}: {error}") from error
    if not isinstance(scalar, (bool, int, float)):
        raise InputError(f"{name} is a number, {_named(given)} was given; give a Python {kind.__name__}")
    try:
        number = kind(scalar)
    except (ValueError, OverflowError) as error:  # int(nan), int(inf), float(10**400)
        raise InputError(f"{name} is of type {kind.__name__}, {scalar!r} was given: {error}") from error
    if kind is not float and number != scalar:
        raise InputError(f"{name} is of type {kind.__name__}, {scalar!r} was given; round it first")
    if kind is int and not -(2**63) <= number < 2**63:
        raise InputError(f"{name} is an integer of 64 bits, {_short(number)} was given")
    return number


def _fixed(name: str, value: Any, given: Any) -> Any:
    """An input that the export has fixed, such as None or a string: only the same value is accepted."""
    same = given is value or (type(given) is type(value) and isinstance(given, (str, bool, int, float, tuple)))
    if not same or given != value:
        raise InputError(f"{name} is fixed at {value!r} in this program, {_named(given)} was given; give {value!r}")
    return given


def _as_array(name: str, given: Any) -> Any:
    """A numpy array from anything with DLPack, the buffer protocol or the array interface, zero-copy where possible."""
    if given is None:
        raise InputError(f"{name} is a tensor, None was given; give an array")
    if _is_masked(given):
        raise InputError(f"{name}: a masked array has no numbers where it is masked; fill it first: array.filled(0)")
    if isinstance(given, np.ndarray):
        return np.asarray(given)  # np.matrix and other subclasses count as plain arrays
    try:
        if hasattr(given, "detach"):
            given = given.detach()
        if hasattr(given, "__dlpack__"):
            with suppress(Exception):  # NumPy's DLPack refuses bool, read-only and foreign arrays
                return np.from_dlpack(given)
        array = np.asarray(given)
        masked = isinstance(given, (list, tuple)) and _holds_masked(given)
    except Exception as error:  # every library raises its own kinds
        raise InputError(f"{name}: {_named(given)} is no array of numbers: {error}; {_tensor_advice(given)}") from error
    if masked:
        raise InputError(f"{name}: a list of masked arrays has no numbers where they are masked; fill them first")
    return array


def _tensor_advice(given: Any) -> str:
    """Advice for an object that numpy cannot convert."""
    kind, device, layout = (_attribute(given, name) for name in ("dtype", "device", "layout"))
    if device == "meta":
        return "a meta tensor has no numbers"
    if device not in ("", "cpu"):
        return "bring it to the host with .cpu()"
    if "bfloat16" in kind or "float8" in kind:
        return "numpy has no such dtype: convert it with .float()"
    if "sparse" in layout:
        return "convert it with .to_dense()"
    return "give an array, or a list whose rows are all of one length"


def _attribute(given: Any, name: str) -> str:
    with suppress(Exception):  # attributes of foreign objects may raise anything
        return str(getattr(given, name, ""))
    return ""


def _is_masked(given: Any) -> bool:
    return isinstance(given, np.ma.MaskedArray)


def _holds_masked(given: Any) -> bool:
    items = given if isinstance(given, (list, tuple)) else ()
    return any(_is_masked(item) or _holds_masked(item) for item in items)


def _castable(given: np.dtype[Any], wanted: np.dtype[Any]) -> bool:
    """Whether Python scalars may be cast to an input's dtype: integers to any, floats only to floats."""
    if given.kind == "b" or wanted.kind == "b":
        return given.kind == wanted.kind
    return wanted.kind == "f" if given.kind == "f" else given.kind in "iu"


def _converted(name: str, array: Any, wanted: np.dtype[Any]) -> Any:
    _check_range(name, array, wanted, f"elements are {wanted}")
    return array.astype(wanted)


def _check_range(name: str, array: Any, wanted: np.dtype[Any], reason: str) -> None:
    """Raise InputError for values that would overflow or become infinite in a dtype."""
    if array.size == 0 or wanted.kind not in "iuf" or array.dtype.kind not in "iuf":
        return
    limits = np.iinfo(wanted) if wanted.kind in "iu" else np.finfo(wanted)
    least, most = np.asarray(limits.min).item(), np.asarray(limits.max).item()
    finite = array[np.isfinite(array)] if array.dtype.kind == "f" else array
    for outside in (finite.min(), finite.max()) if finite.size else ():
        # As Python scalars: numpy would cast before it compares.
        if not least <= outside.item() <= most:
            raise InputError(f"{name}: {reason}, {_short(outside.item())} does not fit")


def _named(given: Any) -> str:
    """Short description of a given value, for errors."""
    if isinstance(given, (bool, int, float, str, np.generic)) and len(repr(given)) <= 40:
        return repr(given)
    return "None" if given is None else f"{type(given).__module__}.{type(given).__name__}".removeprefix("builtins.")


def _short(number: Any) -> str:
    text = f"{number}"
    return text if len(text) <= 40 else f"{text[:12]}... ({len(text)} digits)"


def as_dtype(name: str, array: Any, dtype: str) -> Any:
    """Cast a computed array to the dtype of its tensor; InputError on overflow."""
    wanted = numpy_dtype(dtype)
    if not np.can_cast(array.dtype, wanted, "same_kind"):
        raise InputError(f"{name} is {dtype}, {array.dtype} was computed")
    converted = array if array.dtype == wanted else _converted(name, array, wanted)
    return _in_rows(converted, dtype)


def _in_rows(array: Any, dtype: str) -> Any:
    """The array in contiguous row-major order, rounded to bfloat16 where that is its dtype."""
    # ascontiguousarray makes 0-d arrays 1-d.
    flat = np.ascontiguousarray(array).reshape(array.shape)
    return rounded(flat) if dtype == "bfloat16" else flat


def stored(array: Any, tensor: Tensor, half: bool) -> Any:
    """Host data in the device's storage dtype, padded to 4 bytes."""
    flat = array.reshape(-1)
    if flat.dtype == np.int64:
        _check_range(tensor.name, flat, _STORED["i32"], "64-bit values are kept in 32 bits on the device")
    data = flat.astype(_stored_dtype(tensor.dtype, half), copy=False).view(np.uint8)
    return data if data.size % 4 == 0 else np.pad(data, (0, -data.size % 4))


def _stored_dtype(dtype: str, half: bool) -> np.dtype[Any]:
    as_it_is = is_packed(dtype) or is_complex(dtype)
    return np.dtype(dtype) if as_it_is else _STORED[storage_type(dtype, half)]


def is_stored_as_in_file(dtype: str, half: bool) -> bool:
    """Whether the bytes of a constant are the same on the device.

    >>> is_stored_as_in_file("float32", half=False), is_stored_as_in_file("int64", half=False)
    (True, False)
    """
    return dtype != "bfloat16" and _stored_dtype(dtype, half) == file_dtype(dtype)


def stored_pieces(tensor: Tensor, half: bool) -> Iterator[Any]:
    """A constant in the device's storage dtype, converted chunk by chunk to bound host memory.

    Each chunk but the last is whole words on the device, where the next one begins.
    """
    constant = tensor.constant
    assert constant is not None
    if isinstance(constant, RoundedConstant):
        for piece in _in_fours(pieces(constant.source, _CHUNK * 4), 4):
            yield stored(np.frombuffer(piece, "<f4").astype(np.float16), tensor, half)
        return
    if isinstance(constant, ScaledConstant):
        for piece in _scaled(constant):
            yield stored(piece, tensor, half)
        return
    size = file_dtype(tensor.dtype).itemsize
    for piece in _in_fours(pieces(constant, _CHUNK * size), size):
        yield stored(from_file(piece, tensor.dtype), tensor, half)


def _scaled(constant: ScaledConstant) -> Iterator[Any]:
    """Numbers times their factors, in float64 and rounded once."""
    factors, run, begin = np.array(constant.factors), constant.run, 0
    for piece in _in_fours(pieces(constant.source, _CHUNK * 4), 4):
        numbers = np.frombuffer(piece, "<f4")
        end = begin + numbers.size
        first, last = begin // run, -(-end // run)
        each = np.repeat(factors[np.arange(first, last) % factors.size], run)
        yield (numbers * each[begin - first * run : end - first * run]).astype(np.float32)
        begin = end


def _in_fours(parts: Iterable[Any], size: int) -> Iterator[Any]:
    """The same bytes in parts of whole fours of elements, but for the last.

    >>> [bytes(part) for part in _in_fours([b"abcdef", b"ghi", b"jk"], 1)]
    [b'abcd', b'efgh', b'ijk']
    """
    left = b""
    for part in parts:
        whole = (len(left) + len(part)) // (4 * size) * (4 * size)
        if not left and whole == len(part):
            yield part
            continue
        joined = memoryview(b"".join((left, part)))
        if whole:
            yield joined[:whole]
        left = joined[whole:].tobytes()
    if left:
        yield left


def as_array(tensor: Tensor) -> Any:
    """A constant of the file as a numpy array, zero-copy."""
    assert tensor.constant is not None
    return from_file(all_bytes(tensor.constant), tensor.dtype).reshape(tensor.max_shape)


def as_torch(torch: Any, array: Any, dtype: str) -> Any:
    """A numpy array as a torch tensor in the dtype of the file, sharing memory where possible.

    Example: `as_torch(sys.modules["torch"], np.zeros(3, "float32"), "float32")`.
    """
    tensor = torch.from_numpy(array if array.flags.writeable else array.copy())
    return tensor.to(torch.bfloat16) if dtype == "bfloat16" else tensor


def restored(data: Any, place: int, tensor: Tensor, shape: Shape, half: bool) -> Any:
    """A numpy array of the live shape from bytes that were read back."""
    if prod(shape) == 0:
        return np.empty(shape, numpy_dtype(tensor.dtype))
    flat = np.frombuffer(data, _stored_dtype(tensor.dtype, half), prod(shape), place)
    return flat.astype(numpy_dtype(tensor.dtype), copy=False).reshape(shape)
