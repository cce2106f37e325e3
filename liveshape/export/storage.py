"""In which form each matrix of a checkpoint is stored, and its rows in that form.

Whatever knows a better form than plain rounding, such as a file whose weights are whole numbers already, is another
`Storage`; nothing behind it changes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from liveshape.errors import FormatError, UnsupportedError
from liveshape.export.checkpoint import Checkpoint
from liveshape.export.config import Quantization
from liveshape.export.rounding import group_of, quantize_groups
from liveshape.export.weights import Array, Grouped


@dataclass(frozen=True)
class Layout:
    """Whole numbers of 4 or 8 bits in groups, with or without a minimum for each group.

    Example: `Layout(4, 32)`.
    """

    bits: int
    group: int
    minima: bool = False


class Storage(Protocol):
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
    """A checkpoint with its matrices rounded as they are read, one recipe for all of them.

    Example: `RoundedStorage(open_checkpoint("SmolLM2-135M/"), Quantization("4w"))`.
    """

    checkpoint: Checkpoint
    quantization: Quantization

    @property
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        return self.checkpoint.shapes

    def layout(self, name: str, lookup: bool) -> Layout | None:
        width = self.shapes[name][1]
        if self.quantization.mode == "none" or (lookup and not self.quantization.embeds(width)):
            return None
        group = group_of(width, self.quantization.group)
        if group is None:
            raise UnsupportedError(
                f"{name.removesuffix('.weight')}: rows of {width} weights cannot be split into groups of 4, 8, ... "
                f"up to {self.quantization.group}; export with --quant none"
            )
        return Layout(4, group)

    def floats(self, name: str, rows: slice = slice(None)) -> Array:
        return self.checkpoint.read_rows(name, rows)

    def grouped(self, name: str, layout: Layout, rows: slice) -> Grouped:
        made = quantize_groups(self.floats(name, rows), layout.group)
        if not np.isfinite(made.scales).all():
            raise FormatError(f"{name}: rows {rows.start} to {rows.stop} have weights that are no finite numbers")
        return made
