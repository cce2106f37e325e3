"""Scalars for Params: integers stay exact, floats are rounded to f32."""

from __future__ import annotations

from liveshape.errors import UnsupportedError
from liveshape.graph.live import LiveTensor
from liveshape.ops.registry import Number

INT32_MIN, INT32_MAX = -(1 << 31), (1 << 31) - 1
_FLOAT32_MAX = 3.4028234663852886e38
_WHOLE = {
    **dict.fromkeys(("float32", "float64", "float16", "bfloat16"), False),
    **dict.fromkeys(("int32", "int64", "bool"), True),
}


def are_integers(*tensors: LiveTensor) -> bool:
    """Whether a kernel computes these in i32 rather than in f32: all of them are integers or booleans."""
    try:
        return all(_WHOLE[tensor.dtype] for tensor in tensors)
    except KeyError:
        names = ", ".join(f"{tensor.name} ({tensor.dtype})" for tensor in tensors)
        raise UnsupportedError(f"elementwise operators take {', '.join(_WHOLE)}, not {names}") from None


def float_of(value: Number) -> float:
    """A scalar rounded to f32; beyond its range lies infinity.

    >>> float_of(2), float_of(-1e300)
    (2, -inf)
    """
    if -_FLOAT32_MAX <= value <= _FLOAT32_MAX or value != value:
        return value
    return float("inf") if value > 0 else float("-inf")


def int_of(value: Number) -> int:
    """An integer as an exact i32.

    >>> int_of(16777217), int_of(3.0)
    (16777217, 3)
    """
    if not INT32_MIN <= value <= INT32_MAX or value % 1:
        raise UnsupportedError(f"{value} is not a whole number of 32 bits, which is what integer tensors hold here")
    return int(value) if isinstance(value, float) else value


def saturated(value: Number) -> int:
    """A bound on integers, clamped to 32 bits."""
    return INT32_MAX if value > INT32_MAX else INT32_MIN if value < INT32_MIN else int_of(value)
