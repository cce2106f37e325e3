"""A planned method as a graph of Google's model-explorer, with the bytes that each node moves as node data.

Nodes are those after fusion, in a namespace per layer; each says its operator, its kernels, the nodes of the file that
it came from, and its constants. Inputs of the method are nodes of their own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from liveshape.graph import Node, SymInt, Tensor, Value
from liveshape.graph.elements import prod, storage_bytes
from liveshape.plan.layers import layers_of
from liveshape.plan.plan import Plan

Json = dict[str, Any]
_GRADIENT = [{"stop": 0, "bgColor": "#ffffff"}, {"stop": 1, "bgColor": "#f0883e"}]
_RED = {"backgroundColor": "#ffdce0", "borderColor": "#cf222e"}  # what the host computes


def graph_collection(label: str, plans: Mapping[str, Plan]) -> Json:
    """The JSON that model-explorer opens: a graph for each method.

    Example: `json.dump(graph_collection("model.pte", {"forward": plan}), file)`.
    """
    return {"label": label, "graphs": [{"id": name, "nodes": _nodes(plan)} for name, plan in plans.items()]}


def node_data(plans: Mapping[str, Plan]) -> Json:
    """What model-explorer shows over these graphs: bytes that each node reads and writes at the bound of the file.

    Example: `json.dump(node_data({"forward": plan}), file)`.
    """
    return {
        name: {
            "results": {f"{node.index}": {"value": _bytes_of(node, plan)} for node in plan.graph.nodes},
            "gradient": _GRADIENT,
        }
        for name, plan in plans.items()
    }


def _nodes(plan: Plan) -> list[Json]:
    graph, layers = plan.graph, layers_of(plan)
    made: dict[Value, tuple[str, str]] = {}  # the node and the output that a value comes from, so far
    found: list[Json] = []
    for place, value in enumerate(graph.inputs):
        made[value] = (f"input {place}", "0")
        found.append(_node(f"input {place}", value.name, "inputs", [], (), [value]))
    kernels: dict[int, list[str]] = {}
    for route in plan.routes:
        names = dict.fromkeys(variant.kernel.name for variant, _ in route.dispatched)
        for member in route.members:
            kernels.setdefault(member, []).append(" + ".join(names))
    for node in graph.nodes:
        edges = [
            {"sourceNodeId": made[value][0], "sourceNodeOutputId": made[value][1], "targetNodeInputId": f"{place}"}
            for place, value in enumerate(node.inputs)
            if value in made
        ]
        attributes = {
            "operator": node.name,
            "kernels": " | ".join(dict.fromkeys(kernels.get(node.index, []))) or without_kernel(node),
            "from": "; ".join(map(str, node.sources)),
            "constants": "; ".join(_text(value) for value in _constants(node)),
            "arguments": ", ".join(f"{name}={value}" for name, value in node.named.items() if _is_plain(value)),
            "bytes at the bound": f"{_bytes_of(node, plan):,}",
        }
        namespace = layers[node.index] if layers is not None else ""
        drawn = _node(f"{node.index}", short_name(node.name), namespace, edges, attributes.items(), node.written)
        found.append(drawn | {"style": _RED} if node.host else drawn)
        made |= {value: (f"{node.index}", f"{place}") for place, value in enumerate(node.written)}
    return found


def _node(
    identity: str, label: str, namespace: str, edges: list[Json], attributes: Iterable[tuple[str, str]], gives: Any
) -> Json:
    return {
        "id": identity,
        "label": label,
        "namespace": namespace,
        "attrs": [{"key": key, "value": value} for key, value in attributes if value],
        "incomingEdges": edges,
        "outputsMetadata": [
            {"id": f"{place}", "attrs": [{"key": key, "value": text} for key, text in _of_value(value).items()]}
            for place, value in enumerate(gives)
        ],
    }


def _of_value(value: Value) -> dict[str, str]:
    if isinstance(value, Tensor):
        bound = "x".join(map(str, value.max_shape))
        return {"tensor_name": value.name, "dtype": value.dtype, "tensor_shape": f"up to {bound}"}
    return {"tensor_name": value.name, "dtype": "live scalar"}


def _text(tensor: Tensor) -> str:
    return f"{tensor.name} {tensor.dtype} {'x'.join(map(str, tensor.max_shape))}"


def _constants(node: Node) -> list[Tensor]:
    return [value for value in node.inputs if isinstance(value, Tensor) and value.constant is not None]


def without_kernel(node: Node) -> str:
    """Why a node runs no kernel.

    Example: `without_kernel(graph.nodes[0])`.
    """
    if node.host:
        return "none: the host computes it"
    return "none: its result shares the memory of its source" if node.alias else "none: live scalars of the host"


def _is_plain(value: Any) -> bool:
    return value is not None and not isinstance(value, (Tensor, SymInt, tuple))


def _bytes_of(node: Node, plan: Plan) -> int:
    if node.alias:
        return 0
    tensors = {value for value in (*node.inputs, *node.written) if isinstance(value, Tensor)}
    return sum(storage_bytes(each.dtype, prod(each.max_shape), plan.limits.half) for each in tensors)


def short_name(name: str) -> str:
    """The name without its namespace and its overload.

    >>> short_name("aten.add.Tensor"), short_name("aten::cumprod.out"), short_name("sym_add")
    ('add', 'cumprod', 'sym_add')
    """
    last = name.rsplit("::")[-1].removeprefix("aten.").removeprefix("et_vk.").removeprefix("liveshape.")
    return last.rsplit(".", 1)[0] if "." in last else last
