"""Tensors of a checkpoint as lazy constants, declared while the graph is built: what each holds, not yet its data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from liveshape.export.model.layout import Array, Layout
from liveshape.export.weights.constant_data import batch_of_content, batch_of_matrix
from liveshape.export.weights.contents import Computed, Content, MatrixPart, Part, Repeated, TensorFloats
from liveshape.export.weights.lazy_constants import Batch, Constant
from liveshape.export.weights.packing import packed_width, padded, sums_rows
from liveshape.export.weights.storage import WeightStorage


@dataclass
class GroupedMatrix:
    """A group-quantized matrix: packed codes, scales, group sums, minima; only constants that are used are written.

    A tied embedding and LM head share the codes, and have scales in both orders.
    """

    name: str
    shape: tuple[int, int]
    layout: Layout
    floats: str
    _asked: dict[Part, Constant] = field(default_factory=dict)

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

    @property
    def constants(self) -> tuple[Constant, ...]:
        """The constants in use."""
        return tuple(self._asked.values())

    def _constant(self, part: Part, dtype: str, shape: tuple[int, int]) -> Constant:
        content = MatrixPart(self.name, part, self.layout)
        return self._asked.setdefault(part, Constant(f"{self.name}.{part}", dtype, shape, content))


@dataclass
class Tensors:
    """Every constant of a decoder, by tensor name; `floats` is the dtype of weights, scales and minima.

    Example: `Tensors(storage, "float32").plain("model.norm.weight")`.
    """

    storage: WeightStorage
    floats: str
    _constants: dict[str, Constant] = field(default_factory=dict)
    _grouped: dict[str, GroupedMatrix] = field(default_factory=dict)

    def has(self, name: str) -> bool:
        return name in self.storage.shapes

    def plain(self, name: str) -> Constant:
        """An unquantized tensor."""
        return self._constant(name, self.storage.shapes[name], TensorFloats(name))

    def filled(self, name: str, rows: int) -> Constant:
        """A vector, zero-padded to a length."""
        return self._constant(name, (rows,), TensorFloats(name))

    def repeated(self, key: str, shape: tuple[int, ...], value: float) -> Constant:
        """A constant with one number in every element."""
        return self._constant(key, shape, Repeated(value))

    def computed(self, key: str, shape: tuple[int, ...], make: Callable[[], Array]) -> Constant:
        """A constant that is computed rather than read from the checkpoint."""
        return self._constant(key, shape, Computed(make))

    def matrix(self, name: str, lookup: bool = False) -> GroupedMatrix | None:
        """The quantized matrix of this name, or None if the recipe leaves it in floats."""
        layout = self.storage.layout(name, lookup)
        if layout is None:
            return None
        if name not in self._grouped:
            rows, width = self.storage.shapes[name]
            self._grouped[name] = GroupedMatrix(name, (rows, width), layout, self.floats)
        found = self._grouped[name]
        assert found.layout == layout, f"{name} is stored twice, as {found.layout} and {layout}"
        return found

    def batches(self) -> list[Batch]:
        """The batches that produce all constants in use."""
        alone = [batch_of_content(constant, self.storage) for constant in self._constants.values()]
        return [*alone, *(batch_of_matrix(matrix.constants, self.storage) for matrix in self._grouped.values())]

    def _constant(self, key: str, shape: tuple[int, ...], content: Content) -> Constant:
        return self._constants.setdefault(key, Constant(key, self.floats, shape, content))
