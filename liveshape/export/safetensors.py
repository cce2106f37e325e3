"""Tensors of safetensors files, one or many behind an index, read through a memory map as float32.

A file is: the length of a header as 8 bytes, the header as JSON, then the bytes that it points into.
"""

from __future__ import annotations

import json
import mmap
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from liveshape.errors import FormatError

_HEADER_LIMIT = 100 << 20
_ITEM_TYPES: Mapping[str, str] = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2"}


@dataclass(frozen=True)
class StoredTensor:
    """Where a tensor lies in its file."""

    data: mmap.mmap
    kind: str
    shape: tuple[int, ...]
    offset: int


class SafetensorsFolder:
    """Every tensor of a folder's safetensors files by name.

    Example: `SafetensorsFolder(Path("model/")).read("model.norm.weight").shape`.
    """

    def __init__(self, folder: Path) -> None:
        self.tensors: dict[str, StoredTensor] = {}
        for path in _files(folder):
            for name, tensor in _read_header(path).items():
                if name in self.tensors:
                    raise FormatError(f"{path}: tensor {name} is in another file of the folder as well")
                self.tensors[name] = tensor

    def read(self, name: str) -> npt.NDArray[np.float32]:
        """The tensor of this name."""
        if name not in self.tensors:
            raise FormatError(f"the safetensors files have no tensor {name}")
        tensor = self.tensors[name]
        stored = np.frombuffer(tensor.data, _ITEM_TYPES[tensor.kind], prod(tensor.shape), tensor.offset)
        return as_float32(stored, tensor.kind == "BF16").reshape(tensor.shape)


def as_float32(stored: npt.NDArray[Any], brain: bool) -> npt.NDArray[np.float32]:
    """Numbers as float32; a brain float is the upper half of one.

    >>> as_float32(np.array([0x3FC0], dtype=np.uint16), brain=True)
    array([1.5], dtype=float32)
    """
    if brain:
        return (stored.astype(np.uint32) << 16).view(np.float32)
    return stored.astype(np.float32, copy=False)


def _files(folder: Path) -> list[Path]:
    index = folder / "model.safetensors.index.json"
    if index.exists():
        parts = json.loads(index.read_text())["weight_map"].values()
        # Names, not paths: an index must not reach outside of its folder.
        files = [folder / Path(part).name for part in dict.fromkeys(parts)]
    else:
        files = sorted(folder.glob("*.safetensors"))
    missing = [path.name for path in files if not path.exists()]
    if missing:
        raise FormatError(f"{index}: {len(missing)} files of the index are missing, such as {missing[0]}")
    if not files:
        others = ", ".join(path.name for path in sorted(folder.glob("*.bin"))[:3])
        hint = f"; {others}: only safetensors are read, convert these first" if others else ""
        raise FormatError(f"{folder} has no .safetensors file{hint}")
    return files


def _read_header(path: Path) -> dict[str, StoredTensor]:
    with open(path, "rb") as file:
        size = path.stat().st_size
        length = int.from_bytes(file.read(8), "little")
        if size < 8 or length > min(size - 8, _HEADER_LIMIT):
            raise FormatError(f"{path}: a header of {length} bytes does not fit the file of {size}")
        try:
            header = json.loads(file.read(length))
        except ValueError as error:
            raise FormatError(f"{path}: the header is not JSON: {error}") from error
        if not isinstance(header, dict):
            raise FormatError(f"{path}: the header is not a table of tensors")
        data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    return {
        name: _stored(f"{path}: tensor {name}", entry, data, 8 + length, size)
        for name, entry in header.items()
        if name != "__metadata__"
    }


def _stored(where: str, entry: Any, data: mmap.mmap, base: int, size: int) -> StoredTensor:
    try:
        kind, shape, (start, end) = entry["dtype"], tuple(entry["shape"]), entry["data_offsets"]
        whole = all(isinstance(number, int) and number >= 0 for number in (*shape, start, end))
    except (KeyError, TypeError, ValueError) as error:
        raise FormatError(f"{where} is not described by dtype, shape and data_offsets") from error
    if kind not in _ITEM_TYPES:
        raise FormatError(f"{where} is of type {kind}; those that can be read are {', '.join(_ITEM_TYPES)}")
    needed = prod(shape) * np.dtype(_ITEM_TYPES[kind]).itemsize if whole else -1
    if not whole or end - start != needed or base + end > size:
        raise FormatError(
            f"{where}: bytes {start} to {end} do not hold shape {shape} of {kind} in a file with {size - base} of them"
        )
    return StoredTensor(data, kind, shape, base + start)
