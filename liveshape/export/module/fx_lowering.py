"""A traced program as one delegate, node by node, with torch alone: what has a kernel stays whole, however torch would
decompose it; the rest becomes operators of torch's core set, or is refused by the line of the user's that made it.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch.export.graph_signature import ConstantArgument, InputKind, OutputKind
from torch.fx import Node
from torch.utils._sympy.value_ranges import bound_sympy

from liveshape import ops
from liveshape.errors import UnsupportedError
from liveshape.export.file.delegate_blob import BlobTensor, DelegateBuilder, LiveInt, Shape
from liveshape.export.file.program_file import HostValue, ProgramSpec, Result
from liveshape.export.module.size_decisions import shape_env_of
from liveshape.export.weights.contents import Computed
from liveshape.export.weights.lazy_constants import Batch, Constant, batch_of
from liveshape.formats.signature import MAX_SIZE

_DTYPES = {
    getattr(torch, name): name
    for name in ("float32", "float16", "int64", "int32", "int8", "uint8", "bool", "complex64")
}
_SCALARS: Mapping[Any, str] = {
    **{getattr(operator, name): name for name in "add sub mul floordiv truediv pow mod neg eq ne lt le gt ge".split()},
    **{getattr(torch, name): name for name in ("sym_max", "sym_min", "sym_float", "sym_int", "sym_not", "sym_ite")},
    **{getattr(math, name): name for name in ("ceil", "trunc")},
}
# Where a result lies and what it is made of: ours lie in rows, and have the dtype that they are declared with.
_TOLD = (torch.dtype, torch.layout, torch.device, torch.memory_format)
# What raises in eager where a promise of the user's is broken, and gives nothing.
_PROMISES = frozenset(
    f"aten.{name}.default"
    for name in "_assert_scalar _assert_tensor_metadata sym_constrain_range sym_constrain_range_for_size".split()
)
_HELD = (InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR)
_FRAME = re.compile(r'File "([^"]+)", line (\d+)')
_TORCH = str(Path(torch.__file__).parent)
_SHOWN = 20  # operators in one message
_ROAD = "`--via executorch` takes ExecuTorch's exporter instead"


def decomposed(program: Any) -> Any:
    """The program in operators that have a kernel, and else in those of torch's core set.

    Example: `decomposed(torch.export.export(module, args)).graph`.
    """
    table = torch.export.default_decompositions()
    for each in [each for each in table if isinstance(each, torch._ops.OpOverload) and kernel_of(each)]:
        table.pop(each)
    program = program.run_decompositions(table)
    rest = {node.target for node in program.graph.nodes if node.op == "call_function" and not _is_known(node.target)}
    more = torch._decomp.get_decompositions([each for each in rest if isinstance(each, torch._ops.OpOverload)])
    return program.run_decompositions(more) if more else program


def kernel_of(target: Any, numbers: bool = False) -> str:
    """The name by which an operator of torch's has a kernel, its result a tensor of its own; empty where it has none.

    With `numbers`, an argument that may be a tensor is a number.

    >>> kernel_of(torch.ops.aten.view.default), kernel_of(torch.ops.aten.mul.Tensor, numbers=True)
    ('aten.view_copy.default', 'aten.mul.Scalar')
    """
    packet, _, overload = str(target).rpartition(".")
    spelled = (f"{packet}.{overload}", f"{packet}_copy.{overload}", packet.replace(".", "::", 1))
    names = (f"{packet}.Scalar",) if numbers else spelled
    return next((name for name in names if ops.callable_by_files(name) is not None), "")


def _is_known(target: Any) -> bool:
    scalar = target in _SCALARS or target in (operator.getitem, torch.ops.aten.sym_size.int)
    return scalar or str(target) in _PROMISES or bool(kernel_of(target))


def program_of(program: Any, methods: Mapping[str, Result], half: bool = False) -> ProgramSpec:
    """What is written of a program whose operators are `decomposed`; `methods` are constant ones.

    With `half`, weights, states and activations are float16.

    Example: `write_program(program_of(decomposed(program), {}), Path("model.pte"))`.
    """
    made = _FxLowering(program, DelegateBuilder(half))
    made.lower()
    if made.refused:
        found = [f"{name}: {reason}" for name, reason in made.refused]
        listing = "\n  ".join(found[:_SHOWN]) + (f"\n  and {len(found) - _SHOWN} more" if found[_SHOWN:] else "")
        raise UnsupportedError(
            f"the module cannot be lowered, for {len(found)} of its operators or tensors have no kernel\n  {listing}\n"
            f"write that part of the module in operators that `liveshape ops` lists; {_ROAD}",
            tuple(made.refused),
        )
    return ProgramSpec(made.graph, made.batches, made.given, made.results, methods)


def _needed(nodes: Any) -> set[Node]:
    """The nodes that outputs are made of; those of a promise alone are not."""
    found: set[Node] = set()
    for node in reversed(nodes):
        if node.op == "output" or (str(node.target) not in _PROMISES and not found.isdisjoint(node.users)):
            found.add(node)
    return found


@dataclass
class _FxLowering:
    program: Any
    graph: DelegateBuilder
    batches: list[Batch] = field(default_factory=list)
    given: list[HostValue] = field(default_factory=list)
    results: list[HostValue] = field(default_factory=list)
    refused: list[tuple[str, str]] = field(default_factory=list)  # nodes, and why
    known: dict[Node, Any] = field(default_factory=dict)  # what each node is in the delegate
    states: dict[str, BlobTensor] = field(default_factory=dict)  # buffers that change, by their names
    stored: dict[Any, Constant] = field(default_factory=dict)  # by what torch holds: tied weights are one

    def lower(self) -> None:
        """Add every node in order, then what buffers become, and the outputs."""
        self.sizes = shape_env_of(self.program)
        signature = self.program.graph_signature
        self.changing = {*signature.buffers_to_mutate.values()}
        needed = _needed(self.program.graph.nodes)
        specs = iter(signature.input_specs)
        for node in self.program.graph.nodes:
            if node.op == "placeholder":
                self._given(node, next(specs), node in needed)
            elif node.op == "output":
                self._returned(node.args[0])
            elif node.op == "call_function" and node in needed:
                self.known[node] = self._called(node)

    # Inputs

    def _given(self, node: Node, spec: Any, needed: bool) -> None:
        value = node.meta.get("val")
        if spec.kind is InputKind.USER_INPUT:
            if isinstance(value, torch.Tensor):
                self.known[node] = self.graph.input(self._bound(value), self._dtype(value, node))
                self.given.append(self._on_host(value))
            elif isinstance(spec.arg, ConstantArgument):
                self.known[node] = spec.arg.value
                self.given.append(spec.arg.value)
            else:
                raise UnsupportedError(f"input {node.name} is a live number: give it as a tensor of one; {_ROAD}")
        elif spec.kind not in _HELD:
            raise UnsupportedError(f"input {node.name} is a {spec.kind.name.lower()}, which no file holds")
        elif spec.target in self.changing:
            self.known[node] = self.states[spec.target] = self.graph.state(self._constant(spec.target, node))
        elif needed:
            self.known[node] = self.graph.constant(self._constant(spec.target, node))

    def _constant(self, name: str, node: Node) -> Constant:
        program = self.program
        tensor = (program.state_dict if name in program.state_dict else program.constants)[name]
        own = name if name in self.changing else ""
        place = tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride(), own
        found = self.stored.get(place)
        if found is None:

            def make() -> Any:
                return tensor.detach().cpu().resolve_conj().resolve_neg().contiguous().numpy()

            found = Constant(name, self._dtype(tensor, node), tuple(tensor.shape), Computed(make))
            self.stored[place] = found
            self.batches.append(batch_of(found, make))
        return found

    # Nodes

    def _called(self, node: Node) -> Any:
        value, target = node.meta.get("val"), node.target
        if target is operator.getitem:
            return self.known[node.args[0]][node.args[1]]
        if isinstance(value, (int, float, bool)):  # a size that is the same at every call
            return value
        if target in _SCALARS or target is torch.ops.aten.sym_size.int:
            name = _SCALARS.get(target, "sym_size.int")
            return self.graph.live(name, *map(self._argument, node.args), bound=self._most(value))
        arguments = self._arguments(node)
        numbers = self._numbers(node, arguments)
        name = kernel_of(target, bool(numbers) and 0 not in numbers)
        if numbers and not name:
            arguments = [self._filled(each, node) if at in numbers else each for at, each in enumerate(arguments)]
            name = kernel_of(target)
        if not name:
            self.refused.append((_place(node), f"{target} has no kernel"))
            name, arguments = "aten.full.default", []
        if isinstance(value, torch.Tensor):
            return self.graph.call(name, *arguments, shape=self._bound(value), dtype=self._dtype(value, node))
        if isinstance(value, (tuple, list)):
            results = [(self._bound(each), self._dtype(each, node)) for each in value]
            return self.graph.call_many(name, *arguments, results=results)
        return self.graph.live(name, *arguments, bound=self._most(value))

    def _arguments(self, node: Node) -> list[Any]:
        """Every argument of the operator's schema, in order: those that are not given are what torch takes."""
        declared = getattr(node.target, "_schema", None)
        given = dict(enumerate(node.args)) | node.kwargs
        return [
            self._argument(given.get(place, given.get(each.name, each.default_value)))
            for place, each in enumerate(declared.arguments if declared is not None else ())
        ]

    def _numbers(self, node: Node, arguments: Sequence[Any]) -> list[int]:
        """The places where a number, live or not, is given and the operator takes a tensor."""
        declared = node.target._schema.arguments if arguments else ()
        return [
            place
            for place, (each, given) in enumerate(zip(declared, arguments, strict=True))
            if isinstance(each.type, torch.TensorType) and isinstance(given, (int, float, LiveInt))
        ]

    def _filled(self, number: Any, node: Node) -> BlobTensor:
        """A number as a tensor: of the dtype of those beside it, unless they are whole and it is not."""
        beside = [each.meta["val"] for each in node.all_input_nodes if isinstance(each.meta["val"], torch.Tensor)]
        dtype = beside[0].dtype if beside else torch.get_default_dtype()
        if isinstance(number, float) and not dtype.is_floating_point:
            dtype = torch.get_default_dtype()
        found = torch.empty((), dtype=dtype)
        told = (None, None, None, False)
        return self.graph.call("aten.full.default", (), number, *told, shape=(), dtype=self._dtype(found, node))

    def _argument(self, argument: Any) -> Any:
        if isinstance(argument, Node):
            return self.known[argument]
        if isinstance(argument, (tuple, list)):
            return tuple(map(self._argument, argument))
        return None if isinstance(argument, _TOLD) else argument

    # Outputs

    def _returned(self, outputs: Sequence[Any]) -> None:
        """The outputs of the user, and the states, which change when all that reads them has."""
        specs = self.program.graph_signature.output_specs
        taken = {each.id for each in (*self.graph.inputs, *self.states.values())}
        for spec, node in zip(specs, outputs, strict=True):
            if spec.kind is not OutputKind.USER_OUTPUT:
                continue
            made = self.known[node] if isinstance(node, Node) else node
            if isinstance(made, LiveInt):
                raise UnsupportedError(f"output {len(self.results)} is a live number: return a tensor; {_ROAD}")
            if not isinstance(made, BlobTensor):
                self.results.append(made)
                continue
            if made.id in taken or node.op == "placeholder":
                made = self.graph.call("aten.clone.default", made, None, shape=made.shape, dtype=made.dtype)
            taken.add(made.id)
            self.graph.output(made)
            self.results.append(self._on_host(node.meta["val"]))
        held = {each.id for each in self.states.values()}
        changes: list[tuple[BlobTensor, BlobTensor]] = []
        for spec, node in zip(specs, outputs, strict=True):
            if spec.kind is OutputKind.BUFFER_MUTATION:
                made = self.known[node]
                if made.id in held:  # buffers that change places: each is read before either is written
                    made = self.graph.call("aten.clone.default", made, None, shape=made.shape, dtype=made.dtype)
                changes.append((self.states[spec.target], made))
            elif spec.kind is not OutputKind.USER_OUTPUT:
                raise UnsupportedError(f"the module changes its input {spec.target}: return it instead")
        for state, made in changes:
            self.graph.call_in_place("aten.copy_.default", state, made, False)

    # Sizes and dtypes

    def _most(self, size: Any) -> int:
        """The upper bound of a size."""
        if isinstance(size, (int, torch.SymBool)):
            return int(size) if isinstance(size, int) else 1
        assert self.sizes is not None, "only a ShapeEnv makes a size live"
        bounds = bound_sympy(self.sizes.replace(size.node.expr), self.sizes.var_to_range)
        return int(bounds.upper) if bounds.upper < MAX_SIZE else MAX_SIZE

    def _bound(self, value: torch.Tensor) -> tuple[int, ...]:
        return tuple(self._most(size) for size in value.shape)

    def _on_host(self, value: torch.Tensor) -> tuple[Shape, str]:
        shape = [size if isinstance(size, int) else LiveInt(-1, self._most(size)) for size in value.shape]
        return tuple(shape), _DTYPES.get(value.dtype, "float32")

    def _dtype(self, value: torch.Tensor, node: Node) -> str:
        if value.dtype not in _DTYPES:
            self.refused.append((_place(node), f"{value.dtype} is no dtype of a device: float() makes it one"))
        dtype = _DTYPES.get(value.dtype, "float32")
        return self.graph.floats if dtype == "float32" else dtype


def _place(node: Node) -> str:
    """A node, with the line of the user's module that made it."""
    frames = _FRAME.findall(node.meta.get("stack_trace") or "")
    own = [f"{file}:{line}" for file, line in frames if not file.startswith((_TORCH, "<"))]
    return f"{node.name} ({own[-1]})" if own else node.name
