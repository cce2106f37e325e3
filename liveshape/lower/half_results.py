"""Results that products or attention of float16 read, stored as float16: where activations may be rounded, both round
them anyway, and nothing that the constants of a program permit is beyond the range of float16.

A conversion is put behind what gives such a result, which becomes part of its epilogue; products take the rows as they
are, and no dispatch makes halves of them. What others read, too, is stored beside its halves. What is float32 of halves
was these before: products take those.
"""

from __future__ import annotations

from dataclasses import replace

from liveshape import ops
from liveshape.graph import Graph, Limits, Node, Tensor, Value
from liveshape.graph.expression import Applied, Expression
from liveshape.lower.def_use import DefUse
from liveshape.lower.magnitudes import Magnitudes, Measure
from liveshape.lower.pattern_operators import LINEAR, POINTWISE, SPELLED_ATTENTION, VIEWS
from liveshape.lower.pointwise_fusion import expression_of
from liveshape.lower.rewriting import renamed, rewritten, without_orphans
from liveshape.ops.matrix_products import is_halves_alone
from liveshape.ops.strided_attention import rounds_operands

_LARGEST = 60000.0  # of float16 it is 65504: room for what rounding adds
_HALVED = Expression(("float32",), (), (Applied("copy", (0,), "float16"),))
WIDENED = Expression(("float16",), (), (Applied("copy", (0,), "float32"),))


def with_half_results(graph: Graph, limits: Limits, measure: Measure | None) -> Graph:
    """The graph with those of its results as float16 that products and attention read which round them anyway.

    Example: `with_half_results(graph, device.limits, measure)`.
    """
    if not (limits.half and limits.half_inputs) or measure is None:
        return graph
    halving = _Halving(graph, limits, measure)
    halves: dict[Value, Value] = {}  # of tensors that are stored by what computes them, and of views
    before: set[Value] = set()  # of which there are halves already
    views: set[Node] = set()
    readers: set[Node] = set()
    for node in graph.nodes:
        out = node.args[-1]
        if not isinstance(out, Tensor) or not halving.may_be_stored(out):
            continue
        reached = halving.readers_of(out)
        if any(reached.values()):
            read = [out, *(view.args[-1] for view in reached if view is not node)]
            halves |= {each: replace(each, name=f"{each.name} in float16", dtype="float16") for each in read}
            there = halving.there(out)
            if there is not None:
                halves[out] = there
                before.add(out)
            views |= reached.keys() - {node}
            readers.update(*reached.values())
    if not halves:
        return graph
    rows: list[tuple[int, Node]] = []
    for node in graph.nodes:
        out = node.args[-1]
        taken = replace(node, args=(*renamed(node.args[:-1], halves), out)) if node in readers else node
        rows.append((node.index, taken))
        if node in views:
            rows.append((node.index, replace(node, args=renamed(node.args, halves))))
        elif isinstance(out, Tensor) and out in halves and out not in before:
            halved = ops.OPS[POINTWISE].bind(node.index, node.label, (_HALVED, (out,), (), halves[out]), node.sources)
            rows.append((node.index, halved))
    made = tuple(narrow for wide, narrow in halves.items() if wide not in before)
    return without_orphans(rewritten(graph, rows, made), readers)


class _Halving:
    """What may be stored as halves, and who reads it."""

    def __init__(self, graph: Graph, limits: Limits, measure: Measure) -> None:
        self._uses, self._limits = DefUse(graph), limits
        self._magnitudes = Magnitudes(self._uses, measure)

    def may_be_stored(self, tensor: Tensor) -> bool:
        """Whether a tensor of floats is stored once, by what could store halves, and its numbers are in their range."""
        node = self._uses.producer.get(tensor)
        if node is None or node.args[-1] is not tensor or tensor.dtype != "float32":
            return False
        stores = node.traits.epilogues or node.traits.pointwise is not None
        if not stores or not self._uses.single_assignment(tensor):
            return False
        return self.there(tensor) is not None or self._magnitudes.of(tensor).largest <= _LARGEST

    def there(self, tensor: Tensor) -> Tensor | None:
        """What is widened to a tensor, where that is all its node does: halves of the same shape, written once."""
        node = self._uses.producer[tensor]
        made = expression_of(node)
        if made is None or made.expression != WIDENED:
            return None
        (x,) = made.tensors
        same = self._uses.sizes.of(x) == self._uses.sizes.of(tensor)
        return x if same and self._uses.single_assignment(x) else None

    def readers_of(self, tensor: Tensor) -> dict[Node, list[Node]]:
        """What rounds a tensor, by what it reads: the node that gives the tensor, or a view of it."""
        producer = self._uses.producer[tensor]
        found: dict[Node, list[Node]] = {}
        for reader in self._uses.consumers.get(tensor, []):
            if not self._uses.in_basic_block((producer, reader)):
                continue
            if reader.name in VIEWS and self._uses.single_assignment(reader.args[-1]):
                behind = self.readers_of(reader.args[-1])
                found |= behind if any(behind.values()) else {}
            elif self._multiplies(reader, tensor) or self._attends(reader, tensor):
                found.setdefault(producer, []).append(reader)
        return {producer: found.pop(producer, []), **found}

    def _multiplies(self, node: Node, x: Tensor) -> bool:
        """Whether a node is a linear that makes float16 of its rows, and takes such as they are."""
        if node.name not in LINEAR or node.args[0] is not x or x in node.args[1:]:
            return False
        weight, out = node.args[1], node.args[-1]
        columns, depth = weight.max_shape
        alike = weight.dtype == out.dtype == "float32"
        return alike and is_halves_alone(x, weight, out, columns, depth, self._limits)

    def _attends(self, node: Node, x: Tensor) -> bool:
        """Whether a node is attention by matrix units, which makes float16 of its operands, and takes such as they are.

        Keys and values have one dtype.
        """
        if node.name != SPELLED_ATTENTION or x not in node.args[:3] or x in node.args[3:]:
            return False
        _, k, v = node.args[:3]
        pair = x not in (k, v) or all(self._may_be_read(each, node) for each in (k, v))
        return pair and rounds_operands(node, self._limits)

    def _may_be_read(self, tensor: Tensor, reader: Node) -> bool:
        """Whether what a node reads, through views or not, may be stored as halves."""
        producer = self._uses.producer.get(tensor)
        if producer is None or not self._uses.in_basic_block((producer, reader)):
            return False
        if producer.name in VIEWS and self._uses.single_assignment(tensor):
            return self._may_be_read(producer.args[0], producer)
        return self.may_be_stored(tensor)
