"""What a step moves and computes, counted from the plan at its live shapes, for profiles. No device is asked.

Every tensor that a step binds counts once, whole, with these exceptions. A table that is gathered from counts the rows
that are asked for. A cache counts the rows that are written, or those up to the newest one that are read. Of a constant
that no product multiplies, such as a table of angles, and of what is only copied, at most as much counts as the step
writes. Temporary memory of an operator does not count. A product has a multiplication and an addition for each pair of
numbers that meet; every other operator has one operation for each element that it gives.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from liveshape.graph.elements import prod, storage_bytes
from liveshape.graph.live import LiveScalar, LiveTensor
from liveshape.plan.groups import LiveNode


@dataclass(frozen=True)
class Cost:
    """Bytes read and written, and operations."""

    read: int = 0
    written: int = 0
    operations: int = 0

    def __add__(self, other: Cost) -> Cost:
        return Cost(self.read + other.read, self.written + other.written, self.operations + other.operations)

    @property
    def nbytes(self) -> int:
        """Both ways."""
        return self.read + self.written


def costs(node: LiveNode, half: bool) -> list[Cost]:
    """The cost of each step of a node as it is planned now; its operations are those of the step that moves most.

    Example: `sum(costs(live.nodes[3], plan.limits.half), Cost())`.
    """
    route = node.group.route
    product = _product_of(node)
    found = []
    for variant, places in route.dispatched:
        reads: dict[LiveTensor, None] = {}
        writes: dict[LiveTensor, None] = {}
        for binding, place in zip(variant.kernel.bindings, places, strict=True):
            tensor = node.tensors[place]
            if tensor not in node.scratch:
                (writes if binding.writes else reads)[tensor] = None
        written = sum(_bytes(tensor, _written(node, tensor), half) for tensor in writes)
        read = 0
        for tensor in reads:
            nbytes = _bytes(tensor, _read(node, tensor), half)
            in_part = product is None and (tensor.constant is not None or _COPIES.search(node.node.name) is not None)
            read += min(nbytes, written) if in_part else nbytes
        found.append(Cost(read, written))
    if found:
        heaviest = max(range(len(found)), key=lambda step: found[step].nbytes)
        operations = product(node) if product is not None else sum(_written(node, each) for each in node.outputs)
        found[heaviest] += Cost(operations=operations)
    return found


_COPIES = re.compile(r"_copy\b")


def _bytes(tensor: LiveTensor, numel: int, half: bool) -> int:
    return storage_bytes(tensor.dtype, numel, half)


def _written(node: LiveNode, tensor: LiveTensor) -> int:
    """Elements that a step writes: all that are live, but new rows alone of a cache."""
    axis = _axis(node, tensor)
    return tensor.numel if axis is None else _rows(tensor, axis, _new_rows(node, axis))


def _read(node: LiveNode, tensor: LiveTensor) -> int:
    """Elements that a step reads."""
    axis, begins = _axis(node, tensor), node.node.begins
    if axis is not None and begins is not None:
        return _rows(tensor, axis, _number(node.args[begins]) + _new_rows(node, axis))
    if node.node.gathers is not None:
        ids, table = (node.args[place] for place in node.node.gathers)
        # The scales of a table have its rows.
        if tensor.rank == 2 and tensor.shape[0] == table.shape[0]:
            return _rows(tensor, 0, ids.numel)
    return tensor.numel


def _rows(tensor: LiveTensor, axis: int, count: int) -> int:
    shape = tensor.shape
    return prod(shape[:axis]) * min(count, shape[axis]) * prod(shape[axis + 1 :])


def _axis(node: LiveNode, tensor: LiveTensor) -> int | None:
    """The axis of positions, where a tensor is a cache."""
    axes = (axis for place, axis in node.node.along if node.args[place] is tensor and axis < tensor.rank)
    return next(axes, None)


def _new_rows(node: LiveNode, axis: int) -> int:
    """The rows of the first tensor, which are those of the call."""
    first = node.inputs[0]
    return first.shape[axis] if axis < first.rank else first.numel


def _number(value: object) -> int:
    return int(value.value) if isinstance(value, LiveScalar) else int(value)  # type: ignore[call-overload]


# Products


def _four_bits(node: LiveNode) -> int:
    """Each byte of the weight holds two numbers, or one where it has groups for a dimension, and meets every row."""
    x, weight = node.inputs[0], max(_constants(node, "uint8", "int8"), key=lambda tensor: tensor.numel)
    return (4 if weight.rank == 2 else 2) * (x.numel // max(x.shape[-1], 1)) * weight.numel


def _matrices(node: LiveNode) -> int:
    """Depth is the last axis of the matrix on the left, which comes before the last input but a bias."""
    left = node.inputs[1] if re.search(r"addmm|baddbmm", node.node.name) else node.inputs[0]
    return 2 * left.shape[-1] * node.outputs[0].numel


def _convolution(node: LiveNode) -> int:
    """The elements of a filter meet each element of the result, or of the input where it is transposed."""
    weight = max(node.inputs[1:], key=lambda tensor: tensor.rank)
    out = node.outputs[0].numel
    spread = "transposed" in node.node.name or (len(node.args) > 6 and node.args[6] is True)
    return 2 * (node.inputs[0].numel if spread else out) * weight.numel // max(weight.shape[0], 1)


def _attention(node: LiveNode) -> int:
    """Queries meet keys and weights meet values, of the keys that each row may see."""
    q, keys = node.inputs[0], node.inputs[1]
    begins = node.node.begins
    if begins is None:  # all keys that are given
        return 4 * q.numel * keys.shape[-2]
    rows, before = q.shape[1], _number(node.args[begins])
    return 4 * q.numel * (2 * before + rows + 1) // 2


_PRODUCTS: Sequence[tuple[re.Pattern[str], Callable[[LiveNode], int]]] = (
    (re.compile(r"q4gsw$|q4gsw\.|qcs4w"), _four_bits),
    (re.compile(r"sdpa"), _attention),
    (re.compile(r"conv"), _convolution),
    (re.compile(r"\b(linear|mm|bmm|addmm|baddbmm|matmul)\b|_mm\b|q8ta_linear|linear_q8ta"), _matrices),
)


def _product_of(node: LiveNode) -> Callable[[LiveNode], int] | None:
    if node.node.gathers is not None:
        return None
    found = next((count for pattern, count in _PRODUCTS if pattern.search(node.node.name)), None)
    return None if found is _four_bits and not _constants(node, "uint8", "int8") else found


def _constants(node: LiveNode, *dtypes: str) -> list[LiveTensor]:
    return [tensor for tensor in node.inputs if tensor.constant is not None and tensor.dtype in dtypes]


def is_attention(name: str) -> bool:
    """Whether an operator is attention.

    >>> is_attention("custom_sdpa.default"), is_attention("aten.mm.default")
    (True, False)
    """
    return "sdpa" in name


__all__ = ["Cost", "costs", "is_attention"]
