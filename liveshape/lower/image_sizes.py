"""The live sizes of images: what windows that slide over them leave of a size, so that equal ones are known as such."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any

from liveshape.graph import Node, Tensor
from liveshape.lower.pattern_operators import (
    AVERAGE_POOLS,
    CHANNELS_LAST,
    CLAMPED_CONVOLUTION,
    CONVOLUTION,
    CONVOLUTION_CHANNELS_LAST,
    GROUP_NORM_CHANNELS_LAST,
    GROUP_NORMS,
    MAX_POOLS,
    NEAREST,
    WITH_CHANNELS_LAST,
)
from liveshape.ops.windows import convolved_size, for_each, span_of

_RANK = 4
# Of a size, its arguments as a key: a size of its own for each.
Symbol = Callable[[Hashable], Any]


def image_sizes(node: Node, tensor: Tensor, of: Callable[[Tensor], Any], symbol: Symbol, fixed: Any) -> Any:
    """The sizes of images that a node gives, or None; `of` gives those of tensors, `fixed` makes one of a number.

    Example: `image_sizes(node, node.args[-1], sizes.of, symbol, LiveSize)`.
    """
    x = node.args[0] if node.args else None
    if not isinstance(x, Tensor) or x.rank != _RANK or tensor.rank != _RANK:
        return None
    sizes = of(x)
    if tensor not in node.outputs[:1]:  # a second result, or a cache that is written in place
        return None
    if node.name in GROUP_NORMS or node.name == GROUP_NORM_CHANNELS_LAST:
        return sizes
    if node.name == CHANNELS_LAST:
        return sizes[0], *sizes[2:], fixed(tensor.max_shape[3])
    last = node.name in WITH_CHANNELS_LAST
    before, channels = (sizes[1:3], sizes[3]) if last else (sizes[2:], sizes[1])
    if node.name in CONVOLUTION | CLAMPED_CONVOLUTION or node.name == CONVOLUTION_CHANNELS_LAST:
        weight = node.args[1]
        if node.args[6] or not all(size.fixed for size in of(weight)):
            return None
        channels = fixed(weight.max_shape[0])
        after = _left(before, (weight.max_shape[2:], *node.args[3:6]), symbol, fixed)
    elif node.name in NEAREST:
        factors: Any = node.args[2] or (None, None)
        after = tuple(symbol(("nearest", *each, node.args[1])) for each in zip(before, factors, strict=True))
    elif node.name in MAX_POOLS | AVERAGE_POOLS:
        dilation, ceil_mode = node.args[4:6] if node.name in MAX_POOLS else ((1,), node.args[4])
        if ceil_mode:
            return None
        after = _left(before, (node.args[1], node.args[2] or node.args[1], node.args[3], dilation), symbol, fixed)
    else:
        return None
    return (sizes[0], *after, channels) if last else (sizes[0], channels, *after)


def _left(before: Any, window: Sequence[Any], symbol: Symbol, fixed: Any) -> Any:
    """How many windows sizes have: as many as they are, a number, or a size that such windows leave of one."""
    given = zip(before, *(for_each("window", each, 2) for each in window), strict=True)
    after = []
    for size, kernel, stride, padding, dilation in given:
        more = 2 * padding - span_of(kernel, dilation)
        if size.fixed is not None:
            after.append(fixed(max(convolved_size(size.fixed, kernel, stride, padding, dilation), 0)))
        else:
            after.append(size if (more, stride) == (-1, 1) else symbol(("windows", size, more, stride)))
    return tuple(after)
