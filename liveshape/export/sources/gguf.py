"""GGUF reader: metadata, and memory-mapped tensors, dequantized to float32 or as the quantized codes of the file.

A file is: magic, version, counts; metadata as typed key-value pairs; tensor infos; the aligned tensor data.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from liveshape.errors import FormatError
from liveshape.export.model.layout import Grouped, Layout
from liveshape.export.sources.ggml_blocks import FORMATS, BlockFormat
from liveshape.formats.file_kinds import CUT_SHORT
from liveshape.formats.source import Source, check_view, drop_pages, in_memory

Rows = slice | npt.NDArray[np.int64]

_VERSIONS = (2, 3)
_NUMBERS: Mapping[int, str] = {
    0: "<B",
    1: "<b",
    2: "<H",
    3: "<h",
    4: "<I",
    5: "<i",
    6: "<f",
    7: "<?",
    10: "<Q",
    11: "<q",
    12: "<d",
}
_STRING, _ARRAY = 8, 9
_LENGTH = struct.Struct("<Q")  # of a string
_MAX_DIMS = 4
_WINDOW = 1 << 20  # bytes of the header that are read at once where a file is not mapped


@dataclass(frozen=True)
class GgufTensor:
    """The tensor info of a GGUF file: type, shape and offset. `shape` is in torch's order: rows first."""

    name: str
    format: BlockFormat
    shape: tuple[int, ...]
    offset: int

    @property
    def nbytes(self) -> int:
        return prod(self.shape) // self.format.weights * self.format.nbytes

    @property
    def layout(self) -> Layout | None:
        """The quantization layout of a matrix; None for floats and for vectors."""
        return self.format.layout if len(self.shape) == 2 else None


