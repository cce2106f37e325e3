"""Stacked MoE experts of gpt-oss, split into the matrices of each expert: strided views, or MXFP4 tensors.

gpt-oss has all experts of a layer in one tensor, weights as (inputs, outputs), gate and up outputs interleaved. Its
MXFP4 checkpoints have blocks of 32 weights: 16 bytes of two FP4 values each, and an E8M0 scale.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from liveshape.errors import FormatError
from liveshape.export.model.layout import Grouped
from liveshape.export.sources.ggml_blocks import MXFP4_CODES, mxfp4_scales
from liveshape.export.sources.safetensors import Rows, StoredTensor, elements

_BYTES = 16  # of a block
BLOCK = 2 * _BYTES


@dataclass(frozen=True)
class Mxfp4Tensor:
    """A matrix in MXFP4; its integer codes are the FP4 values doubled, and the scales halved.

    Example: `Mxfp4Tensor(blocks, scales).grouped(slice(0, 64))`.
    """

    blocks: StoredTensor  # uint8 (rows, blocks of a row, 16)
    scales: StoredTensor  # uint8 (rows, blocks of a row): exponents

    @property
    def shape(self) -> tuple[int, ...]:
        rows, count, _ = self.blocks.shape
        return rows, count * BLOCK

    def grouped(self, rows: Rows) -> Grouped:
        """Unpack rows losslessly to integer codes and scales."""
        packed, exponents = elements(self.blocks, rows), elements(self.scales, rows)
        # The low nibble comes first.
        codes = MXFP4_CODES[np.stack([packed & 15, packed >> 4], axis=-1)]
        return Grouped(8, codes.reshape(len(packed), -1), mxfp4_scales(exponents))


def experts_apart(stored: Mapping[str, StoredTensor]) -> dict[str, StoredTensor | Mxfp4Tensor]:
    """Split the stacked tensors of experts into one weight and bias per expert; other tensors are kept.

    Example: `experts_apart({"model.layers.0.mlp.experts.down_proj.bias": tensor})`.
    """
    made: dict[str, StoredTensor | Mxfp4Tensor] = {}
    for name, tensor in stored.items():
        stem, _, ending = name.rpartition(".")
        owner, _, layer = stem.rpartition(".")
        if not owner.endswith(".experts"):
            made[name] = tensor
            continue
        if 0 in tensor.shape:
            raise FormatError(f"{name} of shape {tensor.shape} holds no experts")
        if ending == "scales" and f"{stem}.blocks" in stored:
            continue
        # Gate and up are interleaved: even outputs and odd ones.
        split = {"gate_proj": 0, "up_proj": 1} if layer == "gate_up_proj" else {layer: 0}
        parts: Iterator[tuple[tuple[int, int], StoredTensor | Mxfp4Tensor]]
        if ending == "blocks":
            parts = _blocks_apart(*_mxfp4(name, tensor, stored.get(f"{stem}.scales")), len(split))
            ending = "weight"
        else:
            parts = _floats_apart(name, tensor, len(split), 2 if ending == "bias" else 3)
        for (number, start), part in parts:
            kind = next(kind for kind, first in split.items() if first == start)
            own = f"{owner}.{number}.{kind}.{ending}"
            if own in made:
                raise FormatError(f"the checkpoint has {own} twice, as floats and as blocks")
            made[own] = part
    return made


def _floats_apart(
    name: str, tensor: StoredTensor, turns: int, rank: int
) -> Iterator[tuple[tuple[int, int], StoredTensor]]:
    """Strided views per expert: weights (experts, inputs, outputs) as (outputs, inputs), biases (experts, outputs)."""
    if len(tensor.shape) != rank or tensor.shape[-1] % turns:
        raise FormatError(f"{name} has shape {tensor.shape}; {rank} dims are needed, the last a multiple of {turns}")
    outputs = tensor.shape[-1]
    inputs = tensor.shape[1:-1]
    for number in range(tensor.shape[0]):
        for start in range(turns):
            shape, strides = (outputs // turns, *inputs), (turns, *(outputs for _ in inputs))
            first = number * outputs * (inputs[0] if inputs else 1) + start
            yield (number, start), tensor.view(shape, first, strides)


def _mxfp4(name: str, blocks: StoredTensor, scales: StoredTensor | None) -> tuple[StoredTensor, StoredTensor]:
    if scales is None:
        raise FormatError(f"the checkpoint has {name} without the scales of its blocks")
    if blocks.kind != "U8" or scales.kind != "U8" or blocks.shape != (*scales.shape, _BYTES) or len(scales.shape) != 3:
        raise FormatError(
            f"{name} is {blocks.kind} {blocks.shape} with scales {scales.kind} {scales.shape}; bytes "
            f"(experts, outputs, blocks, {_BYTES}) with one scale a block are needed"
        )
    return blocks, scales


def _blocks_apart(
    blocks: StoredTensor, scales: StoredTensor, turns: int
) -> Iterator[tuple[tuple[int, int], Mxfp4Tensor]]:
    """Strided views per expert of the blocks and scales, rows de-interleaved."""
    experts, outputs, count = scales.shape
    for number in range(experts):
        for start in range(turns):
            first, rows = number * outputs + start, len(range(start, outputs, turns))
            yield (
                (number, start),
                Mxfp4Tensor(
                    blocks.view((rows, count, _BYTES), first * count * _BYTES, (turns * count * _BYTES, _BYTES, 1)),
                    scales.view((rows, count), first * count, (turns * count, 1)),
                ),
            )
