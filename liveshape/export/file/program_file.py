"""The `.pte` writer: methods, one delegate's blob, and constants that are streamed from the checkpoint to the file.

Sizes are known before any data is: the program flatbuffer is written first, then each constant at its offset, and the
host never holds more than a few chunks of them.
"""

from __future__ import annotations

import json
import os
import struct
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from liveshape.export.file.delegate_blob import DelegateBuilder, LiveInt, Shape, bound_of
from liveshape.export.file.flatbuffer_writer import Flat, Number, Part
from liveshape.export.weights.lazy_constants import Batch, Chunk, Constant
from liveshape.formats import execution_plan as schema
from liveshape.formats.dtypes import SCALAR_TYPES
from liveshape.formats.flatbuffer import fields
from liveshape.formats.pte import PROGRAM
from liveshape.formats.segments import NAMED, SEGMENT, SUBSEGMENT
from liveshape.formats.whole_file import whole_file
from liveshape.progress import Progress

# Only runtimes that rebuild Python containers read it.
CONTAINER = fields("encoded_inp_str", "encoded_out_str")

_HEADER = struct.Struct("<4sIQQQ")
_SEGMENT_ALIGNMENT, _TENSOR_ALIGNMENT = 128, 16
_ARENA = 1  # memory_id of inputs and outputs; the runtime reserves 0
_SCALAR_TYPES = {name: code for code, name in SCALAR_TYPES.items()}
_VALUES = {name: code for code, name in schema.VALUE_KINDS.items()}
_DELEGATE_CALL = next(code for code, name in schema.INSTRUCTION_KINDS.items() if name == "DelegateCall")
_STATIC, _BOUND = 0, 1
_BLOB = 1  # its segment; segment 0 is the empty one of constants outside of delegates
_WORKERS = 4  # few, since each holds a chunk of a matrix and several copies of it
_LEAF: Mapping[str, Any] = {"type": None, "context": None, "children_spec": []}

Result = int | bool | str | list[int]
Scalar = int | float | bool | str | None
HostValue = tuple[Shape, str] | Scalar  # the shape and dtype of a tensor, or what is the same at every call


@dataclass(frozen=True)
class ProgramSpec:
    """A program to write: `forward`, which is one delegate, and constant methods (`results`).

    `inputs` and `outputs` are what the host sees.
    """

    delegate: DelegateBuilder
    batches: Sequence[Batch]
    inputs: Sequence[HostValue]
    outputs: Sequence[HostValue]
    results: Mapping[str, Result] = field(default_factory=dict)

    @property
    def constants(self) -> list[Constant]:
        return [constant for batch in self.batches for constant in batch.constants]


@dataclass(frozen=True)
class FileLayout:
    """A `.pte` before any weight is read: its head, up to the first constant, where each constant starts, its size.

    Example: `file_layout(program).starts["model.norm.weight"]`.
    """

    head: bytes
    starts: Mapping[str, int]
    size: int


def file_layout(program: ProgramSpec) -> FileLayout:
    """Lay a program out as a `.pte`.

    Example: `file_layout(program).size`.
    """
    blob = program.delegate.blob()
    places, size = _places([0, len(blob), *(constant.nbytes for constant in program.constants)])
    content = _flatbuffer(program, places)
    base = _aligned(len(content) + _HEADER.size, _SEGMENT_ALIGNMENT)
    front = _with_header(content, base, size).ljust(base + places[_BLOB][0], b"\0")
    starts = {
        constant.key: base + start for constant, (start, _) in zip(program.constants, places[_BLOB + 1 :], strict=True)
    }
    return FileLayout(front + blob, starts, base + size)


def write_program(program: ProgramSpec, path: Path, progress: Progress = lambda done, total: None) -> int:
    """Write a `.pte` and return its size; `progress` is called with bytes done and in total.

    Example: `write_program(program, Path("model.pte"))`.
    """
    layout = file_layout(program)
    with whole_file(path, "a program") as file:
        file.write(layout.head)
        _write_constants(file, program.batches, layout.starts, layout.size, progress)
        file.truncate(layout.size)
    return layout.size


