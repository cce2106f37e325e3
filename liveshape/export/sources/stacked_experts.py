"""Experts that a checkpoint stores in one tensor: the matrices of each, which are views of it, or blocks of MXFP4.

gpt-oss has all experts of a layer on top of each other, matrices as (inputs, outputs), and outputs of gate and up in
turns. Its own files have blocks of 32 weights: 16 bytes with two floats of four bits each, and a byte for their scale.
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
    """A matrix of blocks; its whole numbers are twice the floats, which half the scale makes up for.

    Example: `Mxfp4Tensor(blocks, scales).grouped(slice(0, 64))`.
    """

    blocks: StoredTensor  # uint8 (rows, blocks of a row, 16)
    scales: StoredTensor  # uint8 (rows, blocks of a row): exponents

    @property
    def shape(self) -> tuple[int, ...]:
        rows, count, _ = self.blocks.shape
        return rows, count * BLOCK

    def grouped(self, rows: Rows) -> Grouped:
        """Some rows as they are stored, without rounding."""
        packed, exponents = elements(self.blocks, rows), elements(self.scales, rows)
        # The lower half of a byte comes first.
        codes = MXFP4_CODES[np.stack([packed & 15, packed >> 4], axis=-1)]
        return Grouped(8, codes.reshape(len(packed), -1), mxfp4_scales(exponents))


def experts_apart(stored: Mapping[str, StoredTensor]) -> dict[str, StoredTensor | Mxfp4Tensor]:
    """The matrices and vectors of all experts by names of their own; everything else as it is.

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
        # Of the outputs of gate and up every second one, from 0 or from 1.
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
    """Views of (experts, inputs, outputs) as (outputs, inputs), and of (experts, outputs)."""
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
    """Rows of each expert, in turns."""
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
