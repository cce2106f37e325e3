"""4-bit linears with a fused prologue (RMSNorm, quantization) or epilogue (residual add, rotary embedding, KV cache).

`lower/q4_patterns.py` finds where fusion gives the same bytes.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable
from dataclasses import fields
from typing import Any

from liveshape.errors import ShapeError
from liveshape.graph import Limits, Node
from liveshape.graph.elements import prod
from liveshape.graph.live import LiveTensor
from liveshape.graph.traits import CacheRows, Carried, RowRule
from liveshape.kernels.requests import GetLimits, Scratch
from liveshape.ops.attention import check_room
from liveshape.ops.fused import axis_to_cache
from liveshape.ops.normalization import rms_norm, rows_of
from liveshape.ops.pointwise import apply
from liveshape.ops.q4_heuristics import GATED_UNITS, RESIDUAL_UNITS, defers_norm, is_gemv, quantizes_gated
from liveshape.ops.q4_kernels import GATED, GATED_QUANTIZED, QKV, RESIDUAL, RESIDUAL_QUANTIZED, ROTARY, ROTARY_BY_TABLE
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
from liveshape.ops.quantized_rows import (
    QUANTIZED_DTYPES,
    SYMMETRIC_INT8,
    quantize_rows,
    quantized_shape,
    quantizes_rows,
)
from liveshape.ops.registry import Tensors, defined_by, op
from liveshape.ops.rotary import check_positions, check_rows
from liveshape.ops.row_rules import outputs_along, row_wise
from liveshape.ops.row_tables import Start, first_row


@op(
    "liveshape.qkv_linear_q4gsw",
    rows=row_wise("x"),
    product=FUSED_LAYER,
    fused_from=("et_vk.linear_q4gsw.default",) * 3,
)
def qkv_linear_q4gsw(
    x: LiveTensor,
    weight: LiveTensor,
    scales: LiveTensor,
    group_size: int,
    bias: LiveTensor | None,
    value_weight: LiveTensor | None,
    value_scales: LiveTensor | None,
    value_group: int,
    outputs: Tensors,
    *,
    norm: Norm | None = None,
) -> Steps:
    """Three linears of one input, as the QKV projection is: their weights are concatenated along the columns.

    The last one's may be apart, if it has another format: then these are two dispatches.
    """
    weights = qkv_weights(Weight(weight, scales, group_size), value_weight, value_scales, value_group)
    for out in outputs:
        out.shape = (*x.shape[:-1], out.max_shape[-1])
    names = ("QUERY_COLUMNS", "KEY_COLUMNS", "VALUE_COLUMNS")
    columns = {name: out.max_shape[-1] for name, out in zip(names, outputs, strict=True)}
    yield from qkv_product(x, weights, bias, [outputs] * len(weights), QKV, norm, **columns)


@op(
    "liveshape.gated_linear_q4gsw",
    rows=row_wise("x"),
    product=FUSED_LAYER,
    fused_from=("et_vk.linear_q4gsw.default",) * 2,
)
def gated_linear_q4gsw(
    x: LiveTensor,
    weight: LiveTensor,
    scales: LiveTensor,
    group_size: int,
    bias: LiveTensor | None,
    gate: Any,
    out: LiveTensor,
    *,
    norm: Norm | None = None,
) -> Steps:
    """An expression of two linears of one input, whose columns are interleaved: silu(first) * second, for example.

    `out` is floats, or quantized for the layer that reads it: see `lower/activations.py`.
    """
    given = (x, weight, scales, group_size, bias)
    shape = (*x.shape[:-1], weight.shape[0] // 2)
    if out.dtype not in QUANTIZED_DTYPES:
        out.shape = shape
        yield from q4_product(*given, (out,), GATED, norm, gate=gate)
        return
    out.shape = quantized_shape(shape)
    limits: Limits = yield GetLimits()
    if not quantizes_gated(prod(x.max_shape[:-1]), limits):
        floats: LiveTensor = yield Scratch("float32", (*x.max_shape[:-1], weight.max_shape[0] // 2))
    if quantizes_gated(prod(x.shape[:-1]), limits):
        yield from q4_product(*given, (out,), GATED_QUANTIZED, norm, gate=gate, quantized_units=GATED_UNITS)
        return
    floats.shape = shape
    yield from q4_product(*given, (floats,), GATED, norm, gate=gate)
    yield from quantize_rows(floats, None, None, out)


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
    *,
    deferred: tuple[LiveTensor, LiveTensor] | None = None,
) -> Steps:
    """residual + x @ weight.T + bias in one epilogue; where live shapes differ, a linear and a broadcasting add."""
    given = (x, weight, scales, group_size, bias)
    product: LiveTensor = yield Scratch(out.dtype, out.max_shape)
    shape = (*x.shape[:-1], weight.shape[0])
    if residual.shape != shape:
        yield from linear_q4gsw(*given, product)
        yield from apply("add", residual, product, out=out)
        return
    out.shape = shape
    limits: Limits = yield GetLimits()
    if deferred is not None and defers_norm(prod(x.shape[:-1]), limits):
        norm_weight, quantized = deferred
        outs = (residual, norm_weight, out, quantized)
        yield from q4_product(*given, outs, RESIDUAL_QUANTIZED, quantized_units=RESIDUAL_UNITS)
    else:
        yield from q4_product(*given, (residual, out), RESIDUAL)


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
    deferred = (norm_weight, quantized)
    yield from residual_linear_q4gsw(x, weight, scales, group_size, bias, residual, total, deferred=deferred)
    quantized.shape = quantized_shape(total.shape)


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
    *,
    norm: Norm | None = None,
) -> Steps:
    """Fused QKV projection: queries and keys get their rotary embedding, keys and values go to the KV cache."""
    weights = qkv_weights(Weight(weight, scales, group_size), value_weight, value_scales, value_group)
    rows = prod(x.shape[:-1])
    heads, size = out.max_shape[2:]
    out.shape = (1, rows, heads, size)
    if start_pos is None:
        check_rows(out.shape, cosine, sine)
    else:
        check_positions(out.shape, cosine, sine, start_pos)
    key_heads = k_cache.shape[2]
    check_room(k_cache, rows, input_pos)
    columns = sum(each.codes.shape[0] for each in weights)
    if k_cache.shape != v_cache.shape or columns != (heads + 2 * key_heads) * size:
        raise ShapeError(
            f"caches {k_cache.shape} and {v_cache.shape} must be alike, and {columns} columns must be "
            f"{heads} heads of queries and those of keys and values, of {size} each"
        )
    first, written = first_row(start_pos, input_pos), [(out, k_cache, v_cache)]
    if len(weights) > 1:
        # What a product does not write is not bound: a device runs two at a time that write nothing in common.
        no_queries: LiveTensor = yield Scratch(out.dtype, (4,))
        no_keys: LiveTensor = yield Scratch(k_cache.dtype, (4,))
        no_values: LiveTensor = yield Scratch(v_cache.dtype, (4,))
        written = [(out, k_cache, no_values), (no_queries, no_keys, v_cache)]
    layout: dict[str, Any] = {
        "INTERLEAVED": start_pos is None,
        "HEAD_SIZE": size,
        "QUERY_COLUMNS": heads * size,
        "KEY_COLUMNS": key_heads * size,
    }
    if isinstance(input_pos, LiveTensor):
        layout |= {"positions": cosine.shape[0], "slots": k_cache.shape[1]}
        outputs: list[Tensors] = [(cosine, sine, *each, input_pos) for each in written]
        yield from qkv_product(x, weights, bias, outputs, ROTARY_BY_TABLE, norm, **layout)
    else:
        layout |= {"first_row": first, "cache_start": input_pos * key_heads * size}
        outputs = [(cosine, sine, *each) for each in written]
        yield from qkv_product(x, weights, bias, outputs, ROTARY, norm, **layout)


def _with_rms_norm(layer: Callable[..., Steps], rows_by: RowRule) -> None:
    """Register a layer of the RMSNorm of x: of one row every workgroup recomputes it, of several it is a dispatch
    before, or in the one that rounds them for matrix units.

    One row may have been `quantized` by the epilogue that produced it.
    """
    entry = defined_by(layer)
    names = [parameter.name for parameter in entry.parameters]

    def normed(
        x: LiveTensor,
        norm_weight: LiveTensor,
        terms: LiveTensor,
        eps: float,
        quantized: LiveTensor | None,
        *rest: Any,
    ) -> Steps:
        named = dict(zip(names[1:], rest, strict=True))
        values: Any = [named.get(name) for name in ("value_weight", "value_scales", "value_group")]
        weights = qkv_weights(Weight(named["weight"], named["scales"], named["group_size"]), *values)
        int8 = quantizes_rows(x, *weights[0])
        dtype, shape = (SYMMETRIC_INT8, quantized_shape(x.max_shape)) if int8 else (x.dtype, x.max_shape)
        before: LiveTensor = yield Scratch(dtype, shape)
        limits: Limits = yield GetLimits()
        rows = rows_of(x, norm_weight, eps)["rows"]
        if quantized is not None and defers_norm(rows, limits):
            yield from layer(quantized, *rest, norm=Norm(None, None, eps))
        elif quantized is None and (is_gemv(rows, limits) or (not int8 and rounds_normed(x, weights, limits))):
            yield from layer(x, *rest, norm=Norm(norm_weight, terms, eps))
        else:
            yield from rms_norm(x, norm_weight, eps, before)
            yield from layer(before, *rest)

    own = list(inspect.signature(normed).parameters.values())[:-1]
    others = [each for each in inspect.signature(layer).parameters.values() if each.name in names[1:]]
    normed.__signature__ = inspect.Signature([*own, *others])  # type: ignore[attr-defined]
    normed.__annotations__ = {**typing.get_type_hints(layer), **typing.get_type_hints(normed)}
    _, name, *_ = entry.name.split(".")
    traits = {each.name: getattr(entry.traits, each.name) for each in fields(entry.traits)}
    traits |= {"rows": rows_by, "product": NORMED_LAYER, "fused_from": ("et_vk.rms_norm.default", entry.name)}
    op(f"liveshape.rms_norm_{name}", mutates=tuple(names[place] for place in entry.mutates), **traits)(normed)


for _layer in (linear_q4gsw, qkv_linear_q4gsw, gated_linear_q4gsw):
    _with_rms_norm(_layer, row_wise("x", "quantized"))
_with_rms_norm(rotary_linear_q4gsw, _rotated)
