"""Buffers that change, as the exporter writes them into a delegate: which these are, when the constant of one is read,
and where one goes that is returned as well.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from liveshape.formats import ValueList, VkGraph, VkTensor

PREPACK = "et_vk.prepack.default"
Written = Sequence[tuple[int, ...]]  # by every operator of a graph


def changing(graph: VkGraph, written: Written) -> dict[int, int]:
    """Constants that are packed into a value which other operators write, each with that value.

    Example: `{0: 1}` for a file that packs constant 0 into value 1 and subtracts from 1.
    """
    writes = Counter(index for indices in written for index in indices)
    found = {}
    for call in graph.chain:
        if call.name == PREPACK and len(call.args) == 2:
            source, target = (graph.values[index] for index in call.args)
            alike = isinstance(source, VkTensor) and isinstance(target, VkTensor) and source.constant_id >= 0
            if alike and writes[call.args[1]] > 1 and not writes[call.args[0]]:
                found[call.args[0]] = call.args[1]
    return found


def read_places(graph: VkGraph, constant: int, state: int) -> list[int]:
    """The operators that read the constant of a buffer itself, in program order.

    Example: `[2]` where the third operator is a matmul, which takes a weight as it is.
    """
    found = []
    for place, call in enumerate(graph.chain):
        ids: set[int] = set()
        for index in call.args[:-1]:
            value = graph.values[index]
            ids.update(value.ids if isinstance(value, ValueList) else (index,))
        if constant in ids and (call.name, *call.args) != (PREPACK, constant, state):
            found.append(place)
    return found


def in_order(graph: VkGraph, states: Collection[int], taken: list[Any]) -> list[Any] | None:
    """What a call takes, in the order of the graph's outputs; None where the file does not tell.

    A file names each output once, and those that buffers become come first: one that is returned, too, is not where the
    call takes it. A shape that no other output has tells where that is, and all others keep their order.

    Example: outputs `(state, y)` of a call that takes `(y, state)`, in the order `(state, y)`.
    """
    shapes = [getattr(graph.values[index], "shape", None) for index in graph.output_ids]
    wanted = [getattr(value, "max_shape", None) for value in taken]
    returned: Mapping[int, Any] = {
        place: shapes[place] for place, index in enumerate(graph.output_ids) if index in states
    }
    if len(taken) < 2 or not returned:
        # The same shapes in another order: buffers change, and no value of the file is known to be one of them.
        return taken if shapes == wanted or Counter(shapes) != Counter(wanted) else None
    if any(shapes.count(shape) != 1 or wanted.count(shape) != 1 for shape in returned.values()):
        return None
    others = iter([value for value, shape in zip(taken, wanted, strict=True) if shape not in returned.values()])
    return [taken[wanted.index(shape)] if place in returned else next(others) for place, shape in enumerate(shapes)]
