"""Programs read by liveshape equal what ExecuTorch's own deserializer reads, and broken ones say what is broken."""

from __future__ import annotations

import copy
import io
import struct
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from liveshape.errors import FormatError, InputError, UnsupportedError
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
    Program,
    TensorListRef,
    TensorSpec,
    open_program,
    parse_vkgraph,
)
from liveshape.formats import plan as plan_module
from liveshape.formats import pte as pte_module
from liveshape.formats import segments as segments_module
from liveshape.formats.dtypes import SCALAR_TYPES
from liveshape.formats.flatbuffer import Reader
from tests.formats import recipes
from tests.formats.schema import enum_names, table_fields, union_names

PathOf = Callable[[str], Path]


def golden_of(data: bytes) -> Any:
    """The same file through ExecuTorch."""
    from executorch.exir._serialize._program import deserialize_pte_binary

    return deserialize_pte_binary(data)


def written(file: Any, **options: Any) -> bytes:
    """A file from ExecuTorch's dataclasses."""
    from executorch.exir._serialize._program import serialize_pte_binary

    return bytes(serialize_pte_binary(file, **{"extract_delegate_segments": True, **options}))


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


def check_data(program: Program, golden: Any) -> None:
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


def plan_change(change: Callable[[Any], None]) -> Callable[[Any], None]:
    return lambda file: change(file.program.execution_plan[0])


def tensor_change(**attributes: Any) -> Callable[[Any], None]:
    def change(file: Any) -> None:
        tensor = file.program.execution_plan[0].values[0].val
        for name, value in attributes.items():
            setattr(tensor, name, value)

    return change


def set_call(index: int, **attributes: Any) -> Callable[[Any], None]:
    def change(file: Any) -> None:
        call = file.program.execution_plan[0].chains[0].instructions[index].instr_args
        for name, value in attributes.items():
            assert hasattr(call, name)
            setattr(call, name, value)

    return change


def set_items(kind: str, items: list[int]) -> Callable[[Any], None]:
    def change(file: Any) -> None:
        values = [value.val for value in file.program.execution_plan[0].values]
        next(value for value in values if type(value).__name__ == kind).items = items

    return change


def extra_info(**attributes: Any) -> Any:
    from executorch.exir.schema import ExtraTensorInfo

    return ExtraTensorInfo(**attributes)


def external_without_name(file: Any) -> None:
    from executorch.exir.schema import TensorDataLocation

    tensor_change(extra_tensor_info=extra_info(location=TensorDataLocation.EXTERNAL, fully_qualified_name=""))(file)


def second_method(file: Any) -> None:
    file.program.execution_plan.append(copy.deepcopy(file.program.execution_plan[0]))


