"""In which form each matrix of a checkpoint is stored, and its rows in that form."""

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
    """What a decoder is written from. `shapes` names every tensor; a layout of None is floats."""

    @property
    def shapes(self) -> Mapping[str, tuple[int, ...]]: ...

    def layout(self, name: str, lookup: bool) -> Layout | None:
        """How a matrix is stored, to be multiplied by or, with `lookup`, to take rows of."""

    def floats(self, name: str, rows: slice = slice(None)) -> Array:
        """Rows of a tensor as float32."""

    def grouped(self, name: str, layout: Layout, rows: slice) -> Grouped:
        """Rows of a matrix in a layout that it has."""


@dataclass(frozen=True)
class RoundedStorage:
    """A checkpoint with its matrices as a recipe has them: kept as they are stored, or rounded as they are read.

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

    def grouped(self, name: str, layout: Layout, rows: slice) -> Grouped:
        if self.checkpoint.grouped is not None and self.checkpoint.stored(name) == layout:
            made = self.checkpoint.grouped(name, rows)
        else:
            made = rounded(self.floats(name, rows), layout)
        if not np.isfinite(made.scales).all() or (made.minima is not None and not np.isfinite(made.minima).all()):
            raise FormatError(f"{name}: rows {rows.start} to {rows.stop} have weights that are no finite numbers")
        return made
