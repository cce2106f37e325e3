"""Programs read by liveshape equal what ExecuTorch reads, from any source, and open at once whatever their size."""

from __future__ import annotations

import copy
import io
import struct
import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from liveshape.errors import FormatError, InputError
from liveshape.formats import (
    Delegate,
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
    open_program,
    parse_vkgraph,
)
from liveshape.formats import execution_plan as plan_module
from liveshape.formats import pte as pte_module
from liveshape.formats import segments as segments_module
from liveshape.formats.dtypes import SCALAR_TYPES
from liveshape.formats.flatbuffer import FlatbufferReader
from tests.formats import recipes
from tests.formats.golden import golden_of, patched, written
from tests.formats.schema import enum_names, table_fields, union_names

PathOf = Callable[[str], Path]


@pytest.mark.parametrize("name", recipes.RECIPES)
def test_equals_the_deserializer_of_executorch(name: str, program_path: PathOf) -> None:
    data = program_path(name).read_bytes()
    golden = golden_of(data)
    with open_program(program_path(name)) as program:
        assert program.version == golden.program.version
        assert [plan.name for plan in program.plans] == [plan.name for plan in golden.program.execution_plan]
        for ours, theirs in zip(program.plans, golden.program.execution_plan, strict=True):
            check_plan(ours, theirs, golden.program)
        check_data(program, golden)


def check_plan(ours: ExecutionPlan, theirs: Any, golden: Any) -> None:
    assert ours.inputs == tuple(theirs.inputs)
    assert ours.outputs == tuple(theirs.outputs)
    assert ours.non_const_buffer_sizes == tuple(theirs.non_const_buffer_sizes)
    for value, expected in zip(ours.values, theirs.values, strict=True):
        check_value(value, expected.val)
    (chain,) = theirs.chains
    for call, expected in zip(ours.instructions, chain.instructions, strict=True):
        check_call(call, expected.instr_args, theirs.operators)
    for delegate, expected in zip(ours.delegates, theirs.delegates, strict=True):
        assert delegate.id == expected.id
        assert delegate.compile_specs == {spec.key: bytes(spec.value) for spec in expected.compile_specs}
        assert delegate.blob == bytes(golden.backend_delegate_data[expected.processed.index].data)


def check_value(value: Any, expected: Any) -> None:
    from executorch.exir import schema

    plain = {schema.Int: "int_val", schema.Bool: "bool_val", schema.Double: "double_val", schema.String: "string_val"}
    references = {
        schema.IntList: IntListRef,
        schema.TensorList: TensorListRef,
        schema.OptionalTensorList: OptionalTensorListRef,
    }
    kind = type(expected)
    if kind is schema.Null:
        assert value is None
    elif kind in plain:
        assert (type(value), value) == (type(getattr(expected, plain[kind])), getattr(expected, plain[kind]))
    elif kind in references:
        assert value == references[kind](tuple(expected.items))
    elif kind in (schema.DoubleList, schema.BoolList):
        assert value == tuple(expected.items)
    else:
        check_tensor(value, expected)


def check_tensor(value: Any, expected: Any) -> None:
    from executorch.exir.schema import TensorDataLocation

    memory, extra = expected.allocation_info, expected.extra_tensor_info
    assert value == TensorSpec(
        dtype=SCALAR_TYPES[int(expected.scalar_type)],
        shape=tuple(expected.sizes),
        dim_order=tuple(expected.dim_order),
        dynamism={0: "static", 1: "bound", 2: "unbound"}[int(expected.shape_dynamism)],
        data_index=expected.data_buffer_idx,
        memory=(memory.memory_id, memory.memory_offset_high << 32 | memory.memory_offset_low) if memory else None,
        storage_offset=expected.storage_offset,
        mutable_segment=(extra.mutable_data_segments_idx or 0) if extra else 0,
        name=extra.fully_qualified_name if extra else None,
        external=bool(extra) and extra.location == TensorDataLocation.EXTERNAL,
    )
    assert value.planned == (memory is not None)


