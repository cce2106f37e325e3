"""A roofline cost model: bytes moved and FLOPs of each step, from the plan at its live shapes. No device is asked.

Every tensor that a step binds counts once, whole, with these exceptions. Of an embedding the gathered rows count. Of a
KV cache the rows that are written count, or those up to the newest one that are read. Of a constant
that no product multiplies, such as a table of angles, and of what is only copied, at most as much counts as the step
writes. Temporary memory of an operator does not count. A product has a multiply and an add for each pair of
factors; every other operator has one operation for each element of its output.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from liveshape.graph.elements import prod, storage_bytes
from liveshape.graph.live import LiveTensor
from liveshape.kernels.roofline import Cost
from liveshape.plan.groups import LiveNode


def costs(node: LiveNode, half: bool, left_out: Collection[LiveTensor] = ()) -> list[Cost]:
    """The cost of each step of a node as it is planned now; its operations are those of the step that moves most.

    Bytes of the tensors `left_out` are not counted.

    Example: `sum(costs(live.nodes[3], plan.limits.half), Cost())`.
    """
    route = node.group.route
    traits = node.node.traits
    in_part = traits.product is None and traits.reads_as_written
    found = []
    for variant, places in route.dispatched:
        reads: dict[LiveTensor, None] = {}
        writes: dict[LiveTensor, None] = {}
        for binding, place in zip(variant.kernel.bindings, places, strict=True):
            tensor = node.tensors[place]
            if tensor not in node.scratch and tensor not in left_out:
                (writes if binding.writes else reads)[tensor] = None
        written = sum(_bytes(tensor, _written(node, tensor), half) for tensor in writes)
        read = 0
        for tensor in reads:
            nbytes = _bytes(tensor, _read(node, tensor), half)
            gathered = traits.product is None and tensor.constant is not None
            read += min(nbytes, written) if in_part or gathered else nbytes
        found.append(Cost(read, written))
    if found:
        heaviest = max(range(len(found)), key=lambda step: found[step].nbytes)
        given = sum(_written(node, each) for each in node.outputs)
        operations = given if traits.product is None else traits.product.operations(_named(node))
        found[heaviest] += Cost(operations=operations)
    return found


def _bytes(tensor: LiveTensor, numel: int, half: bool) -> int:
    return storage_bytes(tensor.dtype, numel, half)


def _written(node: LiveNode, tensor: LiveTensor) -> int:
    """Elements that a step writes: all that are live, but new rows alone of a cache."""
    axis = _axis(node, tensor)
    return tensor.numel if axis is None else _rows(tensor, axis, _new_rows(node, axis))


def _read(node: LiveNode, tensor: LiveTensor) -> int:
    """Elements that a step reads."""
    axis, cache = _axis(node, tensor), node.node.traits.cache
    if axis is not None and cache is not None and cache.start is not None:
        start = _named(node)[cache.start]
        return _rows(tensor, axis, _new_rows(node, axis) + (0 if isinstance(start, LiveTensor) else start))
    if (gathered := node.node.gathered(node.args)) is not None:
        ids, table = gathered
        # The scales of a table have its rows.
        if tensor.rank == 2 and tensor.shape[0] == table.shape[0]:
            return _rows(tensor, 0, ids.numel)
    return tensor.numel


def _rows(tensor: LiveTensor, axis: int, count: int) -> int:
    shape = tensor.shape
    return prod(shape[:axis]) * min(count, shape[axis]) * prod(shape[axis + 1 :])


def _axis(node: LiveNode, tensor: LiveTensor) -> int | None:
    """The axis of positions, where a tensor is a cache."""
    declared = node.node.cache_axes.items()
    axes = (axis for place, axis in declared if node.args[place] is tensor and axis < tensor.rank)
    return next(axes, None)


def _new_rows(node: LiveNode, axis: int) -> int:
    """The rows of the first tensor, which are those of the call."""
    first = node.inputs[0]
    return first.shape[axis] if axis < first.rank else first.numel


def _named(node: LiveNode) -> Mapping[str, Any]:
    """The live arguments of a node by name, live scalars by value."""
    return dict(zip(node.node.parameters, node.arguments(), strict=False))


__all__ = ["Cost", "costs"]
