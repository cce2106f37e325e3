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
    """A ggml tensor type: weights per block, the struct of a block, its quantization layout, and its reader.

    The layout has the code width (4 or 8) that holds the stored integers losslessly; it is None for float types.
    """

    name: str
    weights: int
    fields: tuple[Any, ...]
    layout: Layout | None
    stored: Callable[[Blocks], Any]  # returns DecodedBlocks, or the floats themselves

    @property
    def nbytes(self) -> int:
        return sum(np.dtype(kind).itemsize * (count[0] if count else 1) for _, kind, *count in self.fields)

    @property
    def record(self) -> np.dtype[Any]:
        return np.dtype(list(self.fields))

    @property
    def bits(self) -> int:
        """The code width, 0 for float types."""
        return 0 if self.layout is None else self.layout.bits

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


# FP4 (E2M1) values times two, which makes them integers.
MXFP4_CODES = np.array([0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12], np.int8)

_D, _M, _DMIN = ("d", "<f2"), ("m", "<f2"), ("dmin", "<f2")

# By ggml_type.
FORMATS: Mapping[int, BlockFormat] = {
    0: BlockFormat("F32", 1, (("x", "<f4"),), None, lambda blocks: blocks["x"]),
    1: BlockFormat("F16", 1, (("x", "<f2"),), None, lambda blocks: blocks["x"].astype(np.float32)),
    2: BlockFormat("Q4_0", 32, (_D, ("qs", "u1", 16)), Layout(4, 32), _q4_0),
    3: BlockFormat("Q4_1", 32, (_D, _M, ("qs", "u1", 16)), Layout(4, 32, minima=True), _q4_1),
    6: BlockFormat("Q5_0", 32, (_D, ("qh", "u1", 4), ("qs", "u1", 16)), Layout(8, 32), _q5_0),
    7: BlockFormat("Q5_1", 32, (_D, _M, ("qh", "u1", 4), ("qs", "u1", 16)), Layout(8, 32, minima=True), _q5_1),
    8: BlockFormat("Q8_0", 32, (_D, ("qs", "i1", 32)), Layout(8, 32), _q8),
    10: BlockFormat(
        "Q2_K", 256, (("scales", "u1", 16), ("qs", "u1", 64), _D, _DMIN), Layout(4, 16, minima=True), _q2_k
    ),
    11: BlockFormat(
        "Q3_K", 256, (("hmask", "u1", 32), ("qs", "u1", 64), ("scales", "u1", 12), _D), Layout(4, 16), _q3_k
    ),
    12: BlockFormat(
        "Q4_K", 256, (_D, _DMIN, ("scales", "u1", 12), ("qs", "u1", 128)), Layout(4, 32, minima=True), _q4_k
    ),
    13: BlockFormat(
        "Q5_K",
        256,
        (_D, _DMIN, ("scales", "u1", 12), ("qh", "u1", 32), ("qs", "u1", 128)),
        Layout(8, 32, minima=True),
        _q5_k,
    ),
    14: BlockFormat("Q6_K", 256, (("ql", "u1", 128), ("qh", "u1", 64), ("scales", "i1", 16), _D), Layout(8, 16), _q6_k),
    15: BlockFormat("Q8_K", 256, (("d", "<f4"), ("qs", "i1", 256), ("bsums", "<i2", 16)), Layout(8, 256), _q8),
    30: BlockFormat("BF16", 1, (("x", "<u2"),), None, lambda blocks: as_float32(blocks["x"], brain=True)),
    39: BlockFormat("MXFP4", 32, (("e", "u1"), ("qs", "u1", 16)), Layout(8, 32), _mxfp4),
}
