"""Sliding windows of convolution and pooling: how many there are, how far they reach, and that there is one at all."""

from __future__ import annotations

from collections.abc import Sequence

from liveshape.errors import ShapeError
from liveshape.ops.registry import Ints
from liveshape.ops.shapes import ceil_div


def for_each(what: str, given: Ints, dims: int) -> Ints:
    """A number for every dimension, of a list that may hold one for all.

    >>> for_each("stride", (2,), 3)
    (2, 2, 2)
    """
    if len(given) not in (1, dims):
        raise ShapeError(f"{what} {given} is for {len(given)} dimensions, the window has {dims}; one for all fits, too")
    return given if len(given) == dims else given * dims


def span_of(kernel: int, dilation: int) -> int:
    """How many elements a window lies over.

    >>> span_of(3, 2)
    5
    """
    return dilation * (kernel - 1) + 1


def convolved_size(size: int, kernel: int, stride: int, padding: int, dilation: int, ceil_mode: bool = False) -> int:
    """How many windows of `kernel` elements fit; in `ceil_mode` one more, if it begins before the padding behind.

    >>> convolved_size(8, 3, 2, 1, 1), convolved_size(7, 2, 2, 0, 1), convolved_size(7, 2, 2, 0, 1, ceil_mode=True)
    (4, 3, 4)
    """
    spare = size + 2 * padding - span_of(kernel, dilation)
    if not ceil_mode:
        return spare // stride + 1
    count = ceil_div(spare, stride) + 1
    return count - 1 if (count - 1) * stride >= size + padding else count


def transposed_size(size: int, kernel: int, stride: int, padding: int, output_padding: int, dilation: int) -> int:
    """How much the windows of `size` elements cover: what a convolution would make `size` of, and `output_padding`.

    >>> transposed_size(4, 3, 2, 1, 1, 1)
    8
    """
    return (size - 1) * stride - 2 * padding + span_of(kernel, dilation) + output_padding


def check_windows(
    outputs: Sequence[int], extents: Sequence[int], kernel: Ints, padding: Ints, dilation: Ints, least: int = 1
) -> None:
    """Raise where the live sizes are too small for a window.

    Example: `check_windows((0,), (2,), (3,), (0,), (1,))` says that a kernel of 3 finds no place in 2.
    """
    if any(size < least for size in outputs):
        raise ShapeError(
            f"a kernel of {tuple(kernel)} with padding {padding} and dilation {dilation} finds no place in the live "
            f"sizes {tuple(extents)}; larger inputs have an output"
        )
