"""Operators whose further results nobody reads give the first one alone: nothing stores what is not read.

Which operators these are, they declare (`Traits.first_alone`). One result is also what takes an epilogue.
"""

from __future__ import annotations

from collections.abc import Sequence

from liveshape.graph import Limits, Node
from liveshape.lower.def_use import DefUse
from liveshape.lower.pattern import Fusion, Replacement
from liveshape.ops import OPS

FIRST_ALONE = {name: entry.traits.first_alone for name, entry in OPS.items() if entry.traits.first_alone}


def _first_alone(uses: DefUse, node: Node, limits: Limits) -> Sequence[Replacement]:
    first, *others = node.args[-1]
    if not all(uses.used_only_by((), other) for other in others):
        return ()
    return [Replacement(node, FIRST_ALONE[node.name], (node,), (*node.args[:-1], first))]


FIRST_RESULTS = Fusion(
    "the first result alone of a norm or a reduction, where nothing reads the others",
    frozenset(FIRST_ALONE),
    _first_alone,
)
