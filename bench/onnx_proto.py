"""Messages of ONNX as bytes: nodes, constants, values and the model around them, without the library."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

FLOAT, INT32, INT64 = 1, 6, 7  # of TensorProto
_KINDS = {"float32": FLOAT, "int32": INT32, "int64": INT64}
_OPSET = 17
_CONTRIB = "com.microsoft"


def model(
    name: str, nodes: Iterable[bytes], constants: Iterable[bytes], inputs: Iterable[bytes], outputs: Iterable[bytes]
) -> bytes:
    """A file with one graph; operators of ONNX Runtime's own domain may be in it."""
    parts = {1: nodes, 5: constants, 11: inputs, 12: outputs}
    graph = field(2, name.encode()) + b"".join(field(number, each) for number, part in parts.items() for each in part)
    domains = ((b"", _OPSET), (_CONTRIB.encode(), 1))
    return (
        field(1, 8)
        + b"".join(field(8, field(1, domain) + field(2, version)) for domain, version in domains)
        + field(7, graph)
    )


def node(kind: str, inputs: Sequence[str], outputs: Sequence[str], attributes: bytes = b"", domain: str = "") -> bytes:
    """A node, named like its first output; `node("Add", ["a", "b"], ["c"])`."""
    names = b"".join(field(1, name.encode()) for name in inputs) + b"".join(field(2, each.encode()) for each in outputs)
    return names + field(3, outputs[0].encode()) + field(4, kind.encode()) + attributes + field(7, domain.encode())


def contrib(kind: str, inputs: Sequence[str], outputs: Sequence[str], attributes: bytes = b"") -> bytes:
    """A node of ONNX Runtime's own operators."""
    return node(kind, inputs, outputs, attributes, _CONTRIB)


def constant(name: str, array: Any) -> bytes:
    sizes = b"".join(field(1, size) for size in array.shape)
    kind = _KINDS[str(array.dtype)]
    return sizes + field(2, kind) + field(8, name.encode()) + field(9, np.ascontiguousarray(array).tobytes())


def value(name: str, sizes: Sequence[int | str], kind: int = FLOAT) -> bytes:
    """An input or output; a size that has a name is live."""
    found = [field(1, size) if isinstance(size, int) else field(2, size.encode()) for size in sizes]
    shape = b"".join(field(1, size) for size in found)
    return field(1, name.encode()) + field(2, field(1, field(1, kind) + field(2, shape)))


def integer(name: str, number: int) -> bytes:
    return field(5, field(1, name.encode()) + field(3, number) + field(20, 2))


def real(name: str, number: float) -> bytes:
    return field(5, field(1, name.encode()) + _varint(2 << 3 | 5) + struct.pack("<f", number) + field(20, 1))


def integers(name: str, numbers: Sequence[int]) -> bytes:
    return field(5, field(1, name.encode()) + b"".join(field(8, number) for number in numbers) + field(20, 7))


def field(number: int, content: int | bytes) -> bytes:
    """A field of a protocol buffer: an integer, or bytes with their length."""
    if isinstance(content, int):
        return _varint(number << 3) + _varint(content)
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def _varint(number: int) -> bytes:
    number &= (1 << 64) - 1
    found = bytearray()
    while number > 127:
        found.append(number & 127 | 128)
        number >>= 7
    return bytes([*found, number])
