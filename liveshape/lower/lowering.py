"""A method of a program as one Graph: portable operators, moves, jumps and the insides of its delegates, inlined.

Inlining is what keeps values on the GPU between delegates: one walk plans everything, one pass runs it, and the memory
plan covers it whole. Delegate inputs and outputs become the outer tensors themselves wherever both are stored alike.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from liveshape import ops
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
    VkGraph,
    parse_vkgraph,
)
from liveshape.graph import Graph, Limits, Node, SymInt, Tensor, Value
from liveshape.graph.elements import prod, supported
from liveshape.lower.building import Builder, Problem
from liveshape.lower.cse import without_repeats
from liveshape.lower.delegates import BACKEND, Delegate
from liveshape.lower.elision import elided_views
from liveshape.lower.fusion import fuse


def lower(program: Program, method: str, data: Mapping[str, memoryview], limits: Limits | None = None) -> Graph:
    """The graph of a method, fused, or an UnsupportedError that lists everything it has and we lack.

    `data` is the named data of `.ptd` files beside the program's own.
    """
    graph, problems = examine(program, method, data, limits)
    if problems:
        listing = "\n  ".join(str(problem) for problem in problems)
        raise UnsupportedError(
            f"{method} cannot run: {len(problems)} parts of it are not supported\n  {listing}\n"
            "export with an operator_allowlist that leaves these to other operators, or see `liveshape inspect`"
        )
    return simplified(graph)


def simplified(graph: Graph) -> Graph:
    """The same program in fewer nodes, as it runs."""
    return fuse(without_repeats(graph))


def examine(
    program: Program, method: str, data: Mapping[str, memoryview], limits: Limits | None = None
) -> tuple[Graph, list[Problem]]:
    """The graph of a method with the unsupported parts left out, and what they are."""
    builder = Builder(program, data, limits or Limits())
    graph = _Lowering(program, program.method(method), builder).graph()
    return graph, builder.problems


@dataclass(eq=False)
class _Lowering:
    program: Program
    plan: ExecutionPlan
    builder: Builder
    names: dict[int, str] = field(default_factory=dict)  # of what the caller gives and gets, for messages
    outer: dict[int, Any] = field(default_factory=dict)
    delegates: dict[int, Delegate] = field(default_factory=dict)
    parsed: dict[int, VkGraph] = field(default_factory=dict)  # by blob: delegates may share one

    def graph(self) -> Graph:
        live = self._live_scalars()
        self.names = {index: f"output {position}" for position, index in enumerate(self.plan.outputs)}
        self.names |= {index: f"input {position}" for position, index in enumerate(self.plan.inputs)}
        for index, spec in enumerate(self.plan.values):
            if isinstance(spec, (bool, int, float)) and index in live:
                self.outer[index] = self.builder.keep(SymInt(self.names.get(index, f"value {index}"), spec))
            elif isinstance(spec, TensorSpec):
                self.outer[index] = self._outer_tensor(index, spec)
        of_start, of_results = elided_views(self.plan, self._written)
        for base, views in of_start.items():
            self._views(base, views)
        starts: list[int] = []
        jumps: list[tuple[Node, int]] = []
        for position, instruction in enumerate(self.plan.instructions):
            starts.append(len(self.builder.nodes))
            label = f"instruction {position}"
            if isinstance(instruction, DelegateCall):
                self._delegate_call(instruction, label)
            elif isinstance(instruction, KernelCall):
                self._kernel_call(instruction, f"{instruction.op} ({label})")
            elif isinstance(instruction, MoveCall):
                self.builder.move(self._value(instruction.source), self._value(instruction.target), f"move ({label})")
            elif isinstance(instruction, JumpFalseCall):
                condition = self._value(instruction.condition)
                node = self.builder.node("liveshape.jump_false", f"jump ({label})", (condition, 0, None))
                if node is not None:
                    jumps.append((node, instruction.target))
            elif not isinstance(instruction, FreeCall):
                raise FormatError(f"{label} is of an unknown kind")
            for base in dict.fromkeys(self._written(instruction)):
                self._views(base, of_results.get(base, []))
        starts.append(len(self.builder.nodes))
        for node, target in jumps:
            node.args = (node.args[0], starts[target], None)
        inputs = [self._value(index) for index in self.plan.inputs]
        outputs = [self._value(index) for index in self.plan.outputs]
        self._mark_state(inputs)
        built = self.builder
        file_bytes = built.file_bytes + sum(self.plan.non_const_buffer_sizes)
        return Graph(self.plan.name, built.nodes, built.values, inputs, outputs, built.limits, file_bytes)

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
            self.builder.node("aten.view_copy.default", label, (self.outer[base], target.max_shape, target))

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
            self.builder.refuse(label, "", f"tensors of dtype {spec.dtype} are not supported")
            return self.builder.tensor(label, "float32", spec.shape, None)
        data = self.program.tensor_data(spec)
        if spec.external and spec.name is not None:
            data = self.builder.named(spec.name, label)
        if data is not None:
            data = _logical_order(data, spec)
        tensor = self.builder.tensor(label, spec.dtype, spec.shape, data)
        tensor.static = spec.dynamism == "static"
        return tensor

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
        known: set[Value] = {value for value in inputs if isinstance(value, Value)}
        for node in self.builder.nodes:
            for value in node.inputs:
                if isinstance(value, Tensor) and value not in known:
                    value.storage.persistent = True
            known.update(node.written)

    # Instructions

    def _kernel_call(self, call: KernelCall, label: str) -> None:
        entry = ops.OPS.get(call.op)
        if entry is None:
            self.builder.refuse(label, call.op, f"portable operator {call.op} is not supported")
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
        self.builder.node(call.op, label, (*inputs, outputs if entry.parameters[-1].many else outputs[0]))

    def _parse(self, blob: memoryview) -> VkGraph:
        if id(blob) not in self.parsed:
            self.parsed[id(blob)] = parse_vkgraph(blob)
        return self.parsed[id(blob)]

    def _delegate_call(self, call: DelegateCall, label: str) -> None:
        delegate = self.plan.delegates[call.delegate]
        if delegate.id != BACKEND:
            reason = f"the delegate is for {delegate.id}; export with VulkanPartitioner instead"
            self.builder.refuse(f"delegate {call.delegate}", delegate.id, reason)
            return
        inlined = self.delegates.get(call.delegate)
        if inlined is None:
            name = "" if len(self.plan.delegates) == 1 else f"delegate {call.delegate}, "
            graph = self._parse(delegate.blob)
            calls = [each for each in self.plan.instructions if isinstance(each, DelegateCall)]
            once = sum(each.delegate == call.delegate for each in calls) == 1
            inlined = self.delegates[call.delegate] = Delegate(self.builder, graph, name, once)
        inlined.call([self._value(index) for index in call.args], label)


def _logical_order(data: memoryview, spec: TensorSpec) -> memoryview:
    """Constant data in row-major order of its logical dimensions, whatever order the file keeps."""
    order = spec.dim_order
    if order == tuple(range(len(order))):
        return data
    stored = np.frombuffer(data, spec.dtype, prod(spec.shape)).reshape([spec.shape[axis] for axis in order])
    logical: Any = np.ascontiguousarray(stored.transpose(np.argsort(order)))
    return memoryview(logical).cast("B")


__all__ = ["BACKEND", "Problem", "examine", "lower", "simplified"]
