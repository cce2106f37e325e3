"""What a constant holds, as a value, so that whoever writes it makes the same bytes: numpy here (constant_data.py), and
JavaScript in a page (web/src/virtual_program.js), from the source's own bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from liveshape.export.model.layout import Array, Layout

Part = Literal["codes", "scales", "scales_by_group", "sums", "minima"]


@dataclass(frozen=True)
class Repeated:
    """One number in every element.

    Example: `Repeated(0.0)` is an empty KV cache.
    """

    value: float


@dataclass(frozen=True)
class Computed:
    """Few numbers that follow from the config alone, such as a rotary table.

    Example: `Computed(lambda: rotary_tables(config, 2048)[0])`.
    """

    make: Callable[[], Array]


@dataclass(frozen=True)
class TensorFloats:
    """The numbers of a tensor of the checkpoint, dequantized, and padded with zeros to the constant's shape.

    Example: `TensorFloats("model.norm.weight")`.
    """

    tensor: str


@dataclass(frozen=True)
class MatrixPart:
    """A part of a group-quantized matrix: its codes, or what belongs to each group of them.

    Example: `MatrixPart("lm_head.weight", "scales_by_group", Layout(4, 32))`.
    """

    tensor: str
    part: Part
    layout: Layout


Content = Repeated | Computed | TensorFloats | MatrixPart