def _write_constants(
    file: BinaryIO, batches: Sequence[Batch], starts: Mapping[str, int], total: int, progress: Progress
) -> None:
    done, ends = 0, dict(starts)
    for chunks in _made(batches):
        for constant, chunk in chunks:
            assert chunk.dtype == np.dtype(constant.dtype), f"{constant.key} is {constant.dtype}, not {chunk.dtype}"
            file.seek(ends[constant.key])
            file.write(np.ascontiguousarray(chunk).data)
            ends[constant.key] += chunk.nbytes
            done += chunk.nbytes
            progress(done, total)
    for constant in (constant for batch in batches for constant in batch.constants):
        held = ends[constant.key] - starts[constant.key]
        assert held == constant.nbytes, f"{constant.key} takes {constant.nbytes} bytes, {held} were made"
    progress(total, total)


def _made(batches: Sequence[Batch]) -> Iterator[Sequence[Chunk]]:
    """The chunks of all batches in order, produced ahead by a thread pool with a bounded queue."""
    waiting: deque[tuple[Batch, Future[Sequence[Chunk]] | None]] = deque()
    workers = min(os.cpu_count() or 1, _WORKERS)
    with ThreadPoolExecutor(workers) as pool:
        try:
            for batch in batches:
                for piece in (*batch.pieces, None):
                    # None is the batch's `rest`, which needs all of its pieces.
                    waiting.append((batch, None if piece is None else pool.submit(piece)))
                    if len(waiting) > 2 * workers:
                        yield _taken(*waiting.popleft())
            while waiting:
                yield _taken(*waiting.popleft())
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _taken(batch: Batch, made: Future[Sequence[Chunk]] | None) -> Sequence[Chunk]:
    return batch.rest() if made is None else made.result()


def _places(sizes: Sequence[int]) -> tuple[list[tuple[int, int]], int]:
    """Aligned offsets of segments of these sizes, and their total size."""
    places, end = [], 0
    for size in sizes:
        start = _aligned(end, _SEGMENT_ALIGNMENT) if size else end
        places.append((start, size))
        end = start + size
    return places, end


