"""Tensors of a checkpoint as lazy constants: declared while the graph is built, quantized in chunks later."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from liveshape.export.model.layout import Array, Grouped, Layout
from liveshape.export.weights.lazy_constants import Batch, Chunk, Constant, as_stored, batch_of
from liveshape.export.weights.packing import by_group, by_row, group_sums, pack_codes, packed_width, padded, sums_rows
from liveshape.export.weights.storage import WeightStorage

# Weights per chunk.
_PIECE = 1 << 20


@dataclass
class GroupedMatrix:
    """A group-quantized matrix: packed codes, scales, group sums, minima; only constants that are used are written.

    A tied embedding and LM head share the codes, and have scales in both orders.
    """

    name: str
    shape: tuple[int, int]
    layout: Layout
    storage: WeightStorage
    floats: str
    _asked: dict[str, Constant] = field(default_factory=dict)
    _found: dict[int, dict[str, Array]] = field(default_factory=dict)  # per-group data of each chunk, by its first row

    @property
    def rows(self) -> int:
        """Rows in the file: those of 4-bit matrices are padded to a multiple of 4."""
        return padded(self.shape[0]) if self.layout.bits == 4 else self.shape[0]

    @property
    def groups(self) -> int:
        return self.shape[1] // self.layout.group

    @property
    def codes(self) -> Constant:
        """Packed 4-bit codes, uint8 (rows, packed width), or 8-bit codes, int8 (rows, width)."""
        if self.layout.bits == 4:
            return self._constant("codes", "uint8", (self.rows, packed_width(self.shape[1])))
        return self._constant("codes", "int8", (self.rows, self.shape[1]))

    @property
    def scales(self) -> Constant:
        """(rows, groups)."""
        return self._constant("scales", self.floats, (self.rows, self.groups))

    @property
    def scales_by_group(self) -> Constant:
        """(groups, rows)."""
        return self._constant("scales_by_group", self.floats, (self.groups, self.rows))

    @property
    def sums(self) -> Constant:
        """(groups, rows): the sum of the codes of each group, for the zero points of 8-bit activations."""
        return self._constant("sums", "int32", (self.groups, sums_rows(self.rows)))

    @property
    def minima(self) -> Constant:
        """(rows, groups)."""
        return self._constant("minima", self.floats, (self.rows, self.groups))

    def batch(self) -> Batch:
        """The batch that produces the constants in use."""
        pieces = [functools.partial(self._piece, rows) for rows in row_slices(self.shape)]
        return Batch(tuple(self._asked.values()), pieces, self._rest)

    def _constant(self, kind: str, dtype: str, shape: tuple[int, int]) -> Constant:
        return self._asked.setdefault(kind, Constant(f"{self.name}.{kind}", dtype, shape))

    def _piece(self, rows: slice) -> list[Chunk]:
        """Quantize some rows; their codes are returned, scales, sums and minima wait for `_rest`."""
        made = self.storage.grouped(self.name, self.layout, rows)
        self._check(made)
        found = {"scales": made.scales}
        if "sums" in self._asked:
            found["sums"] = group_sums(made.codes, self.groups)
        if made.minima is not None:
            found["minima"] = made.minima
        self._found[rows.start] = found
        return [(self.codes, pack_codes(made.codes) if made.bits == 4 else made.codes)]

    def _check(self, made: Grouped) -> None:
        assert made.layout == self.layout, f"{self.name} was to be {self.layout}, its rows are {made.layout}"

    def _rest(self) -> list[Chunk]:
        found = [self._found[start] for start in sorted(self._found)]
        self._found.clear()
        empty = np.zeros((self.rows - self.shape[0], self.shape[1]), np.int8)
        chunks: list[Chunk] = [(self.codes, pack_codes(empty))] if len(empty) else []
        for kind, constant in self._asked.items():
            if kind == "codes":
                continue
            numbers = np.concatenate([each[kind.removesuffix("_by_group")] for each in found])
            placed = (
                by_row(numbers, self.rows) if kind in ("scales", "minima") else by_group(numbers, constant.shape[1])
            )
            chunks.append((constant, as_stored(placed, constant.dtype)))
        return chunks


@dataclass
class Tensors:
    """Every constant of a decoder, by tensor name; `floats` is the dtype of weights, scales and minima.

    Example: `Tensors(storage, "float32").plain("model.norm.weight")`.
    """

    storage: WeightStorage
    floats: str
    _batches: dict[str, Batch] = field(default_factory=dict)
    _grouped: dict[str, GroupedMatrix] = field(default_factory=dict)

    def has(self, name: str) -> bool:
        return name in self.storage.shapes

    def plain(self, name: str) -> Constant:
        """An unquantized tensor."""
        shape = self.storage.shapes[name]
        constant = Constant(name, self.floats, shape)
        pieces = [functools.partial(self._floats, constant, rows) for rows in row_slices(shape)]
        self._batches.setdefault(name, Batch((constant,), pieces))
        return constant

    def filled(self, name: str, rows: int) -> Constant:
        """A vector, zero-padded to a length."""
        count = self.storage.shapes[name][0]
        return self.computed(name, (rows,), lambda: np.pad(self.storage.floats(name), (0, rows - count)))

    def computed(self, key: str, shape: tuple[int, ...], make: Callable[[], Array]) -> Constant:
        """A constant that is computed rather than read from the checkpoint."""
        constant = Constant(key, self.floats, shape)
        self._batches.setdefault(key, batch_of(constant, make))
        return constant

    def matrix(self, name: str, lookup: bool = False) -> GroupedMatrix | None:
        """The quantized matrix of this name, or None if the recipe leaves it in floats."""
        layout = self.storage.layout(name, lookup)
        if layout is None:
            return None
        if name not in self._grouped:
            rows, width = self.storage.shapes[name]
            self._grouped[name] = GroupedMatrix(name, (rows, width), layout, self.storage, self.floats)
        found = self._grouped[name]
        assert found.layout == layout, f"{name} is stored twice, as {found.layout} and {layout}"
        return found

    def batches(self) -> list[Batch]:
        """The batches that produce all constants in use."""
        return [*self._batches.values(), *(matrix.batch() for matrix in self._grouped.values())]

    def _floats(self, constant: Constant, rows: slice) -> list[Chunk]:
        return [(constant, as_stored(self.storage.floats(constant.key, rows), constant.dtype))]


def row_slices(shape: Sequence[int]) -> list[slice]:
    """Split the rows of a tensor into chunks of about a million elements.

    >>> row_slices((3000, 1024))
    [slice(0, 1024, None), slice(1024, 2048, None), slice(2048, 3000, None)]
    """
    step = max(1, _PIECE // int(np.prod(shape[1:], dtype=np.int64)))
    return [slice(start, min(start + step, shape[0])) for start in range(0, shape[0], step)]
