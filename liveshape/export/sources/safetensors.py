"""Safetensors reader: memory-mapped tensors of one file or of shards with an index, converted to float32.

A file is: the header's length as 8 bytes, the header as JSON, the tensor data.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from liveshape.disk import read_bytes
from liveshape.errors import FormatError, counted
from liveshape.formats.dtypes import MAX_RANK
from liveshape.formats.file_kinds import CUT_SHORT, HEAD, foreign_kind, foreign_name
from liveshape.formats.source import Source, check_view, drop_pages

Rows = slice | npt.NDArray[np.int64]

_HEADER_LIMIT = 100 << 20
_INDEX = "model.safetensors.index.json"
_FLOATS = ("F64", "F32", "F16", "BF16")
# U8 holds MXFP4 blocks and scales.
_ITEM_TYPES: Mapping[str, str] = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2", "U8": "u1"}


@dataclass(frozen=True)
class StoredTensor:
    """A memory-mapped tensor or a strided view of one; `strides` are in elements.

    Example: `stored.transposed().part((64, 32), first=64)`.
    """

    data: memoryview
    kind: str
    shape: tuple[int, ...]
    offset: int
    strides: tuple[int, ...] | None = None
    path: str = ""

    @property
    def item(self) -> np.dtype[Any]:
        return np.dtype(_ITEM_TYPES[self.kind])

    @property
    def nbytes(self) -> int:
        return prod(self.shape) * self.item.itemsize

    @property
    def array(self) -> npt.NDArray[Any]:
        """The elements in their stored dtype, as a numpy view of the map."""
        strides = None if self.strides is None else tuple(stride * self.item.itemsize for stride in self.strides)
        return np.ndarray(self.shape, self.item, self.data, self.offset, strides)

    def transposed(self) -> StoredTensor:
        """The transposed matrix, as a view."""
        rows, columns = self.shape
        return self.view((columns, rows), 0, (1, columns))

    def view(self, shape: tuple[int, ...], first: int, strides: tuple[int, ...]) -> StoredTensor:
        """A strided view that begins at element `first`."""
        return replace(self, shape=shape, offset=self.offset + first * self.item.itemsize, strides=strides)

    def part(self, shape: tuple[int, ...], first: int) -> StoredTensor:
        """A view of rows, from row `first` on; a row has the size of the view's rows."""
        row = prod(shape[1:]) if self.strides is None else self.strides[0]
        return replace(self, shape=shape, offset=self.offset + first * row * self.item.itemsize)


class SafetensorsFolder:
    """Every tensor of a folder's safetensors files (shards), by name.

    Example: `SafetensorsFolder(Path("model/")).read("model.norm.weight").shape`.
    """

    def __init__(self, folder: Path) -> None:
        self.tensors: dict[str, StoredTensor] = {}
        for path, promised in _files(folder).items():
            found = _read_header(path)
            for name in promised:
                if name not in found:
                    raise FormatError(f"{path} has no tensor {name[:80]}, and the index says it has; download it again")
            for name, tensor in found.items():
                if name in self.tensors:
                    raise FormatError(f"{path}: tensor {name} is in another file of the folder as well")
                self.tensors[name] = tensor

    def read(self, name: str, rows: Rows = slice(None)) -> npt.NDArray[np.float32]:
        """Read a tensor, or some rows of it, as float32."""
        if name not in self.tensors:
            raise FormatError(f"the safetensors files have no tensor {name}")
        tensor = self.tensors[name]
        check_float(name, tensor)
        return as_float32(elements(tensor, rows), tensor.kind == "BF16")


def elements(tensor: StoredTensor, rows: Rows = slice(None)) -> npt.NDArray[Any]:
    """Read rows of a tensor in their stored dtype; an error if the file changed since it was opened.

    Example: `elements(folder.tensors["model.norm.weight"])`.
    """
    check_view(tensor.data)
    drop_pages(tensor.data)  # of earlier reads
    return tensor.array[rows]


def check_float(name: str, tensor: StoredTensor) -> None:
    """Refuse a tensor whose dtype is not a float.

    Example: `check_float("model.norm.weight", tensor)`.
    """
    if tensor.kind not in _FLOATS:
        raise FormatError(
            f"tensor {name[:80]} is of type {tensor.kind}; those that can be read are {', '.join(_FLOATS)}"
        )


def as_float32(stored: npt.NDArray[Any], brain: bool) -> npt.NDArray[np.float32]:
    """Convert to float32; `brain` is bfloat16, the upper half of a float32, as uint16.

    >>> as_float32(np.array([0x3FC0], dtype=np.uint16), brain=True)
    array([1.5], dtype=float32)
    """
    if brain:
        return (stored.astype(np.uint32) << 16).view(np.float32)
    with np.errstate(invalid="ignore", over="ignore"):  # NaN is kept, float64 overflows to infinity
        return stored.astype(np.float32, copy=False)


