"""Several operators as one dispatch, where the result is provably the same: fewer dispatches, less to encode.

Looked for in the finished graph: a sum that is normalized next, and the gated linear unit of a feed-forward.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

from liveshape import ops
from liveshape.graph import Graph, Node, Tensor, Value

_LINEARS = frozenset(
    {
        "aten.linear.default",
        "et_vk.linear_q4gsw.default",
        "et_vk.linear_qcs4w.default",
        "et_vk.linear_dq8ca_q4gsw.default",
    }
)


def fuse(graph: Graph) -> Graph:
    """The same program in fewer nodes. A program with jumps stays as it is: its nodes are addresses."""
    if graph.controls:
        return graph
    search = _Search(graph)
    for node in graph.nodes:
        if node.name == "aten.add.Tensor":
            search.sum_and_norm(node)
        elif node.name == "aten.sigmoid.default":
            search.gated_unit(node)
    if not search.replaced:
        return graph
    nodes = [search.replaced.get(node, node) for node in graph.nodes if node not in search.dropped]
    nodes = [replace(node, index=index) for index, node in enumerate(nodes)]
    return Graph(graph.name, nodes, graph.values, graph.inputs, graph.outputs, graph.limits, graph.file_bytes)


class _Search:
    def __init__(self, graph: Graph) -> None:
        self.maker = {value: node for node in graph.nodes for value in node.written}
        self.writes = Counter(value for node in graph.nodes for value in set(node.written))
        self.readers: dict[Value, list[Node]] = {}
        for node in graph.nodes:
            for value in dict.fromkeys(node.inputs):
                self.readers.setdefault(value, []).append(node)
        self.outputs = {value for value in graph.outputs if isinstance(value, Value)}
        self.replaced: dict[Node, Node] = {}
        self.dropped: set[Node] = set()

    def sum_and_norm(self, add: Node) -> None:
        """total = a + b; out = rms_norm(total): at the place of the sum, since the weight is a constant."""
        a, b, alpha, total = add.args
        norms = [node for node in self.readers.get(total, []) if node.name == "et_vk.rms_norm.default"]
        if alpha != 1 or len(norms) != 1 or norms[0].args[0] is not total or not self._once(total, norms[0].args[-1]):
            return
        _, weight, eps, out = norms[0].args
        if weight.constant is None or self.writes[weight] or a.max_shape != b.max_shape:
            return
        if not _exact(a, b, total, weight, out):
            return
        self._put(add, "liveshape.add_rms_norm", f"{add.label} + {norms[0].label}", (a, b, weight, eps, (total, out)))
        self.dropped.add(norms[0])

    def gated_unit(self, sigmoid: Node) -> None:
        """s = sigmoid(gate); silu = gate * s; out = silu * up: at the place of the last product."""
        gate, factor = sigmoid.args
        first = self._only_reader(factor)
        if first is None or first.name != "aten.mul.Tensor" or {*first.args[:2]} != {gate, factor}:
            return
        silu = first.args[-1]
        second = self._only_reader(silu)
        if second is None or second.name != "aten.mul.Tensor" or second.args[0] is second.args[1]:
            return
        up = second.args[1] if second.args[0] is silu else second.args[0]
        out = second.args[-1]
        if not self._once(gate, factor, silu, up, out) or not self._same_rows(gate, up):
            return
        if not _exact(gate, factor, silu, up, out):
            return
        self._put(second, "liveshape.swiglu", f"{sigmoid.label} + {second.label}", (gate, up, out))
        self.dropped |= {sigmoid, first}

    def _same_rows(self, one: Tensor, other: Tensor) -> bool:
        """Whether two tensors have one shape at every live shape: linear layers, of one width, of one input."""
        if one.max_shape != other.max_shape:
            return False
        makers = self.maker.get(one), self.maker.get(other)
        views = [node for node in makers if node is not None and node.name == "aten.view_copy.default"]
        if len(views) == 2 and views[0].args[1] == views[1].args[1]:
            return self._same_rows(views[0].args[0], views[1].args[0])
        linears = [node for node in makers if node is not None and node.name in _LINEARS]
        return len(linears) == 2 and linears[0].args[0] is linears[1].args[0]

    def _only_reader(self, value: Any) -> Node | None:
        readers = self.readers.get(value, [])
        return readers[0] if len(readers) == 1 and value not in self.outputs else None

    def _once(self, *values: Any) -> bool:
        return all(isinstance(value, Tensor) and self.writes[value] == 1 for value in values)

    def _put(self, node: Node, operator: str, label: str, args: tuple[Any, ...]) -> None:
        self.replaced[node] = ops.OPS[operator].bind(node.index, label, args)


def _exact(*tensors: Tensor) -> bool:
    """Whether a result that stays in a register is the one that memory would give back.

    Not so for halves: NVIDIA's compiler skips the rounding in between, which is closer to the truth and not the same.
    """
    return all(tensor.dtype == "float32" for tensor in tensors)
