"""Attention as a program spells it out: softmax(q @ k * scale + mask) @ v of tensors as they lie, in one operator.

lower/attention_patterns.py finds it. Queries, keys, values and the mask are read along strides of the tensors that were
split into heads, permuted and repeated; the result is written in the order that its reader wants.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from liveshape.errors import ShapeError
from liveshape.graph import Limits, Node, Shape
from liveshape.graph.elements import prod
from liveshape.graph.live import LiveTensor
from liveshape.graph.traits import Product, Role
from liveshape.ops.attention import HEADS_FIRST
from liveshape.ops.attention_heuristics import half_cache_size
from liveshape.ops.attention_routes import Steps, routed, workspace_up_to
from liveshape.ops.registry import Ints, Tensors, op
from liveshape.ops.wide_attention import wide_attention, wide_scratch

# What is done with a mask, by its number in attention/operands.wgsl.
NO_MASK, ADDED, SEEN, HIDDEN = range(4)
_LITERAL = -1  # in the place of an operand


class Extent(NamedTuple):
    """A size of a call: that of an axis of an operand by a divisor, or a number."""

    operand: int
    axis: int  # or the number
    divisor: int = 1

    @classmethod
    def literal(cls, size: int) -> Extent:
        return cls(_LITERAL, size)

    def of(self, shapes: Sequence[Shape]) -> int:
        return self.axis if self.operand == _LITERAL else shapes[self.operand][self.axis] // self.divisor


class Stride(NamedTuple):
    """So many times the stride of an axis of a tensor as it lies; none of them where elements are repeated."""

    axis: int = 0
    times: int = 0

    def of(self, shape: Shape) -> int:
        return self.times * prod(shape[self.axis + 1 :]) if self.times else 0


class Strides(NamedTuple):
    """Where an operand begins, and how far its batches, heads, rows and columns lie apart."""

    start: Stride
    batch: Stride
    head: Stride
    row: Stride
    column: Stride

    def of(self, shape: Shape) -> tuple[int, ...]:
        return tuple(each.of(shape) for each in self)


class AttentionSizes(NamedTuple):
    """The sizes of attention: heads of keys, how many of queries share each, batches after which masks are repeated."""

    batch: int
    key_heads: int
    group: int
    queries: int
    keys: int
    size: int
    value_size: int
    mask_batches: int
    bias_batches: int

    @classmethod
    def of(cls, sizes: Ints, shapes: Sequence[Shape]) -> AttentionSizes:
        """
        >>> fixed = map(Extent.literal, (12, 1, 5, 7, 64, 32, 1, 1))
        >>> AttentionSizes.of(encoded([Extent(0, 0), *fixed]), [(3, 5, 768)])[:7]
        (3, 12, 1, 5, 7, 64, 32)
        """
        return cls(*(Extent(*each).of(shapes) for each in zip(*[iter(sizes)] * 3, strict=True)))


def encoded(parts: Sequence[tuple[int, ...]]) -> Ints:
    """Extents or strides as an argument of a node; digits of axes with -1 between them.

    >>> encoded([Stride(1, 2), Stride()])
    (1, 2, 0, 0)
    """
    return tuple(number for part in parts for number in part)


def strides_from(numbers: Ints) -> Strides:
    """
    >>> strides_from((0, 0, 0, 1, 1, 64, 1, 1, 1, 1)).of((3, 768))
    (0, 768, 64, 1, 1)
    """
    return Strides(*(Stride(*each) for each in zip(*[iter(numbers)] * 2, strict=True)))


def axes_from(numbers: Ints) -> list[list[int]]:
    """Which digits the axes of a result have: 0 is the batch, 1 the head, 2 the row, 3 the column.

    >>> axes_from((0, -1, 2, -1, 1, 3))
    [[0], [2], [1, 3]]
    """
    axes: list[list[int]] = [[]]
    for number in numbers:
        if number < 0:
            axes.append([])
        else:
            axes[-1].append(number)
    return axes


def _attended(given: Mapping[str, Any]) -> int:
    """Q @ K over all keys, and softmax @ V over all values."""
    operands = [given[name] for name in ("q", "k", "v", "attn_mask", "bias")]
    call = AttentionSizes.of(given["sizes"], [each.shape for each in operands if each is not None])
    pairs = prod((call.batch, call.key_heads, call.group, call.queries, call.keys))
    return 2 * pairs * (call.size + call.value_size)


@op(
    "liveshape.attention",
    role=Role.ATTENTION,
    product=Product(_attended),
    fused_from=("aten._softmax.default",),
    epilogues=True,
)
def attention(
    q: LiveTensor,
    k: LiveTensor,
    v: LiveTensor,
    attn_mask: LiveTensor | None,
    masking: int,
    masked: float,
    guarded: bool,
    scale: float,
    sizes: Ints,
    of_queries: Ints,
    of_keys: Ints,
    of_values: Ints,
    of_mask: Ints,
    axes: Ints,
    is_causal: bool,
    bias: LiveTensor | None,
    of_bias: Ints,
    out: LiveTensor,
) -> Steps:
    """`sizes` are extents, `of_...` strides, `axes` the digits of the result's. A row that sees no key at all is zero
    if it is `guarded`, else NaN, as softmax gives it. If `is_causal` query n sees keys up to key n. A `bias` is added
    to the scores before the mask changes them."""
    operands = [each for each in (q, k, v, attn_mask, bias) if each is not None]
    bound = AttentionSizes.of(sizes, [each.max_shape for each in operands])
    workspace = yield from workspace_up_to(*_bounds(bound), HEADS_FIRST)
    wide = None
    if len(operands) == 3 and masking == NO_MASK and not is_causal and bound.group == 1:
        wide = yield from wide_scratch(bound, axes_from(axes), q.dtype)
    call = AttentionSizes.of(sizes, [each.shape for each in operands])
    digits = (call.batch, call.key_heads * call.group, call.queries, call.value_size)
    out.shape = tuple(prod(digits[digit] for digit in axis) for axis in axes_from(axes))
    read = [
        (each, strides_from(numbers).of(each.shape))
        for each, numbers in ((q, of_queries), (k, of_keys), (v, of_values))
    ]
    for place, (tensor, strides) in enumerate(read):
        heads, rows = (digits[1], call.queries) if place == 0 else (call.key_heads, call.keys)
        _check_reach(tensor, strides, (call.batch, heads, rows, call.value_size if place == 2 else call.size))
    if wide is not None and wide.takes(call) and all(steps[4] == 1 for _, steps in read):
        yield from wide_attention(out, read, call, scale, wide)
        return
    apart = [step for _, steps in read[1:] for step in steps[:4]]
    vector = 1 if any(step % 4 for step in (*apart, call.size, call.value_size)) else 4
    values: dict[str, Any] = {
        "key_heads": call.key_heads,
        "group": call.group,
        "rows": call.queries * call.group,
        "context": call.keys,
        "causal": is_causal,
        "position": 0,
        "scale": scale,
        "masked": masked,
        "unseen": 0.0 if guarded or call.keys == 0 else float("nan"),
        "HEAD_SIZE": max(call.size, call.value_size),
        "KEY_SIZE": call.size,
        "VALUE_SIZE": call.value_size,
        "MASK": masking,
        "VEC": vector,
    }
    for name, (_, steps), unit in zip(("query", "key", "value"), read, (1, vector, vector), strict=True):
        values |= _named(name, [step // unit for step in steps[:4]])
    order = [digit for axis in axes_from(axes) for digit in axis]
    # A digit of one element at every call is in no axis.
    steps_of = {digit: prod(digits[later] for later in order[place + 1 :]) for place, digit in enumerate(order)}
    values |= {f"out_{name}": steps_of.get(digit, 0) for digit, name in enumerate(("batch", "head", "row"))}
    for name, mask, numbers, batches in (
        ("mask", attn_mask, of_mask, call.mask_batches),
        ("bias", bias, of_bias, call.bias_batches),
    ):
        seen = (0,) * 5 if mask is None else strides_from(numbers).of(mask.shape)
        if mask is not None:
            _check_reach(mask, seen, (min(call.batch, batches), digits[1], call.queries, call.keys))
        values |= _named(name, seen[:4]) | {f"{name}_key": seen[4], f"{name}_batches": max(batches, 1)}
    # An absent mask still needs a buffer in its place; the queries are there and only read.
    tensors: Tensors = (out, workspace.split_results, q, k, v, q if attn_mask is None else attn_mask)
    if bias is not None:
        tensors += (bias,)
    heads, biased = call.batch * call.key_heads, bias is not None
    yield from routed(tensors, values, heads, call.queries, bound.keys, workspace, biased=biased, by_tiles=True)


def _bounds(bound: AttentionSizes) -> tuple[Shape, Shape]:
    """The shapes of queries and of keys at their bound, heads first, each head as wide as the wider of its factors."""
    widest = max(bound.size, bound.value_size)
    queries = (bound.batch, bound.key_heads * bound.group, bound.queries, widest)
    return queries, (bound.batch, bound.key_heads, bound.keys, widest)


def rounds_operands(node: Node, limits: Limits) -> bool:
    """Whether matrix units take the attention of a node, which make float16 of queries, keys and values.

    Example: `rounds_operands(node, device.limits)`.
    """
    names = ("q", "k", "v", "attn_mask", "bias")
    operands = [node.named[name] for name in names if node.named[name] is not None]
    bound = AttentionSizes.of(node.named["sizes"], [each.max_shape for each in operands])
    return half_cache_size(*_bounds(bound), HEADS_FIRST, limits)[0] > 0


def _named(name: str, steps: Sequence[int]) -> dict[str, int]:
    return {f"{name}_{part}": step for part, step in zip(("start", "batch", "head", "row"), steps, strict=True)}


def _check_reach(tensor: LiveTensor, strides: tuple[int, ...], counts: tuple[int, ...]) -> None:
    """Kernels read along strides unchecked: the last element must be one of the tensor."""
    start, *steps = strides
    last = start + sum(stride * (count - 1) for stride, count in zip(steps, counts, strict=True))
    if min(counts) > 0 and last >= tensor.numel:
        batch, heads, rows, size = counts
        raise ShapeError(
            f"attention reads {batch} x {heads} x {rows} x {size} of {tensor.name}, whose live shape {tensor.shape} "
            f"has fewer elements: give the inputs sizes that belong together"
        )
