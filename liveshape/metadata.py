"""Metadata of a method's inputs and outputs, read from the file alone; also with the API of executorch.runtime."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from numbers import Integral

from liveshape.errors import InputError
from liveshape.formats import ExecutionPlan, FreeCall, Signature, TensorSpec, Value
from liveshape.formats.dtypes import ITEM_SIZES, SCALAR_TYPES
from liveshape.formats.signature import DYNAMIC, STATIC, UNKNOWN
from liveshape.graph.elements import prod

_CODES = {name: code for code, name in SCALAR_TYPES.items()}


@dataclass(frozen=True)
class Dim:
    """One dimension: its status is "static", "dynamic", or "unknown" where the file does not say which.

    A size is from `min` to `max`, in steps of `multiple` from `max` down; dimensions with the same `symbol` have the
    same size, those of `2 * batch` twice the size of those of `batch`.

    >>> str(Dim("dynamic", 1, 43, symbol="rows")), str(Dim("static", 8, 8)), str(Dim("unknown", 0, 64))
    ('rows=1..43', '8', '?0..64')
    """

    status: str
    min: int
    max: int
    multiple: int = 1
    symbol: str | None = None

    def __str__(self) -> str:
        if self.status == STATIC:
            return str(self.max)
        mark = "?" if self.status == UNKNOWN else f"{(self.symbol or '').replace(' ', '')}=" if self.symbol else ""
        return f"{mark}{self.min}..{self.max}"

    @property
    def text(self) -> str:
        """The status and range of a dimension, in words.

        >>> Dim("dynamic", 0, 64, 8, "8 * s").text
        'dynamic, 0 to 64 in steps of 8 (8 * s)'
        """
        if self.status == STATIC:
            return f"static at {self.max}"
        steps = f" in steps of {self.multiple}" if self.multiple > 1 else ""
        return f"{self.status}, {self.min} to {self.max}{steps}{f' ({self.symbol})' if self.symbol else ''}"


@dataclass(frozen=True)
class TensorInfo:
    """One input or output. `bounds` is the upper-bound shape; a scalar has no bounds and the dtype int, float or bool.

    `dims` describes each dimension; without it, all are static or all unknown, by `dynamic`.

    Example: `TensorInfo("x", "float32", (1, 512, 64), dynamic=True).dims[1].max == 512`.
    """

    name: str
    dtype: str
    bounds: tuple[int, ...]
    dynamic: bool
    dims: tuple[Dim, ...] = ()

    def __post_init__(self) -> None:
        if not self.dims:
            object.__setattr__(self, "dims", tuple(_dim(bound, self.dynamic) for bound in self.bounds))

    @property
    def is_tensor(self) -> bool:
        return self.dtype in _CODES

    def __str__(self) -> str:
        if not self.is_tensor:
            return f"{self.name}: {self.dtype}"
        if any(dim.status == DYNAMIC for dim in self.dims):
            return f"{self.name}: {self.dtype} ({', '.join(map(str, self.dims))}{',' * (len(self.dims) == 1)})"
        return f"{self.name}: {self.dtype} {'up to ' if self.dynamic else ''}{shape_text(self.bounds)}"


def _dim(bound: int, dynamic: bool) -> Dim:
    # Exporters specialize sizes of 1.
    return Dim(UNKNOWN, 0, bound) if dynamic and bound > 1 else Dim(STATIC, bound, bound)


def shape_text(shape: Sequence[int]) -> str:
    """A shape in the notation of `--input-shapes`.

    >>> shape_text((1, 7, 64)), shape_text(())
    ('1x7x64', 'scalar')
    """
    return "x".join(str(size) for size in shape) or "scalar"


def inputs_of(plan: ExecutionPlan, signature: Signature | None = None) -> tuple[TensorInfo, ...]:
    """The inputs of a method, with names and sizes from its signature where the file has one.

    Example: `inputs_of(program.method("forward"), program.signatures.get("forward"))[0].bounds`.
    """
    values = [plan.values[index] for index in plan.inputs]
    if signature is None:
        return tuple(_info(f"input {position}", value) for position, value in enumerate(values))
    found = []
    for value, taken in zip(values, signature.inputs, strict=True):
        info = _info(taken.name, value)
        dims = tuple(
            Dim(STATIC if size.symbol is None else DYNAMIC, size.min, size.max, size.scale, size.symbol and str(size))
            for size in taken.sizes or ()
        )
        found.append(replace(info, dims=dims))
    return tuple(found)


def outputs_of(plan: ExecutionPlan) -> tuple[TensorInfo, ...]:
    """The outputs of a method.

    Example: `outputs_of(program.method("forward"))[0].dtype`.
    """
    return tuple(_info(f"output {position}", plan.values[index]) for position, index in enumerate(plan.outputs))


def _info(name: str, value: Value) -> TensorInfo:
    if isinstance(value, TensorSpec):
        return TensorInfo(name, value.dtype, value.shape, value.dynamism != "static")
    return TensorInfo(name, type(value).__name__, (), False)


def is_constant(plan: ExecutionPlan) -> bool:
    """Whether a method only returns constants of the file, as `get_max_seq_len` does.

    Example: `is_constant(program.method("get_max_seq_len"))`.
    """
    if plan.inputs or any(not isinstance(instruction, FreeCall) for instruction in plan.instructions):
        return False
    outputs = [plan.values[index] for index in plan.outputs]
    return all(value.data_index > 0 or value.external for value in outputs if isinstance(value, TensorSpec))


@dataclass(frozen=True)
class TensorMeta:
    """Metadata of one tensor, with the API of executorch.runtime.

    Example: `method.metadata.input_tensor_meta(0).sizes()`.
    """

    spec: TensorSpec

    def sizes(self) -> tuple[int, ...]:
        """The shape; the upper bound where it is dynamic."""
        return self.spec.shape

    def dtype(self) -> int:
        """The ScalarType code of the dtype in PyTorch: 6 is float32, 4 is int64."""
        return _CODES[self.spec.dtype]

    def is_memory_planned(self) -> bool:
        """Whether the exporter's memory plan has it, or the file its data."""
        return self.spec.planned or self.spec.data_index > 0

    def nbytes(self) -> int:
        """Bytes of the tensor on the host, at its upper bound."""
        return prod(self.spec.shape) * ITEM_SIZES.get(self.spec.dtype, 0)

    def __repr__(self) -> str:
        return (
            f"TensorMeta(sizes={list(self.sizes())}, dtype={self.spec.dtype}, "
            f"is_memory_planned={self.is_memory_planned()}, nbytes={self.nbytes()})"
        )


