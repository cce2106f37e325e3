"""ScalarType codes of a file as numpy dtype names, and tensor sizes with overflow checks."""

from __future__ import annotations

from math import prod

from liveshape.formats.flatbuffer import damaged

MAX_RANK = 64

# Codes without a numpy dtype keep their torch name, so that later errors can name the unsupported dtype.
SCALAR_TYPES = {
    0: "uint8",
    1: "int8",
    2: "int16",
    3: "int32",
    4: "int64",
    5: "float16",
    6: "float32",
    7: "float64",
    8: "complex32",
    9: "complex64",
    10: "complex128",
    11: "bool",
    12: "qint8",
    13: "quint8",
    14: "qint32",
    15: "bfloat16",
    16: "quint4x2",
    17: "quint2x4",
    18: "bits1x8",
    19: "bits2x4",
    20: "bits4x2",
    21: "bits8",
    22: "bits16",
    23: "float8_e5m2",
    24: "float8_e4m3fn",
    25: "float8_e5m2fnuz",
    26: "float8_e4m3fnuz",
    27: "uint16",
    28: "uint32",
    29: "uint64",
}

# The four omitted types are sub-byte: no size per element.
ITEM_SIZES = {
    **dict.fromkeys(("bool", "uint8", "int8", "qint8", "quint8", "bits8"), 1),
    **dict.fromkeys(("float8_e5m2", "float8_e4m3fn", "float8_e5m2fnuz", "float8_e4m3fnuz"), 1),
    **dict.fromkeys(("int16", "uint16", "float16", "bfloat16", "bits16"), 2),
    **dict.fromkeys(("int32", "uint32", "float32", "qint32", "complex32"), 4),
    **dict.fromkeys(("int64", "uint64", "float64", "complex64"), 8),
    "complex128": 16,
}


def check_dim_order(dim_order: tuple[int, ...], shape: tuple[int, ...], path: str) -> tuple[int, ...]:
    """Validate a dim order: a permutation of the shape's dimensions.

    Example: `check_dim_order((1, 0), (2, 3), "values[0].dim_order") == (1, 0)`.
    """
    if len(dim_order) != len(shape):
        raise damaged(path, f"{len(dim_order)} entries for the {len(shape)} dimensions of {shape}")
    if sorted(dim_order) != list(range(len(shape))):
        raise damaged(path, f"{dim_order} does not name each of the {len(shape)} dimensions of {shape} once")
    return dim_order


def tensor_size(dtype: str, shape: tuple[int, ...], path: str) -> int:
    """Bytes of a contiguous tensor; FormatError if larger than any machine could hold.

    Example: `tensor_size("float32", (2, 3), "values[0]") == 24`.
    """
    if len(shape) > MAX_RANK:
        raise damaged(path, f"a tensor of {len(shape)} dimensions, at most {MAX_RANK} are allowed")
    if any(extent < 0 for extent in shape):
        raise damaged(path, f"shape {shape} has a negative dimension")
    size = prod(shape) * ITEM_SIZES.get(dtype, 1)
    if size >= 2**63:
        raise damaged(path, f"{dtype} of shape {shape} takes {size} bytes, fewer than 2**63 are allowed")
    return size
