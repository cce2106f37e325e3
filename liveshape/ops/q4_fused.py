"""4-bit linears with a fused prologue (RMSNorm, quantization) or epilogue (residual add, rotary embedding, KV cache).

`lower/q4_patterns.py` finds where fusion gives the same bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from liveshape.errors import ShapeError
from liveshape.graph import Limits, Node
from liveshape.graph.elements import prod
from liveshape.graph.live import LiveTensor
from liveshape.graph.traits import CacheRows, Carried
from liveshape.kernels.requests import GetLimits, Scratch
from liveshape.ops.attention import check_room
from liveshape.ops.fused import axis_to_cache, gated_product, qkv_products
from liveshape.ops.normalization import rms_norm, rows_of
from liveshape.ops.pointwise import apply
from liveshape.ops.q4_heuristics import RESIDUAL_UNITS, defers_norm, is_gemv
from liveshape.ops.q4_kernels import RESIDUAL, RESIDUAL_QUANTIZED, ROTARY, ROTARY_BY_TABLE
from liveshape.ops.q4_linear import (
    FUSED_LAYER,
    NORMED_LAYER,
    Norm,
    Steps,
    Weight,
    linear_q4gsw,
    q4_product,
    qkv_product,
    qkv_weights,
    rounds_normed,
)
from liveshape.ops.quantized_rows import SYMMETRIC_INT8, quantized_shape, quantizes_rows
from liveshape.ops.registry import Tensors, op
from liveshape.ops.rotary import check_positions, check_rows
from liveshape.ops.row_rules import outputs_along, row_wise
from liveshape.ops.row_tables import Start, first_row


@op(
    "liveshape.residual_linear_q4gsw",
    rows=row_wise("x", "residual"),
    product=FUSED_LAYER,
    fused_from=("et_vk.linear_q4gsw.default", "aten.add.Tensor"),
)
def residual_linear_q4gsw(
    x: LiveTensor,
    weight: LiveTensor,
    scales: LiveTensor,
    group_size: int,
    bias: LiveTensor | None,
    residual: LiveTensor,
    out: LiveTensor,
) -> Steps:
    """residual + x @ weight.T + bias in one epilogue; where live shapes differ, a linear and a broadcasting add."""
    yield from _residual_product(x, weight, scales, group_size, bias, residual, out)


@op(
    "liveshape.residual_quantized_linear_q4gsw",
    rows=row_wise("x", "residual"),
    for_one_row=(1,),
    product=FUSED_LAYER,
    fused_from=("liveshape.residual_linear_q4gsw",),
)
def residual_quantized_linear_q4gsw(
    x: LiveTensor,
    weight: LiveTensor,
    scales: LiveTensor,
    group_size: int,
    bias: LiveTensor | None,
    residual: LiveTensor,
    norm_weight: LiveTensor,
    outputs: Tensors,
) -> Steps:
    """The same; of one row the epilogue also quantizes the sum for the layers of its RMSNorm, which read that instead.

    It is quantized after the weight of the norm and before the RMSNorm scale, with its sum of squares beside it: a
    factor of the whole row does not change its codes.
    """
    total, quantized = outputs
    yield from _residual_product(x, weight, scales, group_size, bias, residual, total, (norm_weight, quantized))
    quantized.shape = quantized_shape(total.shape)


def _residual_product(
    x: LiveTensor,
    weight: LiveTensor,
    scales: LiveTensor,
    group: int,
    bias: LiveTensor | None,
    residual: LiveTensor,
    out: LiveTensor,
    deferred_norm: tuple[LiveTensor, LiveTensor] | None = None,
) -> Steps:
    product: LiveTensor = yield Scratch(out.dtype, out.max_shape)
    shape = (*x.shape[:-1], weight.shape[0])
    if residual.shape != shape:
        yield from linear_q4gsw(x, weight, scales, group, bias, product)
        yield from apply("add", residual, product, out=out)
        return
    out.shape = shape
    limits: Limits = yield GetLimits()
    if deferred_norm is not None and defers_norm(prod(x.shape[:-1]), limits):
        norm_weight, quantized = deferred_norm
        outs = (residual, norm_weight, out, quantized)
        yield from q4_product(x, weight, scales, group, bias, outs, RESIDUAL_QUANTIZED, quantized_units=RESIDUAL_UNITS)
    else:
        yield from q4_product(x, weight, scales, group, bias, (residual, out), RESIDUAL)


def _rotated(node: Node, carried: Carried) -> Carried | None:
    """Rows of x, all along one dimension, by a table of rows."""
    x = node.named["x"]
    axis = axis_to_cache(node, carried, *(name for name in ("x", "quantized") if name in node.named))
    return outputs_along(node, 1) if axis == x.rank - 2 and prod(x.max_shape[:axis]) == 1 else None


@op(
    "liveshape.rotary_linear_q4gsw",
    mutates=("k_cache", "v_cache"),
    rows=_rotated,
    cache=CacheRows({"k_cache": 1, "v_cache": 1}, "input_pos"),
    product=FUSED_LAYER,
    fused_from=("liveshape.qkv_linear_q4gsw", "liveshape.rotary_to_cache"),
)
def rotary_linear_q4gsw(
    x: LiveTensor,
    weight: LiveTensor,
    scales: LiveTensor,
    group_size: int,
    bias: LiveTensor | None,
    value_weight: LiveTensor | None,
    value_scales: LiveTensor | None,
    value_group: int,
    cosine: LiveTensor,
    sine: LiveTensor,
    start_pos: Start | None,  # in tables of every position; None where they are of the live rows
    k_cache: LiveTensor,
    v_cache: LiveTensor,
    input_pos: Start,
    out: LiveTensor,
) -> Steps:
    """Fused QKV projection: queries and keys get their rotary embedding, keys and values go to the KV cache."""
    angles = (cosine, sine, start_pos)
    weights = qkv_weights(Weight(weight, scales, group_size), value_weight, value_scales, value_group)
    yield from _rotary_products(x, weights, bias, angles, (k_cache, v_cache, input_pos), out)


def _rotary_products(
    x: LiveTensor,
    weights: tuple[Weight, ...],
    bias: LiveTensor | None,
    angles: tuple[LiveTensor, LiveTensor, Start | None],
    caches: tuple[LiveTensor, LiveTensor, Start],
    out: LiveTensor,
    norm: Norm | None = None,
) -> Steps:
    cosine, sine, start = angles
    k_cache, v_cache, position = caches
    rows = prod(x.shape[:-1])
    heads, size = out.max_shape[2:]
    out.shape = (1, rows, heads, size)
    if start is None:
        check_rows(out.shape, cosine, sine)
    else:
        check_positions(out.shape, cosine, sine, start)
    key_heads = k_cache.shape[2]
    check_room(k_cache, rows, position)
    columns = sum(each.codes.shape[0] for each in weights)
    if k_cache.shape != v_cache.shape or columns != (heads + 2 * key_heads) * size:
        raise ShapeError(
            f"caches {k_cache.shape} and {v_cache.shape} must be alike, and {columns} columns must be "
            f"{heads} heads of queries and those of keys and values, of {size} each"
        )
    first, written = first_row(start, position), [(out, k_cache, v_cache)]
    if len(weights) > 1:
        # What a product does not write is not bound: a device runs two at a time that write nothing in common.
        no_queries: LiveTensor = yield Scratch(out.dtype, (4,))
        no_keys: LiveTensor = yield Scratch(k_cache.dtype, (4,))
        no_values: LiveTensor = yield Scratch(v_cache.dtype, (4,))
        written = [(out, k_cache, no_values), (no_queries, no_keys, v_cache)]
    layout: dict[str, Any] = {
        "INTERLEAVED": start is None,
        "HEAD_SIZE": size,
        "QUERY_COLUMNS": heads * size,
        "KEY_COLUMNS": key_heads * size,
    }
    if isinstance(position, LiveTensor):
        layout |= {"positions": cosine.shape[0], "slots": k_cache.shape[1]}
        outputs: list[Tensors] = [(cosine, sine, *each, position) for each in written]
        yield from qkv_product(x, weights, bias, outputs, ROTARY_BY_TABLE, norm, **layout)
    else:
        layout |= {"first_row": first, "cache_start": position * key_heads * size}
        outputs = [(cosine, sine, *each) for each in written]
        yield from qkv_product(x, weights, bias, outputs, ROTARY, norm, **layout)


def _normed(
    x: LiveTensor,
    norm: Norm,
    quantized: LiveTensor | None,
    weights: tuple[Weight, ...],
    layer: Callable[[LiveTensor, Norm | None], Steps],
) -> Steps:
    """A layer of the RMSNorm of x: of one row every workgroup recomputes it, of several it is a dispatch before, or in
    the one that rounds them for matrix units.

    One row may have been `quantized` by the epilogue that produced it.
    """
    int8 = quantizes_rows(x, *weights[0])
    normed: LiveTensor = (
        yield Scratch(SYMMETRIC_INT8, quantized_shape(x.max_shape)) if int8 else Scratch(x.dtype, x.max_shape)
    )
    limits: Limits = yield GetLimits()
    assert norm.weight is not None
    rows = rows_of(x, norm.weight, norm.eps)["rows"]
    if quantized is not None and defers_norm(rows, limits):
        yield from layer(quantized, Norm(None, None, norm.eps))
    elif quantized is None and (is_gemv(rows, limits) or (not int8 and rounds_normed(x, weights, limits))):
        yield from layer(x, norm)
    else:
        yield from rms_norm(x, norm.weight, norm.eps, normed)
        yield from layer(normed, None)


@op(
    "liveshape.rms_norm_linear_q4gsw",
    rows=row_wise("x", "quantized"),
    product=NORMED_LAYER,
    fused_from=("et_vk.rms_norm.default", "et_vk.linear_q4gsw.default"),
)
def rms_norm_linear_q4gsw(
    x: LiveTensor,
    norm_weight: LiveTensor,
    terms: LiveTensor,
    eps: float,
    quantized: LiveTensor | None,
    weight: LiveTensor,
    scales: LiveTensor,
    group_size: int,
    bias: LiveTensor | None,
    out: LiveTensor,
) -> Steps:
    """RMSNorm and a linear, fused."""
    out.shape = (*x.shape[:-1], weight.shape[0])

    def layer(rows: LiveTensor, norm: Norm | None) -> Steps:
        yield from q4_product(rows, weight, scales, group_size, bias, (out,), norm=norm)

    weights = (Weight(weight, scales, group_size),)
    yield from _normed(x, Norm(norm_weight, terms, eps), quantized, weights, layer)


@op(
    "liveshape.rms_norm_qkv_linear_q4gsw",
    rows=row_wise("x", "quantized"),
    product=NORMED_LAYER,
    fused_from=("et_vk.rms_norm.default", "liveshape.qkv_linear_q4gsw"),
)
def rms_norm_qkv_linear_q4gsw(
    x: LiveTensor,
    norm_weight: LiveTensor,
    terms: LiveTensor,
    eps: float,
    quantized: LiveTensor | None,
    weight: LiveTensor,
    scales: LiveTensor,
    group_size: int,
    bias: LiveTensor | None,
    value_weight: LiveTensor | None,
    value_scales: LiveTensor | None,
    value_group: int,
    outputs: Tensors,
) -> Steps:
    """RMSNorm and the QKV projection, fused."""
    weights = qkv_weights(Weight(weight, scales, group_size), value_weight, value_scales, value_group)

    def layers(rows: LiveTensor, norm: Norm | None) -> Steps:
        yield from qkv_products(rows, weights, bias, outputs, norm)

    yield from _normed(x, Norm(norm_weight, terms, eps), quantized, weights, layers)


@op(
    "liveshape.rms_norm_gated_linear_q4gsw",
    rows=row_wise("x", "quantized"),
    product=NORMED_LAYER,
    fused_from=("et_vk.rms_norm.default", "liveshape.gated_linear_q4gsw"),
)
def rms_norm_gated_linear_q4gsw(
    x: LiveTensor,
    norm_weight: LiveTensor,
    terms: LiveTensor,
    eps: float,
    quantized: LiveTensor | None,
    weight: LiveTensor,
    scales: LiveTensor,
    group_size: int,
    bias: LiveTensor | None,
    out: LiveTensor,
) -> Steps:
    """RMSNorm and a gated unit, fused."""

    def layers(rows: LiveTensor, norm: Norm | None) -> Steps:
        yield from gated_product(rows, weight, scales, group_size, bias, out, norm)

    weights = (Weight(weight, scales, group_size),)
    yield from _normed(x, Norm(norm_weight, terms, eps), quantized, weights, layers)


@op(
    "liveshape.rms_norm_rotary_linear_q4gsw",
    mutates=("k_cache", "v_cache"),
    rows=_rotated,
    cache=CacheRows({"k_cache": 1, "v_cache": 1}, "input_pos"),
    product=NORMED_LAYER,
    fused_from=("et_vk.rms_norm.default", "liveshape.rotary_linear_q4gsw"),
)
def rms_norm_rotary_linear_q4gsw(
    x: LiveTensor,
    norm_weight: LiveTensor,
    terms: LiveTensor,
    eps: float,
    quantized: LiveTensor | None,
    weight: LiveTensor,
    scales: LiveTensor,
    group_size: int,
    bias: LiveTensor | None,
    value_weight: LiveTensor | None,
    value_scales: LiveTensor | None,
    value_group: int,
    cosine: LiveTensor,
    sine: LiveTensor,
    start_pos: Start | None,
    k_cache: LiveTensor,
    v_cache: LiveTensor,
    input_pos: Start,
    out: LiveTensor,
) -> Steps:
    """RMSNorm, QKV projection, rotary embedding and the update of the KV cache, fused."""
    angles, caches = (cosine, sine, start_pos), (k_cache, v_cache, input_pos)
    weights = qkv_weights(Weight(weight, scales, group_size), value_weight, value_scales, value_group)

    def layers(rows: LiveTensor, norm: Norm | None) -> Steps:
        yield from _rotary_products(rows, weights, bias, angles, caches, out, norm)

    yield from _normed(x, Norm(norm_weight, terms, eps), quantized, weights, layers)
