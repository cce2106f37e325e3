"""Buffers that change, as the exporter writes them into a delegate: which these are, when the constant of one is read,
and where one goes that is returned as well.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from liveshape import ops
from liveshape.formats import OperatorCall, ValueList, VkGraph, VkTensor
from liveshape.graph.traits import Role

Written = Sequence[tuple[int, ...]]  # by every operator of a graph


def is_packing(call: OperatorCall) -> bool:
    """Whether an operator of a file packs one value into another.

    Example: `[call for call in graph.chain if is_packing(call)]`.
    """
    found = ops.OPS.get(call.name)
    return found is not None and found.traits.role is Role.PREPACK and len(call.args) == 2


def changing(graph: VkGraph, written: Written) -> dict[int, int]:
    """Constants that are packed into a value which other operators write, each with that value.

    Example: `{0: 1}` for a file that packs constant 0 into value 1 and subtracts from 1.
    """
    writes = Counter(index for indices in written for index in indices)
    found = {}
    for call in graph.chain:
        if is_packing(call):
            source, target = (graph.values[index] for index in call.args)
            alike = isinstance(source, VkTensor) and isinstance(target, VkTensor) and source.constant_id >= 0
            if alike and writes[call.args[1]] > 1 and not writes[call.args[0]]:
                found[call.args[0]] = call.args[1]
    return found


def read_itself(graph: VkGraph, states: Mapping[int, int], written: Written) -> dict[int, bool]:
    """The constants of buffers that operators read themselves, and whether one does behind the first change.

    Example: `{0: False}` where a matmul, which takes a weight as it is, reads constant 0 before value 1 is changed.
    """
    found: dict[int, bool] = {}
    changed: set[int] = set()
    for call, indices in zip(graph.chain, written, strict=True):
        packing = is_packing(call) and states.get(call.args[0]) == call.args[1]
        if packing:
            continue
        for index in call.args[:-1]:
            value = graph.values[index]
            for each in value.ids if isinstance(value, ValueList) else (index,):
                if each in states:
                    found[each] = found.get(each, False) or states[each] in changed
        changed.update(indices)
    return found


def in_order(graph: VkGraph, states: Collection[int], taken: list[Any]) -> list[Any] | None:
    """What a call takes, in the order of the graph's outputs; None where the file does not tell.

    A file names each output once, and those that buffers become come first: one that is returned, too, is not where the
    call takes it. A shape that no other output has tells where that is, and all others keep their order.

    Example: outputs `(state, y)` of a call that takes `(y, state)`, in the order `(state, y)`.
    """
    shapes = [getattr(graph.values[index], "shape", None) for index in graph.output_ids]
    wanted = [getattr(value, "max_shape", None) for value in taken]
    returned = {shape for index, shape in zip(graph.output_ids, shapes, strict=True) if index in states}
    given, asked = Counter(shapes), Counter(wanted)
    if len(taken) < 2 or not returned:
        # The same shapes in another order: buffers change, and no value of the file is known to be one of them.
        return taken if shapes == wanted or given != asked else None
    if any(given[shape] != 1 or asked[shape] != 1 for shape in returned):
        return None
    places = {shape: value for value, shape in zip(taken, wanted, strict=True) if shape in returned}
    others = iter([value for value, shape in zip(taken, wanted, strict=True) if shape not in returned])
    return [places[shape] if shape in returned else next(others) for shape in shapes]