def _aligned(number: int, multiple: int) -> int:
    return -(-number // multiple) * multiple


def _with_header(content: bytes, base: int, size: int) -> bytes:
    """Insert the extended header (eh00), with the segments' base offset, after the flatbuffer's file identifier."""
    (root,) = struct.unpack_from("<I", content)
    header = _HEADER.pack(b"eh00", _HEADER.size, len(content) + _HEADER.size, base, size)
    return struct.pack("<I", root + _HEADER.size) + content[4:8] + header + content[8:]


def _flatbuffer(program: ProgramSpec, places: Sequence[tuple[int, int]]) -> bytes:
    """The program flatbuffer (ET12), without the extended header."""
    flat = Flat()
    plans = [_forward(flat, program), *(_returning(flat, name, value) for name, value in program.results.items())]
    segments = [flat.table(SEGMENT, offset=Number("Q", start), size=Number("Q", size)) for start, size in places]
    named = [
        flat.table(NAMED, key=flat.string(constant.key), segment_index=Number("I", index))
        for index, constant in enumerate(program.constants, start=_BLOB + 1)
    ]
    root = flat.table(
        PROGRAM,
        execution_plan=flat.parts(plans),
        constant_buffer=flat.parts([]),
        backend_delegate_data=flat.parts([]),
        segments=flat.parts(segments),
        # Buffer 0 is that of tensors without data.
        constant_segment=flat.table(SUBSEGMENT, offsets=flat.vector("Q", [0])),
        named_data=flat.parts(named),
        version=Number("I", 0),
    )
    return flat.finish(root, b"ET12")


def _forward(flat: Flat, program: ProgramSpec) -> Part:
    delegate = program.delegate
    given, count = len(program.inputs), len(program.inputs) + len(program.outputs)
    values, tensors, end = list[Part](), list[int](), 0
    for place, each in enumerate((*program.inputs, *program.outputs)):
        if not isinstance(each, tuple):
            values.append(_constant(flat, each))
            continue
        shape, dtype = each
        tensors.append(place)
        values.append(_tensor(flat, shape, dtype, end))
        size = prod(bound_of(shape)) * np.dtype(dtype).itemsize
        end = _aligned(end + size, _TENSOR_ALIGNMENT)
    call = flat.table(schema.DELEGATE_CALL, args=flat.vector("i", tensors), delegate_index=Number("i", 0))
    instruction = flat.table(schema.INSTRUCTION, instr_args=call, instr_args_type=Number("B", _DELEGATE_CALL))
    specs = []
    if delegate.half:
        specs = [flat.table(schema.COMPILE_SPEC, key=flat.string("force_fp16"), value=flat.vector("B", [1]))]
    backend = flat.table(
        schema.DELEGATE,
        id=flat.string("VulkanBackend"),
        processed=flat.table(schema.DATA_REFERENCE, index=Number("I", _BLOB), location=Number("b", 1)),
        compile_specs=flat.parts(specs),
    )
    taken = {"type": "builtins.tuple", "context": "null", "children_spec": [_LEAF] * given}
    named = {"type": "builtins.dict", "context": "[]", "children_spec": []}
    inputs = json.dumps([1, {"type": "builtins.tuple", "context": "null", "children_spec": [taken, named]}])
    arena = [0, end]
    return _plan(
        flat, "forward", values, range(given), range(given, count), inputs, _LEAF, arena, [instruction], [backend]
    )


def _returning(flat: Flat, name: str, result: Result) -> Part:
    """A constant method: no instructions, its values are its outputs."""
    items = result if isinstance(result, list) else [result]
    values = [_constant(flat, item) for item in items]
    tree = _LEAF
    if isinstance(result, list):
        tree = {"type": "builtins.list", "context": "null", "children_spec": [_LEAF] * len(items)}
    return _plan(flat, name, values, (), range(len(items)), "", tree, [0])


def _constant(flat: Flat, item: Scalar) -> Part:
    if item is None:
        return flat.table(schema.EVALUE, val=flat.table({}), val_type=Number("B", _VALUES["Null"]))
    if isinstance(item, float):
        return _value(flat, "Double", flat.table(schema.DOUBLE, double_val=Number("d", item)))
    if isinstance(item, str):
        return _value(flat, "String", flat.table(schema.STRING, string_val=flat.string(item)))
    if isinstance(item, bool):
        return _value(flat, "Bool", flat.table(schema.BOOL, bool_val=Number("?", item)))
    return _value(flat, "Int", flat.table(schema.INT, int_val=Number("q", item)))


def _plan(
    flat: Flat,
    name: str,
    values: Sequence[Part],
    inputs: Sequence[int],
    outputs: Sequence[int],
    taken: str,
    returned: Mapping[str, Any],
    arenas: Sequence[int],
    instructions: Sequence[Part] = (),
    delegates: Sequence[Part] = (),
) -> Part:
    nothing = flat.vector("i", [])
    chain = flat.table(
        schema.CHAIN, inputs=nothing, outputs=flat.vector("i", []), instructions=flat.parts(instructions)
    )
    trees = flat.table(
        CONTAINER, encoded_inp_str=flat.string(taken), encoded_out_str=flat.string(json.dumps([1, returned]))
    )
    return flat.table(
        schema.PLAN,
        name=flat.string(name),
        container_meta_type=trees,
        values=flat.parts(values),
        inputs=flat.vector("i", inputs),
        outputs=flat.vector("i", outputs),
        chains=flat.parts([chain]),
        operators=flat.parts([]),
        delegates=flat.parts(delegates),
        non_const_buffer_sizes=flat.vector("q", arenas),
    )


def _tensor(flat: Flat, shape: Shape, dtype: str, offset: int) -> Part:
    """An input or output tensor at its upper bound, at an offset of the arena."""
    dynamic = any(isinstance(dim, LiveInt) for dim in shape)
    place = flat.table(
        schema.ALLOCATION,
        memory_id=Number("I", _ARENA),
        memory_offset_low=Number("I", offset & 0xFFFFFFFF),
        memory_offset_high=Number("I", offset >> 32),
    )
    table = flat.table(
        schema.TENSOR,
        sizes=flat.vector("i", bound_of(shape)),
        dim_order=flat.vector("B", range(len(shape))),
        allocation_info=place,
        scalar_type=Number("b", _SCALAR_TYPES[dtype]),
        shape_dynamism=Number("b", _BOUND if dynamic else _STATIC),
    )
    return _value(flat, "Tensor", table)


def _value(flat: Flat, kind: str, table: Part) -> Part:
    return flat.table(schema.EVALUE, val=table, val_type=Number("B", _VALUES[kind]))
