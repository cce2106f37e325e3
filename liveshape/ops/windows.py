"""How far windows reach along one dimension."""

from __future__ import annotations

from liveshape.errors import ShapeError


def convolved_size(size: int, kernel: int, stride: int, padding: int, dilation: int) -> int:
    """How many windows of `kernel` elements fit.

    >>> convolved_size(8, 3, 2, 1, 1)
    4
    """
    spare = size + 2 * padding - dilation * (kernel - 1) - 1
    if stride < 1 or kernel < 1 or spare < 0:
        raise ShapeError(
            f"windows of {kernel} elements, {dilation} apart, in steps of {stride} do not fit {size} padded by "
            f"{padding}"
        )
    return spare // stride + 1


def transposed_size(size: int, kernel: int, stride: int, padding: int, output_padding: int, dilation: int) -> int:
    """How much the windows of `size` elements cover: what a convolution would make `size` of, and `output_padding`.

    >>> transposed_size(4, 3, 2, 1, 1, 1)
    8
    """
    covered = (size - 1) * stride - 2 * padding + dilation * (kernel - 1) + output_padding + 1
    if stride < 1 or kernel < 1 or covered < 1:
        raise ShapeError(
            f"{size} windows of {kernel} elements, {dilation} apart, in steps of {stride} cover nothing "
            f"beside a padding of {padding}"
        )
    return covered
