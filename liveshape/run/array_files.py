"""Arrays of a `.npz` that anybody may have written: only members that are asked for, and never more than is allowed.

A zip of a few megabytes unpacks to gigabytes, and numpy reads whatever a header promises. Here headers are read first,
and members in pieces up to what these say.
"""

from __future__ import annotations

import zipfile
from collections.abc import Collection
from math import prod
from typing import IO, Any

import numpy as np

from liveshape.disk import Path, open_file
from liveshape.errors import FormatError, LiveshapeError

_SUFFIX = ".npy"
_HEADER_BYTES = 1 << 16  # most bytes in front of the elements of an array
_PIECE = 1 << 20
_ENCRYPTED = 0x1


def read_arrays(path: Path, names: Collection[str] | None = None, most: int = 1 << 26) -> dict[str, Any]:
    """The arrays of a `.npz` by name, those of `names` that it has; at most so many bytes of elements, or FormatError.

    Example: `read_arrays("inputs.npz", ["x"])["x"]`.
    """
    try:
        with open_file(path) as file, zipfile.ZipFile(file) as archive:
            found: dict[str, Any] = {}
            for member in archive.infolist():
                name = member.filename.removesuffix(_SUFFIX)
                if names is None or name in names:
                    found[name] = _array(archive, member, name, most)
                    most -= found[name].nbytes
            return found
    except (LiveshapeError, OSError):
        raise
    except Exception as error:  # zipfile, zlib and numpy raise many kinds, and none names the file
        raise FormatError(f"{path}: {str(error) or type(error).__name__}") from error


def _array(archive: zipfile.ZipFile, member: zipfile.ZipInfo, name: str, most: int) -> Any:
    if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED) or member.flag_bits & _ENCRYPTED:
        raise ValueError(f"{name} is compressed or encrypted in a way that numpy does not write")
    if member.file_size > most + _HEADER_BYTES:
        raise ValueError(f"{name} has {member.file_size} bytes when unpacked, at most {max(most, 0)} are allowed")
    with archive.open(member) as stream:
        shape, by_columns, dtype = _header(stream, name)
        nbytes = prod(shape) * dtype.itemsize
        if dtype.hasobject or dtype.kind not in "biufcV":
            raise ValueError(f"{name} is of {dtype}: arrays are of numbers")
        if nbytes > most:
            raise ValueError(f"{name} has {nbytes} bytes when unpacked, at most {max(most, 0)} are allowed")
        data = bytearray()
        while len(data) <= nbytes and (piece := stream.read(min(_PIECE, nbytes + 1 - len(data)))):
            data += piece
    if len(data) != nbytes:
        raise ValueError(f"{name} is {dtype} {shape}, {nbytes} bytes, and has {'more' if data[nbytes:] else len(data)}")
    return np.frombuffer(data, dtype).reshape(shape, order="F" if by_columns else "C")


def _header(stream: IO[bytes], name: str) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    version = np.lib.format.read_magic(stream)
    if version == (1, 0):
        return np.lib.format.read_array_header_1_0(stream)
    if version == (2, 0):
        return np.lib.format.read_array_header_2_0(stream)
    raise ValueError(f"{name} is of version {version} of numpy's format, 1.0 and 2.0 are read")
