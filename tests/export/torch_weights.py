"""Weights as torch modules: 4-bit groups in the form that the Vulkan patterns fuse, or plain float32.

Only symmetric quantization is offered: the exporter drops zero points without a word. Scales may be negative, and a
checkpoint whose groups were symmetric already, such as Q4_0, comes through unchanged.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional
from torchao.quantization.quant_primitives import (
    MappingType,
    choose_qparams_affine,
    dequantize_affine,
    quantize_affine,
)

from liveshape.errors import UnsupportedError
from liveshape.export.model.config import Quantization
from liveshape.export.weights.quantize import HIGH, LOW, group_of

# Rows are quantized a slice at a time: it takes several copies of what it works on.
_SLICE = 1 << 22
# The exporter packs linears whose outputs come in fours; others are padded with zero rows and cut off again.
_ROWS = 4
_GROUP = 32
# Width of an embedding row that the delegate's 4-bit embedding takes.
_TABLE_BLOCK = 32


def quantize_groups(weight: torch.Tensor, group: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Values in -8..7 as int8 (N, K) and float32 scales (N, K / group).

    Example: `values, scales = quantize_groups(torch.randn(64, 128), 32)`.
    """
    rows, width = weight.shape
    values = torch.empty(rows, width, dtype=torch.int8)
    scales = torch.empty(rows, width // group)
    step = max(1, _SLICE // width)
    for start in range(0, rows, step):
        part = slice(start, start + step)
        found, scale = _fit_scales(weight[part].reshape(-1, group))
        values[part] = found.reshape(-1, width)
        scales[part] = scale.reshape(-1, width // group)
    return values, scales


def _fit_scales(groups: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The largest weight of a group sits at -8, the scale is then fitted to all of them, large ones first.

    Searching for the scale of the least squared error clips the largest weights, and costs more than it gains: on
    SmolLM2-135M it moved the divergence from the unquantized model from 0.38 to 0.47, on stories15M from 0.09 to 0.13.
    """
    size = groups.abs()
    largest = groups.gather(1, size.argmax(1, keepdim=True))
    empty = largest == 0
    # A group of zeros keeps any scale: its values are all 0.
    values = (groups * torch.where(empty, largest, LOW / largest)).round_().clamp_(LOW, HIGH)
    # In units of the largest weight, so that no square leaves the range of float32.
    share = torch.where(empty, size, size / largest.abs())
    weighted = share * values
    fit = (weighted * (groups / largest)).sum(1, keepdim=True) / (weighted * values).sum(1, keepdim=True)
    return values.to(torch.int8), torch.where(empty, torch.ones_like(largest), fit * largest)


class GroupedWeight(nn.Module):
    """An int8 tensor of 4-bit values with the scales of its groups."""

    def __init__(self, values: torch.Tensor, scales: torch.Tensor) -> None:
        super().__init__()
        # Of its own: the exporter repacks in place, and would do so twice to what two layers share.
        self.register_buffer("values", values.clone())
        self.register_buffer("scales", scales.clone())
        self.register_buffer("zeros", torch.zeros_like(scales, dtype=torch.int8))
        self.group = values.shape[1] // scales.shape[1]

    def forward(self) -> torch.Tensor:
        return dequantize_affine(
            self.values, (1, self.group), self.scales, self.zeros, torch.int8, LOW, HIGH, output_dtype=torch.float32
        )


class GroupedLinear(nn.Module):
    """A linear layer of 4-bit groups, on activations as they are or rounded to 8 bits by row (8da4w)."""

    def __init__(self, weight: GroupedWeight, bias: torch.Tensor | None, rows: int, dynamic: bool) -> None:
        super().__init__()
        self.weight = weight
        self.register_buffer("bias", bias)
        self.rows, self.dynamic = rows, dynamic

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = functional.linear(round_rows(x) if self.dynamic else x, self.weight(), self.bias)
        return out if out.shape[-1] == self.rows else out[..., : self.rows]


def round_rows(x: torch.Tensor) -> torch.Tensor:
    """Each row of x through 8 bits and back, with a scale and a zero point of its own."""
    block = [1] * (x.dim() - 1) + [x.shape[-1]]
    scale, zero = choose_qparams_affine(
        x,
        MappingType.ASYMMETRIC,
        block,
        target_dtype=torch.int8,
        quant_min=-128,
        quant_max=127,
        zero_point_dtype=torch.int8,
    )
    rounded = quantize_affine(x, block, scale, zero, output_dtype=torch.int8, quant_min=-128, quant_max=127)
    return dequantize_affine(rounded, block, scale, zero, torch.int8, -128, 127, output_dtype=x.dtype)


class GroupedEmbedding(nn.Module):
    """A table of 4-bit groups."""

    def __init__(self, weight: GroupedWeight) -> None:
        super().__init__()
        self.weight = weight

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return functional.embedding(ids, self.weight())


class PlainLinear(nn.Module):
    """A linear layer in float32."""

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None) -> None:
        super().__init__()
        self.register_buffer("weight", weight)
        self.register_buffer("bias", bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return functional.linear(x, self.weight, self.bias)


class PlainEmbedding(nn.Module):
    """A table in float32."""

    def __init__(self, weight: torch.Tensor) -> None:
        super().__init__()
        self.register_buffer("weight", weight)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return functional.embedding(ids, self.weight)


@dataclass
class Weights:
    """Reads tensors of a checkpoint by name and gives the modules that hold them, quantized as they arrive.

    `read` returns float32 arrays; a name is looked up without its `.weight`. The float32 of one tensor at a time is all
    that a quantized model ever takes.
    """

    read: Callable[[str], np.ndarray[Any, Any]]
    names: frozenset[str]
    quantization: Quantization
    used: set[str] = field(default_factory=set)
    _kept: dict[str, tuple[torch.Tensor, torch.Tensor]] = field(default_factory=dict)

    def vector(self, name: str) -> torch.Tensor:
        """A tensor as it is."""
        self.used.add(name)
        return torch.from_numpy(np.array(self.read(name), dtype=np.float32, order="C"))

    def linear(self, name: str) -> nn.Module:
        """The linear layer of this name, with a bias if the checkpoint has one."""
        bias = self.vector(f"{name}.bias") if f"{name}.bias" in self.names else None
        if self.quantization.mode == "none":
            return PlainLinear(self.vector(f"{name}.weight"), bias)
        values, scales = self._grouped(name)
        rows = values.shape[0]
        padding = -rows % _ROWS
        if padding:
            values, scales = (functional.pad(each, (0, 0, 0, padding)) for each in (values, scales))
            bias = bias if bias is None else functional.pad(bias, (0, padding))
        return GroupedLinear(GroupedWeight(values, scales), bias, rows, self.quantization.mode == "8da4w")

    def embedding(self, name: str, width: int) -> nn.Module:
        """The embedding of this name; in 4 bits where that was asked for and the delegate has it."""
        if self.quantization.mode == "none" or not self.quantization.embedding or width % _TABLE_BLOCK:
            return PlainEmbedding(self.vector(f"{name}.weight"))
        return GroupedEmbedding(GroupedWeight(*self._grouped(name)))

    def _grouped(self, name: str) -> tuple[torch.Tensor, torch.Tensor]:
        """Quantized once per name: a tied table serves two layers."""
        if name not in self._kept:
            weight = self.vector(f"{name}.weight")
            group = group_of(weight.shape[1], self.quantization.group or _GROUP)
            if group is None:
                raise UnsupportedError(f"{name}: rows of {weight.shape[1]} weights cannot be split into groups")
            found = quantize_groups(weight, group)
            if "embed" not in name:
                return found
            self._kept[name] = found
        return self._kept[name]