def check_call(call: Any, expected: Any, operators: Any) -> None:
    from executorch.exir import schema

    if isinstance(expected, schema.KernelCall):
        operator = operators[expected.op_index]
        op = f"{operator.name}.{operator.overload}" if operator.overload else operator.name
        assert call == KernelCall(op, tuple(expected.args))
    elif isinstance(expected, schema.DelegateCall):
        assert call == DelegateCall(expected.delegate_index, tuple(expected.args))
    elif isinstance(expected, schema.MoveCall):
        assert call == MoveCall(expected.move_from, expected.move_to)
    elif isinstance(expected, schema.JumpFalseCall):
        assert call == JumpFalseCall(expected.cond_value_index, expected.destination_instruction)
    else:
        assert call == FreeCall(expected.value_index)


def check_data(program: PteFile, golden: Any) -> None:
    for index, buffer in enumerate(golden.program.constant_buffer):
        # Index 0 is reserved and shares its offset with the first constant.
        assert index == 0 or program.constant(index) == bytes(buffer.storage)
    if golden.named_data is not None:
        expected = {
            key: golden.named_data.buffers[entry.buffer_index] for key, entry in golden.named_data.pte_data.items()
        }
        assert {key: bytes(view) for key, view in program.named_data.items()} == expected
    else:
        assert len(program.named_data) == 0
    for plan in program.plans:
        for value in plan.values:
            if isinstance(value, TensorSpec) and value.data_index and not value.external:
                buffers = golden.mutable_data if value.planned else golden.program.constant_buffer
                data = program.tensor_data(value)
                assert data is not None
                assert bytes(buffers[value.data_index].storage).startswith(bytes(data))


def test_every_slot_is_the_one_of_the_schema() -> None:
    tables = table_fields("schema/program.fbs")
    ours = {
        "Program": pte_module.PROGRAM,
        "Buffer": pte_module.BUFFER,
        "BackendDelegateInlineData": pte_module.INLINE_DATA,
        "DataSegment": segments_module.SEGMENT,
        "SubsegmentOffsets": segments_module.SUBSEGMENT,
        "NamedData": segments_module.NAMED,
        "ExecutionPlan": plan_module.PLAN,
        "EValue": plan_module.EVALUE,
        "Int": plan_module.INT,
        "Bool": plan_module.BOOL,
        "Double": plan_module.DOUBLE,
        "String": plan_module.STRING,
        "Tensor": plan_module.TENSOR,
        "AllocationDetails": plan_module.ALLOCATION,
        "ExtraTensorInfo": plan_module.EXTRA_TENSOR_INFO,
        "Chain": plan_module.CHAIN,
        "Instruction": plan_module.INSTRUCTION,
        "KernelCall": plan_module.KERNEL_CALL,
        "DelegateCall": plan_module.DELEGATE_CALL,
        "MoveCall": plan_module.MOVE_CALL,
        "JumpFalseCall": plan_module.JUMP_FALSE_CALL,
        "FreeCall": plan_module.FREE_CALL,
        "Operator": plan_module.OPERATOR,
        "BackendDelegate": plan_module.DELEGATE,
        "BackendDelegateDataReference": plan_module.DATA_REFERENCE,
        "CompileSpec": plan_module.COMPILE_SPEC,
    }
    assert {name: list(layout) for name, layout in ours.items()} == {name: tables[name] for name in ours}
    for name in ("IntList", "DoubleList", "BoolList", "TensorList", "OptionalTensorList"):
        assert tables[name] == list(plan_module.LIST)
    assert union_names("schema/program.fbs", "KernelTypes") == plan_module.VALUE_KINDS
    assert union_names("schema/program.fbs", "InstructionArguments") == plan_module.INSTRUCTION_KINDS
    assert set(enum_names("schema/scalar_type.fbs", "ScalarType")) <= set(SCALAR_TYPES)


