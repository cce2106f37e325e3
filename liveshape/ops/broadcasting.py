"""How a kernel that includes elementwise/broadcast.wgsl finds the elements of its operands."""

from __future__ import annotations

from typing import Any

from liveshape.graph import Shape
from liveshape.graph.elements import prod
from liveshape.ops.shapes import broadcast_strides, ceil_div, merge_dims


def broadcast_layout(shape: Shape, *operands: Shape) -> dict[str, Any]:
    """The params, the constant and the threads for at most three operands that broadcast to `shape`.

    >>> broadcast_layout((2, 8), (2, 8), (8,))
    {'count': 16, 'rank': 2, 'dims': (8, 0, 0, 2, 1, 1, 0, 8), 'PER_ELEMENT': False, 'threads': 4}
    """
    count = prod(shape)
    unused = (0,) * (3 - len(operands))
    if all(operand == shape for operand in operands):
        rank, dims, per_element = 1, (*[1] * len(operands), *unused, count), False
    else:
        sizes, strides = merge_dims(shape, *[broadcast_strides(operand, shape) for operand in operands])
        axes = zip(*strides, sizes, strict=True)
        dims = tuple([number for *steps, size in axes for number in (*steps, *unused, size)])
        rank, per_element = len(sizes), len(sizes) > 1 and sizes[-1] % 4 != 0
    return {"count": count, "rank": rank, "dims": dims, "PER_ELEMENT": per_element, "threads": ceil_div(count, 4)}
