"""4-bit layers together with what comes before or after them: `lower/q4_patterns.py` finds where that is the same."""

from __future__ import annotations

from collections.abc import Callable

from liveshape.errors import ShapeError
from liveshape.graph import Limits
from liveshape.graph.elements import prod
from liveshape.graph.live import LiveTensor
from liveshape.graph.traits import CacheRows
from liveshape.kernels.requests import GetLimits, Scratch
from liveshape.ops.attention import check_room
from liveshape.ops.binary import binary
from liveshape.ops.fused import gated_product, three_products
from liveshape.ops.normalization import rms_norm, rows_of
from liveshape.ops.q4_kernels import ADDED, ADDED_QUANTIZED, ROTARY
from liveshape.ops.quantized import (
    BYTES,
    FUSED_LAYER,
    NORMED_LAYER,
    Norm,
    Steps,
    linear_q4gsw,
    q4_product,
    quantized_shape,
    rounds,
)
from liveshape.ops.quantized_ways import ADDED_UNITS, defers_norm
from liveshape.ops.registry import Tensors, op
from liveshape.ops.rotary import check_positions, check_rows
from liveshape.ops.row_rules import row_wise


@op(
    "liveshape.added_linear_q4gsw",
    rows=row_wise("x", "residual"),
    product=FUSED_LAYER,
    fused_from=("et_vk.linear_q4gsw.default", "aten.add.Tensor"),
)
def added_linear_q4gsw(
    x: LiveTensor,
    weight: LiveTensor,
    scales: LiveTensor,
    group_size: int,
    bias: LiveTensor | None,
    residual: LiveTensor,
    out: LiveTensor,
) -> Steps:
    """residual + x @ weight.T + bias; where the live shapes differ it is a layer, and a sum that broadcasts."""
    yield from _added_product(x, weight, scales, group_size, bias, residual, out)


@op(
    "liveshape.rounded_added_linear_q4gsw",
    rows=row_wise("x", "residual"),
    for_one_row=(1,),
    product=FUSED_LAYER,
    fused_from=("liveshape.added_linear_q4gsw",),
)
def rounded_added_linear_q4gsw(
    x: LiveTensor,
    weight: LiveTensor,
    scales: LiveTensor,
    group_size: int,
    bias: LiveTensor | None,
    residual: LiveTensor,
    norm_weight: LiveTensor,
    outputs: Tensors,
) -> Steps:
    """The same, and if it is one row also as bytes for layers of its norm, which take these instead of it.

    The bytes are those of the sum times the weight of the norm, with squares beside them: what all of a row is scaled
    by does not change its bytes.
    """
    total, rounded = outputs
    yield from _added_product(x, weight, scales, group_size, bias, residual, total, (norm_weight, rounded))
    rounded.shape = quantized_shape(total.shape)


def _added_product(
    x: LiveTensor,
    weight: LiveTensor,
    scales: LiveTensor,
    group: int,
    bias: LiveTensor | None,
    residual: LiveTensor,
    out: LiveTensor,
    later: tuple[LiveTensor, LiveTensor] | None = None,
) -> Steps:
    product: LiveTensor = yield Scratch(out.dtype, out.max_shape)
    shape = (*x.shape[:-1], weight.shape[0])
    if residual.shape != shape:
        yield from linear_q4gsw(x, weight, scales, group, bias, product)
        yield from binary("ADD", residual, product, out)
        return
    out.shape = shape
    limits: Limits = yield GetLimits()
    if later is not None and defers_norm(prod(x.shape[:-1]), limits):
        norm_weight, rounded = later
        outs = (residual, norm_weight, out, rounded)
        yield from q4_product(x, weight, scales, group, bias, outs, ADDED_QUANTIZED, together=ADDED_UNITS)
    else:
        yield from q4_product(x, weight, scales, group, bias, (residual, out), ADDED)


@op(
    "liveshape.turned_linear_q4gsw",
    mutates=("k_cache", "v_cache"),
    cache=CacheRows({"k_cache": 1, "v_cache": 1}, "input_pos"),
    product=FUSED_LAYER,
    fused_from=("liveshape.three_linear_q4gsw", "liveshape.rotary_to_cache"),
)
def turned_linear_q4gsw(
    x: LiveTensor,
    weight: LiveTensor,
    scales: LiveTensor,
    group_size: int,
    bias: LiveTensor | None,
    cosine: LiveTensor,
    sine: LiveTensor,
    start_pos: int | None,  # in tables of every position; None where they are of the live rows
    k_cache: LiveTensor,
    v_cache: LiveTensor,
    input_pos: int,
    out: LiveTensor,
) -> Steps:
    """Turned queries of x; its keys turn on their way to the cache, and its values go with them."""
    angles = (cosine, sine, start_pos)
    yield from _turned_products(x, weight, scales, group_size, bias, angles, (k_cache, v_cache, input_pos), out)


