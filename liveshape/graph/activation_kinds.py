"""The kinds of activations that a user may choose: what the inputs of products may be rounded to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from liveshape.errors import InputError
from liveshape.graph.limits import Limits

FLOAT32, FLOAT16, INT8 = "float32", "float16", "int8"
ACTIVATIONS = (FLOAT32, FLOAT16, INT8)
AUTO = "auto"
# What `auto` takes, by whether the matrix units of a device multiply float16 with sums in float32.
_AUTO = {True: FLOAT16, False: FLOAT32}


def check_activations(given: object, kinds: Sequence[str] = (*ACTIVATIONS, AUTO)) -> None:
    """Raise unless this is one of the kinds of activations.

    >>> check_activations("float16")
    """
    if given not in kinds:
        raise InputError(f"activations {given!r}: {', '.join(kinds[:-1])} or {kinds[-1]} is possible")


def resolve_activations(asked: str, limits: Limits) -> str:
    """The kind of activations on a device with these limits: what was asked for, or what `auto` takes there.

    >>> resolve_activations("auto", Limits()), resolve_activations("int8", Limits())
    ('float32', 'int8')
    """
    check_activations(asked)
    return _AUTO[bool(limits.matrices_of(FLOAT16))] if asked == AUTO else asked


def with_rounding(limits: Limits, activations: str) -> Limits:
    """The limits with what a kind of activations permits its products: float16 rounds their inputs for matrix units.

    >>> with_rounding(Limits(), "float16").half_inputs, with_rounding(Limits(), "int8").half_inputs
    (True, False)
    """
    return replace(limits, half_inputs=True) if activations == FLOAT16 else limits
