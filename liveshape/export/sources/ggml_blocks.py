"""The ggml block formats of GGUF files (Q4_0 ... Q8_K, MXFP4): the layout of a block, and its dequantization.

A block is 32 weights, or 256 in the K-quants, with their scales. Every reader below takes all blocks of a tensor at
once and returns the integer codes, with the scale and the minimum of each group.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from liveshape.export.model.layout import Grouped, Layout, restored
from liveshape.export.sources.safetensors import as_float32
from liveshape.export.weights.quantize import LOW

Floats = npt.NDArray[np.float32]
Blocks = Any  # an array of the format's records


@dataclass(frozen=True)
class DecodedBlocks:
    """Unpacked GGUF blocks: weight = code * scale + minimum, with a scale and a minimum per group of codes."""

    codes: npt.NDArray[np.int8]  # (blocks, weights per block)
    scales: Floats  # (blocks, groups per block)
    minima: Floats | None = None  # (blocks, groups per block)


@dataclass(frozen=True)
class BlockFormat:
    """A ggml tensor type: weights per block, the struct of a block, and its reader.

    `bits` is the code width (4 or 8) that holds the stored integers losslessly; 0 for float types.
    """

    name: str
    weights: int
    record: np.dtype[Any]
    bits: int
    stored: Callable[[Blocks], Any]  # returns DecodedBlocks, or the floats themselves

    @property
    def nbytes(self) -> int:
        return int(self.record.itemsize)

    @property
    def layout(self) -> Layout | None:
        """Its quantization layout, None for floats."""
        return self.grouped(np.zeros(1, self.record), self.weights).layout if self.bits else None

    def read(self, blocks: Blocks) -> Floats:
        """Dequantize blocks to a flat float32 array."""
        found = self.stored(blocks)
        if self.bits:
            found = restored(Grouped(self.bits, found.codes, found.scales, found.minima))
        return found.reshape(-1)

    def grouped(self, blocks: Blocks, width: int) -> Grouped:
        """Unpack blocks of rows of this width losslessly, without requantizing."""
        found: DecodedBlocks = self.stored(blocks)
        codes, minima = found.codes, found.minima
        if self.bits == 4 and minima is not None:
            # From 0..15 to -8..7. The sum rounds only where minimum and scale are 2^13 apart.
            codes, minima = codes + np.int8(LOW), minima - LOW * found.scales
        rows = codes.size // width
        scales = found.scales.reshape(rows, -1)
        return Grouped(self.bits, codes.reshape(rows, -1), scales, None if minima is None else minima.reshape(rows, -1))


def _float(column: npt.NDArray[Any]) -> Floats:
    """A scalar field of each block as a float32 column (blocks, 1)."""
    return column.astype(np.float32)[:, None]


def _nibbles(packed: npt.NDArray[np.uint8]) -> npt.NDArray[np.int8]:
    """Unpack 4-bit values: all low nibbles, then all high ones."""
    return np.concatenate([packed & 15, packed >> 4], axis=-1).astype(np.int8)


def _fifth_bits(packed: npt.NDArray[np.uint8]) -> npt.NDArray[np.int8]:
    """The fifth bit (qh) of 32 weights, shifted into place."""
    return (np.unpackbits(packed, axis=-1, bitorder="little") << 4).astype(np.int8)


def _q4_0(blocks: Blocks) -> DecodedBlocks:
    return DecodedBlocks(_nibbles(blocks["qs"]) - np.int8(8), _float(blocks["d"]))


def _q4_1(blocks: Blocks) -> DecodedBlocks:
    return DecodedBlocks(_nibbles(blocks["qs"]), _float(blocks["d"]), _float(blocks["m"]))


def _q5_0(blocks: Blocks) -> DecodedBlocks:
    return DecodedBlocks((_nibbles(blocks["qs"]) | _fifth_bits(blocks["qh"])) - np.int8(16), _float(blocks["d"]))


def _q5_1(blocks: Blocks) -> DecodedBlocks:
    return DecodedBlocks(_nibbles(blocks["qs"]) | _fifth_bits(blocks["qh"]), _float(blocks["d"]), _float(blocks["m"]))


def _q8(blocks: Blocks) -> DecodedBlocks:
    return DecodedBlocks(blocks["qs"], _float(blocks["d"]))


def _mxfp4(blocks: Blocks) -> DecodedBlocks:
    return DecodedBlocks(MXFP4_CODES[_nibbles(blocks["qs"])], mxfp4_scales(blocks["e"])[:, None])


def mxfp4_scales(exponents: npt.NDArray[np.uint8]) -> Floats:
    """E8M0 exponents to float32 scales, halved since MXFP4_CODES are twice the FP4 values.

    >>> mxfp4_scales(np.array([127, 129], np.uint8))
    array([0.5, 2. ], dtype=float32)
    """
    return np.ldexp(np.float32(1), exponents.astype(np.int32) - 128)


def _planes(packed: npt.NDArray[np.uint8], bits: int, run: int) -> npt.NDArray[np.int8]:
    """Unpack bit planes of the K-quants, (blocks, 256): of each run of bytes all lowest bits, then all next ones."""
    shifts = np.arange(0, 8, bits, dtype=np.uint8)[None, None, :, None]
    runs = packed.reshape(len(packed), -1, 1, run)
    return ((runs >> shifts) & ((1 << bits) - 1)).reshape(len(packed), -1).astype(np.int8)


def _q2_k(blocks: Blocks) -> DecodedBlocks:
    scales = _float(blocks["d"]) * (blocks["scales"] & 15)
    return DecodedBlocks(_planes(blocks["qs"], 2, 32), scales, -_float(blocks["dmin"]) * (blocks["scales"] >> 4))


def _q3_k(blocks: Blocks) -> DecodedBlocks:
    low, high = blocks["scales"][:, :8], blocks["scales"][:, 8:]
    upper = np.concatenate([(high >> shift) & 3 for shift in (0, 2, 4, 6)], axis=1)
    scales = (_nibbles(low) | (upper << 4).astype(np.int8)) - np.int8(32)
    # A cleared hmask bit subtracts 4.
    codes = _planes(blocks["qs"], 2, 32) - np.int8(4) * (1 - _planes(blocks["hmask"], 1, 32))
    return DecodedBlocks(codes, _float(blocks["d"]) * scales)


def _six_bit_scales(packed: npt.NDArray[np.uint8]) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint8]]:
    """Unpack the 8 scales and 8 minima of 6 bits that Q4_K and Q5_K pack into 12 bytes."""
    first, second, third = packed[:, :4], packed[:, 4:8], packed[:, 8:]
    scales = np.concatenate([first & 63, (third & 15) | ((first >> 6) << 4)], axis=1)
    minima = np.concatenate([second & 63, (third >> 4) | ((second >> 6) << 4)], axis=1)
    return scales, minima


def _q45_k(blocks: Blocks, codes: npt.NDArray[np.int8]) -> DecodedBlocks:
    scales, minima = _six_bit_scales(blocks["scales"])
    return DecodedBlocks(codes, _float(blocks["d"]) * scales, -_float(blocks["dmin"]) * minima)


def _q4_k(blocks: Blocks) -> DecodedBlocks:
    return _q45_k(blocks, _planes(blocks["qs"], 4, 32))


def _q5_k(blocks: Blocks) -> DecodedBlocks:
    return _q45_k(blocks, _planes(blocks["qs"], 4, 32) | (_planes(blocks["qh"], 1, 32) << 4))


def _q6_k(blocks: Blocks) -> DecodedBlocks:
    codes = (_planes(blocks["ql"], 4, 64) | (_planes(blocks["qh"], 2, 32) << 4)) - np.int8(32)
    return DecodedBlocks(codes, _float(blocks["d"]) * blocks["scales"])


def _format(name: str, weights: int, bits: int, stored: Callable[[Blocks], Any], *fields: Any) -> BlockFormat:
    return BlockFormat(name, weights, np.dtype(list(fields)), bits, stored)


# FP4 (E2M1) values times two, which makes them integers.
MXFP4_CODES = np.array([0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12], np.int8)

_D, _M, _DMIN = ("d", "<f2"), ("m", "<f2"), ("dmin", "<f2")

# By ggml_type.
FORMATS: Mapping[int, BlockFormat] = {
    0: _format("F32", 1, 0, lambda blocks: blocks["x"], ("x", "<f4")),
    1: _format("F16", 1, 0, lambda blocks: blocks["x"].astype(np.float32), ("x", "<f2")),
    2: _format("Q4_0", 32, 4, _q4_0, _D, ("qs", "u1", 16)),
    3: _format("Q4_1", 32, 4, _q4_1, _D, _M, ("qs", "u1", 16)),
    6: _format("Q5_0", 32, 8, _q5_0, _D, ("qh", "u1", 4), ("qs", "u1", 16)),
    7: _format("Q5_1", 32, 8, _q5_1, _D, _M, ("qh", "u1", 4), ("qs", "u1", 16)),
    8: _format("Q8_0", 32, 8, _q8, _D, ("qs", "i1", 32)),
    10: _format("Q2_K", 256, 4, _q2_k, ("scales", "u1", 16), ("qs", "u1", 64), _D, _DMIN),
    11: _format("Q3_K", 256, 4, _q3_k, ("hmask", "u1", 32), ("qs", "u1", 64), ("scales", "u1", 12), _D),
    12: _format("Q4_K", 256, 4, _q4_k, _D, _DMIN, ("scales", "u1", 12), ("qs", "u1", 128)),
    13: _format("Q5_K", 256, 8, _q5_k, _D, _DMIN, ("scales", "u1", 12), ("qh", "u1", 32), ("qs", "u1", 128)),
    14: _format("Q6_K", 256, 8, _q6_k, ("ql", "u1", 128), ("qh", "u1", 64), ("scales", "i1", 16), _D),
    15: _format("Q8_K", 256, 8, _q8, ("d", "<f4"), ("qs", "i1", 256), ("bsums", "<i2", 16)),
    30: _format("BF16", 1, 0, lambda blocks: as_float32(blocks["x"], brain=True), ("x", "<u2")),
    39: _format("MXFP4", 32, 8, _mxfp4, ("e", "u1"), ("qs", "u1", 16)),
}
