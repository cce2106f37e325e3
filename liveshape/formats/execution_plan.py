"""ExecutionPlan of a method: values (EValues) and instructions, with every index validated."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from liveshape.formats.dtypes import SCALAR_TYPES, check_dim_order, tensor_size
from liveshape.formats.flatbuffer import Table, damaged, fields


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """A tensor value of a method. `shape` is the upper bound where `dynamism` is "bound".

    `data_index` is 0 where the file holds no data for it; `memory` is the (arena, offset) that the exporter planned.
    """

    dtype: str
    shape: tuple[int, ...]
    dim_order: tuple[int, ...]
    dynamism: str
    data_index: int = 0
    memory: tuple[int, int] | None = None
    storage_offset: int = 0
    mutable_segment: int = 0
    name: str | None = None
    external: bool = False

    @property
    def planned(self) -> bool:
        """Whether the exporter's memory plan has it: its data is then initial state, not a constant."""
        return self.memory is not None


@dataclass(frozen=True, slots=True)
class IntListRef:
    """A list of integers, each a value of the method, by index."""

    ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TensorListRef:
    """A list of tensors, each a value of the method, by index."""

    ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class OptionalTensorListRef:
    """A list of tensors or None, by index; -1 is None."""

    ids: tuple[int, ...]


Value = (
    None
    | bool
    | int
    | float
    | str
    | TensorSpec
    | IntListRef
    | TensorListRef
    | OptionalTensorListRef
    | tuple[float, ...]
    | tuple[bool, ...]
)


@dataclass(frozen=True, slots=True)
class KernelCall:
    """Instruction: call a portable operator such as `aten::add.out`; args are value indices, outputs last."""

    op: str
    args: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class DelegateCall:
    """Instruction: call a delegate; args are its inputs, then its outputs."""

    delegate: int
    args: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class MoveCall:
    """Instruction: move the value `source` to `target`."""

    source: int
    target: int


@dataclass(frozen=True, slots=True)
class JumpFalseCall:
    """Instruction: jump to `target` if the value `condition` is false; the end of the method is a valid target."""

    condition: int
    target: int


@dataclass(frozen=True, slots=True)
class FreeCall:
    """Instruction: free the memory of a value."""

    value: int


Instruction = KernelCall | DelegateCall | MoveCall | JumpFalseCall | FreeCall


@dataclass(frozen=True, slots=True)
class Delegate:
    """A delegate: a subgraph for a backend. Delegates that share data share the same `blob` object."""

    id: str
    blob: memoryview = field(repr=False)
    compile_specs: dict[str, bytes]


