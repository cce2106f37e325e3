"""What the page of a program shows, as JSON: everything that several nodes share is stored once and named by its place.

Nodes point to a class (operator and arguments) and to a behaviour (kernels and costs at every sample); values point to
a shape, and a shape to sizes, each with its function of the inputs' sizes and its samples. The page computes none.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from liveshape.formats.signature import Signature
from liveshape.graph import Graph, Node, Tensor, Value
from liveshape.graph.elements import prod, storage_bytes
from liveshape.graph.sources import NodeSource, operators_of
from liveshape.graph.state import states_of
from liveshape.lower.problems import Problem
from liveshape.plan.layers import layers_of
from liveshape.plan.plan import Plan
from liveshape.program.memory_use import memory_of
from liveshape.run.host import find_on_host
from liveshape.tools.model_explorer import short_name, without_kernel
from liveshape.tools.program_page.folds import Fold, folds_of
from liveshape.tools.program_page.live_samples import Behaviour, Sample, Samples, samples
from liveshape.tools.program_page.size_functions import size_function

Json = dict[str, Any]
_NUMBERED = re.compile(r"\((?:delegate \d+, )?(?:node|instruction) (\d+)\)")


class NumberedRows:
    """Things that are stored once: each has a number, in the order in which they came.

    >>> table = NumberedRows()
    >>> table("a"), table("b"), table("a"), table.rows
    (0, 1, 0, ['a', 'b'])
    """

    def __init__(self) -> None:
        self.rows: list[Any] = []
        self._known: dict[Hashable, int] = {}

    def __call__(self, row: Any, key: Hashable = None) -> int:
        """The number of a row, which is told from others by its key, or by itself."""
        return self.of(row if key is None else key, lambda: row)

    def of(self, key: Hashable, make: Callable[[], Any]) -> int:
        """The number of the row with a key, which is made if it is the first one."""
        if key not in self._known:
            row = make()  # first: it may add rows itself
            self._known[key] = len(self.rows)
            self.rows.append(row)
        return self._known[key]


def method_document(
    graph: Graph,
    plan: Plan | None,
    problems: Sequence[Problem] = (),
    signature: Signature | None = None,
    begin: Callable[[str], None] = lambda text: None,
) -> Json:
    """A method as the page shows it; without a plan it has no samples, no kernels and no memory.

    Example: `method_document(plan.graph, plan)["nodes"][0]["label"]`.
    """
    if plan is None:
        return _Method(graph, None, Samples((), (), (), ()), problems).document()
    return _Method(plan.graph, plan, samples(plan, signature, begin), problems).document()


@dataclass
class _Method:
    graph: Graph
    plan: Plan | None
    samples: Samples
    problems: Sequence[Problem]
    sizes: NumberedRows = field(default_factory=NumberedRows)
    shapes: NumberedRows = field(default_factory=NumberedRows)
    values: NumberedRows = field(default_factory=NumberedRows)
    classes: NumberedRows = field(default_factory=NumberedRows)
    kernels: NumberedRows = field(default_factory=NumberedRows)
    records: NumberedRows = field(default_factory=NumberedRows)
    behaviours: NumberedRows = field(default_factory=NumberedRows)
    places: dict[int, int] = field(default_factory=dict)  # of the nodes of the graph among those of the page

    def __post_init__(self) -> None:
        self.state = {state.tensor for state in states_of(self.graph)}

    def document(self) -> Json:
        nodes = self._nodes()
        others = [{"node": each.node, "reason": each.reason} for each in self.problems if not each.operator]
        return {
            "name": self.graph.name,
            "axes": [
                {"symbol": axis.symbol, "label": axis.label, "kind": axis.kind, "values": axis.values}
                for axis in self.samples.axes
            ],
            "fixed": self.samples.fixed,
            "refused": {place: each.refused for place, each in enumerate(self.samples.points) if each.refused},
            "inputs": [self._value(value) for value in self.graph.inputs if isinstance(value, Value)],
            "outputs": [self._value(value) for value in self.graph.outputs if isinstance(value, Value)],
            "nodes": nodes,
            "folds": [_fold(fold) for fold in self._folds(nodes)],
            "memory": None if self.plan is None else self._memory(self.plan),
            "problems": others,
            "sizes": self.sizes.rows,
            "shapes": self.shapes.rows,
            "values": self.values.rows,
            "classes": self.classes.rows,
            "kernels": self.kernels.rows,
            "records": self.records.rows,
            "behaviours": self.behaviours.rows,
        }

    def _nodes(self) -> list[Json]:
        """The nodes in program order; what could not be lowered comes where the file has it, without its inputs."""
        reasons = {problem.node: problem.reason for problem in self.problems}
        known = {node.label for node in self.graph.nodes}
        rows: list[tuple[float, int | None, Json]] = []
        order = 0.0
        for node in self.graph.nodes:
            order = max(order, _number(node.label))
            rows.append((order, node.index, self._node(node, reasons.get(node.label, ""))))
        lacking = [problem for problem in self.problems if problem.operator and problem.node not in known]
        rows += [(_number(problem.node) - 0.5, None, self._missing(problem)) for problem in lacking]
        rows.sort(key=lambda row: row[0])
        self.places = {index: place for place, (_, index, _) in enumerate(rows) if index is not None}
        return [row for _, _, row in rows]

    # Values

    def _value(self, value: Value) -> int:
        return self.values.of(value, lambda: self._described(value))

    def _described(self, value: Value) -> Json:
        if not isinstance(value, Tensor):
            return {"name": value.name, "kind": "scalar", "size": self._size(lambda each: each.values.get(value))}
        half = self.plan is not None and self.plan.limits.half
        return {
            "name": value.name,
            "kind": self._kind(value),
            "dtype": value.dtype,
            "shape": self._shape(value),
            "bound": value.max_shape,
            "bytes": storage_bytes(value.dtype, prod(value.max_shape), half),
        }

    def _shape(self, tensor: Tensor) -> int:
        bounds = tensor.max_shape
        # Most tensors have the live shapes of another one.
        column = (bounds, *(each.values.get(tensor, bounds) if each.values else None for each in self.samples.points))

        def make() -> tuple[int, ...]:
            return tuple(
                self._size(lambda each, axis=axis: each.values.get(tensor, bounds)[axis], bound)  # type: ignore[misc]
                for axis, bound in enumerate(bounds)
            )

        return self.shapes.of(column, make)

    def _kind(self, tensor: Tensor) -> str:
        if tensor in self.graph.given:
            return "input"
        if tensor in self.state:
            return "state"
        return "constant" if tensor.constant is not None else "activation"

    def _size(self, of: Callable[[Sample], Any], bound: int | None = None) -> int:
        """A size at every sample: one number where it never moves, else with its function where it is known."""
        points = self.samples.points
        column = tuple(None if each.refused else of(each) for each in points) or (bound,)
        return self.sizes.of(column, lambda: self._sampled(column, of))

    def _sampled(self, column: tuple[Any, ...], of: Callable[[Sample], Any]) -> Any:
        seen = {each for each in column if each is not None}
        if len(seen) <= 1:
            return seen.pop() if seen else None
        text = None
        if all(type(each) is int for each in seen):
            symbols, dense = [axis.symbol for axis in self.samples.axes], self.samples.dense
            points = [each.sizes for each in (*self.samples.points, *dense)]
            text = size_function(symbols, points, [*column, *(of(each) for each in dense)])
        return {"text": text, "values": column}

    # Nodes

    def _node(self, node: Node, problem: str) -> Json:
        written = [value for value in node.written if value not in node.inputs]
        host = find_on_host(node.name) if node.host else ""
        why = "no kernel" if isinstance(host, str) else f"no kernel: the device waits for {host.library} on the host"
        made: Json = {
            "class": self._class(node),
            "behaviour": self._behaviour(node),
            "label": node.label,
            "inputs": [self._value(value) for value in node.inputs],
            "outputs": [self._value(value) for value in written],
            "changes": [self._value(value) for value in node.written if value in node.inputs],
            "from": [_source_text(source, self.graph.name) for source in node.sources],
        }
        if self.plan is not None and self.plan.scratch[node.index]:
            made["scratch"] = [self._value(value) for value in self.plan.scratch[node.index]]
        if problem:
            made["problem"] = problem
        elif node.host:
            made["host"] = why
        return {key: value for key, value in made.items() if value not in ("", [], None)}

    def _missing(self, problem: Problem) -> Json:
        operator = problem.operator
        row = {"operator": operator, "label": short_name(operator), "arguments": [], "slots": []}
        number = self.classes(row, ("missing", operator))
        return {"class": number, "label": problem.node, "problem": problem.reason}

    def _class(self, node: Node) -> int:
        arguments = tuple((name, _argument(value)) for name, value in node.named.items() if _is_shown(value))
        slots = tuple(slot for name, value in _named_inputs(node) for slot in _slots(name, value))
        none = "" if self.plan is None or self._has_kernel(node) else without_kernel(node)
        row = {
            "operator": node.name,
            "label": " + ".join(dict.fromkeys(map(short_name, operators_of(node)))),
            "arguments": arguments,
            "slots": slots,
            "none": none,
        }
        return self.classes(row, tuple(row.values()))

    def _has_kernel(self, node: Node) -> bool:
        return any(each.nodes[node.index].steps for each in self.samples.points if not each.refused)

    def _behaviour(self, node: Node) -> int | None:
        if self.plan is None:
            return None
        found = [None if each.refused else each.nodes[node.index] for each in self.samples.points]
        # Nodes that were planned together have one object.
        return self.behaviours.of(tuple(map(id, found)), lambda: [self._record(each) for each in found])

    def _record(self, found: Behaviour | None) -> int | None:
        if found is None:
            return None
        steps = tuple((self.kernels(label), *grid) for label, grid in found.steps)
        return self.records((steps, found.cost.read, found.cost.written, found.cost.operations))

    def _folds(self, nodes: Sequence[Json]) -> tuple[Fold, ...]:
        outputs = [tuple(self.values.rows[each].get("bound") for each in row.get("outputs", [])) for row in nodes]
        kinds = [(row["class"], shapes) for row, shapes in zip(nodes, outputs, strict=True)]
        layers = None if self.plan is None or len(nodes) != len(self.graph.nodes) else layers_of(self.plan)
        return folds_of(kinds, layers)

    # Memory

    def _memory(self, plan: Plan) -> Json:
        held: dict[int, list[int]] = {}
        for tensor, storage in plan.memory.storages.items():
            held.setdefault(storage.number, []).append(self._value(tensor))
        places = {-1: -1, **self.places, len(self.graph.nodes): max(self.places.values(), default=-1) + 1}
        rows = []
        for storage in dict.fromkeys(plan.memory.storages.values()):
            first, last = plan.memory.live_ranges[storage.number]
            span = (places[first], places[last])
            rows.append([storage.block, storage.nbytes, *span, int(storage.persistent), held[storage.number]])
        memory = memory_of(plan)
        return {**asdict(memory), "total": memory.total, "blocks": plan.memory.blocks, "storages": rows}


def _number(label: str) -> float:
    """The place in the file that a label names, as far as it names one."""
    found = _NUMBERED.search(label)
    return float(found[1]) if found else 0.0


def _named_inputs(node: Node) -> list[tuple[str, Any]]:
    names = node.parameters or tuple(f"argument {place}" for place in range(len(node.args)))
    return list(zip(names, node.args[:-1], strict=False))


def _slots(name: str, value: Any) -> list[str]:
    if isinstance(value, Value):
        return [name]
    items = [item for item in value if isinstance(item, Value)] if isinstance(value, tuple) else []
    return [f"{name}[{place}]" if len(items) > 1 else name for place in range(len(items))]


def _is_shown(value: Any) -> bool:
    if isinstance(value, tuple):
        return bool(value) and not any(isinstance(item, Tensor) for item in value)
    return value is not None and not isinstance(value, Value)


def _argument(value: Any) -> str:
    if isinstance(value, tuple):
        return f"[{', '.join(item.name if isinstance(item, Value) else str(item) for item in value)}]"
    return str(value)


def _source_text(source: NodeSource, method: str) -> str:
    return str(source).replace(f"({method}, ", "(", 1)


def _fold(fold: Fold) -> list[Any]:
    return [fold.name, fold.first, fold.last, int(fold.alike), [_fold(each) for each in fold.folds]]


def node_places(document: Mapping[str, Any]) -> dict[str, list[int]]:
    """The nodes of a method by each label of the file that they stand for, and by their whole label.

    Example: `node_places(document)["aten.add.Tensor (node 3)"]`.
    """
    found: dict[str, list[int]] = {}
    for place, node in enumerate(document["nodes"]):
        for label in dict.fromkeys((node["label"], *node["label"].split(" + "))):
            found.setdefault(label, []).append(place)
    return found


__all__ = ["NumberedRows", "method_document", "node_places"]
