"""Graph builder, and serializer of the graph to the blob of a Vulkan delegate.

Operators are called on tensors and SymInts and return tensors. A dynamic dim is a `LiveInt` (a SymInt), which stands
for its upper bound in shapes and for itself in arguments.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from liveshape.export.file.flatbuffer_writer import Flat, Number, Part
from liveshape.export.file.memory_planning import shared_memory
from liveshape.export.weights.lazy_constants import Constant
from liveshape.formats import vkgraph as schema

_HEADER = struct.Struct("<4x4sHIIIQ2x")
_ALIGNMENT = 16
_NAMED = 2**64 - 1  # the offset of constants in the named data
# Storage type and memory layout in ExecuTorch's Vulkan runtime: width-packed texture, or buffer where none fits.
_TEXTURE, _BUFFER, _ROWS = 1, 0, 0
_TEXTURE_LIMITS = (16384, 16384, 2048)
_DATA_TYPES = {name: code for code, name in schema.ALL_DATA_TYPES.items()}
_KINDS = {name: code for code, name in schema.KINDS.items()}


@dataclass(frozen=True)
class LiveInt:
    """A SymInt: an integer known only at run time, at most `bound`."""

    id: int
    bound: int


Dim = int | LiveInt
Shape = tuple[Dim, ...]


@dataclass(frozen=True)
class BlobTensor:
    """A tensor value of the graph; its dims may be dynamic."""

    id: int
    shape: Shape
    dtype: str

    @property
    def width(self) -> int:
        return bound_of(self.shape)[-1]


Argument = BlobTensor | LiveInt | int | float | str | None | tuple[Dim, ...]


@dataclass(frozen=True)
class _Stored:
    """A tensor with its constant index, its staging dtype on the host, and whether it is an activation."""

    tensor: BlobTensor
    constant: int = -1
    staging: str | None = None
    activation: bool = False


_Value = _Stored | LiveInt | int | float | str | None | tuple[int, ...] | schema.ValueList


def bound_of(shape: Shape) -> tuple[int, ...]:
    """The upper bound of a dynamic shape.

    >>> bound_of((1, LiveInt(7, 512), 64))
    (1, 512, 64)
    """
    return tuple(dim.bound if isinstance(dim, LiveInt) else dim for dim in shape)


class DelegateBuilder:
    """Builds the graph of one delegate; with `half` floats are float16 inside, inputs and outputs stay float32.

    Example: `graph.call("aten.add.Tensor", x, y, 1, shape=x.shape)`.
    """

    def __init__(self, half: bool = False) -> None:
        self.floats = "float16" if half else "float32"
        self.half = half
        self.inputs: list[BlobTensor] = []
        self.outputs: list[BlobTensor] = []
        self.uses: Counter[str] = Counter()  # of constants, by their keys
        self._values: list[_Value] = []
        self._chain: list[tuple[str, tuple[int, ...]]] = []
        self._constants: list[Constant] = []
        self._known: dict[object, BlobTensor | int] = {}
        self._kept: list[int] = []  # tensors whose memory is never shared

    def input(self, shape: tuple[int, ...], dtype: str, activation: bool = True) -> BlobTensor:
        """A graph input at its upper bound: an activation, or one that is only read as a SymInt."""
        made = self._tensor(shape, dtype, activation=activation)
        self.inputs.append(made)
        self._kept.append(made.id)
        return made

    def output(self, tensor: BlobTensor) -> None:
        """Mark a tensor as a graph output."""
        self.outputs.append(tensor)
        self._kept.append(tensor.id)

    def constant(self, constant: Constant) -> BlobTensor:
        """A constant tensor; equal keys share one."""
        self.uses[constant.key] += 1
        found = self._known.get(constant.key)
        if not isinstance(found, BlobTensor):
            self._known[constant.key] = found = self._constant(constant)
        return found

    def state(self, start: Constant) -> BlobTensor:
        """A mutable buffer that persists between calls, such as a KV cache, initialized from a constant."""
        made = self._constant(start)
        self._kept.append(made.id)
        return made

    def prepacked(self, constant: Constant) -> BlobTensor:
        """A constant copied to an activation's storage (et_vk.prepack), for operators that need it there."""
        source = self.constant(constant)
        made = self._tensor(source.shape, source.dtype, activation=True)
        self._chain.append(("et_vk.prepack.default", (source.id, made.id)))
        return made

    def live(self, name: str, *args: Argument, bound: int) -> LiveInt:
        """Call an operator that returns a SymInt."""
        ids = tuple(map(self._argument, args))
        made = LiveInt(len(self._values), bound)
        self._values.append(made)
        self._chain.append((name, (*ids, made.id)))
        return made

    def call(self, name: str, *args: Argument, shape: Shape, dtype: str | None = None) -> BlobTensor:
        """Call an operator that returns a tensor."""
        ids = tuple(map(self._argument, args))
        made = self._tensor(shape, dtype or self.floats, activation=True)
        self._chain.append((name, (*ids, made.id)))
        return made

    def call_in_place(self, name: str, target: BlobTensor, *args: Argument) -> None:
        """Call an operator that changes its first argument, which is its result as well."""
        ids = tuple(map(self._argument, (target, *args)))
        self._chain.append((name, (*ids, target.id)))

    def call_two(
        self, name: str, *args: Argument, first: tuple[Shape, str | None], second: tuple[Shape, str | None]
    ) -> tuple[BlobTensor, BlobTensor]:
        """Call an operator that returns two tensors, each of a shape and a dtype."""
        one, other = self.call_many(name, *args, results=(first, second))
        return one, other

    def call_many(
        self, name: str, *args: Argument, results: Sequence[tuple[Shape, str | None]]
    ) -> tuple[BlobTensor, ...]:
        """Call an operator that returns a list of tensors, each of a shape and a dtype."""
        ids = tuple(map(self._argument, args))
        made = tuple(self._tensor(shape, dtype or self.floats, activation=True) for shape, dtype in results)
        self._chain.append((name, (*ids, self._value(schema.ValueList(tuple(each.id for each in made))))))
        return made

    def blob(self) -> bytes:
        """Serialize the delegate (VH00 header, VK00 flatbuffer); constants are in the named data."""
        graph = self._flatbuffer()
        size = len(graph)
        padded = graph.ljust(-(-size // _ALIGNMENT) * _ALIGNMENT, b"\0")
        header = _HEADER.pack(b"VH00", _HEADER.size - 2, _HEADER.size, size, _HEADER.size + len(padded), 0)
        return header + padded

    def _value(self, value: _Value) -> int:
        self._values.append(value)
        return len(self._values) - 1

    def _tensor(
        self, shape: Shape, dtype: str, constant: int = -1, staging: str | None = None, activation: bool = False
    ) -> BlobTensor:
        made = BlobTensor(len(self._values), shape, dtype)
        if staging is None:
            staging = "float32" if dtype == "float16" and activation else dtype
        self._values.append(_Stored(made, constant, staging, activation))
        return made

    def _constant(self, constant: Constant) -> BlobTensor:
        self._constants.append(constant)
        return self._tensor(constant.shape, constant.dtype, len(self._constants) - 1)

    def _argument(self, argument: Argument) -> int:
        """The value id of an argument. Equal scalars and lists share one; every None has its own."""
        if isinstance(argument, (BlobTensor, LiveInt)):
            return argument.id
        if argument is None:
            return self._value(None)
        key = (type(argument), argument)
        found = self._known.get(key)
        if not isinstance(found, int):
            self._known[key] = found = self._value(self._list(argument) if isinstance(argument, tuple) else argument)
        return found

    def _list(self, items: tuple[Dim, ...]) -> tuple[int, ...] | schema.ValueList:
        whole = tuple(item for item in items if isinstance(item, int))
        if len(whole) == len(items):
            return whole
        return schema.ValueList(tuple(map(self._argument, items)))

    def _flatbuffer(self) -> bytes:
        flat = Flat()
        memory = self._memory()
        values = [self._written(flat, index, value, memory) for index, value in enumerate(self._values)]
        chain = [
            flat.table(
                schema.OPERATOR_CALL,
                name=flat.string(name),
                args=flat.vector("i", args),
                node_id=Number("I", index),
            )
            for index, (name, args) in enumerate(self._chain)
        ]
        constants = [
            flat.table(
                schema.BYTES,
                named_key=flat.string(constant.key),
                offset=Number("Q", _NAMED),
                length=Number("Q", constant.nbytes),
            )
            for constant in self._constants
        ]
        root = flat.table(
            schema.GRAPH,
            version=flat.string("0"),
            chain=flat.parts(chain),
            values=flat.parts(values),
            input_ids=flat.vector("I", [tensor.id for tensor in self.inputs]),
            output_ids=flat.vector("I", [tensor.id for tensor in self.outputs]),
            constants=flat.parts(constants),
            shaders=flat.parts([]),
        )
        return flat.finish(root, b"VK00")

    def _memory(self) -> dict[int, int]:
        """The memory object (mem_obj_id) of each activation; see `shared_memory`."""
        prepacked = {args[-1] for name, args in self._chain if name == "et_vk.prepack.default"}
        sizes = {
            value.tensor.id: prod(bound_of(value.tensor.shape))
            for value in self._values
            if isinstance(value, _Stored) and value.activation and value.tensor.id not in prepacked
        }
        return shared_memory([self._tensors_of(args) for _, args in self._chain], sizes, self._kept)

    def _tensors_of(self, args: Sequence[int]) -> list[int]:
        """The value ids of a call, lists flattened."""
        found: list[int] = []
        for index in args:
            value = self._values[index]
            found += value.ids if isinstance(value, schema.ValueList) else (index,)
        return found

    def _written(self, flat: Flat, index: int, value: _Value, memory: dict[int, int]) -> Part:
        if isinstance(value, _Stored):
            kind, part = "VkTensor", _tensor_table(flat, value, memory.get(index, -1))
        elif isinstance(value, LiveInt):
            kind, part = "SymInt", flat.table(schema.SYM_INT, value=Number("i", 0))
        elif isinstance(value, schema.ValueList):
            kind, part = "ValueList", flat.table(schema.LIST, items=flat.vector("i", value.ids))
        elif isinstance(value, tuple):
            kind, part = "IntList", flat.table(schema.LIST, items=flat.vector("q", value))
        elif isinstance(value, bool):
            kind, part = "Bool", flat.table(schema.BOOL, bool_val=Number("?", value))
        elif isinstance(value, int):
            kind, part = "Int", flat.table(schema.INT, int_val=Number("q", value))
        elif isinstance(value, float):
            kind, part = "Double", flat.table(schema.DOUBLE, double_val=Number("d", value))
        elif isinstance(value, str):
            kind, part = "String", flat.table(schema.STRING, string_val=flat.string(value))
        else:
            kind, part = "Null", flat.table({})
        return flat.table(schema.VALUE, value=part, value_type=Number("B", _KINDS[kind]))


def _tensor_table(flat: Flat, stored: _Stored, memory: int) -> Part:
    tensor = stored.tensor
    dims = bound_of(tensor.shape)
    values: dict[str, Number | Part] = {
        "dims": flat.vector("I", dims),
        "constant_id": Number("i", stored.constant),
        "mem_obj_id": Number("i", memory),
        "datatype": Number("b", _DATA_TYPES[tensor.dtype]),
        "staging_datatype": Number("b", _DATA_TYPES[stored.staging or tensor.dtype]),
    }
    # Without a storage type the runtime chooses what the operators prefer.
    if stored.activation:
        values["storage_type"] = Number("B", _TEXTURE if _fits_texture(dims) else _BUFFER)
        values["memory_layout"] = Number("B", _ROWS)
    return flat.table(schema.TENSOR, **values)


def _fits_texture(dims: tuple[int, ...]) -> bool:
    """Whether a width-packed 3-D texture holds it: 4 elements per texel along the width, outer dims as depth."""
    *outer, height, width = (1, 1, *dims)
    extents = -(-width // 4), height, prod(outer)
    return len(dims) <= 4 and all(extent <= limit for extent, limit in zip(extents, _TEXTURE_LIMITS, strict=True))
