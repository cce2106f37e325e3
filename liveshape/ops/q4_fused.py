"""4-bit linears with a fused prologue (RMSNorm, quantization) or epilogue (residual add, rotary embedding, KV cache).

`lower/q4_patterns.py` finds where fusion gives the same bytes.
"""

from __future__ import annotations

from typing import Any

from liveshape.errors import ShapeError
from liveshape.graph import Limits, Node
from liveshape.graph.elements import prod
from liveshape.graph.live import LiveTensor
from liveshape.graph.traits import CacheRows, Carried
from liveshape.kernels.requests import GetLimits, Scratch
from liveshape.ops.attention import check_room
from liveshape.ops.fused import axis_to_cache
from liveshape.ops.pointwise import apply
from liveshape.ops.q4_heuristics import defers_norm, quantizes_gated
from liveshape.ops.q4_kernels import GATED, GATED_QUANTIZED, QKV, RESIDUAL, RESIDUAL_QUANTIZED, ROTARY, ROTARY_BY_TABLE
from liveshape.ops.q4_layer import Q4Layer, Steps, q4_layer
from liveshape.ops.q4_linear import linear_q4gsw, q4_product
from liveshape.ops.quantized_rows import QUANTIZED_DTYPES, quantize_rows, quantized_shape
from liveshape.ops.registry import Tensors
from liveshape.ops.rotary import check_positions, check_rows
from liveshape.ops.row_rules import outputs_along, row_wise
from liveshape.ops.row_tables import Start, first_row


@q4_layer(
    "liveshape.qkv_linear_q4gsw",
    values_apart=True,
    rows=row_wise("x"),
    normed=row_wise("x", "quantized"),
    fused_from=("et_vk.linear_q4gsw.default",) * 3,
)
def qkv_linear_q4gsw(layer: Q4Layer, outputs: Tensors) -> Steps:
    """Three linears of one input, as the QKV projection is: their weights are concatenated along the columns.

    The last one's may be apart, if it has another format: then these are two dispatches.
    """
    for out in outputs:
        out.shape = (*layer.x.shape[:-1], out.max_shape[-1])
    names = ("QUERY_COLUMNS", "KEY_COLUMNS", "VALUE_COLUMNS")
    columns = {name: out.max_shape[-1] for name, out in zip(names, outputs, strict=True)}
    yield from q4_product(layer, [outputs] * len(layer.weights), QKV.of(**columns))


