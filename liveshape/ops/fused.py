"""Fused operators: `lower/fusion.py` replaces patterns with them where the result is provably the same."""

from __future__ import annotations

from collections.abc import Iterator

from liveshape.graph import Limits, Node
from liveshape.graph.elements import prod
from liveshape.graph.live import LiveTensor
from liveshape.graph.traits import CacheRows, Carried
from liveshape.kernels import Dispatch, Kernel
from liveshape.kernels.requests import GetLimits, Scratch
from liveshape.ops.attention import new_rows
from liveshape.ops.normalization import rms_norm, rows_of
from liveshape.ops.pointwise import Build, Term, apply, pointwise
from liveshape.ops.q4_heuristics import GATED_UNITS, quantizes_gated
from liveshape.ops.q4_kernels import GATED, GATED_QUANTIZED, QKV
from liveshape.ops.q4_linear import FUSED_LAYER, Norm, Steps, Weight, q4_product, qkv_product, qkv_weights
from liveshape.ops.quantized_rows import QUANTIZED_DTYPES, quantize_rows, quantized_shape
from liveshape.ops.registry import Tensors, op
from liveshape.ops.rotary import angles_of_positions, angles_of_rows, rotate
from liveshape.ops.row_rules import elementwise, outputs_along, row_wise
from liveshape.ops.row_tables import RowKernels, Start, axis_by_table, first_row

ADD_RMS_NORM = Kernel.load("normalization/rms_norm", ROWS="sum")
ROTARY_TO_CACHE = RowKernels.load("attention/rotary", VALUES="to_cache")


@pointwise("liveshape.swiglu", fused_from=("aten.sigmoid.default", "aten.mul.Tensor", "aten.mul.Tensor"))
def swiglu(e: Build, gate: LiveTensor, up: LiveTensor) -> Term:
    """gate * sigmoid(gate) * up; every product is rounded as the three operators that it stands for would."""
    return e.call("mul", e.call("mul", gate, e.call("sigmoid", gate)), up)


@op(
    "liveshape.add_rms_norm",
    rows=elementwise("a", "b", tail=1),
    fused_from=("aten.add.Tensor", "et_vk.rms_norm.default"),
)
def add_rms_norm(a: LiveTensor, b: LiveTensor, weight: LiveTensor, eps: float, outputs: Tensors) -> Iterator[Dispatch]:
    """The sum of a and b, and its RMSNorm."""
    total, out = outputs
    if a.shape != b.shape:
        yield from apply("add", a, b, out=total)
        yield from rms_norm(total, weight, eps, out)
        return
    total.shape = out.shape = a.shape
    yield ADD_RMS_NORM(out, weight, total, a, b, **rows_of(a, weight, eps))


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
) -> Steps:
    """Three linears of one input, as the QKV projection is: their weights are concatenated along the columns.

    The last one's may be apart, if it has another format: then these are two dispatches.
    """
    weights = qkv_weights(Weight(weight, scales, group_size), value_weight, value_scales, value_group)
    yield from qkv_products(x, weights, bias, outputs)


def qkv_products(
    x: LiveTensor, weights: tuple[Weight, ...], bias: LiveTensor | None, outputs: Tensors, norm: Norm | None = None
) -> Steps:
    for out in outputs:
        out.shape = (*x.shape[:-1], out.max_shape[-1])
    names = ("QUERY_COLUMNS", "KEY_COLUMNS", "VALUE_COLUMNS")
    columns = {name: out.max_shape[-1] for name, out in zip(names, outputs, strict=True)}
    yield from qkv_product(x, weights, bias, [outputs] * len(weights), QKV, norm, **columns)


@op(
    "liveshape.gated_linear_q4gsw",
    rows=row_wise("x"),
    product=FUSED_LAYER,
    fused_from=("et_vk.linear_q4gsw.default", "et_vk.linear_q4gsw.default", "liveshape.swiglu"),
)
def gated_linear_q4gsw(
    x: LiveTensor, weight: LiveTensor, scales: LiveTensor, group_size: int, bias: LiveTensor | None, out: LiveTensor
) -> Steps:
    """SwiGLU in the epilogue of two linears of one input, whose columns are interleaved: gate * sigmoid(gate) * up."""
    yield from gated_product(x, weight, scales, group_size, bias, out)


def gated_product(
    x: LiveTensor,
    weight: LiveTensor,
    scales: LiveTensor,
    group: int,
    bias: LiveTensor | None,
    out: LiveTensor,
    norm: Norm | None = None,
) -> Steps:
    """`out` is floats, or quantized for the layer that reads it: see `lower/activations.py`."""
    shape = (*x.shape[:-1], weight.shape[0] // 2)
    if out.dtype not in QUANTIZED_DTYPES:
        out.shape = shape
        yield from q4_product(x, weight, scales, group, bias, (out,), GATED, norm)
        return
    out.shape = quantized_shape(shape)
    limits: Limits = yield GetLimits()
    if not quantizes_gated(prod(x.max_shape[:-1]), limits):
        floats: LiveTensor = yield Scratch("float32", (*x.max_shape[:-1], weight.max_shape[0] // 2))
    if quantizes_gated(prod(x.shape[:-1]), limits):
        yield from q4_product(
            x, weight, scales, group, bias, (out,), GATED_QUANTIZED, norm, quantized_units=GATED_UNITS
        )
        return
    floats.shape = shape
    yield from q4_product(x, weight, scales, group, bias, (floats,), GATED, norm)
    yield from quantize_rows(floats, None, None, out)


def axis_to_cache(node: Node, carried: Carried, *names: str) -> int | None:
    """The axis of rows that are rotated and cached by a table; angles of the rows themselves have these rows, too."""
    angles = {node.named["cosine"], node.named["sine"]} if node.named["start_pos"] is None else set()
    if any(carried.get(table) != 0 for table in angles):
        return None
    others = {value: axis for value, axis in carried.items() if value not in angles}
    return axis_by_table(node, others, ("start_pos", "input_pos"), *names)


def _rotated_to_cache(node: Node, carried: Carried) -> Carried | None:
    return outputs_along(node, 1) if axis_to_cache(node, carried, "xq", "xk", "v") == 1 else None


@op(
    "liveshape.rotary_to_cache",
    rows=_rotated_to_cache,
    mutates=("k_cache", "v_cache"),
    cache=CacheRows({"k_cache": 1, "v_cache": 1}, "input_pos"),
    fused_from=("et_vk.apply_rotary_emb_hf.default", "sdpa_with_kv_cache.default"),
)
def rotary_to_cache(
    xq: LiveTensor,
    xk: LiveTensor,
    v: LiveTensor,
    cosine: LiveTensor,
    sine: LiveTensor,
    start_pos: Start | None,  # in tables of every position; None where they are of the live rows
    k_cache: LiveTensor,
    v_cache: LiveTensor,
    input_pos: Start,
    out: LiveTensor,
) -> Iterator[Dispatch]:
    """Rotary embedding of queries and keys; keys and values go to the KV cache in the same dispatch."""
    if start_pos is None:
        angles = angles_of_rows(xq, xk, cosine, sine)
    else:
        angles = angles_of_positions(xq, xk, cosine, sine, start_pos)
    first = first_row(start_pos, input_pos)
    run, start, stride = new_rows(xq, xk, v, k_cache, v_cache, input_pos)
    out.shape = xq.shape
    tensors = (out, k_cache, xq, xk, cosine, sine, v, v_cache)
    yield rotate(tensors, angles, first, run, start, stride, ROTARY_TO_CACHE)
