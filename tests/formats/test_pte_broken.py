"""Broken programs say which field is broken, what it holds, what is allowed, and what to do."""

from __future__ import annotations

import copy
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from liveshape.errors import FormatError, UnsupportedError
from liveshape.formats import FreeCall, open_program
from liveshape.formats import execution_plan as plan_module
from liveshape.formats import pte as pte_module
from liveshape.formats import segments as segments_module
from liveshape.formats.flatbuffer import FlatbufferReader, Table
from tests.formats.golden import golden_of, patched, written

PathOf = Callable[[str], Path]


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
    "jump before": (set_call(3, destination_instruction=-1), r"destination_instruction: index -1 of a list of"),
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
        r"dim_order: \(0, 0\) does not name each of the 2 dim",
    ),
    "dim order rank": (tensor_change(dim_order=[0]), r"dim_order: 1 entries for the 2 dimensions of \(3, 3\)"),
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


def test_a_broken_delegate_call(program_path: PathOf) -> None:
    file = golden_of(program_path("split").read_bytes())
    file.program.execution_plan[0].chains[0].instructions[0].instr_args.delegate_index = 2
    with pytest.raises(FormatError, match=r"delegate_index: index 2 of a list of 2"):
        open_program(written(file))


HEADERS = {
    "identifier": (4, "4s", b"ET99", r"Program: file identifier b'ET99' at byte 4, expected b'ET12'; not this format"),
    "bundled": (4, "4s", b"BP08", r"b'BP08' .* this is a bundled program \(\.bpte\), pass an ExecuTorch program"),
    "length": (12, "<I", 28, r"extended header\.length: 28, 24 or 32 is allowed"),
    "program size": (16, "<Q", 2**63, r"extended header\.program_size: 9223372036854775808, between 40 and \d+"),
    "program size low": (16, "<Q", 8, r"extended header\.program_size: 8, between"),
    "base": (24, "<Q", 2**40, r"extended header\.segment_base_offset: 1099511627776, between \d+ and \d+"),
    "base low": (24, "<Q", 9, r"extended header\.segment_base_offset: 9, between"),
    "base zero": (24, "<Q", 0, r"Program\.segments\[1\]: \d+ bytes at offset 0 do not fit in the 0 bytes of segment"),
    "data size": (32, "<Q", 2**62, r"extended header\.segment_data_size: 4611686018427387904 bytes from byte \d+ on"),
    "data size low": (32, "<Q", 1, r"Program\.segments\[\d\]: \d+ bytes at offset \d+ do not fit in the 1 bytes"),
}


@pytest.mark.parametrize("name", HEADERS)
def test_broken_headers(name: str, program_path: PathOf) -> None:
    at, form, value, message = HEADERS[name]
    with pytest.raises(FormatError, match=message):
        open_program(patched(program_path("rms_norm").read_bytes(), at, form, value))


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


def program_root(data: bytearray) -> Table:
    return FlatbufferReader(memoryview(data)).root(b"ET12", "Program", pte_module.PROGRAM)


def delegate_reference(root: Table) -> Table:
    plan = next(root.tables("execution_plan", plan_module.PLAN))
    # The last one: an index of zero is left out of the file.
    *_, last = plan.tables("delegates", plan_module.DELEGATE)
    return last.table("processed", plan_module.DATA_REFERENCE)


def constant_segment(root: Table) -> Table:
    return root.table("constant_segment", segments_module.SUBSEGMENT)


# Fields that the writer of ExecuTorch computes itself, changed in place: program, table, field, value.
FIELDS: dict[str, tuple[str, Callable[[Table], Table], str, int, str]] = {
    "delegate segment": ("split", delegate_reference, "index", 99, r"processed\.index: segment 99 of a file that has"),
    "delegate inline": (
        "inline",
        delegate_reference,
        "index",
        99,
        r"processed\.index: 99 of a program that has 2 inline",
    ),
    "named": (
        "split",
        lambda root: next(root.tables("named_data", segments_module.NAMED)),
        "segment_index",
        99,
        r"Program\.named_data\[0\]\.segment_index: segment 99 of a file that has \d+",
    ),
    "mutable": (
        "portable",
        lambda root: next(root.tables("mutable_data_segments", segments_module.SUBSEGMENT)),
        "segment_index",
        99,
        r"Program\.mutable_data_segments\[0\]\.segment_index: segment 99 of a file that has 2",
    ),
}


@pytest.mark.parametrize("name", FIELDS)
def test_broken_fields(name: str, program_path: PathOf) -> None:
    recipe, find, field, value, message = FIELDS[name]
    data = bytearray(program_path(recipe).read_bytes())
    struct.pack_into("<I", data, find(program_root(data))._locate(field, 4), value)
    with pytest.raises(FormatError, match=message):
        open_program(data)


def test_a_broken_offset_of_a_constant(program_path: PathOf) -> None:
    data = bytearray(program_path("portable").read_bytes())
    start, count = constant_segment(program_root(data))._vector("offsets", 8)
    struct.pack_into("<Q", data, start + 8 * (count - 1), 2**50)
    with pytest.raises(FormatError, match=r"Program\.constant_segment\.offsets\[4\]: 1125899906842624 is past the"):
        open_program(data)


def test_constants_in_two_places(program_path: PathOf) -> None:
    from executorch.exir._serialize._flatbuffer_program import _program_to_flatbuffer
    from executorch.exir.schema import DataSegment, SubsegmentOffsets

    program = golden_of(program_path("portable").read_bytes()).program
    program.constant_segment = SubsegmentOffsets(segment_index=0, offsets=[0])
    program.segments = [DataSegment(offset=0, size=0)]
    with pytest.raises(FormatError, match=r"constant_buffer: both inline constants and a constant segment, one is"):
        open_program(bytes(_program_to_flatbuffer(program).data))