def _turned_products(
    x: LiveTensor,
    weight: LiveTensor,
    scales: LiveTensor,
    group: int,
    bias: LiveTensor | None,
    angles: tuple[LiveTensor, LiveTensor, int | None],
    caches: tuple[LiveTensor, LiveTensor, int],
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
    if k_cache.shape != v_cache.shape or weight.shape[0] != (heads + 2 * key_heads) * size:
        raise ShapeError(
            f"caches {k_cache.shape} and {v_cache.shape} must be alike, and {weight.shape[0]} columns must be "
            f"{heads} heads of queries and those of keys and values, of {size} each"
        )
    yield from q4_product(
        x,
        weight,
        scales,
        group,
        bias,
        (cosine, sine, out, k_cache, v_cache),
        ROTARY,
        norm,
        first_row=0 if start is None else start,
        cache_start=position * key_heads * size,
        NEIGHBOURS=start is None,
        SIZE=size,
        FIRST=heads * size,
        SECOND=key_heads * size,
    )


def _normed(
    x: LiveTensor,
    norm_weight: LiveTensor,
    norm: Norm,
    rounded: LiveTensor | None,
    weight: LiveTensor,
    group: int,
    layer: Callable[[LiveTensor, Norm | None], Steps],
) -> Steps:
    """A layer of the norm of x: one row is normed by every workgroup of the layer, several are normed before.

    One row may have been `rounded` where it was made.
    """
    int8 = rounds(x, weight, group)
    normed: LiveTensor = (
        yield Scratch(BYTES[0], quantized_shape(x.max_shape)) if int8 else Scratch(x.dtype, x.max_shape)
    )
    limits: Limits = yield GetLimits()
    rows = rows_of(x, norm_weight, norm.eps)["rows"]
    if rounded is not None and defers_norm(rows, limits):
        yield from layer(rounded, Norm(None, norm.eps))
    elif rounded is None and rows == 1:
        yield from layer(x, norm)
    else:
        yield from rms_norm(x, norm_weight, norm.eps, normed)
        yield from layer(normed, None)


@op(
    "liveshape.normed_linear_q4gsw",
    rows=row_wise("x", "rounded"),
    product=NORMED_LAYER,
    fused_from=("et_vk.rms_norm.default", "et_vk.linear_q4gsw.default"),
)
def normed_linear_q4gsw(
    x: LiveTensor,
    norm_weight: LiveTensor,
    terms: LiveTensor,
    eps: float,
    rounded: LiveTensor | None,
    weight: LiveTensor,
    scales: LiveTensor,
    group_size: int,
    bias: LiveTensor | None,
    out: LiveTensor,
) -> Steps:
    """A layer of a norm that nobody else wants."""
    out.shape = (*x.shape[:-1], weight.shape[0])

    def layer(rows: LiveTensor, norm: Norm | None) -> Steps:
        yield from q4_product(rows, weight, scales, group_size, bias, (out,), norm=norm)

    yield from _normed(x, norm_weight, Norm(terms, eps), rounded, weight, group_size, layer)


@op(
    "liveshape.normed_three_linear_q4gsw",
    rows=row_wise("x", "rounded"),
    product=NORMED_LAYER,
    fused_from=("et_vk.rms_norm.default", "liveshape.three_linear_q4gsw"),
)
def normed_three_linear_q4gsw(
    x: LiveTensor,
    norm_weight: LiveTensor,
    terms: LiveTensor,
    eps: float,
    rounded: LiveTensor | None,
    weight: LiveTensor,
    scales: LiveTensor,
    group_size: int,
    bias: LiveTensor | None,
    outputs: Tensors,
) -> Steps:
    """Three layers of a norm that nobody else wants."""

    def layers(rows: LiveTensor, norm: Norm | None) -> Steps:
        yield from three_products(rows, weight, scales, group_size, bias, outputs, norm)

    yield from _normed(x, norm_weight, Norm(terms, eps), rounded, weight, group_size, layers)


@op(
    "liveshape.normed_gated_linear_q4gsw",
    rows=row_wise("x", "rounded"),
    product=NORMED_LAYER,
    fused_from=("et_vk.rms_norm.default", "liveshape.gated_linear_q4gsw"),
)
def normed_gated_linear_q4gsw(
    x: LiveTensor,
    norm_weight: LiveTensor,
    terms: LiveTensor,
    eps: float,
    rounded: LiveTensor | None,
    weight: LiveTensor,
    scales: LiveTensor,
    group_size: int,
    bias: LiveTensor | None,
    out: LiveTensor,
) -> Steps:
    """A gated unit of a norm that nobody else wants."""

    def layers(rows: LiveTensor, norm: Norm | None) -> Steps:
        yield from gated_product(rows, weight, scales, group_size, bias, out, norm)

    yield from _normed(x, norm_weight, Norm(terms, eps), rounded, weight, group_size, layers)


@op(
    "liveshape.normed_turned_linear_q4gsw",
    mutates=("k_cache", "v_cache"),
    cache=CacheRows({"k_cache": 1, "v_cache": 1}, "input_pos"),
    product=NORMED_LAYER,
    fused_from=("et_vk.rms_norm.default", "liveshape.turned_linear_q4gsw"),
)
def normed_turned_linear_q4gsw(
    x: LiveTensor,
    norm_weight: LiveTensor,
    terms: LiveTensor,
    eps: float,
    rounded: LiveTensor | None,
    weight: LiveTensor,
    scales: LiveTensor,
    group_size: int,
    bias: LiveTensor | None,
    cosine: LiveTensor,
    sine: LiveTensor,
    start_pos: int | None,
    k_cache: LiveTensor,
    v_cache: LiveTensor,
    input_pos: int,
    out: LiveTensor,
) -> Steps:
    """Turned queries of a norm that nobody else wants; its keys and values go to their caches."""
    angles, caches = (cosine, sine, start_pos), (k_cache, v_cache, input_pos)

    def layers(rows: LiveTensor, norm: Norm | None) -> Steps:
        yield from _turned_products(rows, weight, scales, group_size, bias, angles, caches, out, norm)

    yield from _normed(x, norm_weight, Norm(terms, eps), rounded, weight, group_size, layers)
