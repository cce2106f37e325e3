"""The data of constants with numpy, from what they hold: quantized and packed in chunks, while the file is written."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod

import numpy as np

from liveshape.export.model.layout import Array, Grouped, Layout
from liveshape.export.weights.contents import Computed, MatrixPart, Part, Repeated, TensorFloats
from liveshape.export.weights.lazy_constants import Batch, Chunk, Constant, as_stored, batch_of
from liveshape.export.weights.packing import by_group, by_row, group_sums, pack_codes
from liveshape.export.weights.storage import WeightStorage

# Weights per chunk.
_PIECE = 1 << 20


def batch_of_content(constant: Constant, storage: WeightStorage) -> Batch:
    """The batch of a constant that is made alone: numbers of a tensor, one number, or numbers of the config.

    Example: `batch_of_content(Constant("zeros", "float32", (4,), Repeated(0.0)), storage)`.
    """
    content = constant.content
    if isinstance(content, TensorFloats):
        shape = storage.shapes[content.tensor]
        if shape != constant.shape:
            more = constant.shape[0] - shape[0]
            return batch_of(constant, lambda: np.pad(storage.floats(content.tensor), (0, more)))
        pieces = [functools.partial(_floats, constant, content.tensor, storage, rows) for rows in row_slices(shape)]
        return Batch((constant,), pieces)
    if isinstance(content, Repeated):
        return batch_of(constant, lambda: np.full(constant.shape, content.value, np.float32))
    assert isinstance(content, Computed), f"{constant.key} is made of {content}"
    return batch_of(constant, content.make)


def batch_of_matrix(constants: Sequence[Constant], storage: WeightStorage) -> Batch:
    """The batch of the parts of one matrix, which are made together.

    Example: `batch_of_matrix(matrix.constants, storage)`.
    """
    parts: dict[Part, Constant] = {}
    for constant in constants:
        assert isinstance(constant.content, MatrixPart), f"{constant.key} is made of {constant.content}"
        parts[constant.content.part], content = constant, constant.content
    made = _MatrixData(content.tensor, storage.shapes[content.tensor], content.layout, parts, storage)
    return Batch(tuple(constants), [functools.partial(made.piece, rows) for rows in row_slices(made.shape)], made.rest)


def _floats(constant: Constant, tensor: str, storage: WeightStorage, rows: slice) -> list[Chunk]:
    return [(constant, as_stored(storage.floats(tensor, rows), constant.dtype))]


@dataclass
class _MatrixData:
    """Quantizes a matrix chunk by chunk; what belongs to groups waits until all codes are made."""

    name: str
    shape: tuple[int, ...]
    layout: Layout
    parts: dict[Part, Constant]
    storage: WeightStorage
    _found: dict[int, dict[str, Array]] = field(default_factory=dict)  # per-group data of each chunk, by its first row

    def piece(self, rows: slice) -> list[Chunk]:
        """Quantize some rows; their codes are returned, scales, sums and minima wait for `rest`."""
        made = self.storage.grouped(self.name, self.layout, rows)
        self._check(made)
        found = {"scales": made.scales}
        if "sums" in self.parts:
            found["sums"] = group_sums(made.codes, made.scales.shape[1])
        if made.minima is not None:
            found["minima"] = made.minima
        self._found[rows.start] = found
        return [(self.parts["codes"], pack_codes(made.codes) if made.bits == 4 else made.codes)]

    def _check(self, made: Grouped) -> None:
        assert made.layout == self.layout, f"{self.name} was to be {self.layout}, its rows are {made.layout}"

    def rest(self) -> list[Chunk]:
        """The padding of the codes, and every other part."""
        found = [self._found[start] for start in sorted(self._found)]
        self._found.clear()
        codes = self.parts["codes"]
        rows = codes.shape[0]
        empty = np.zeros((rows - self.shape[0], self.shape[1]), np.int8)
        chunks: list[Chunk] = [(codes, pack_codes(empty))] if len(empty) else []
        for part, constant in self.parts.items():
            if part == "codes":
                continue
            numbers = np.concatenate([each[part.removesuffix("_by_group")] for each in found])
            placed = by_row(numbers, rows) if part in ("scales", "minima") else by_group(numbers, constant.shape[1])
            chunks.append((constant, as_stored(placed, constant.dtype)))
        return chunks


def row_slices(shape: Sequence[int]) -> list[slice]:
    """Split the rows of a tensor into chunks of about a million elements.

    >>> row_slices((3000, 1024))
    [slice(0, 1024, None), slice(1024, 2048, None), slice(2048, 3000, None)]
    """
    step = max(1, _PIECE // prod(shape[1:]))
    return [slice(start, min(start + step, shape[0])) for start in range(0, shape[0], step)]