@q4_layer(
    "liveshape.gated_linear_q4gsw",
    rows=row_wise("x"),
    normed=row_wise("x", "quantized"),
    fused_from=("et_vk.linear_q4gsw.default",) * 2,
)
def gated_linear_q4gsw(layer: Q4Layer, gate: Any, out: LiveTensor) -> Steps:
    """An expression of two linears of one input, whose columns are interleaved: silu(first) * second, for example.

    `out` is floats, or quantized for the layer that reads it: see `lower/activations.py`.
    """
    *lead, columns = layer.shape
    if out.dtype not in QUANTIZED_DTYPES:
        out.shape = (*lead, columns // 2)
        yield from q4_product(layer, [(out,)], GATED._replace(gate=gate))
        return
    out.shape = quantized_shape((*lead, columns // 2))
    limits: Limits = yield GetLimits()
    if not quantizes_gated(prod(layer.x.max_shape[:-1]), limits):
        floats: LiveTensor = yield Scratch("float32", (*layer.x.max_shape[:-1], columns // 2))
    if quantizes_gated(prod(lead), limits):
        yield from q4_product(layer, [(out,)], GATED_QUANTIZED._replace(gate=gate))
        return
    floats.shape = (*lead, columns // 2)
    yield from q4_product(layer, [(floats,)], GATED._replace(gate=gate))
    yield from quantize_rows(floats, None, None, out)


@q4_layer(
    "liveshape.residual_linear_q4gsw",
    rows=row_wise("x", "residual"),
    fused_from=("et_vk.linear_q4gsw.default", "aten.add.Tensor"),
)
def residual_linear_q4gsw(
    layer: Q4Layer,
    residual: LiveTensor,
    out: LiveTensor,
    *,
    deferred: tuple[LiveTensor, LiveTensor] | None = None,
) -> Steps:
    """residual + x @ weight.T + bias in one epilogue; where live shapes differ, a linear and a broadcasting add."""
    product: LiveTensor = yield Scratch(out.dtype, out.max_shape)
    if residual.shape != layer.shape:
        yield from linear_q4gsw(layer, product)
        yield from apply("add", residual, product, out=out)
        return
    out.shape = layer.shape
    limits: Limits = yield GetLimits()
    if deferred is not None and defers_norm(prod(layer.x.shape[:-1]), limits):
        norm_weight, quantized = deferred
        outs = (residual, norm_weight, out, quantized)
        yield from q4_product(layer, [outs], RESIDUAL_QUANTIZED)
    else:
        yield from q4_product(layer, [(residual, out)], RESIDUAL)


@q4_layer(
    "liveshape.residual_quantized_linear_q4gsw",
    rows=row_wise("x", "residual"),
    for_one_row=(1,),
    fused_from=("liveshape.residual_linear_q4gsw",),
)
def residual_quantized_linear_q4gsw(
    layer: Q4Layer, residual: LiveTensor, norm_weight: LiveTensor, outputs: Tensors
) -> Steps:
    """The same; of one row the epilogue also quantizes the sum for the layers of its RMSNorm, which read that instead.

    It is quantized after the weight of the norm and before the RMSNorm scale, with its sum of squares beside it: a
    factor of the whole row does not change its codes.
    """
    total, quantized = outputs
    yield from residual_linear_q4gsw(layer, residual, total, deferred=(norm_weight, quantized))
    quantized.shape = quantized_shape(total.shape)


def _rotated(node: Node, carried: Carried) -> Carried | None:
    """Rows of x, all along one dimension, by a table of rows."""
    x = node.named["x"]
    axis = axis_to_cache(node, carried, *(name for name in ("x", "quantized") if name in node.named))
    return outputs_along(node, 1) if axis == x.rank - 2 and prod(x.max_shape[:axis]) == 1 else None


@q4_layer(
    "liveshape.rotary_linear_q4gsw",
    values_apart=True,
    mutates=("k_cache", "v_cache"),
    rows=_rotated,
    normed=_rotated,
    cache=CacheRows({"k_cache": 1, "v_cache": 1}, "input_pos"),
    fused_from=("liveshape.qkv_linear_q4gsw", "liveshape.rotary_to_cache"),
)
def rotary_linear_q4gsw(
    layer: Q4Layer,
    cosine: LiveTensor,
    sine: LiveTensor,
    start_pos: Start | None,  # in tables of every position; None where they are of the live rows
    k_cache: LiveTensor,
    v_cache: LiveTensor,
    input_pos: Start,
    out: LiveTensor,
) -> Steps:
    """Fused QKV projection: queries and keys get their rotary embedding, keys and values go to the KV cache."""
    *lead, columns = layer.shape
    rows = prod(lead)
    heads, size = out.max_shape[2:]
    out.shape = (1, rows, heads, size)
    if start_pos is None:
        check_rows(out.shape, cosine, sine)
    else:
        check_positions(out.shape, cosine, sine, start_pos)
    key_heads = k_cache.shape[2]
    check_room(k_cache, rows, input_pos)
    if k_cache.shape != v_cache.shape or columns != (heads + 2 * key_heads) * size:
        raise ShapeError(
            f"caches {k_cache.shape} and {v_cache.shape} must be alike, and {columns} columns must be "
            f"{heads} heads of queries and those of keys and values, of {size} each"
        )
    first, written = first_row(start_pos, input_pos), [(out, k_cache, v_cache)]
    if len(layer.weights) > 1:
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
        yield from q4_product(layer, outputs, ROTARY_BY_TABLE.of(**layout))
    else:
        layout |= {"first_row": first, "cache_start": input_pos * key_heads * size}
        outputs = [(cosine, sine, *each) for each in written]
        yield from q4_product(layer, outputs, ROTARY.of(**layout))
