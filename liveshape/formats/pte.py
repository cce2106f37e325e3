"""`.pte` program files: methods as values and instructions, and zero-copy views of their data. Opening parses only the
flatbuffer; delegates, constants and named data are slices of the memory-mapped file."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from types import TracebackType

from liveshape.errors import InputError, UnsupportedError
from liveshape.formats.dtypes import ITEM_SIZES, tensor_size
from liveshape.formats.execution_plan import PLAN, ExecutionPlan, TensorSpec, read_plan
from liveshape.formats.flatbuffer import FlatbufferReader, Table, damaged, fields
from liveshape.formats.segments import SUBSEGMENT, Constants, NamedData, Segments, read_named_data, read_segments
from liveshape.formats.signature import Signature, read_signatures
from liveshape.formats.source import FileSource, Source, in_memory

PROGRAM = fields(
    "version",
    "execution_plan",
    "constant_buffer",
    "backend_delegate_data",
    "segments",
    "constant_segment",
    "mutable_data_segments",
    "named_data",
)
BUFFER, INLINE_DATA = fields("storage"), fields("data")

_HEADER = struct.Struct("<4sIQQ")
_HEADER_WITH_SIZE = struct.Struct("<4sIQQQ")


class PteFile:
    """An open `.pte`: its methods and its data. Close it, or use it in a `with` statement.

    Example: `with open_program("model.pte") as program: print([plan.name for plan in program.plans])`.
    """

    def __init__(
        self,
        source: Source,
        version: int,
        plans: tuple[ExecutionPlan, ...],
        named_data: NamedData,
        constants: Constants,
        mutable_data: tuple[Constants, ...],
    ) -> None:
        self.version = version
        self.plans = plans
        # Signatures by method name, where the exporter wrote them.
        self.signatures: Mapping[str, Signature] = read_signatures({plan.name: plan for plan in plans})
        self._source, self._named, self._constants, self._mutable = source, named_data, constants, mutable_data

    @property
    def named_data(self) -> Mapping[str, memoryview]:
        """Named data of delegates by key, sliced lazily."""
        self._source.check()
        return self._named

    @property
    def nbytes(self) -> int:
        """Size of the file in bytes."""
        return len(self._source.view)

    def method(self, name: str = "forward") -> ExecutionPlan:
        """The method of this name.

        Example: `program.method("forward").inputs`.
        """
        for plan in self.plans:
            if plan.name == name:
                return plan
        raise InputError(f"no method {name!r} in this program; it has {', '.join(plan.name for plan in self.plans)}")

    def constant(self, data_index: int) -> memoryview:
        """The constant at this index, up to the start of the next, so padding may follow the data.

        Example: `program.constant(tensor.data_index)`.
        """
        self._source.check()
        if not 0 <= data_index < len(self._constants):
            raise InputError(f"no constant {data_index} in this program; it has {len(self._constants)}")
        return self._constants.view(data_index)

    def tensor_data(self, tensor: TensorSpec) -> memoryview | None:
        """The bytes of a tensor in this file: a constant, or the initial state of a mutable buffer.

        None for inputs, activations, and tensors whose data is in a `.ptd` under their name.
        """
        self._source.check()
        return _tensor_data(tensor, self._constants, self._mutable, "tensor")

    def close(self) -> None:
        """Close the file. Existing views stay valid and keep the mapping alive."""
        self._source.close()

    def __enter__(self) -> PteFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def open_program(source: FileSource) -> PteFile:
    """Open a `.pte` from a path (memory-mapped), bytes, a view, or a binary file (read whole).

    Example: `open_program("model.pte").method("forward").values`.
    """
    opened = Source(source)
    try:
        return _read_program(opened)
    except BaseException:
        opened.close()
        raise


def _read_program(source: Source) -> PteFile:
    flatbuffer, data = _split(source.view)
    root = FlatbufferReader(in_memory(flatbuffer)).root(b"ET12", "Program", PROGRAM)
    version = root.u32("version")
    if version != 0:
        raise UnsupportedError(f"Program.version: {version}, this version of liveshape reads 0; update liveshape")
    segments = read_segments(root, data)
    constants = _read_constants(root, segments)
    mutable = tuple(Constants.read(entry, segments) for entry in root.tables("mutable_data_segments", SUBSEGMENT))
    blobs = _Blobs(tuple(entry.blob("data") for entry in root.tables("backend_delegate_data", INLINE_DATA)), segments)
    plans: dict[str, ExecutionPlan] = {}
    for entry in root.tables("execution_plan", PLAN):
        plan = read_plan(entry, blobs.find)
        if plan.name in plans:
            raise damaged(f"{entry.path}.name", f"a second method {plan.name!r}, names must differ")
        for index, value in enumerate(plan.values):
            if isinstance(value, TensorSpec):
                _tensor_data(value, constants, mutable, f"{entry.path}.values[{index}].val")
        plans[plan.name] = plan
    return PteFile(source, version, tuple(plans.values()), read_named_data(root, segments), constants, mutable)


def _split(view: memoryview) -> tuple[memoryview, memoryview]:
    """Split a file into flatbuffer and segment data; without the extended header there is no segment data."""
    if bytes(view[8:12]) != b"eh00":
        return view, view[:0]
    if len(view) < 8 + _HEADER.size:
        raise damaged("extended header", f"{len(view)} bytes end before its {_HEADER.size} bytes at byte 8 do")
    header = in_memory(view[: 8 + _HEADER_WITH_SIZE.size])
    _, length, program_size, segment_base = _HEADER.unpack_from(header, 8)
    segment_size = 0
    if length >= _HEADER_WITH_SIZE.size and len(view) >= 8 + _HEADER_WITH_SIZE.size:
        segment_size = _HEADER_WITH_SIZE.unpack_from(header, 8)[4]
    elif length != _HEADER.size:
        raise damaged("extended header.length", f"{length}, {_HEADER.size} or {_HEADER_WITH_SIZE.size} is allowed")
    if not 8 + length <= program_size <= len(view):
        raise damaged(
            "extended header.program_size", f"{program_size}, between {8 + length} and {len(view)} is allowed"
        )
    if segment_base == 0:
        return view[:program_size], view[:0]
    if not program_size <= segment_base <= len(view):
        raise damaged(
            "extended header.segment_base_offset",
            f"{segment_base}, between {program_size} and {len(view)} is allowed",
        )
    if segment_base + segment_size > len(view):
        raise damaged(
            "extended header.segment_data_size",
            f"{segment_size} bytes from byte {segment_base} on, and the file ends at {len(view)}",
        )
    # The short header lacks the size of the segment data.
    return view[:program_size], view[segment_base : segment_base + segment_size if segment_size else len(view)]


def _read_constants(root: Table, segments: Segments) -> Constants:
    entry = root.optional_table("constant_segment", SUBSEGMENT)
    # Older files have constant buffers inline.
    inline = [buffer.blob("storage") for buffer in root.tables("constant_buffer", BUFFER)]
    if entry is None or not entry.u64s("offsets"):
        return Constants(inline)
    if inline:
        raise damaged("Program.constant_buffer", "both inline constants and a constant segment, one is allowed")
    return Constants.read(entry, segments)


def _tensor_data(
    tensor: TensorSpec, constants: Constants, mutable: tuple[Constants, ...], path: str
) -> memoryview | None:
    if tensor.data_index == 0 or tensor.external:
        return None
    if tensor.planned:
        if tensor.mutable_segment >= len(mutable):
            raise damaged(
                f"{path}.extra_tensor_info.mutable_data_segments_idx",
                f"{tensor.mutable_segment} of a program that has {len(mutable)} mutable data segments",
            )
        constants = mutable[tensor.mutable_segment]
    if tensor.data_index >= len(constants):
        raise damaged(f"{path}.data_buffer_idx", f"{tensor.data_index} of a program that has {len(constants)} buffers")
    room = constants.room(tensor.data_index)
    start = tensor.storage_offset * ITEM_SIZES.get(tensor.dtype, 0)
    size = tensor_size(tensor.dtype, tensor.shape, path) if tensor.dtype in ITEM_SIZES else room
    if start + size > room:
        raise damaged(
            f"{path}.data_buffer_idx",
            f"buffer {tensor.data_index} holds {room} bytes, {tensor.dtype} of shape {tensor.shape} "
            f"takes {size} from byte {start}",
        )
    return constants.piece(tensor.data_index, start, size)


class _Blobs:
    """Resolves delegate data references; the same reference returns the same view, so that its graph is built once."""

    def __init__(self, inline: tuple[memoryview, ...], segments: Segments) -> None:
        self._inline, self._segments = inline, segments

    def find(self, entry: Table) -> memoryview:
        index = entry.u32("index")
        if entry.choice("location", {0: "inline", 1: "segment"}) == "segment":
            return self._segments.view(self._segments.check(index, f"{entry.path}.index"))
        if index >= len(self._inline):
            raise damaged(f"{entry.path}.index", f"{index} of a program that has {len(self._inline)} inline blobs")
        return self._inline[index]
