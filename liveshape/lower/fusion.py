"""Several operators as one dispatch, where the result is provably the same: fewer dispatches, less to encode.

Looked for in the finished graph: a sum that is normalized next, the gated linear unit of a feed-forward, with its two
layers if they are of 4 bits, three 4-bit layers of one input, as attention has them, and keys that turn on their way to
the cache.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from liveshape import ops
from liveshape.graph import Graph, Node, Shape, Tensor, Value
from liveshape.graph.constants import Woven
from liveshape.graph.elements import prod

_LAYER = "et_vk.linear_q4gsw.default"
_VIEW = "aten.view_copy.default"
_ROTARY = {"et_vk.apply_rotary_emb_hf.default", "et_vk.apply_rotary_emb.default"}
_LINEARS = frozenset({"aten.linear.default", _LAYER, "et_vk.linear_qcs4w.default", "et_vk.linear_dq8ca_q4gsw.default"})


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
        elif node.name == "sdpa_with_kv_cache.default":
            search.rotary_to_cache(node)
    for node in graph.nodes:
        if node.name == _LAYER:
            search.three_layers(node)
    if not search.replaced:
        return graph
    nodes = [search.replaced.get(node, node) for node in graph.nodes]
    nodes = [node for node in nodes if node not in search.dropped]
    nodes = [replace(node, index=index) for index, node in enumerate(nodes)]
    values = [*graph.values, *search.made]
    return Graph(graph.name, nodes, values, graph.inputs, graph.outputs, graph.limits, graph.file_bytes)


class _Layer(NamedTuple):
    """The arguments of a 4-bit linear layer."""

    x: Tensor
    weight: Tensor
    scales: Tensor
    group: int
    bias: Tensor | None
    out: Tensor

    @property
    def constants(self) -> tuple[Tensor, ...]:
        return (self.weight, self.scales) if self.bias is None else (self.weight, self.scales, self.bias)

    @property
    def likeness(self) -> tuple[Any, ...]:
        """What layers must have in common to be one."""
        dtypes = [tensor.dtype for tensor in (*self.constants, self.out)]
        return self.x, self.group, self.weight.max_shape[1:], self.scales.max_shape[:1], dtypes


class _Search:
    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.maker = {value: node for node in graph.nodes for value in node.written}
        self.writes = Counter(value for node in graph.nodes for value in set(node.written))
        self.readers: dict[Value, list[Node]] = {}
        for node in graph.nodes:
            for value in dict.fromkeys(node.inputs):
                self.readers.setdefault(value, []).append(node)
        self.outputs = {value for value in graph.outputs if isinstance(value, Value)}
        self.replaced: dict[Node, Node] = {}
        self.dropped: set[Node] = set()
        self.made: list[Tensor] = []

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
        self._put(add, "liveshape.add_rms_norm", (add, norms[0]), (a, b, weight, eps, (total, out)))

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
        if not self._gated_layers(gate, up, (sigmoid, first, second)):
            self._put(second, "liveshape.swiglu", (sigmoid, first, second), (gate, up, out))

    def _gated_layers(self, gate: Tensor, up: Tensor, unit: tuple[Node, Node, Node]) -> bool:
        """The unit and the two layers before it, as one. Where both layers are viewed alike, the result is instead."""
        sigmoid, first, second = unit
        out = target = second.args[-1]
        makers = [self.maker[gate], self.maker[up]]
        views = [node for node in makers if node.name == _VIEW]
        layers = [self.maker[node.args[0]] if node in views else node for node in makers]
        private = self._only_for((sigmoid, first), gate) and self._only_for((second,), up)
        private = private and all(self._only_for((node,), node.args[0]) for node in views)
        woven = self._woven(layers, in_turns=True) if private else None
        if woven is None:
            return False
        dropped = (*layers, *views, *unit)
        if any(self._seen(node.args[-1]) is node.args[-1] for node in views):
            target = self._tensor(f"{out.name} before its view", out.dtype, layers[0].args[-1].max_shape)
            self._put(second, _VIEW, dropped, (target, views[0].args[1], out))
        last = max(layers, key=lambda node: node.index)
        self._put(last, "liveshape.gated_linear_q4gsw", dropped, (*woven, target))
        return True

    def three_layers(self, node: Node) -> None:
        """Three layers of one input with nothing but views between them: at the place of the first."""
        found = [node]
        for other in self.graph.nodes[node.index + 1 :]:
            if other.name == _LAYER and other.args[0] is node.args[0]:
                found.append(other)
            if len(found) == 3 or not (other is found[-1] or other.alias):
                break
        if len(found) < 3 or not self.dropped.isdisjoint(found):
            return
        woven = self._woven(found, in_turns=False)
        if woven is not None:
            outs = tuple(layer.args[-1] for layer in found)
            self._put(node, "liveshape.three_linear_q4gsw", found, (*woven, outs))

    def rotary_to_cache(self, sdpa: Node) -> None:
        """Queries and keys turn, and both are for attention alone: at the place of the turning, if values are there."""
        q, k, v, k_cache, v_cache, position, _, *rest, out = sdpa.args
        rotary = self.maker.get(q)
        if rotary is None or rotary.name not in _ROTARY or rotary.args[-1] != (q, k) or not self._once(q, k):
            return
        xq, xk, cosine, sine, *start, _ = rotary.args
        private = self._only_for((sdpa,), q) and self._only_for((sdpa,), k)
        # Values and position are read and the caches are written earlier than they were: nothing in between may care.
        apart = all(self._still(value, (rotary, sdpa)) for value in (v, position, k_cache, v_cache))
        between = self.graph.nodes[rotary.index : sdpa.index]
        apart = apart and all({k_cache, v_cache}.isdisjoint(node.inputs) for node in between)
        tensors = (xq, xk, v, cosine, sine, k_cache, v_cache, q)
        fits = all(tensor.storage.nbytes <= self.graph.limits.max_binding_bytes for tensor in tensors)
        if not (private and apart and fits and _exact(*tensors)):
            return
        args = (xq, xk, v, cosine, sine, *(start or [None]), k_cache, v_cache, position)
        self._put(rotary, "liveshape.rotary_to_cache", (rotary, sdpa), (*args, q))
        self._put(sdpa, "custom_sdpa.default", (sdpa,), (q, k_cache, v_cache, position, *rest, out))

    def _woven(self, nodes: Sequence[Node], *, in_turns: bool) -> tuple[Any, ...] | None:
        """The inputs of one layer that has the columns of several, in turns or behind each other."""
        if any(node.name != _LAYER for node in nodes):
            return None
        layers = [_Layer(*node.args) for node in nodes]
        for node, layer in zip(nodes, layers, strict=True):
            alike = layer.likeness == layers[0].likeness and layer.scales.max_shape[1] == layer.weight.max_shape[0]
            if not (alike and self._once(layer.out) and all(self._fixed(node, tensor) for tensor in layer.constants)):
                return None
        if not self._still(layers[0].x, nodes):
            return None
        x, weight, scales, group, bias, _ = layers[0]
        columns = sum(layer.weight.max_shape[0] for layer in layers)
        weights = self._weave([layer.weight for layer in layers], (columns, *weight.max_shape[1:]), 0, in_turns)
        factors = self._weave([layer.scales for layer in layers], (*scales.max_shape[:1], columns), 1, in_turns)
        terms = [layer.bias for layer in layers if layer.bias is not None]
        added = None if bias is None else self._weave(terms, (columns,), 0, in_turns)
        woven = [tensor for tensor in (weights, factors, added) if tensor is not None]
        if any(tensor.storage.nbytes > self.graph.limits.max_binding_bytes for tensor in woven):
            return None
        self.made += woven
        return x, weights, factors, group, added

    def _weave(self, parts: Sequence[Tensor], shape: Shape, axis: int, in_turns: bool) -> Tensor:
        """One constant of several: single slices of an axis in turns, or each whole along it."""
        data = [part.constant for part in parts if isinstance(part.constant, memoryview)]
        runs = [len(each) // prod(part.max_shape[: axis + in_turns]) for each, part in zip(data, parts, strict=True)]
        name = " + ".join(part.name for part in parts)
        tensor = Tensor(
            name, parts[0].dtype, shape, constant=Woven(tuple(data), tuple(runs)), half=self.graph.limits.half
        )
        tensor.storage.persistent = True
        return tensor

    def _same_rows(self, one: Tensor, other: Tensor) -> bool:
        """Whether two tensors have one shape at every live shape: linear layers, of one width, of one input."""
        one, other = self._seen(one), self._seen(other)
        if one.max_shape != other.max_shape:
            return False
        makers = self.maker.get(one), self.maker.get(other)
        views = [node for node in makers if node is not None and node.name == _VIEW]
        if len(views) == 2 and views[0].args[1] == views[1].args[1]:
            steady = all(self.writes[value] <= 1 for view in views for value in view.inputs)
            return steady and self._same_rows(views[0].args[0], views[1].args[0])
        linears = [node for node in makers if node is not None and node.name in _LINEARS]
        return len(linears) == 2 and linears[0].args[0] is linears[1].args[0]

    def _seen(self, tensor: Tensor) -> Tensor:
        """What a tensor is a view of, in its own shape; else the tensor.

        The last size of a linear layer is fixed, and so are sizes of 1. If they are in the view, and one more is left,
        that one is the same, since a view has as many elements as its source.
        """
        view = self.maker.get(tensor)
        if view is None or view.name != _VIEW:
            return tensor
        source, sizes, _ = view.args
        layer, shape = self.maker.get(source), source.max_shape
        moving = {place for place, size in enumerate(shape[:-1]) if size > 1}
        given = {place for place, (size, most) in enumerate(zip(sizes, shape, strict=False)) if size != most}
        linear = layer is not None and layer.name in _LINEARS and self.writes[source] == 1
        return source if linear and shape == tensor.max_shape and given <= moving and len(moving) < 2 else tensor

    def _only_reader(self, value: Any) -> Node | None:
        readers = self.readers.get(value, [])
        return readers[0] if len(readers) == 1 and value not in self.outputs else None

    def _only_for(self, nodes: Sequence[Node], value: Any) -> bool:
        return value not in self.outputs and all(node in nodes for node in self.readers.get(value, []))

    def _fixed(self, node: Node, tensor: Tensor) -> bool:
        """Whether a tensor is a constant of the file, of whole words, that a node has for itself."""
        data = tensor.constant
        whole = isinstance(data, memoryview) and len(data) > 0 and len(data) % 4 == 0
        return whole and not self.writes[tensor] and self._only_for((node,), tensor)

    def _still(self, value: Any, nodes: Sequence[Node]) -> bool:
        """Whether nothing writes a value from the first to the last of some nodes."""
        indices = [node.index for node in nodes]
        return all(value not in node.written for node in self.graph.nodes[min(indices) : max(indices)])

    def _once(self, *values: Any) -> bool:
        """Whether tensors are written once, and read only after that: they may as well be written a bit earlier."""
        return all(
            isinstance(value, Tensor)
            and self.writes[value] == 1
            and all(reader.index > self.maker[value].index for reader in self.readers.get(value, []))
            for value in values
        )

    def _tensor(self, name: str, dtype: str, shape: Shape) -> Tensor:
        self.made.append(Tensor(name, dtype, shape, half=self.graph.limits.half))
        return self.made[-1]

    def _put(self, place: Node, operator: str, nodes: Sequence[Node], args: tuple[Any, ...]) -> None:
        """One node at the place of several."""
        label = " + ".join(dict.fromkeys((nodes[0].label, nodes[-1].label)))
        self.replaced[place] = ops.OPS[operator].bind(place.index, label, args)
        self.dropped.update(nodes)


def _exact(*tensors: Tensor) -> bool:
    """Whether a result that stays in a register is the one that memory would give back.

    Not so for halves: NVIDIA's compiler skips the rounding in between, which is closer to the truth and not the same.
    """
    return all(tensor.dtype == "float32" for tensor in tensors)
