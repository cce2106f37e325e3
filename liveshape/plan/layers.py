"""Which layer of a model a node belongs to, told by attention: a file does not say.

Attention comes once a layer. Where the nodes between two of them are always as many, a layer is the period around an
attention whose nodes plan alike in the next layer, and what only the first layer has comes before all of them.
Elsewhere a layer goes from one attention up to the next. A graph with less than two of them has no layers.
"""

from __future__ import annotations

from itertools import pairwise

from liveshape.graph.traits import Role
from liveshape.plan.plan import Plan

BEFORE, AFTER = "before the layers", "after the layers"


def layers_of(plan: Plan) -> list[str] | None:
    """A name for every node: `layer 0` and so on, before them, or after them; None where there are no layers.

    Example: `layers_of(plan)[command.origin[0]]`.
    """
    nodes = plan.graph.nodes
    attentions = [node.index for node in nodes if node.traits.role is Role.ATTENTION]
    if len(attentions) < 2:
        return None
    distances = {later - earlier for earlier, later in pairwise(attentions)}
    begin, period = attentions[0], distances.pop()
    if not distances:
        family = {index: each.family for each in plan.classes for index in each.members}
        while begin and attentions[0] - begin + 1 < period and family[begin - 1] == family[begin - 1 + period]:
            begin -= 1
        begins = [begin + period * layer for layer in range(len(attentions) + 1)]
    else:
        begins = [*attentions, len(nodes)]
    found = [BEFORE] * begins[0]
    for layer, (first, last) in enumerate(pairwise(begins)):
        found += [f"layer {layer}"] * (last - first)
    return (found + [AFTER] * len(nodes))[: len(nodes)]
