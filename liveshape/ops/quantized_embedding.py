"""Quantized embeddings: tables of 2, 4 or 8 bits with a scale for each group of a row, dequantized by the gather."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from liveshape.errors import ShapeError
from liveshape.graph.live import LiveTensor
from liveshape.kernels import Dispatch, Kernel
from liveshape.ops.lookup import invalid_of
from liveshape.ops.registry import op
from liveshape.ops.row_rules import gathered_rows

QUANTIZED_EMBEDDING = Kernel.load("quantization/embedding")
# What all of these are to others.
OF_TABLE: dict[str, Any] = {
    "gathers": ("indices", "weight"),
    "rows": gathered_rows("indices"),
    "epilogues": True,
}
_TABLE = "weight scales zero_points quant_min quant_max indices"


@op("et_vk.embedding_q4gsw.default", **OF_TABLE)
def embedding_q4gsw(
    weight: LiveTensor,
    scales: LiveTensor,
    group_size: int,
    indices: LiveTensor,
    is_linear_weight: bool,
    out: LiveTensor,
) -> Iterator[Dispatch]:
    """A 4-bit table; in the order of a linear the even elements lie in the low nibbles."""
    yield _embedding(weight, scales, None, indices, out, 4, group_size, HIGH_FIRST=not is_linear_weight)


def _register(name: str, bits: int, **choices: Any) -> None:
    @op(
        f"quantized_decomposed.embedding_{name}.dtype",
        f"quantized_decomposed::embedding_{name}.dtype_out",
        schema=f"{_TABLE} dtype out",
        **OF_TABLE,
    )
    @op(f"quantized_decomposed::embedding_{name}.out", schema=f"{_TABLE} out", **OF_TABLE)
    def embedding(
        weight: LiveTensor, scales: LiveTensor, zero_points: LiveTensor | None, indices: LiveTensor, out: LiveTensor
    ) -> Iterator[Dispatch]:
        yield _embedding(weight, scales, zero_points, indices, out, bits, **choices)


_register("4bit", 4, HIGH_FIRST=True)
_register("2bit", 2)
_register("byte", 8)


@op("liveshape.embedding_with_minima", **OF_TABLE)
def embedding_with_minima(
    weight: LiveTensor,
    scales: LiveTensor,
    minima: LiveTensor,
    indices: LiveTensor,
    bits: int,
    is_linear_weight: bool,
    out: LiveTensor,
) -> Iterator[Dispatch]:
    """A 4-bit or 8-bit table with asymmetric groups: a scale and a minimum."""
    yield _embedding(weight, scales, minima, indices, out, bits, MINIMA=True, HIGH_FIRST=not is_linear_weight)


def _embedding(
    weight: LiveTensor,
    scales: LiveTensor,
    zeros: LiveTensor | None,
    indices: LiveTensor,
    out: LiveTensor,
    bits: int,
    group: int | None = None,
    *,
    MINIMA: bool = False,
    **choices: Any,
) -> Dispatch:
    """`zeros` are the zero points of the groups, or their minima; of one scale or more a row there are groups alike."""
    rows, row_bytes = weight.shape
    row_scales = scales.shape[1] if scales.rank == 2 else 1
    width = row_bytes * (8 // bits)
    group = width // row_scales if group is None else group
    for given in (scales,) if zeros is None else (scales, zeros):
        if group < 1 or row_scales * group < width or given.numel < rows * row_scales:
            raise ShapeError(f"{given.shape} scales or zero points are too few for {rows} rows of {width} by {group}")
    out.shape = (*indices.shape, width)
    # An absent zero point still needs a buffer in its place; the scales are there and only read.
    return QUANTIZED_EMBEDDING(
        out, weight, scales, scales if zeros is None else zeros, indices, count=out.numel, width=width, size=rows,
        row_bytes=row_bytes, group=group, row_scales=row_scales, invalid=invalid_of(out),
        offset=0 if weight.dtype == "uint8" and bits == 8 else 1 << (bits - 1), BITS=bits,
        ZEROS=zeros is not None and not MINIMA, MINIMA=MINIMA,
        threads=out.numel, **choices,
    )  # fmt: skip