PLAN_PATH = r"Program\.execution_plan\[0\]"
CALL_PATH = PLAN_PATH + r"\.chains\[0\]\.instructions"
# Instructions of the portable program: a kernel, ..., JumpFalse at 3, Move at 6.
BROKEN = {
    "input": (plan_change(lambda plan: plan.inputs.append(999)), rf"{PLAN_PATH}\.inputs\[2\]: value 999 of a method"),
    "output": (plan_change(lambda plan: plan.outputs.insert(0, -1)), rf"{PLAN_PATH}\.outputs\[0\]: value -1 of"),
    "op": (set_call(0, op_index=99), rf"{CALL_PATH}\[0\]\.instr_args\.op_index: index 99 of a list of \d+"),
    "op below": (set_call(0, op_index=-1), r"op_index: index -1 of a list of"),
    "kernel arg": (set_call(0, args=[0, 999]), rf"{CALL_PATH}\[0\]\.instr_args\.args\[1\]: value 999 of a method"),
    "move from": (set_call(6, move_from=999), r"move_from: index 999 of a list of"),
    "move to": (set_call(6, move_to=-5), r"move_to: index -5 of a list of"),
    "jump if": (set_call(3, cond_value_index=999), r"cond_value_index: index 999"),
    "jump to": (set_call(3, destination_instruction=999), rf"{CALL_PATH}\[3\]\S+destination_instruction: index 999"),
    "ints": (set_items("IntList", [0]), r"values\[15\]\.val\.items: value 0 is no Int, and every item must be one"),
    "ints range": (set_items("IntList", [2**40]), r"items\[0\]: value 1099511627776 of a method that has"),
    "tensors": (set_items("TensorList", [6]), r"val\.items: value 6 is no Tensor, and every item must be one"),
    "tensors range": (set_items("TensorList", [-1]), r"items\[0\]: value -1 of a method"),
    "optional": (set_items("OptionalTensorList", [-1, 6]), r"value 6 is neither a Tensor nor Null"),
    "optional range": (set_items("OptionalTensorList", [-2]), r"items\[0\]: value -2 of a method"),
    "negative size": (tensor_change(sizes=[3, -3]), r"values\[0\]\.val\.sizes: shape \(3, -3\) has a negative dim"),
    "rank": (tensor_change(sizes=[1] * 65, dim_order=list(range(65))), r"sizes: a tensor of 65 dimensions, at most 64"),
    "huge": (
        tensor_change(sizes=[2**31 - 1] * 3, dim_order=[0, 1, 2]),
        r"sizes: float32 of shape .* fewer than 2\*\*63",
    ),
    "dim order": (
        tensor_change(dim_order=[0, 0]),
        r"dim_order: \(0, 0\) is not an order of the 2 dimensions of \(3, 3\)",
    ),
    "dim order rank": (tensor_change(dim_order=[0]), r"dim_order: \(0,\) is not an order of the 2"),
    "storage": (tensor_change(storage_offset=-1), r"storage_offset: -1, 0 or more is allowed"),
    "storage end": (
        tensor_change(storage_offset=2**20),
        r"data_buffer_idx: buffer 1 holds \d+ bytes, float32 of shape",
    ),
    "too big": (
        tensor_change(sizes=[300, 300]),
        r"buffer 1 holds \d+ bytes, float32 of shape \(300, 300\) takes 360000",
    ),
    "no buffer": (tensor_change(data_buffer_idx=77), r"values\[0\]\.val\.data_buffer_idx: 77 of a program that has"),
    "external": (external_without_name, r"extra_tensor_info: data outside of the file, and no name to find it by"),
    "two methods": (second_method, r"execution_plan\[1\]\.name: a second method 'forward', names must differ"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_programs(name: str, program_path: PathOf) -> None:
    change, message = BROKEN[name]
    file = golden_of(program_path("portable").read_bytes())
    change(file)
    with pytest.raises(FormatError, match=message):
        open_program(written(file))


def test_a_broken_mutable_segment(program_path: PathOf) -> None:
    file = golden_of(program_path("portable").read_bytes())
    file.program.execution_plan[0].values[1].val.extra_tensor_info = extra_info(mutable_data_segments_idx=3)
    with pytest.raises(
        FormatError, match=r"mutable_data_segments_idx: 3 of a program that has 1 mutable data segments"
    ):
        open_program(written(file))


def test_free_calls_and_broken_ones(program_path: PathOf) -> None:
    from executorch.exir.schema import FreeCall as TheirFreeCall
    from executorch.exir.schema import Instruction

    file = golden_of(program_path("portable").read_bytes())
    file.program.execution_plan[0].chains[0].instructions.append(Instruction(TheirFreeCall(5)))
    assert open_program(written(file)).plans[0].instructions[-1] == FreeCall(5)
    file.program.execution_plan[0].chains[0].instructions.append(Instruction(TheirFreeCall(555)))
    with pytest.raises(FormatError, match=r"instr_args\.value_index: index 555 of a list of"):
        open_program(written(file))


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


@pytest.mark.parametrize("index", [2, 3])
def test_broken_delegates(index: int, program_path: PathOf) -> None:
    data = bytearray(program_path("split" if index == 2 else "inline").read_bytes())
    file = golden_of(bytes(data))
    file.program.execution_plan[0].chains[0].instructions[0].instr_args.delegate_index = index
    with pytest.raises(FormatError, match=rf"delegate_index: index {index} of a list of 2"):
        open_program(written(file))


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


def patched(data: bytes, at: int, form: str, value: Any) -> bytes:
    changed = bytearray(data)
    struct.pack_into(form, changed, at, value)
    return bytes(changed)


HEADERS = {
    "identifier": (4, "4s", b"ET99", r"Program: file identifier b'ET99' at byte 4, expected b'ET12'; not this format"),
    "bundled": (4, "4s", b"BP08", r"b'BP08' .* this is a bundled program \(\.bpte\), pass an ExecuTorch program"),
    "length": (12, "<I", 28, r"extended header\.length: 28, 24 or 32 is allowed"),
    "program size": (16, "<Q", 2**63, r"extended header\.program_size: 9223372036854775808, between 40 and \d+"),
    "program size low": (16, "<Q", 8, r"extended header\.program_size: 8, between"),
    "base": (24, "<Q", 2**40, r"extended header\.segment_base_offset: 1099511627776, between \d+ and \d+"),
    "base low": (24, "<Q", 9, r"extended header\.segment_base_offset: 9, between"),
    "base zero": (24, "<Q", 0, r"Program\.segments\[0\]: \d+ bytes at offset 0 do not fit in the 0 bytes of segment"),
    "data size": (32, "<Q", 2**62, r"extended header\.segment_data_size: 4611686018427387904 bytes from byte \d+ on"),
    "data size low": (32, "<Q", 1, r"Program\.segments\[\d\]: \d+ bytes at offset \d+ do not fit in the 1 bytes"),
}


@pytest.mark.parametrize("name", HEADERS)
def test_broken_headers(name: str, program_path: PathOf) -> None:
    at, form, value, message = HEADERS[name]
    with pytest.raises(FormatError, match=message):
        open_program(patched(program_path("rms_norm").read_bytes(), at, form, value))


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


@pytest.mark.parametrize("keep", [0, 3, 7, 8, 11, 12, 31, 39, 100])
def test_files_cut_short(keep: int, program_path: PathOf) -> None:
    with pytest.raises(FormatError, match=r"the file is damaged or cut short, copy or export it again"):
        open_program(program_path("rms_norm").read_bytes()[:keep])


def test_newer_versions(program_path: PathOf) -> None:
    file = golden_of(program_path("rms_norm").read_bytes())
    file.program.version = 7
    with pytest.raises(UnsupportedError, match=r"Program.version: 7, this version of liveshape reads 0; update"):
        open_program(written(file))


def test_two_keys_of_one_name(program_path: PathOf) -> None:
    data = program_path("split").read_bytes()
    keys = sorted(open_program(data).named_data)
    with pytest.raises(FormatError, match=rf"named_data\[\d\]\.key: a second '{keys[0]}', keys must differ"):
        open_program(data.replace(keys[1].encode(), keys[0].encode()))


def huge_copy(path: Path, target: Path, more: int) -> None:
    """A program whose last segment is `more` bytes longer; the file has a hole there, so it takes no disk."""
    data = bytearray(path.read_bytes())
    base, size = struct.unpack_from("<QQ", data, 24)
    root = Reader(memoryview(data)).root(b"ET12", "Program", pte_module.PROGRAM)
    last = list(root.tables("segments", segments_module.SEGMENT))[-1]
    struct.pack_into("<Q", data, last._locate("size", 8), last.u64("size") + more)
    struct.pack_into("<Q", data, 32, size + more)
    target.write_bytes(data)
    with open(target, "r+b") as file:
        file.truncate(base + size + more)


def test_a_gigabyte_opens_at_once(tmp_path: Path, program_path: PathOf) -> None:
    path = tmp_path / "huge.pte"
    huge_copy(program_path("split"), path, 1 << 30)
    assert path.stat().st_size > 1 << 30
    tracemalloc.start()
    started = time.perf_counter()
    with open_program(path) as program:
        elapsed = time.perf_counter() - started
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert max(len(view) for view in program.named_data.values()) > 1 << 30
    assert elapsed < 0.1
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