@dataclass(frozen=True, slots=True)
class ExecutionPlan:
    """One method. Its chains are concatenated with jump targets relocated, as the runtime runs them in sequence."""

    name: str
    values: tuple[Value, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    instructions: tuple[Instruction, ...]
    delegates: tuple[Delegate, ...]
    non_const_buffer_sizes: tuple[int, ...]


PLAN = fields(
    "name",
    "container_meta_type",
    "values",
    "inputs",
    "outputs",
    "chains",
    "operators",
    "delegates",
    "non_const_buffer_sizes",
    "non_const_buffer_device",
)
EVALUE = fields("val_type", "val")
INT, BOOL, DOUBLE, STRING = fields("int_val"), fields("bool_val"), fields("double_val"), fields("string_val")
LIST = fields("items")
TENSOR = fields(
    "scalar_type",
    "storage_offset",
    "sizes",
    "dim_order",
    "requires_grad",
    "data_buffer_idx",
    "allocation_info",
    "layout",
    "shape_dynamism",
    "extra_tensor_info",
)
ALLOCATION = fields("memory_id", "memory_offset_low", "memory_offset_high")
EXTRA_TENSOR_INFO = fields(
    "mutable_data_segments_idx", "fully_qualified_name", "location", "device_type", "device_index"
)
CHAIN = fields("inputs", "outputs", "instructions", "stacktrace")
INSTRUCTION = fields("instr_args_type", "instr_args")
KERNEL_CALL, DELEGATE_CALL = fields("op_index", "args"), fields("delegate_index", "args")
MOVE_CALL, FREE_CALL = fields("move_from", "move_to"), fields("value_index")
JUMP_FALSE_CALL = fields("cond_value_index", "destination_instruction")
OPERATOR = fields("name", "overload")
DELEGATE = fields("id", "processed", "compile_specs")
DATA_REFERENCE = fields("location", "index")
COMPILE_SPEC = fields("key", "value")

VALUE_KINDS = {
    1: "Null",
    2: "Int",
    3: "Bool",
    4: "Double",
    5: "Tensor",
    6: "String",
    7: "IntList",
    8: "DoubleList",
    9: "BoolList",
    10: "TensorList",
    11: "OptionalTensorList",
}
INSTRUCTION_KINDS = {1: "KernelCall", 2: "DelegateCall", 3: "MoveCall", 4: "JumpFalseCall", 5: "FreeCall"}
DYNAMISMS = {0: "static", 1: "bound", 2: "unbound"}
TENSOR_LOCATIONS = {0: "segment", 1: "external"}


def read_plan(entry: Table, find_blob: Callable[[Table], memoryview]) -> ExecutionPlan:
    """Parse a method from its flatbuffer table; `find_blob` resolves a delegate's data reference.

    Example: `read_plan(entry, lambda reference: blobs[reference.u32("index")]).name`.
    """
    values = tuple(_value(value) for value in entry.tables("values", EVALUE))
    for index, value in enumerate(values):
        _check_list(value, values, f"{entry.path}.values[{index}].val.items")
    operators = tuple(_operator(operator) for operator in entry.tables("operators", OPERATOR))
    delegates = tuple(_delegate(delegate, find_blob) for delegate in entry.tables("delegates", DELEGATE))
    instructions: list[Instruction] = []
    for chain in entry.tables("chains", CHAIN):
        instructions += _chain(chain, len(instructions), operators, len(delegates), len(values))
    return ExecutionPlan(
        name=entry.string("name"),
        values=values,
        inputs=_check_ids(entry.i32s("inputs"), len(values), f"{entry.path}.inputs"),
        outputs=_check_ids(entry.i32s("outputs"), len(values), f"{entry.path}.outputs"),
        instructions=tuple(instructions),
        delegates=delegates,
        non_const_buffer_sizes=entry.i64s("non_const_buffer_sizes"),
    )


def _operator(entry: Table) -> str:
    name, overload = entry.string("name"), entry.optional_string("overload")
    return f"{name}.{overload}" if overload else name


def _delegate(entry: Table, find_blob: Callable[[Table], memoryview]) -> Delegate:
    specs = entry.tables("compile_specs", COMPILE_SPEC)
    return Delegate(
        id=entry.string("id"),
        blob=find_blob(entry.table("processed", DATA_REFERENCE)),
        compile_specs={spec.string("key"): bytes(spec.u8s("value")) for spec in specs},
    )


def _value(entry: Table) -> Value:
    kind = entry.choice("val_type", VALUE_KINDS)
    if kind == "Null":
        return None
    if kind == "Int":
        return entry.table("val", INT).i64("int_val")
    if kind == "Bool":
        return entry.table("val", BOOL).boolean("bool_val")
    if kind == "Double":
        return entry.table("val", DOUBLE).f64("double_val")
    if kind == "String":
        return entry.table("val", STRING).string("string_val")
    if kind == "Tensor":
        return _tensor(entry.table("val", TENSOR))
    items = entry.table("val", LIST)
    if kind == "IntList":
        return IntListRef(items.i64s("items"))
    if kind == "DoubleList":
        return items.f64s("items")
    if kind == "BoolList":
        return items.booleans("items")
    if kind == "TensorList":
        return TensorListRef(items.i32s("items"))
    return OptionalTensorListRef(items.i32s("items"))


def _tensor(entry: Table) -> TensorSpec:
    dtype = entry.choice("scalar_type", SCALAR_TYPES)
    shape = entry.i32s("sizes")
    tensor_size(dtype, shape, f"{entry.path}.sizes")
    storage_offset = entry.i32("storage_offset")
    if storage_offset < 0:
        raise damaged(f"{entry.path}.storage_offset", f"{storage_offset}, 0 or more is allowed")
    memory = entry.optional_table("allocation_info", ALLOCATION)
    extra = entry.optional_table("extra_tensor_info", EXTRA_TENSOR_INFO)
    name = extra.optional_string("fully_qualified_name") if extra else None
    external = extra is not None and extra.choice("location", TENSOR_LOCATIONS) == "external"
    if external and not name:
        raise damaged(f"{entry.path}.extra_tensor_info", "data outside of the file, and no name to find it by")
    return TensorSpec(
        dtype=dtype,
        shape=shape,
        dim_order=check_dim_order(entry.u8s("dim_order"), shape, f"{entry.path}.dim_order"),
        dynamism=entry.choice("shape_dynamism", DYNAMISMS),
        data_index=entry.u32("data_buffer_idx"),
        memory=_memory(memory) if memory else None,
        storage_offset=storage_offset,
        mutable_segment=extra.u64("mutable_data_segments_idx") if extra else 0,
        name=name,
        external=external,
    )


def _memory(entry: Table) -> tuple[int, int]:
    return entry.u32("memory_id"), entry.u32("memory_offset_high") << 32 | entry.u32("memory_offset_low")


def _chain(chain: Table, start: int, operators: tuple[str, ...], delegates: int, values: int) -> Iterator[Instruction]:
    calls = [_call(entry, operators, delegates, values) for entry in chain.tables("instructions", INSTRUCTION)]
    for index, call in enumerate(calls):
        if isinstance(call, JumpFalseCall):
            path = f"{chain.path}.instructions[{index}].instr_args.destination_instruction"
            # A jump to one past the last instruction ends the chain.
            call = JumpFalseCall(call.condition, start + _check_index(call.target, len(calls) + 1, path))
        yield call


def _call(entry: Table, operators: tuple[str, ...], delegates: int, values: int) -> Instruction:
    kind = entry.choice("instr_args_type", INSTRUCTION_KINDS)
    path = f"{entry.path}.instr_args"
    if kind == "KernelCall":
        call = entry.table("instr_args", KERNEL_CALL)
        op = operators[_check_index(call.i32("op_index"), len(operators), f"{path}.op_index")]
        return KernelCall(op, _check_ids(call.i32s("args"), values, f"{path}.args"))
    if kind == "DelegateCall":
        call = entry.table("instr_args", DELEGATE_CALL)
        delegate = _check_index(call.i32("delegate_index"), delegates, f"{path}.delegate_index")
        return DelegateCall(delegate, _check_ids(call.i32s("args"), values, f"{path}.args"))
    if kind == "MoveCall":
        call = entry.table("instr_args", MOVE_CALL)
        return MoveCall(
            _check_index(call.i32("move_from"), values, f"{path}.move_from"),
            _check_index(call.i32("move_to"), values, f"{path}.move_to"),
        )
    if kind == "JumpFalseCall":
        call = entry.table("instr_args", JUMP_FALSE_CALL)
        condition = _check_index(call.i32("cond_value_index"), values, f"{path}.cond_value_index")
        return JumpFalseCall(condition, call.i32("destination_instruction"))
    call = entry.table("instr_args", FREE_CALL)
    return FreeCall(_check_index(call.i32("value_index"), values, f"{path}.value_index"))


def _check_index(index: int, count: int, path: str) -> int:
    if not 0 <= index < count:
        raise damaged(path, f"index {index} of a list of {count}")
    return index


def _check_ids(ids: tuple[int, ...], count: int, path: str) -> tuple[int, ...]:
    for position, index in enumerate(ids):
        if not 0 <= index < count:
            raise damaged(f"{path}[{position}]", f"value {index} of a method that has {count}")
    return ids


def _check_list(value: Value, values: tuple[Value, ...], path: str) -> None:
    if isinstance(value, IntListRef):
        for index in _check_ids(value.ids, len(values), path):
            if type(values[index]) is not int:
                raise damaged(path, f"value {index} is no Int, and every item must be one")
    if isinstance(value, TensorListRef):
        for index in _check_ids(value.ids, len(values), path):
            if not isinstance(values[index], TensorSpec):
                raise damaged(path, f"value {index} is no Tensor, and every item must be one")
    if isinstance(value, OptionalTensorListRef):
        present = tuple(index for index in value.ids if index != -1)
        for index in _check_ids(present, len(values), path):
            if not isinstance(values[index], (TensorSpec, type(None))):
                raise damaged(path, f"value {index} is neither a Tensor nor Null, and every item must be")