def _files(folder: Path) -> dict[Path, list[str]]:
    """The safetensors shards of a folder, each with the tensors that the index, if any, lists for it."""
    index = folder / _INDEX
    files: dict[Path, list[str]] = {}
    if index.exists():
        for name, part in _weight_map(index).items():
            files.setdefault(folder / part, []).append(name)
    else:
        files = {path: [] for path in sorted(folder.glob("*.safetensors"))}
    missing = [path.name for path in files if not path.exists()]
    if missing:
        raise FormatError(
            f"{index} names {counted(len(missing), 'file')} that the folder has not, such as {missing[0]}; "
            f"download what is missing{_unfinished(folder)}"
        )
    if not files:
        others = ", ".join(path.name for path in sorted(folder.glob("*.bin"))[:3])
        hint = f"; {others}: only safetensors are read, convert these first" if others else ""
        raise FormatError(f"{folder} has no .safetensors file{hint or _unfinished(folder)}")
    return files


def _unfinished(folder: Path) -> str:
    """The end of a message: a file of the folder whose download did not end."""
    names = (path.name for path in sorted(folder.iterdir()) if foreign_name(path.name))
    return next((f"; {name} is {foreign_name(name)}" for name in names), "")


def _weight_map(index: Path) -> dict[str, str]:
    parts = _table(read_bytes(index), f"{index}").get("weight_map")
    if not isinstance(parts, dict):
        raise FormatError(f"{index}: weight_map must be a table of tensors and files; download it again")
    for name, part in parts.items():
        # No paths: an index must not reach outside of its folder.
        if not isinstance(part, str) or not part.endswith(".safetensors") or set(part) & set("/\\\0"):
            raise FormatError(
                f"{index}: tensor {name[:80]} is said to be in {part!r:.80}, which is no file of the folder"
            )
    return parts


def _table(content: bytes, where: str) -> dict[str, Any]:
    """Parse a JSON object, refusing duplicate keys."""

    def unique(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
        made: dict[str, Any] = {}
        for name, value in pairs:
            if name in made:
                raise FormatError(f"{where}: {name[:80]!r} is there twice")
            made[name] = value
        return made

    try:
        found = json.loads(content, object_pairs_hook=unique)
    except FormatError:
        raise
    except (ValueError, RecursionError) as error:
        kind = foreign_kind(content[:HEAD])
        if kind is not None and not content.lstrip().startswith(b"{"):
            raise FormatError(f"{where} is not JSON, but {kind}") from error
        raise FormatError(f"{where} is not JSON: {error}") from error
    if not isinstance(found, dict):
        raise FormatError(f"{where} is not a table of tensors")
    return found


def _read_header(path: Path) -> dict[str, StoredTensor]:
    data = Source(path).view
    size = len(data)
    length = int.from_bytes(data[:8], "little")
    if size < 8 or length > min(size - 8, _HEADER_LIMIT):
        kind = foreign_kind(bytes(data[:HEAD]))
        if kind is not None and size > 8 and bytes(data[8:9]) != b"{":
            raise FormatError(f"{path} is no safetensors file, but {kind}")
        raise FormatError(f"{path}: a header of {length} bytes does not fit the file of {size}{CUT_SHORT}")
    header = _table(bytes(data[8 : 8 + length]), f"{path}: the header")
    found = {
        name: replace(_stored(f"{path}: tensor {name[:80]}", entry, data, 8 + length), path=str(path))
        for name, entry in header.items()
        if name != "__metadata__"
    }
    end = 0
    for name, tensor in sorted(found.items(), key=lambda each: (each[1].offset, each[1].nbytes)):
        if tensor.offset < end:
            raise FormatError(f"{path}: tensor {name[:80]} lies over the one before it, from byte {tensor.offset} on")
        end = tensor.offset + tensor.nbytes
    return found


def _stored(where: str, entry: Any, data: memoryview, base: int) -> StoredTensor:
    try:
        kind, shape, (start, end) = entry["dtype"], tuple(entry["shape"]), entry["data_offsets"]
    except (KeyError, TypeError, ValueError) as error:
        raise FormatError(f"{where} is not described by dtype, shape and data_offsets") from error
    if not isinstance(kind, str) or kind not in _ITEM_TYPES:
        raise FormatError(f"{where} is of type {str(kind)[:40]}; those that can be read are {', '.join(_FLOATS)}")
    whole = all(type(number) is int and number >= 0 for number in (*shape, start, end)) and len(shape) <= MAX_RANK
    needed = prod(shape) * np.dtype(_ITEM_TYPES[kind]).itemsize if whole else -1
    if not whole or end - start != needed or base + end > len(data):
        raise FormatError(
            f"{where}: bytes {start!r:.40} to {end!r:.40} do not hold shape {shape!r:.80} of {kind} "
            f"in a file with {len(data) - base} of them{CUT_SHORT}"
        )
    return StoredTensor(data, kind, shape, base + start)
