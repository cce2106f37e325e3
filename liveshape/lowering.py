"""A method of a program as one Graph: portable operators, moves, jumps and the insides of its delegates, inlined.

Inlining is what keeps values on the GPU between delegates: one walk plans everything, one pass runs it, and the memory
plan covers it whole. Delegate inputs and outputs become the outer tensors themselves wherever both are stored alike.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from liveshape import ops
from liveshape.dtypes import padded, prod, storage_bytes, stored_alike, supported
from liveshape.elision import elided_views
from liveshape.errors import FormatError, UnsupportedError
from liveshape.formats import (
    DelegateCall,
    ExecutionPlan,
    FreeCall,
    IntListRef,
    JumpFalseCall,
    KernelCall,
    MoveCall,
    OptionalTensorListRef,
    Program,
    TensorListRef,
    TensorSpec,
    ValueList,
    VkGraph,
    VkSymInt,
    VkTensor,
    parse_vkgraph,
)
from liveshape.graph import Graph, Limits, Node, SymInt, Tensor, Value

BACKEND = "VulkanBackend"
PREPACK = "et_vk.prepack.default"


@dataclass(frozen=True)
class Problem:
    """Why a part of a program cannot run here."""

    node: str
    operator: str
    reason: str

    def __str__(self) -> str:
        return f"{self.node}: {self.reason}"


def lower(program: Program, method: str, data: Mapping[str, memoryview], limits: Limits | None = None) -> Graph:
    """The graph of a method, or an UnsupportedError that lists everything it has and we lack.

    `data` is the named data of `.ptd` files beside the program's own.
    """
    graph, problems = examine(program, method, data, limits)
    if problems:
        listing = "\n  ".join(str(problem) for problem in problems)
        raise UnsupportedError(
            f"{method} cannot run: {len(problems)} parts of it are not supported\n  {listing}\n"
            "export with an operator_allowlist that leaves these to other operators, or see `liveshape inspect`"
        )
    return graph


def examine(
    program: Program, method: str, data: Mapping[str, memoryview], limits: Limits | None = None
) -> tuple[Graph, list[Problem]]:
    """The graph of a method with the unsupported parts left out, and what they are."""
    lowering = _Lowering(program, program.method(method), data, limits or Limits())
    return lowering.graph(), lowering.problems


@dataclass(eq=False)
class _Lowering:
    program: Program
    plan: ExecutionPlan
    data: Mapping[str, memoryview]
    limits: Limits
    nodes: list[Node] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    values: list[Value] = field(default_factory=list)
    file_bytes: int = 0
    names: dict[int, str] = field(default_factory=dict)  # of what the caller gives and gets, for messages
    outer: dict[int, Any] = field(default_factory=dict)
    delegates: dict[int, _Inlined] = field(default_factory=dict)
    parsed: dict[int, VkGraph] = field(default_factory=dict)  # by blob: delegates may share one

    def graph(self) -> Graph:
        live = self._live_scalars()
        self.names = {index: f"output {position}" for position, index in enumerate(self.plan.outputs)}
        self.names |= {index: f"input {position}" for position, index in enumerate(self.plan.inputs)}
        for index, spec in enumerate(self.plan.values):
            if isinstance(spec, (bool, int, float)) and index in live:
                self.outer[index] = self._keep(SymInt(self.names.get(index, f"value {index}"), spec))
            elif isinstance(spec, TensorSpec):
                self.outer[index] = self._keep(self._outer_tensor(index, spec))
        of_start, of_results = elided_views(self.plan, self._written)
        for base, views in of_start.items():
            self._views(base, views)
        starts: list[int] = []
        jumps: list[tuple[Node, int]] = []
        for position, instruction in enumerate(self.plan.instructions):
            starts.append(len(self.nodes))
            label = f"instruction {position}"
            if isinstance(instruction, DelegateCall):
                self._delegate_call(instruction, label)
            elif isinstance(instruction, KernelCall):
                self._kernel_call(instruction, f"{instruction.op} ({label})")
            elif isinstance(instruction, MoveCall):
                self._move(self._value(instruction.source), self._value(instruction.target), f"move ({label})")
            elif isinstance(instruction, JumpFalseCall):
                condition = self._value(instruction.condition)
                node = self._node("liveshape.jump_false", f"jump ({label})", (condition, 0, None))
                if node is not None:
                    jumps.append((node, instruction.target))
            elif not isinstance(instruction, FreeCall):
                raise FormatError(f"{label} is of an unknown kind")
            for base in dict.fromkeys(self._written(instruction)):
                self._views(base, of_results.get(base, []))
        starts.append(len(self.nodes))
        for node, target in jumps:
            node.args = (node.args[0], starts[target], None)
        inputs = [self._value(index) for index in self.plan.inputs]
        outputs = [self._value(index) for index in self.plan.outputs]
        self._mark_state(inputs)
        self.file_bytes += sum(self.plan.non_const_buffer_sizes)
        return Graph(self.plan.name, self.nodes, self.values, inputs, outputs, self.limits, self.file_bytes)

    def _keep(self, value: Any) -> Any:
        self.values.append(value)
        return value

    def _written(self, instruction: Any) -> list[int]:
        """The values that an instruction writes, by index."""
        if isinstance(instruction, MoveCall):
            return [instruction.target]
        indices: tuple[int, ...] = ()
        if isinstance(instruction, KernelCall):
            entry = ops.OPS.get(instruction.op)
            indices = instruction.args[len(entry.parameters) - 1 :] if entry else instruction.args[-1:]
            indices += tuple(instruction.args[position] for position in entry.mutates) if entry else ()
        elif isinstance(instruction, DelegateCall) and self.plan.delegates[instruction.delegate].id == BACKEND:
            count = len(self._parse(self.plan.delegates[instruction.delegate].blob).output_ids)
            indices = instruction.args[len(instruction.args) - count :]
        found: list[int] = []
        for index in indices:
            spec = self.plan.values[index]
            found.extend(spec.ids if isinstance(spec, TensorListRef) else (index,))
        return found

    def _views(self, base: int, views: list[int]) -> None:
        """Nodes for views that have no instruction."""
        for index in views:
            target = self.outer[index]
            label = f"view (value {index} of value {base})"
            self._node("aten.view_copy.default", label, (self.outer[base], target.max_shape, target))

    # Outer values

    def _live_scalars(self) -> set[int]:
        """Scalars that an instruction sets or the caller gives; all others are constants."""
        live = set(self.plan.inputs)
        for instruction in self.plan.instructions:
            if isinstance(instruction, KernelCall):
                live.update(instruction.args[-1:])
            elif isinstance(instruction, MoveCall):
                live.add(instruction.target)
            elif isinstance(instruction, DelegateCall):
                live.update(instruction.args)
        return live

    def _outer_tensor(self, index: int, spec: TensorSpec) -> Tensor:
        given = index in self.plan.inputs
        label = (not given and spec.name) or self.names.get(index, f"value {index}")
        if not supported(spec.dtype):
            self.problems.append(Problem(label, "", f"tensors of dtype {spec.dtype} are not supported"))
            return Tensor(label, "float32", spec.shape, half=self.limits.half)
        data = self.program.tensor_data(spec)
        if spec.external and spec.name is not None:
            data = self._named(spec.name, label)
        if data is not None:
            data = _logical_order(data, spec)
        tensor = self._tensor(label, spec.dtype, spec.shape, data)
        tensor.static = spec.dynamism == "static"
        return tensor

    def _tensor(self, label: str, dtype: str, shape: tuple[int, ...], data: memoryview | None) -> Tensor:
        if prod(shape) >= 1 << 32:
            self.problems.append(Problem(label, "", f"shape {shape} has 2**32 elements or more"))
        if data is not None:
            needed = prod(shape) * np.dtype(dtype).itemsize
            if len(data) < needed:
                raise FormatError(f"{label}: the data has {len(data)} bytes, {dtype} {shape} needs {needed}")
            data = data[:needed]
        tensor = Tensor(label, dtype, shape, constant=data, half=self.limits.half)
        tensor.storage.persistent = data is not None
        return tensor

    def _named(self, key: str, label: str) -> memoryview:
        for source in (self.program.named_data, self.data):
            if key in source:
                return source[key]
        raise FormatError(f"{label}: the file refers to data {key!r} that it does not hold; give its .ptd as data_path")

    def _value(self, index: int) -> Any:
        """An EValue as an argument: live values as objects, lists as tuples of arguments."""
        if index in self.outer:
            return self.outer[index]
        spec = self.plan.values[index]
        if isinstance(spec, (IntListRef, TensorListRef)):
            return tuple(self._value(item) for item in spec.ids)
        if isinstance(spec, OptionalTensorListRef):
            return tuple(None if item < 0 else self._value(item) for item in spec.ids)
        return spec

    def _mark_state(self, inputs: list[Any]) -> None:
        """A tensor that is read before anything wrote it keeps its contents from call to call."""
        written = Counter(value for node in self.nodes for value in dict.fromkeys(node.written))
        readers = Counter(value for node in self.nodes for value in dict.fromkeys(node.inputs))
        for node in self.nodes:
            source, target = node.args[0], node.args[-1]
            if node.name == PREPACK and written[target] > 1 and source.constant is not None:
                # Packing happens at load, so what is written after it outlives the call.
                target.constant = source.constant
                target.storage.persistent = True
                if readers[source] == 1:
                    target.storage = source.storage
        known: set[Value] = {value for value in inputs if isinstance(value, Value)}
        for node in self.nodes:
            for value in node.inputs:
                if isinstance(value, Tensor) and value not in known:
                    value.storage.persistent = True
            known.update(node.written)

    # Instructions

    def _node(self, operator: str, label: str, args: tuple[Any, ...]) -> Node | None:
        entry = ops.OPS.get(operator)
        if entry is None:
            self.problems.append(Problem(label, operator, f"operator {operator} is not supported"))
            return None
        node = entry.bind(len(self.nodes), label, args)
        self.nodes.append(node)
        self._keep_apart(node)
        return node

    def _keep_apart(self, node: Node) -> None:
        """A dispatch cannot read and write one buffer: an output that is an input too is moved there afterwards."""
        mutated = {value for position in node.mutates for value in _tensors(node.args[position])}
        doubled = [value for value in node.outputs if isinstance(value, Tensor) and value in node.inputs]
        copies = {
            value: self._keep(Tensor(f"{value.name} anew", value.dtype, value.max_shape, half=self.limits.half))
            for value in doubled
            if value not in mutated
        }
        if copies:
            output = node.args[-1]
            many = isinstance(output, tuple)
            renamed = tuple(copies.get(item, item) for item in output) if many else copies[output]
            node.args = (*node.args[:-1], renamed)
            for value, copy in copies.items():
                self._node("liveshape.move", f"{node.label}, its result", (copy, value))

    def _kernel_call(self, call: KernelCall, label: str) -> None:
        entry = ops.OPS.get(call.op)
        if entry is None:
            self.problems.append(Problem(label, call.op, f"portable operator {call.op} is not supported"))
            return
        # Out-variants name their outputs as arguments and again as results.
        count = len(entry.parameters) - 1
        given: list[Any] = []
        for value in (self._value(index) for index in call.args[count:]):
            given.extend(value if isinstance(value, tuple) else (value,))
        outputs = tuple(dict.fromkeys(given))
        if not entry.parameters[-1].many and len(outputs) != 1:
            raise FormatError(f"{label}: {len(call.args)} arguments given, {count} and one output expected")
        inputs = tuple(self._value(index) for index in call.args[:count])
        self._node(call.op, label, (*inputs, outputs if entry.parameters[-1].many else outputs[0]))

    def _move(self, source: Any, target: Any, label: str) -> None:
        """Make `target` hold what `source` holds, converting between storages and between tensors and scalars."""
        if source is target:
            return
        if isinstance(target, Tensor) and isinstance(source, Tensor):
            self._node("liveshape.move", label, (source, target))
        elif isinstance(target, SymInt) and isinstance(source, Tensor):
            self._node("aten::_local_scalar_dense", label, (source, target))
        elif isinstance(target, SymInt) and isinstance(source, (SymInt, bool, int, float)):
            self._node("liveshape.assign", label, (source, target))
        elif isinstance(target, tuple) and isinstance(source, tuple) and len(target) == len(source):
            for one, other in zip(source, target, strict=True):
                self._move(one, other, label)
        else:
            self.problems.append(Problem(label, "move", f"{source!r} cannot be moved to {target!r}"))

    def _parse(self, blob: memoryview) -> VkGraph:
        if id(blob) not in self.parsed:
            self.parsed[id(blob)] = parse_vkgraph(blob)
        return self.parsed[id(blob)]

    def _delegate_call(self, call: DelegateCall, label: str) -> None:
        delegate = self.plan.delegates[call.delegate]
        if delegate.id != BACKEND:
            reason = f"the delegate is for {delegate.id}; export with VulkanPartitioner instead"
            self.problems.append(Problem(f"delegate {call.delegate}", delegate.id, reason))
            return
        inlined = self.delegates.get(call.delegate)
        if inlined is None:
            name = "" if len(self.plan.delegates) == 1 else f"delegate {call.delegate}, "
            graph = self._parse(delegate.blob)
            calls = [each for each in self.plan.instructions if isinstance(each, DelegateCall)]
            once = sum(each.delegate == call.delegate for each in calls) == 1
            inlined = self.delegates[call.delegate] = _Inlined(self, graph, name, once)
        inlined.call([self._value(index) for index in call.args], label)


class _Inlined:
    """One delegate: its values, made once and shared by every call of it, so that its state is one."""

    def __init__(self, lowering: _Lowering, graph: VkGraph, prefix: str, once: bool) -> None:
        self.lowering = lowering
        self.graph = graph
        self.prefix = prefix
        self.once = once  # what a second call writes must not be the tensors that the first one gave
        self.values: dict[int, Any] = {}
        self.outputs = {call.args[-1] for call in graph.chain if call.args}
        sizes: dict[int, int] = {}
        for value in graph.values:
            if isinstance(value, VkTensor) and value.mem_obj_id >= 0 and value.constant_id < 0:
                nbytes = padded(storage_bytes(value.dtype, prod(value.shape), lowering.limits.half))
                sizes[value.mem_obj_id] = max(sizes.get(value.mem_obj_id, 0), nbytes)
        lowering.file_bytes += sum(sizes.values())

    def call(self, args: list[Any], label: str) -> None:
        graph = self.graph
        given, taken = args[: len(graph.input_ids)], args[len(graph.input_ids) :]
        if len(taken) != len(graph.output_ids):
            # Outputs that became one value, or a buffer that is written back: the file does not say which is which.
            reason = (
                f"it is called with {len(args)} arguments, its graph has {len(graph.input_ids)} inputs and "
                f"{len(graph.output_ids)} outputs; return no value twice, and keep state in ops that write in place"
            )
            self.lowering.problems.append(Problem(f"delegate ({label})", BACKEND, reason))
            return
        for index, value in zip(graph.input_ids, given, strict=True):
            if self.once and self._alike(index, value):
                self.values[index] = value
            else:
                self.lowering._move(value, self._value(index), f"delegate input ({label})")
        produced = self._produced()
        late: list[tuple[Any, Any]] = []
        for index, value in zip(graph.output_ids, taken, strict=True):
            if index in produced and index not in self.values and self.once and self._alike(index, value):
                self.values[index] = value
            else:
                late.append((index, value))
        for call in graph.chain:
            node = f"{call.name} ({self.prefix}node {call.node_id})"
            self.lowering._node(call.name, node, tuple(self._value(index) for index in call.args))
        for index, value in late:
            self.lowering._move(self._value(index), value, f"delegate output ({label})")

    def _produced(self) -> set[int]:
        """Values that an operator of the chain writes as its output."""
        found: set[int] = set()
        for call in self.graph.chain:
            for index in call.args[-1:]:
                value = self.graph.values[index]
                found.update(value.ids if isinstance(value, ValueList) else (index,))
        return found

    def _alike(self, index: int, outer: Any) -> bool:
        """Whether an inner value can be the outer one itself: same bound, same bytes on the device."""
        inner = self.graph.values[index]
        if isinstance(inner, VkSymInt):
            return isinstance(outer, SymInt)
        if not isinstance(inner, VkTensor) or not isinstance(outer, Tensor) or inner.constant_id >= 0:
            return False
        same = supported(inner.dtype) and stored_alike(inner.dtype, outer.dtype, self.lowering.limits.half)
        return same and inner.shape == outer.max_shape

    def _value(self, index: int) -> Any:
        if index not in self.values:
            self.values[index] = self._make(index)
        return self.values[index]

    def _make(self, index: int) -> Any:
        value, lowering = self.graph.values[index], self.lowering
        if isinstance(value, VkSymInt):
            return lowering._keep(SymInt(f"{self.prefix}value {index}", value.value))
        if isinstance(value, ValueList):
            return tuple(self._value(item) for item in value.ids)
        if not isinstance(value, VkTensor):
            return value
        label = f"{self.prefix}value {index}"
        return lowering._keep(lowering._tensor(label, value.dtype, value.shape, self._constant(value, label)))

    def _constant(self, value: VkTensor, label: str) -> memoryview | None:
        if value.constant_id < 0:
            return None
        constant = self.graph.constants[value.constant_id]
        data = self.lowering._named(constant.key or "", label) if constant.data is None else constant.data
        expected = prod(value.shape) * np.dtype(value.dtype).itemsize if supported(value.dtype) else 0
        if constant.length > expected or len(data) < constant.length:
            # The exporter writes a view's whole storage from its start: the tensor's own values are not where they should be.
            reason = f"its data has {constant.length} bytes, {value.dtype} {value.shape} takes {expected}"
            advice = "a parameter that is a view of a larger one is exported wrongly; make it a .clone() first"
            self.lowering.problems.append(Problem(label, "constant", f"{reason}; {advice}"))
        return data


def _tensors(argument: Any) -> tuple[Any, ...]:
    return argument if isinstance(argument, tuple) else (argument,)


def _logical_order(data: memoryview, spec: TensorSpec) -> memoryview:
    """Constant data in row-major order of its logical dimensions, whatever order the file keeps."""
    order = spec.dim_order
    if order == tuple(range(len(order))):
        return data
    stored = np.frombuffer(data, spec.dtype, prod(spec.shape)).reshape([spec.shape[axis] for axis in order])
    logical: Any = np.ascontiguousarray(stored.transpose(np.argsort(order)))
    return memoryview(logical).cast("B")


__all__ = ["BACKEND", "Problem", "examine", "lower"]
