"""A method of a program as one Graph: portable operators, moves, jumps and the insides of its delegates, inlined.

Inlining is what keeps values on the GPU between delegates: one walk plans everything, one pass runs it, and the memory
plan covers it whole. Delegate inputs and outputs become the outer tensors themselves wherever both are stored alike.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from liveshape import ops
from liveshape.errors import FormatError
from liveshape.formats import (
    DelegateCall,
    ExecutionPlan,
    FreeCall,
    IntListRef,
    JumpFalseCall,
    KernelCall,
    MoveCall,
    OptionalTensorListRef,
    PteFile,
    TensorListRef,
    TensorSpec,
    VkGraph,
    parse_vkgraph,
)
from liveshape.formats.dtypes import ITEM_SIZES
from liveshape.graph import Graph, Limits, SymInt, Tensor, Value
from liveshape.graph.constants import view_identity
from liveshape.graph.elements import prod, supported
from liveshape.graph.sources import NodeSource
from liveshape.lower.building import Builder
from liveshape.lower.composed_fusion import with_epilogues, with_prologues
from liveshape.lower.cse import share_subexpressions
from liveshape.lower.delegate_arguments import AtBounds
from liveshape.lower.delegates import BACKEND, InlinedDelegate
from liveshape.lower.elision import elided_views
from liveshape.lower.fusion import fuse
from liveshape.lower.half_results import with_half_results
from liveshape.lower.image_layout import with_channels_last
from liveshape.lower.magnitudes import Measure
from liveshape.lower.pointwise_fusion import fuse_pointwise
from liveshape.lower.problems import Problem, advice, unsupported
from liveshape.ops.control import jump_false
from liveshape.ops.host_operator import FindOnHost
from liveshape.ops.views import view_copy

_JUMP, _VIEW = ops.defined_by(jump_false), ops.defined_by(view_copy)


def lower(
    program: PteFile,
    method: str,
    data: Mapping[str, memoryview],
    limits: Limits | None = None,
    find_on_host: FindOnHost | None = None,
    strict: bool = False,
    rewrite: Callable[[Graph], Graph] | None = None,
) -> Graph:
    """The graph of a method, fused, or an UnsupportedError that lists everything it has and we lack.

    `data` is the named data of `.ptd` files beside the program's own; `limits` are those of the device to fuse for.
    `find_on_host` is the host fallback of operators without a kernel; where `strict`, these are refused all the same.
    `rewrite` makes another program of it before it is fused.
    """
    graph, problems = examine(program, method, data, find_on_host)
    if strict:
        problems = problems + on_host(graph)
    if problems:
        raise unsupported(method, problems)
    return simplified(graph if rewrite is None else rewrite(graph), limits)


def on_host(graph: Graph) -> list[Problem]:
    """The nodes that the host computes, as problems of who wants none of them."""
    reason = "no kernel; the host can compute it, slowly: load without strict"
    return [Problem(node.label, node.name, reason) for node in graph.nodes if node.host]


def simplified(graph: Graph, limits: Limits | None = None) -> Graph:
    """The same program in fewer nodes, as it runs on a device with these limits."""
    return fuse(share_subexpressions(graph), limits)


def optimized(graph: Graph, limits: Limits, measure: Measure | None = None) -> Graph:
    """The same program as it is planned on a device with these limits, once nothing rewrites it any more.

    With `measure`, which tells how large constants are, results that products round anyway are stored as float16.

    Example: `compile(optimized(graph, device.limits), device.limits)`.
    """
    graph = with_channels_last(graph, limits) if measure is not None else graph
    expressions = fuse_pointwise(with_half_results(graph, limits, measure), limits)
    return with_epilogues(with_prologues(expressions, limits), limits)


def examine(
    program: PteFile, method: str, data: Mapping[str, memoryview], find_on_host: FindOnHost | None = None
) -> tuple[Graph, list[Problem]]:
    """The graph of a method with the unsupported parts left out, and what they are."""
    builder = Builder(program, data, find_on_host)
    graph = _Lowering(program, program.method(method), builder).graph()
    if not builder.problems:
        _check_origins(graph)
    return graph, builder.problems


def _check_origins(graph: Graph) -> None:
    """Everything that is read or given must come from somewhere: an input, data of the file, or a node."""
    readers = {value: graph.nodes[indices[0]].label for value, indices in graph.consumers.items() if indices}
    readers |= {value: f"output {place}" for place, value in enumerate(graph.outputs) if isinstance(value, Value)}
    for value, reader in readers.items():
        has_data = isinstance(value, Tensor) and value.constant is not None
        if isinstance(value, Tensor) and not (has_data or value in graph.given or graph.writers[value]):
            raise FormatError(
                f"{reader} reads {value.name} ({value.dtype} {value.max_shape}), which nothing writes: it is no input, "
                "has no data in the file and no operator gives it; export the program again"
            )


@dataclass(eq=False)
class _Lowering:
    program: PteFile
    plan: ExecutionPlan
    builder: Builder
    names: dict[int, str] = field(default_factory=dict)  # of what the caller gives and gets, for messages
    given: frozenset[int] = frozenset()  # the values that the caller gives
    outer: dict[int, Any] = field(default_factory=dict)
    delegates: dict[int, InlinedDelegate] = field(default_factory=dict)
    calls: Counter[int] = field(default_factory=Counter)  # of each delegate
    parsed: dict[int, VkGraph] = field(default_factory=dict)  # by blob: delegates may share one
    known: set[Any] = field(default_factory=set)  # what has been given, is data of the file or was written so far
    bounds: AtBounds = field(default_factory=AtBounds)
    ordered: dict[Any, tuple[memoryview, memoryview]] = field(default_factory=dict)  # data, and it in another order

    def graph(self) -> Graph:
        self._charge_lists()
        live = self._live_scalars()
        self.given = frozenset(self.plan.inputs)
        self.calls = Counter(each.delegate for each in self.plan.instructions if isinstance(each, DelegateCall))
        self.names = {index: f"output {position}" for position, index in enumerate(self.plan.outputs)}
        self.names |= {index: f"input {position}" for position, index in enumerate(self.plan.inputs)}
        signature = self.program.signatures.get(self.plan.name)
        if signature is not None:
            self.names |= {index: each.name for index, each in zip(self.plan.inputs, signature.inputs, strict=True)}
        for index, spec in enumerate(self.plan.values):
            if isinstance(spec, (bool, int, float)) and index in live:
                self.outer[index] = self.builder.keep(SymInt(self.names.get(index, f"value {index}"), spec))
            elif isinstance(spec, TensorSpec):
                self.outer[index] = self._outer_tensor(index, spec)
        data = [tensor for tensor in self.outer.values() if isinstance(tensor, Tensor) and tensor.constant is not None]
        self.known = {*data, *(self.outer.get(index) for index in self.plan.inputs)}
        of_start, of_results = elided_views(self.plan, self._written)
        for base, views in of_start.items():
            self._views(base, views)
        starts: list[int] = []
        jumps: list[tuple[int, int]] = []
        for position, instruction in enumerate(self.plan.instructions):
            starts.append(len(self.builder.nodes))
            label = f"instruction {position}"
            self.builder.sources = (_source(self.plan.name, position, instruction),)
            if isinstance(instruction, DelegateCall):
                self._delegate_call(instruction, label)
            elif isinstance(instruction, KernelCall):
                self._kernel_call(instruction, f"{instruction.op} ({label})")
            elif isinstance(instruction, MoveCall):
                self.builder.move(self._value(instruction.source), self._value(instruction.target), f"move ({label})")
            elif isinstance(instruction, JumpFalseCall):
                condition = self._value(instruction.condition)
                self._check_jump(position, instruction)
                jumps.append((len(self.builder.nodes), instruction.target))
                self.builder.node(_JUMP, f"jump ({label})", (condition, 0, None))
            elif not isinstance(instruction, FreeCall):
                raise FormatError(f"{label} is of an unknown kind")
            for base in dict.fromkeys(self._written(instruction)):
                self.known.add(self.outer.get(base))
                self._views(base, of_results.get(base, []))
        starts.append(len(self.builder.nodes))
        built = self.builder
        for place, target in jumps:
            node = built.nodes[place]
            built.nodes[place] = replace(node, args=(node.args[0], starts[target], None))
        inputs = tuple(self._value(index) for index in self.plan.inputs)
        outputs = tuple(self._value(index) for index in self.plan.outputs)
        return Graph(
            self.plan.name,
            tuple(built.nodes),
            tuple(built.values),
            inputs,
            outputs,
            sum(self.plan.non_const_buffer_sizes),
            tuple(built.file_objects),
        )

    def _charge_lists(self) -> None:
        """Every instruction that names a list reads all of it, whoever paid for the list."""
        lists = (IntListRef, TensorListRef, OptionalTensorListRef)
        lengths = {index: len(spec.ids) for index, spec in enumerate(self.plan.values) if isinstance(spec, lists)}
        for position, instruction in enumerate(self.plan.instructions if lengths else ()):
            if isinstance(instruction, (KernelCall, DelegateCall)):
                cost = sum(lengths.get(index, 0) for index in instruction.args)
                self.builder.charge(cost, f"the lists of instruction {position}")

    def _check_jump(self, position: int, jump: JumpFalseCall) -> None:
        """A jump must lead to an instruction or the end, and one that goes nowhere or to itself would never end."""
        last = len(self.plan.instructions)
        if not 0 <= jump.target <= last or jump.target == position:
            raise FormatError(
                f"instruction {position} jumps to {jump.target}; a target is one of the other instructions, "
                f"or {last} for the end"
            )

    def _written(self, instruction: Any) -> list[int]:
        """The values that an instruction writes, by index."""
        if isinstance(instruction, MoveCall):
            return [instruction.target]
        indices: tuple[int, ...] = ()
        if isinstance(instruction, KernelCall):
            entry = self.builder.entry(instruction.op)
            if isinstance(entry, str):
                indices = instruction.args[-1:]
            else:
                indices = instruction.args[entry.arity - 1 :]
                # One that gives nothing but what it writes in place, as the end of a loop does, names no output.
                if len(instruction.args) >= entry.arity - 1:
                    indices += tuple(instruction.args[position] for position in entry.mutates)
        elif isinstance(instruction, DelegateCall) and self.plan.delegates[instruction.delegate].id == BACKEND:
            count = len(self._parse(self.plan.delegates[instruction.delegate].blob).output_ids)
            indices = instruction.args[len(instruction.args) - count :]
        found: list[int] = []
        for index in indices:
            spec = self.plan.values[index]
            found.extend(spec.ids if isinstance(spec, TensorListRef) else (index,))
        return found

    def _views(self, base: int, views: list[int]) -> None:
        """Nodes for views that have no instruction, so that they come from none of the file."""
        self.builder.sources = ()
        for index in views:
            target = self.outer[index]
            label = f"view (value {index} of value {base})"
            self.builder.node(_VIEW, label, (self.outer[base], target.max_shape, target))

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
        label = (index not in self.given and spec.name) or self.names.get(index, f"value {index}")
        if not supported(spec.dtype):
            self.builder.refuse(label, "", f"tensors of dtype {spec.dtype} are not supported{advice(spec.dtype)}")
            return self.builder.tensor(label, "float32", spec.shape, None)
        data = self.program.tensor_data(spec)
        if spec.external and spec.name is not None:
            data = self.builder.named(spec.name, label)
        if data is not None and spec.dim_order != tuple(range(len(spec.shape))):
            data = self._in_logical_order(data, spec)
        return self.builder.tensor(label, spec.dtype, spec.shape, data, static=spec.dynamism == "static")

    def _in_logical_order(self, data: memoryview, spec: TensorSpec) -> memoryview:
        """Constant data in row-major order, copied once however many tensors of the file name it."""
        key = (view_identity(data), spec.dtype, spec.shape, spec.dim_order)
        if key not in self.ordered:
            self.builder.charge(len(data), f"a constant of {spec.dtype} {spec.shape} in order {spec.dim_order}")
            self.ordered[key] = data, _logical_order(data, spec)  # both, or the identity could be another's by then
        return self.ordered[key][1]

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

    # Instructions

    def _kernel_call(self, call: KernelCall, label: str) -> None:
        entry = self.builder.entry(call.op)
        if isinstance(entry, str):
            self.builder.refuse(label, call.op, entry)
            return
        # Out-variants name their outputs as arguments and again as results.
        count = entry.arity - 1
        given: list[Any] = []
        for value in (self._value(index) for index in call.args[count:]):
            given.extend(value if isinstance(value, tuple) else (value,))
        outputs = tuple(dict.fromkeys(given))
        if not entry.many and len(outputs) != 1:
            raise FormatError(f"{label}: {len(call.args)} arguments given, {count} and one output expected")
        inputs = tuple(self._value(index) for index in call.args[:count])
        self.builder.call(call.op, label, (*inputs, outputs if entry.many else outputs[0]))

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
            called_once = self.calls[call.delegate] == 1
            inlined = self.delegates[call.delegate] = InlinedDelegate(
                self.builder, graph, name, called_once, self.bounds
            )
        inlined.call([self._value(index) for index in call.args], self.known, label)


def _source(method: str, position: int, instruction: Any) -> NodeSource:
    """An instruction as what nodes come from: an operator by its name, all others by what they do."""
    if isinstance(instruction, KernelCall):
        return NodeSource(method, position, instruction.op)
    if isinstance(instruction, DelegateCall):
        return NodeSource(method, position, "delegate", instruction.delegate)
    return NodeSource(method, position, "move" if isinstance(instruction, MoveCall) else "jump")


def _logical_order(data: memoryview, spec: TensorSpec) -> memoryview:
    """Constant data in row-major order of its logical dimensions, whatever order the file keeps."""
    order = spec.dim_order
    if 0 in spec.shape:  # no data pays for the other sizes
        return data[:0]
    size = ITEM_SIZES[spec.dtype]
    sizes = [spec.shape[axis] for axis in order]
    strides = {axis: prod(sizes[place + 1 :]) for place, axis in enumerate(order)}
    if len(data) < prod(sizes) * size:
        raise FormatError(f"a constant of {spec.dtype} {spec.shape} has {len(data)} bytes of data")
    items = data[: prod(sizes) * size].cast(_ITEM_FORMATS[size])
    # Rows of the last logical dimension are strided slices of what the file has.
    result = bytearray(len(items) * size)
    target = memoryview(result).cast(_ITEM_FORMATS[size])
    width, stride = spec.shape[-1], strides[len(order) - 1]
    starts = [0]
    for axis, extent in enumerate(spec.shape[:-1]):
        starts = [start + step * strides[axis] for start in starts for step in range(extent)]
    for row, start in enumerate(starts):
        target[row * width : (row + 1) * width] = items[start : start + (width - 1) * stride + 1 : stride]
    return memoryview(result)


_ITEM_FORMATS: dict[int, Any] = {1: "B", 2: "H", 4: "I", 8: "Q"}


__all__ = ["BACKEND", "Problem", "examine", "lower", "on_host", "simplified"]