class MethodMeta:
    """Inputs and outputs of a method, with the API of executorch.runtime.

    Example: `program.metadata("forward").num_inputs()`.
    """

    def __init__(self, plan: ExecutionPlan) -> None:
        self._plan = plan

    def name(self) -> str:
        """The name of the method."""
        return self._plan.name

    def num_inputs(self) -> int:
        """Number of inputs, tensors and scalars."""
        return len(self._plan.inputs)

    def num_outputs(self) -> int:
        """Number of outputs."""
        return len(self._plan.outputs)

    def num_attributes(self) -> int:
        """Number of named tensors of the method: its buffers and external weights."""
        return len(self._attributes())

    def input_tensor_meta(self, index: int) -> TensorMeta:
        """Metadata of an input tensor; IndexError if there is none."""
        return self._tensor([self._plan.values[each] for each in self._plan.inputs], index, "input")

    def output_tensor_meta(self, index: int) -> TensorMeta:
        """Metadata of an output tensor; IndexError if there is none."""
        return self._tensor([self._plan.values[each] for each in self._plan.outputs], index, "output")

    def attribute_tensor_meta(self, index: int) -> TensorMeta:
        """Metadata of a named tensor; IndexError if there is none."""
        return self._tensor(self._attributes(), index, "attribute")

    def _attributes(self) -> list[Value]:
        return [value for value in self._plan.values if isinstance(value, TensorSpec) and value.name]

    def _tensor(self, values: Sequence[Value], index: int, kind: str) -> TensorMeta:
        if not isinstance(index, Integral) or not 0 <= index < len(values):
            raise MetaIndexError(f"{self.name()} has {len(values)} {kind}s, there is no {kind} {index!r}")
        value = values[index]
        if not isinstance(value, TensorSpec):
            raise MetaIndexError(f"{kind} {index} of {self.name()} is of type {type(value).__name__}, not a tensor")
        return TensorMeta(value)

    def __repr__(self) -> str:
        return f"MethodMeta(name={self.name()!r}, num_inputs={self.num_inputs()}, num_outputs={self.num_outputs()})"


class MethodNotFoundError(InputError, KeyError):
    """The program has no method of this name; the message lists those it has."""

    __str__ = Exception.__str__  # a KeyError would quote its message


class MetaIndexError(InputError, IndexError):
    """There is no tensor at the requested index."""