def test_program_facts(program_path: PathOf) -> None:
    program = open_program(program_path("split"))
    kinds = [type(call).__name__ for call in program.method().instructions]
    assert kinds == ["DelegateCall", "KernelCall", "DelegateCall"]
    assert [type(call).__name__ for call in open_program(program_path("portable")).method().instructions].count(
        "JumpFalseCall"
    ) == 2
    constants = {plan.name: plan.values for plan in open_program(program_path("methods")).plans if not plan.inputs}
    assert constants["get_name"] == ("liveshape",)
    assert constants["get_eos_ids"] == (1, 2, 3)


def test_a_method_by_name(program_path: PathOf) -> None:
    program = open_program(program_path("methods"))
    assert program.method("gate").name == "gate"
    with pytest.raises(InputError, match=r"no method 'gat' in this program; it has forward, gate, get_max_seq_len"):
        program.method("gat")


def test_sources_are_equal(program_path: PathOf) -> None:
    path = program_path("split")
    data = path.read_bytes()
    expected = open_program(path).plans
    with open(path, "rb") as file:
        for source in (str(path), data, bytearray(data), memoryview(data), io.BytesIO(data), file):
            assert open_program(source).plans == expected


def test_sources_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot read a program from int; pass a path, bytes or a binary file"):
        open_program(3)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="a view with gaps; pass contiguous bytes"):
        open_program(memoryview(b"abcdefgh")[::2])
    with pytest.raises(InputError, match="a text file; open it in binary mode or pass its path"):
        open_program(io.StringIO("ET12"))  # type: ignore[arg-type]
    (tmp_path / "empty.pte").touch()
    with pytest.raises(FormatError, match=r"empty.pte: the file is empty; copy or export it again"):
        open_program(tmp_path / "empty.pte")
    with pytest.raises(FileNotFoundError):
        open_program(tmp_path / "missing.pte")


def test_views_outlive_the_program(program_path: PathOf) -> None:
    with open_program(program_path("split")) as program:
        key = next(iter(program.named_data))
        view = program.named_data[key]
        expected = bytes(view)
    program.close()
    assert view == expected
    assert parse_vkgraph(program.plans[0].delegates[0].blob).chain
    for use in (lambda: program.named_data, lambda: program.constant(0)):
        with pytest.raises(InputError, match="the file is closed; open it again"):
            use()


def test_delegates_in_one_place_share_one_view(program_path: PathOf) -> None:
    golden = golden_of(program_path("split").read_bytes())
    first, second = golden.program.execution_plan[0].delegates
    second.processed = copy.deepcopy(first.processed)
    golden.program.backend_delegate_data.pop()
    for extract in (True, False):
        delegates = open_program(written(golden, extract_delegate_segments=extract)).plans[0].delegates
        assert delegates[0].blob is delegates[1].blob


def test_blobs_stay_out_of_the_repr(program_path: PathOf) -> None:
    delegate = open_program(program_path("rms_norm")).plans[0].delegates[0]
    assert isinstance(delegate, Delegate)
    assert "memory at" not in repr(delegate)


def test_chains_are_put_end_to_end(program_path: PathOf) -> None:
    file = golden_of(program_path("portable").read_bytes())
    single = open_program(written(file)).plans[0].instructions
    chains = file.program.execution_plan[0].chains
    chains.append(copy.deepcopy(chains[0]))
    double = open_program(written(file)).plans[0].instructions
    moved = [
        JumpFalseCall(call.condition, call.target + len(single)) if isinstance(call, JumpFalseCall) else call
        for call in single
    ]
    assert double == (*single, *moved)


