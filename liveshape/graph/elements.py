"""How a tensor's elements lie in GPU memory: WGSL has no bytes, no bfloat16, no 64 bits and not always halves."""

from __future__ import annotations

import math
from collections.abc import Iterable

# The storage type of each logical dtype; int8 and uint8 stay packed, four to a word, as the file has them.
_STORAGE = {
    "float32": "f32",
    "float64": "f32",
    "float16": "f16",
    "bfloat16": "f32",
    "complex64": "f32",
    "int32": "i32",
    "int64": "i32",
    "bool": "u32",
    "int8": "u32",
    "uint8": "u32",
}
_PACKED = frozenset({"int8", "uint8"})
_COMPLEX = frozenset({"complex64"})  # two floats an element, the real part first


def supported(dtype: str) -> bool:
    """Whether a tensor of this dtype can live on the device at all."""
    return dtype in _STORAGE


def is_packed(dtype: str) -> bool:
    """Whether four elements share a word, so that only a kernel made for it can read them."""
    return dtype in _PACKED


def by_itself(dtype: str) -> bool:
    """Whether an element is one of an array of scalars, as a kernel of any dtype reads and stores it.

    >>> by_itself("bool"), by_itself("uint8"), by_itself("complex64")
    (True, False, False)
    """
    return dtype not in _PACKED and dtype not in _COMPLEX


def is_rounded(dtype: str) -> bool:
    """Whether what a kernel stores has to be rounded first: no type of WGSL is as coarse.

    >>> is_rounded("bfloat16"), is_rounded("float16")
    (True, False)
    """
    return dtype == "bfloat16"


def is_complex(dtype: str) -> bool:
    """Whether an element is two floats, so that only a kernel made for it can read them."""
    return dtype in _COMPLEX


def storage_type(dtype: str, half: bool = True) -> str:
    """The WGSL type that holds one element (a packed word of int8 and uint8, a part of a complex one).

    Without f16 halves widen to f32.

    >>> storage_type("int64"), storage_type("float16", half=False)
    ('i32', 'f32')
    """
    kind = _STORAGE[dtype]
    return "f32" if kind == "f16" and not half else kind


def stored_alike(one: str, other: str, half: bool = True) -> bool:
    """Whether tensors of the two dtypes hold equal values in equal bytes.

    >>> stored_alike("int64", "int32"), stored_alike("bool", "uint8")
    (True, False)
    """
    if one != other and (is_rounded(one) or is_rounded(other)):
        return False
    alike = is_packed(one) == is_packed(other) and is_complex(one) == is_complex(other)
    return alike and storage_type(one, half) == storage_type(other, half)


def storage_bytes(dtype: str, numel: int, half: bool = True) -> int:
    """Bytes that `numel` elements take on the device, before padding.

    >>> storage_bytes("bool", 3), storage_bytes("uint8", 3), storage_bytes("float16", 3)
    (12, 3, 6)
    """
    if dtype in _PACKED:
        return numel
    if dtype in _COMPLEX:
        return numel * 8
    return numel * (2 if storage_type(dtype, half) == "f16" else 4)


def padded(nbytes: int) -> int:
    """Allocation size: whole vec4 words, so that a kernel may read and write the last vector of a live range."""
    return max(16, (nbytes + 15) & ~15)


def prod(sizes: Iterable[int]) -> int:
    """The number of elements of a shape; math.prod under the name operators use."""
    return math.prod(sizes)
