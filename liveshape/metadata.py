"""What a method takes and gives, read from the file alone: in our words, and in those of executorch.runtime."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Integral

from liveshape.errors import InputError
from liveshape.formats import ExecutionPlan, FreeCall, TensorSpec, Value
from liveshape.formats.dtypes import ITEM_SIZES, SCALAR_TYPES
from liveshape.graph.elements import prod

_CODES = {name: code for code, name in SCALAR_TYPES.items()}


@dataclass(frozen=True)
class TensorInfo:
    """One input or output. `bounds` is the largest shape; a number has no bounds and the dtype int, float or bool.

    Example: `TensorInfo("input 0", "float32", (1, 512, 64), dynamic=True)`.
    """

    name: str
    dtype: str
    bounds: tuple[int, ...]
    dynamic: bool

    @property
    def is_tensor(self) -> bool:
        return self.dtype in _CODES

    def __str__(self) -> str:
        if not self.is_tensor:
            return f"{self.name}: {self.dtype}"
        return f"{self.name}: {self.dtype} {'up to ' if self.dynamic else ''}{shape_text(self.bounds)}"


def shape_text(shape: Sequence[int]) -> str:
    """A shape as `--input-shapes` takes it.

    >>> shape_text((1, 7, 64)), shape_text(())
    ('1x7x64', 'scalar')
    """
    return "x".join(str(size) for size in shape) or "scalar"


def inputs_of(plan: ExecutionPlan) -> tuple[TensorInfo, ...]:
    """What a method takes.

    Example: `inputs_of(program.method("forward"))[0].bounds`.
    """
    return tuple(_info(f"input {position}", plan.values[index]) for position, index in enumerate(plan.inputs))


def outputs_of(plan: ExecutionPlan) -> tuple[TensorInfo, ...]:
    """What a method gives.

    Example: `outputs_of(program.method("forward"))[0].dtype`.
    """
    return tuple(_info(f"output {position}", plan.values[index]) for position, index in enumerate(plan.outputs))


def _info(name: str, value: Value) -> TensorInfo:
    if isinstance(value, TensorSpec):
        return TensorInfo(name, value.dtype, value.shape, value.dynamism != "static")
    return TensorInfo(name, type(value).__name__, (), False)


def is_constant(plan: ExecutionPlan) -> bool:
    """Whether a method computes nothing and returns what the file holds, as `get_max_seq_len` does.

    Example: `is_constant(program.method("get_max_seq_len"))`.
    """
    if plan.inputs or any(not isinstance(instruction, FreeCall) for instruction in plan.instructions):
        return False
    outputs = [plan.values[index] for index in plan.outputs]
    return all(value.data_index > 0 or value.external for value in outputs if isinstance(value, TensorSpec))


@dataclass(frozen=True)
class TensorMeta:
    """One tensor, as executorch.runtime describes it.

    Example: `method.metadata.input_tensor_meta(0).sizes()`.
    """

    spec: TensorSpec

    def sizes(self) -> tuple[int, ...]:
        """The shape, at its bound where it is dynamic."""
        return self.spec.shape

    def dtype(self) -> int:
        """The number of the dtype in PyTorch: 6 is float32, 4 is int64."""
        return _CODES[self.spec.dtype]

    def is_memory_planned(self) -> bool:
        """Whether the exporter gave it memory, or the file its data."""
        return self.spec.planned or self.spec.data_index > 0

    def nbytes(self) -> int:
        """The bytes of the tensor on the host, at its bound."""
        return prod(self.spec.shape) * ITEM_SIZES.get(self.spec.dtype, 0)

    def __repr__(self) -> str:
        return (
            f"TensorMeta(sizes={list(self.sizes())}, dtype={self.spec.dtype}, "
            f"is_memory_planned={self.is_memory_planned()}, nbytes={self.nbytes()})"
        )


class MethodMeta:
    """What a method takes and gives, with the calls of executorch.runtime.

    Example: `program.metadata("forward").num_inputs()`.
    """

    def __init__(self, plan: ExecutionPlan) -> None:
        self._plan = plan

    def name(self) -> str:
        """The name of the method."""
        return self._plan.name

    def num_inputs(self) -> int:
        """How many inputs it takes, tensors and numbers."""
        return len(self._plan.inputs)

    def num_outputs(self) -> int:
        """How many outputs it gives."""
        return len(self._plan.outputs)

    def num_attributes(self) -> int:
        """How many tensors of the method have a name in the file: its buffers and external weights."""
        return len(self._attributes())

    def input_tensor_meta(self, index: int) -> TensorMeta:
        """The tensor at this input; an IndexError if there is none."""
        return self._tensor([self._plan.values[each] for each in self._plan.inputs], index, "input")

    def output_tensor_meta(self, index: int) -> TensorMeta:
        """The tensor at this output; an IndexError if there is none."""
        return self._tensor([self._plan.values[each] for each in self._plan.outputs], index, "output")

    def attribute_tensor_meta(self, index: int) -> TensorMeta:
        """The named tensor at this place; an IndexError if there is none."""
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
    """There is no tensor at the place that was asked for."""