def test_values_of_every_kind(program_path: PathOf) -> None:
    from executorch.exir.schema import BoolList, DoubleList, EValue, Null

    file = golden_of(program_path("portable").read_bytes())
    values = file.program.execution_plan[0].values
    values += [EValue(DoubleList([0.5, 2.0])), EValue(BoolList([True, False])), EValue(Null())]
    assert open_program(written(file)).plans[0].values[-3:] == ((0.5, 2.0), (True, False), None)


def test_inline_constants_of_older_files(program_path: PathOf) -> None:
    from executorch.exir._serialize._flatbuffer_program import _program_to_flatbuffer

    file = golden_of(program_path("portable").read_bytes())
    file.program.execution_plan[0].values[1].val.data_buffer_idx = 0
    for buffer in file.program.constant_buffer:
        buffer.storage = bytes(buffer.storage)
    program = open_program(bytes(_program_to_flatbuffer(file.program).data))
    expected = open_program(program_path("portable"))
    for index in range(1, 5):
        assert program.constant(index) == expected.constant(index)
    assert program.tensor_data(program.plans[0].values[0]) == expected.tensor_data(expected.plans[0].values[0])


def test_constants_beyond_the_end(program_path: PathOf) -> None:
    program = open_program(program_path("portable"))
    with pytest.raises(InputError, match=r"no constant 5 in this program; it has 5"):
        program.constant(5)


def test_the_short_header(program_path: PathOf) -> None:
    data = program_path("rms_norm").read_bytes()
    assert open_program(patched(data, 12, "<I", 24)).plans == open_program(data).plans


def test_no_header(program_path: PathOf) -> None:
    from executorch.exir._serialize._flatbuffer_program import _program_to_flatbuffer

    golden = golden_of(program_path("split").read_bytes()).program
    golden.constant_buffer = []
    data = bytes(_program_to_flatbuffer(golden).data)
    assert data[8:12] != b"eh00"
    delegates = open_program(data).plans[0].delegates
    assert [bytes(d.blob) for d in delegates] == [bytes(d.data) for d in golden.backend_delegate_data]


def huge_copy(path: Path, target: Path, more: int) -> None:
    """A program whose last segment is `more` bytes longer; the file has a hole there, so it takes no disk."""
    data = bytearray(path.read_bytes())
    base, size = struct.unpack_from("<QQ", data, 24)
    root = FlatbufferReader(memoryview(data)).root(b"ET12", "Program", pte_module.PROGRAM)
    last = list(root.tables("segments", segments_module.SEGMENT))[-1]
    struct.pack_into("<Q", data, last._locate("size", 8), last.u64("size") + more)
    struct.pack_into("<Q", data, 32, size + more)
    target.write_bytes(data)
    with open(target, "r+b") as file:
        file.truncate(base + size + more)


def test_a_gigabyte_opens_at_once(tmp_path: Path, program_path: PathOf) -> None:
    resource = pytest.importorskip("resource")
    path = tmp_path / "huge.pte"
    huge_copy(program_path("split"), path, 1 << 30)
    assert path.stat().st_size > 1 << 30
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    open_program(path).close()
    touched = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
    assert touched < (64 << 20) / resource.getpagesize(), "pages of it, or for it, that were looked at"
    tracemalloc.start()
    with open_program(path) as program:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert max(len(view) for view in program.named_data.values()) > 1 << 30
    assert peak < 1 << 20


def test_resident_memory_stays_small(tmp_path: Path, program_path: PathOf) -> None:
    path = tmp_path / "huge.pte"
    huge_copy(program_path("split"), path, 1 << 30)
    script = (
        "import resource, sys; from liveshape.formats import open_program\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "program = open_program(sys.argv[1])\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)"
    )
    grown = subprocess.run([sys.executable, "-c", script, str(path)], capture_output=True, text=True, check=True).stdout
    assert int(grown) < 8 * 1024


def test_imports_nothing_heavy() -> None:
    script = (
        "import sys, liveshape.formats\n"
        "print([name for name in ('numpy', 'torch', 'wgpu', 'executorch', 'flatbuffers') if name in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout == "[]\n"
