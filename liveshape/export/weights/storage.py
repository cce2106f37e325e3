"""Weights as the file stores them: the quantization layout of each matrix, and its rows, quantized on the fly."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from liveshape.errors import FormatError
from liveshape.export.model.checkpoint import Checkpoint
from liveshape.export.model.config import Quantization
from liveshape.export.model.layout import Array, Grouped, Layout
from liveshape.export.weights.quantize import rounded
from liveshape.export.weights.recipe import layout_of, table_needs_floats


class WeightStorage(Protocol):
    """The weights that a decoder is exported from. `shapes` has every tensor; a layout of None is floats."""

    @property
    def shapes(self) -> Mapping[str, tuple[int, ...]]: ...

    def layout(self, name: str, lookup: bool) -> Layout | None:
        """The quantization layout of a matrix, for a linear layer or, with `lookup`, for an embedding."""

    def floats(self, name: str, rows: slice = slice(None)) -> Array:
        """Load rows of a tensor as float32."""

    def grouped(self, name: str, layout: Layout, rows: slice) -> Grouped:
        """Load rows of a matrix, quantized to its layout."""


@dataclass(frozen=True)
class RoundedStorage:
    """A checkpoint quantized by a recipe: matrices are kept as they are stored, or quantized while they are read.

    Example: `RoundedStorage(open_checkpoint("SmolLM2-135M/"), Quantization("4w"))`.
    """

    checkpoint: Checkpoint
    quantization: Quantization

    @property
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        return self.checkpoint.shapes

    def layout(self, name: str, lookup: bool) -> Layout | None:
        chosen = self.quantization
        if lookup and (not chosen.embedding or table_needs_floats(self.checkpoint, chosen, name)):
            return None
        return layout_of(self.checkpoint, name, chosen)

    def floats(self, name: str, rows: slice = slice(None)) -> Array:
        return self.checkpoint.read_rows(name, rows)

    def keeps(self, name: str, layout: Layout) -> bool:
        """Whether a matrix is kept in the codes that its source stores."""
        return self.checkpoint.grouped is not None and self.checkpoint.stored(name) == layout

    def grouped(self, name: str, layout: Layout, rows: slice) -> Grouped:
        if self.checkpoint.grouped is not None and self.keeps(name, layout):
            made = self.checkpoint.grouped(name, rows)
        else:
            made = rounded(self.floats(name, rows), layout)
        if not np.isfinite(made.scales).all() or (made.minima is not None and not np.isfinite(made.minima).all()):
            raise FormatError(f"{name}: rows {rows.start} to {rows.stop} have weights that are no finite numbers")
        return made
