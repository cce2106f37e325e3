"""Flatbuffer writer: tables, vectors and strings, with the field names and slots that the readers declare.

Children are written before the table that refers to them, so they come first in the code as well.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NewType

import numpy as np

from liveshape.packages import need

# The offset of an object, counted from the end of the buffer.
Part = NewType("Part", int)

# By `struct` format character, what flatbuffers calls it.
_NUMBERS = {
    "?": "BoolFlags",
    "b": "Int8Flags",
    "B": "Uint8Flags",
    "i": "Int32Flags",
    "I": "Uint32Flags",
    "q": "Int64Flags",
    "Q": "Uint64Flags",
    "d": "Float64Flags",
}
_OFFSET = 4  # bytes of a uoffset


@dataclass(frozen=True)
class Number:
    """A scalar field of a table, with its type in the schema as a `struct` format character."""

    code: str
    value: float


class Flat:
    """Builder of one flatbuffer.

    Example: `flat.finish(flat.table(NAMED, key=flat.string("x"), segment_index=Number("I", 2)), b"ET12")`.
    """

    def __init__(self) -> None:
        need("flatbuffers", what="converting a checkpoint")
        from flatbuffers import Builder, number_types  # type: ignore[import-untyped]

        self._builder: Any = Builder(1 << 16)
        self._numbers = {code: getattr(number_types, name) for code, name in _NUMBERS.items()}

    def string(self, text: str) -> Part:
        return Part(self._builder.CreateString(text))

    def vector(self, code: str, numbers: Iterable[float]) -> Part:
        """A vector of scalars."""
        layout = np.dtype("?" if code == "?" else f"<{code}")
        return Part(self._builder.CreateNumpyVector(np.array(list(numbers), layout)))

    def parts(self, parts: Sequence[Part]) -> Part:
        """A vector of tables or strings."""
        self._builder.StartVector(_OFFSET, len(parts), _OFFSET)
        for part in reversed(parts):
            self._builder.PrependUOffsetTRelative(part)
        return Part(self._builder.EndVector())

    def table(self, layout: Mapping[str, int], **values: Number | Part) -> Part:
        """A table; omitted fields have the schema's default."""
        self._builder.StartObject(len(layout))
        for name, value in values.items():
            if isinstance(value, Number):
                self._builder.Prepend(self._numbers[value.code], value.value)
            else:
                self._builder.PrependUOffsetTRelative(value)
            self._builder.Slot(layout[name])
        return Part(self._builder.EndObject())

    def finish(self, root: Part, identifier: bytes) -> bytes:
        """Finish the buffer with its root table and file identifier."""
        self._builder.Finish(root, identifier)
        return bytes(self._builder.Output())