class GgufFile:
    """A memory-mapped GGUF file.

    Example: `GgufFile(Path("model.gguf")).metadata["general.architecture"]`.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._data = Source(path).view
        self._at, self._first, self._window = 0, 0, memoryview(b"")
        magic, version, tensors, entries = self._unpack("<4sIQQ")
        if magic != b"GGUF":
            raise FormatError(f"{path} is not a GGUF file: it begins with {magic!r}")
        if version not in _VERSIONS:
            raise FormatError(f"{path}: GGUF version {version}; versions {_VERSIONS} can be read (little-endian)")
        self._check_count(entries, 12, "metadata entries")
        self.metadata: dict[str, Any] = {}
        for _ in range(entries):
            key = self._string()
            if key in self.metadata:
                raise FormatError(f"{path}: the metadata has {key[:80]!r} twice")
            self.metadata[key] = self._value(self._number("<I"))
        self._check_count(tensors, 24, "tensors")
        found = [self._tensor() for _ in range(tensors)]
        self.tensors = {each.name: each for each in self._placed(found)}
        if len(self.tensors) < len(found):
            raise FormatError(f"{path}: {len(found)} tensors have {len(self.tensors)} names")

    def read(self, name: str, rows: Rows = slice(None)) -> npt.NDArray[np.float32]:
        """Read a tensor, or some rows of it, dequantized to float32."""
        tensor, blocks = self._blocks(name, rows)
        values = tensor.format.read(blocks).astype(np.float32, copy=False)
        return values.reshape(-1, *tensor.shape[1:]) if len(tensor.shape) > 1 else values.reshape(tensor.shape)[rows]

    def grouped(self, name: str, rows: Rows = slice(None)) -> Grouped:
        """Read rows of a quantized matrix losslessly, without dequantizing."""
        tensor, blocks = self._blocks(name, rows)
        return tensor.format.grouped(blocks, tensor.shape[1])

    def _blocks(self, name: str, rows: Rows) -> tuple[GgufTensor, Any]:
        """The blocks of some rows of a tensor; of a vector always all blocks."""
        if name not in self.tensors:
            raise FormatError(f"{self.path} has no tensor {name}")
        tensor = self.tensors[name]
        count = prod(tensor.shape) // tensor.format.weights
        check_view(self._data)
        drop_pages(self._data)  # of earlier reads
        blocks = np.frombuffer(self._data, tensor.format.record, count, tensor.offset)
        return tensor, blocks.reshape(tensor.shape[0], -1)[rows].reshape(-1) if len(tensor.shape) > 1 else blocks

    def _unpack(self, layout: str) -> tuple[Any, ...]:
        size = struct.calcsize(layout)
        if self._at + size > len(self._data):
            raise FormatError(f"{self.path} ends at byte {len(self._data)}, in the middle of its header{CUT_SHORT}")
        return struct.unpack(layout, self._taken(size))

    def _taken(self, size: int) -> memoryview:
        """The next bytes of the header."""
        if self._at + size > self._first + len(self._window):
            self._first = self._at
            self._window = in_memory(self._data[self._at : self._at + max(size, _WINDOW)])
        start = self._at - self._first
        self._at += size
        return self._window[start : start + size]

    def _number(self, layout: str) -> Any:
        return self._unpack(layout)[0]

    def _check_count(self, count: int, least: int, what: str) -> None:
        """Refuse a count of elements that the rest of the file cannot hold."""
        if count * least > len(self._data) - self._at:
            raise FormatError(
                f"{self.path}: {count} {what} do not fit the {len(self._data) - self._at} bytes left{CUT_SHORT}"
            )

    def _string(self) -> str:
        length = self._number("<Q")
        self._check_count(length, 1, "bytes of a string")
        return bytes(self._taken(length)).decode("utf-8", "replace")

    def _strings(self, count: int) -> list[str]:
        """An array of strings, in a loop of its own: a vocabulary has hundreds of thousands, with its merges."""
        found: list[str] = []
        while len(found) < count:
            found.append(self._string())  # the first of a window
            window, at, end = self._window, self._at - self._first, len(self._window)
            while len(found) < count and at + _LENGTH.size <= end:
                stop = at + _LENGTH.size + _LENGTH.unpack_from(window, at)[0]
                if stop > end:
                    break
                found.append(str(window[at + _LENGTH.size : stop], "utf-8", "replace"))
                at = stop
            self._at = self._first + at
        return found

    def _value(self, kind: int, depth: int = 0) -> Any:
        if kind == _STRING:
            return self._string()
        if kind in _NUMBERS:
            return self._number(_NUMBERS[kind])
        if kind != _ARRAY or depth > 2:
            raise FormatError(f"{self.path}: metadata of type {kind} at byte {self._at}")
        inner, length = self._number("<I"), self._number("<Q")
        if inner in _NUMBERS:
            layout = np.dtype(_NUMBERS[inner])
            self._check_count(length, layout.itemsize, "numbers of an array")
            return np.frombuffer(self._taken(length * layout.itemsize), layout, length).tolist()
        self._check_count(length, 8, "elements of an array")
        if inner == _STRING:
            return self._strings(length)
        return [self._value(inner, depth + 1) for _ in range(length)]

    def _tensor(self) -> GgufTensor:
        name = self._string()
        dims = self._number("<I")
        if not 0 < dims <= _MAX_DIMS:
            raise FormatError(f"{self.path}: tensor {name} has {dims} dims")
        shape = tuple(reversed(self._unpack(f"<{dims}Q")))
        kind, offset = self._unpack("<IQ")
        if 0 in shape:
            raise FormatError(f"{self.path}: tensor {name[:80]} of shape {shape} holds nothing")
        if kind not in FORMATS:
            names = ", ".join(each.name for each in FORMATS.values())
            raise FormatError(
                f"{self.path}: tensor {name} is of ggml type {kind}; those that can be read are {names}. "
                "`llama-quantize --allow-requantize` writes another"
            )
        if shape[-1] % FORMATS[kind].weights:
            raise FormatError(f"{self.path}: tensor {name} of shape {shape} does not split into {FORMATS[kind].name}")
        return GgufTensor(name, FORMATS[kind], shape, offset)

    def _placed(self, tensors: list[GgufTensor]) -> list[GgufTensor]:
        """Make tensor offsets absolute, and check that each tensor is within the file."""
        alignment = self.metadata.get("general.alignment", 32)
        if not isinstance(alignment, int) or alignment < 1:
            raise FormatError(f"{self.path}: general.alignment is {alignment!r}")
        base = -(-self._at // alignment) * alignment
        placed = [GgufTensor(each.name, each.format, each.shape, base + each.offset) for each in tensors]
        for each in placed:
            if each.offset + each.nbytes > len(self._data):
                raise FormatError(
                    f"{self.path}: tensor {each.name[:80]} ends at byte {each.offset + each.nbytes} of "
                    f"{len(self._data)}{CUT_SHORT}"
                )
        return placed
