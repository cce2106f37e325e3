"""Where a node comes from: the nodes of the file that it stands for, kept through every rewrite."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class NodeSource:
    """A node of the file that a node of the graph comes from: an instruction of a method, or a node of a delegate."""

    method: str
    instruction: int
    operator: str
    delegate: int | None = None
    node: int | None = None

    def __str__(self) -> str:
        inside = "" if self.delegate is None else f", delegate {self.delegate}"
        node = "" if self.node is None else f", node {self.node}"
        return f"{self.operator} ({self.method}, instruction {self.instruction}{inside}{node})"


def united(sources: Iterable[NodeSource]) -> tuple[NodeSource, ...]:
    """Sources in the order of the file, each once."""
    places = {source: (source.instruction, -1 if source.node is None else source.node) for source in sources}
    return tuple(sorted(places, key=lambda source: places[source]))


def operators_of(node: Any) -> tuple[str, ...]:
    """The operators of the file that a node stands for; its own where it is one of them, or stands for none.

    Example: `operators_of(node) == ("aten.sigmoid.default", "aten.mul.Tensor")`.
    """
    return tuple(source.operator for source in node.sources) if len(node.sources) > 1 else (node.name,)
