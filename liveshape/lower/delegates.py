"""The inside of a delegate, inlined: its operators become nodes, its inputs and outputs the outer tensors."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

from liveshape import ops
from liveshape.formats import OperatorCall, ValueList, VkGraph, VkSymInt, VkTensor
from liveshape.formats.dtypes import ITEM_SIZES
from liveshape.graph import Node, SymInt, Tensor
from liveshape.graph.elements import prod, stored_alike, supported
from liveshape.lower.building import NODE_COST, Builder
from liveshape.lower.delegate_arguments import AtBounds, read_arguments
from liveshape.lower.mutable_buffers import changing, in_order, is_packing, read_itself
from liveshape.lower.problems import advice
from liveshape.ops.control import one_number

BACKEND = "VulkanBackend"
_ONE_NUMBER = ops.defined_by(one_number)


class InlinedDelegate:
    """One delegate: its values, made once and shared by every call of it, so that its state is one."""

    def __init__(self, builder: Builder, graph: VkGraph, prefix: str, called_once: bool, bounds: AtBounds) -> None:
        self.builder, self.bounds = builder, bounds
        self.graph = graph
        self.prefix = prefix
        self.called_once = called_once  # what a second call writes must not be the tensors that the first one gave
        self.values: dict[int, Any] = {}
        self.written = [self._written(call) for call in graph.chain]
        self.writes = Counter(index for indices in self.written for index in indices)
        self.states = changing(graph, self.written)
        self.outputs = frozenset(graph.output_ids)
        shared: dict[int, list[tuple[str, int]]] = {}
        for value in graph.values:
            if (
                isinstance(value, VkTensor)
                and value.mem_obj_id >= 0
                and value.constant_id < 0
                and supported(value.dtype)
            ):
                shared.setdefault(value.mem_obj_id, []).append((value.dtype, prod(value.shape)))
        builder.file_objects += [tuple(tensors) for tensors in shared.values()]

    def call(self, args: list[Any], known: Collection[Any], label: str) -> None:
        """Inline a call with these arguments; `known` are values that something gives before it."""
        graph = self.graph
        open_question = ""
        if len(args) > len(graph.input_ids) + len(graph.output_ids):
            read = self._without_unread(args, known, label)
            open_question, args = (f", and {read}", args) if isinstance(read, str) else ("", read)
        given, taken = args[: len(graph.input_ids)], args[len(graph.input_ids) :]
        if len(taken) != len(graph.output_ids):
            # Outputs that became one value, or a buffer that is written back: the file does not say which is which.
            reason = (
                f"it is called with {len(args)} arguments, its graph has {len(graph.input_ids)} inputs and "
                f"{len(graph.output_ids)} outputs{open_question}; return no value twice, pass none that nothing reads, "
                "and export buffers that change with VulkanPartitioner({'alias_buffer_mutations': True}). A decoder of "
                "transformers does it where it is given no attention_mask: export it with one"
            )
            self.builder.refuse(f"delegate ({label})", BACKEND, reason)
            return
        constants = [index for index in self.writes if getattr(graph.values[index], "constant_id", -1) >= 0]
        ordered = in_order(graph, {*self.states.values(), *constants}, taken)
        if ordered is None:
            # A buffer that changes and is returned comes before all others, wherever the program returns it.
            reason = (
                "the call takes its outputs in an order that the file does not tell: a buffer that changes is "
                "returned as well; return `buffer + 0` in its place and export with "
                "VulkanPartitioner({'alias_buffer_mutations': True})"
            )
            self.builder.refuse(f"delegate ({label})", BACKEND, reason)
            return
        for index, value in zip(graph.input_ids, given, strict=True):
            if self.called_once and self._alike(index, value):
                self.values[index] = value
            else:
                self.builder.move(value, self._value(index), f"delegate input ({label})")
        late: list[tuple[Any, Any]] = []
        for index, value in zip(graph.output_ids, ordered, strict=True):
            free = self.writes[index] and index not in self.values and index not in self.states.values()
            if free and self.called_once and self._alike(index, value):
                self.values[index] = value
            else:
                late.append((index, value))
        self._bind_states(label)
        outer = self.builder.sources
        for call in graph.chain:
            if not self._is_packing(call):
                node = f"{call.name} ({self.prefix}node {call.node_id})"
                self.builder.sources = tuple(replace(source, operator=call.name, node=call.node_id) for source in outer)
                self.builder.call(call.name, node, self._arguments(call))
        self.builder.sources = outer
        for index, value in late:
            self.builder.move(self._value(index), value, f"delegate output ({label})")

    def _bind_states(self, label: str) -> None:
        """The constant of a buffer that changes is the buffer, as it is when the call begins.

        The exporter changes what it packed, and operators that take weights as they are still name the constant.
        """
        reads = read_itself(self.graph, self.states, self.written)
        for call in self.graph.chain if reads else ():
            constant = call.args[0] if call.args else -1
            if constant not in reads or self.states[constant] != call.args[-1] or not self._is_packing(call):
                continue
            tensor = self.values[call.args[-1]]
            if reads[constant]:
                before = self.builder.keep(Tensor(f"{tensor.name} before", tensor.dtype, tensor.max_shape))
                self.builder.move(tensor, before, f"buffer that changes ({label})")
                tensor = before
            self.values[constant] = tensor

    def _arguments(self, call: OperatorCall) -> tuple[Any, ...]:
        """The arguments of an operator; 4 and 4.0 are one value of a file, and what makes sizes takes integers."""
        args = tuple(self._value(index) for index in call.args)
        if not args or not isinstance(args[-1], SymInt):
            return args
        return tuple(int(each) if isinstance(each, float) and each.is_integer() else each for each in args)

    def _without_unread(self, args: list[Any], known: Collection[Any], label: str) -> list[Any] | str:
        """The arguments that the graph has, or why these are not known: a call names inputs that nothing inside reads.

        What is left out must be known before: else it is an output, which nobody would write.
        """
        graph, builder = self.graph, self.builder
        count = len(args) - len(graph.output_ids)
        self.bounds.follow(builder.nodes)

        def inlined(chosen: Sequence[Any]) -> Sequence[Node]:
            builder.charge(NODE_COST * len(graph.chain), f"{label}, with other arguments")
            trial = Builder(builder.program, builder.data, builder.find_on_host)
            InlinedDelegate(trial, graph, self.prefix, True, self.bounds).call([*chosen, *args[count:]], known, label)
            return trial.nodes

        found = read_arguments(graph, args[:count], self.bounds, inlined)
        if isinstance(found, str):
            return found
        read = {*found.values, *(each for numbers in found.alike.values() for each in numbers)}
        if not all(value in known for value in args[:count] if value not in read):
            return "one of those that its graph does not have is given by nothing before it"
        values = list(found.values)
        for position, numbers in found.alike.items():
            values[position] = builder.keep(SymInt(f"{self.prefix}input {position}"))
            builder.node(_ONE_NUMBER, f"delegate input ({label})", (numbers, values[position]))
        return values + args[count:]

    def _is_packing(self, call: OperatorCall) -> bool:
        """Packing a constant happens at load: its result is the constant, or one of its own if either is written."""
        if not is_packing(call):
            return False
        source, target = (self.graph.values[index] for index in call.args)
        if not isinstance(source, VkTensor) or not isinstance(target, VkTensor) or source.constant_id < 0:
            return False
        if (source.dtype, source.shape) != (target.dtype, target.shape):
            return False
        if call.args[1] in self.outputs and self.states.get(call.args[0]) != call.args[1]:
            return False
        if call.args[1] not in self.values:
            own_memory = self.writes[call.args[0]] > 0 or self.writes[call.args[1]] > 1
            packed = self._make(call.args[0]) if own_memory else self._value(call.args[0])
            self.values[call.args[1]] = packed
        return True

    def _written(self, call: OperatorCall) -> tuple[int, ...]:
        """The values that an operator writes, as its output or in place."""
        entry = self.builder.entry(call.name)
        changed = () if isinstance(entry, str) or len(call.args) != entry.arity else entry.mutates
        found: list[int] = []
        for index in {*call.args[-1:], *(call.args[position] for position in changed)}:
            value = self.graph.values[index]
            found.extend(value.ids if isinstance(value, ValueList) else (index,))
        return tuple(found)

    def _alike(self, index: int, outer: Any) -> bool:
        """Whether an inner value can be the outer one itself: same bound, same bytes on the device."""
        inner = self.graph.values[index]
        if isinstance(inner, VkSymInt):
            return isinstance(outer, SymInt)
        if not isinstance(inner, VkTensor) or not isinstance(outer, Tensor) or inner.constant_id >= 0:
            return False
        same = supported(inner.dtype) and stored_alike(inner.dtype, outer.dtype)
        return same and inner.shape == outer.max_shape

    def _value(self, index: int) -> Any:
        if index not in self.values:
            self.values[index] = self._make(index)
        return self.values[index]

    def _make(self, index: int) -> Any:
        value, builder = self.graph.values[index], self.builder
        if isinstance(value, VkSymInt):
            return builder.keep(SymInt(f"{self.prefix}value {index}", value.value))
        if isinstance(value, ValueList):
            return tuple(self._value(item) for item in value.ids)
        if not isinstance(value, VkTensor):
            return value
        label = f"{self.prefix}value {index}"
        if not supported(value.dtype):
            builder.refuse(label, "", f"tensors of dtype {value.dtype} are not supported{advice(value.dtype)}")
            return builder.tensor(label, "float32", value.shape, None)
        return builder.tensor(label, value.dtype, value.shape, self._constant(value, label))

    def _constant(self, value: VkTensor, label: str) -> memoryview | None:
        if value.constant_id < 0:
            return None
        constant = self.graph.constants[value.constant_id]
        data = self.builder.named(constant.key or "", label) if constant.data is None else constant.data
        expected = prod(value.shape) * ITEM_SIZES[value.dtype] if supported(value.dtype) else 0
        longer = constant.length > expected and not _is_window(value, data[: constant.length])
        if longer or len(data) < constant.length:
            # The exporter writes the whole storage of a view, from its start: the values are not where they belong.
            reason = f"its data has {constant.length} bytes, {value.dtype} {value.shape} takes {expected}"
            advice = "a parameter that is a view of a larger one is exported wrongly; make it a .clone() first"
            self.builder.refuse(label, "constant", f"{reason}; {advice}")
        return data


def _is_window(value: VkTensor, data: memoryview) -> bool:
    """Whether the storage of a view is that of a periodic window: torch makes it one longer and leaves out the last.

    The file does not say where in its storage a view begins. What reads the same from both ends and has one element
    more is such a window: its first elements are the values.
    """
    if value.dtype != "float32" or len(value.shape) != 1 or len(data) != (value.shape[0] + 1) * 4:
        return False
    samples = data.cast("f")
    return all(abs(one - other) <= 1e-6 for one, other in zip(samples, reversed(samples), strict=True))
