"""4-bit layers together with what comes before or after them: `lower/layers.py` finds where that is the same."""

from __future__ import annotations

from collections.abc import Callable

from liveshape.graph.live import LiveTensor
from liveshape.kernels.requests import Scratch
from liveshape.ops.binary import binary
from liveshape.ops.fused import gated_product, three_products
from liveshape.ops.normalization import rms_norm, rows_of
from liveshape.ops.quantized import ONE_LAYER, Norm, Q4Kernels, Steps, linear_q4gsw, q4_product
from liveshape.ops.registry import Tensors, op

ADDED_LAYER = Q4Kernels.putting("q4_put_added")


@op("liveshape.added_linear_q4gsw")
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
    product: LiveTensor = yield Scratch(out.dtype, out.max_shape)
    shape = (*x.shape[:-1], weight.shape[0])
    if residual.shape != shape:
        yield from linear_q4gsw(x, weight, scales, group_size, bias, product)
        yield from binary("ADD", residual, product, out)
        return
    out.shape = shape
    yield from q4_product(x, weight, scales, group_size, scales.shape[1], bias, (residual, out), ADDED_LAYER)


def _normed(x: LiveTensor, norm: LiveTensor, eps: float, layer: Callable[[LiveTensor, Norm | None], Steps]) -> Steps:
    """A layer of the norm of x: one row is normed by every workgroup of the layer, several are normed before."""
    normed: LiveTensor = yield Scratch(x.dtype, x.max_shape)
    if rows_of(x, norm, eps)["rows"] == 1:
        yield from layer(x, Norm(norm, eps))
    else:
        yield from rms_norm(x, norm, eps, normed)
        yield from layer(normed, None)


@op("liveshape.normed_linear_q4gsw")
def normed_linear_q4gsw(
    x: LiveTensor,
    norm_weight: LiveTensor,
    eps: float,
    weight: LiveTensor,
    scales: LiveTensor,
    group_size: int,
    out: LiveTensor,
) -> Steps:
    """A layer of a norm that nobody else wants."""
    out.shape = (*x.shape[:-1], weight.shape[0])

    def layer(rows: LiveTensor, norm: Norm | None) -> Steps:
        yield from q4_product(rows, weight, scales, group_size, scales.shape[1], None, (out,), ONE_LAYER, norm)

    yield from _normed(x, norm_weight, eps, layer)


@op("liveshape.normed_three_linear_q4gsw")
def normed_three_linear_q4gsw(
    x: LiveTensor,
    norm_weight: LiveTensor,
    eps: float,
    weight: LiveTensor,
    scales: LiveTensor,
    group_size: int,
    outputs: Tensors,
) -> Steps:
    """Three layers of a norm that nobody else wants."""

    def layers(rows: LiveTensor, norm: Norm | None) -> Steps:
        yield from three_products(rows, weight, scales, group_size, None, outputs, norm)

    yield from _normed(x, norm_weight, eps, layers)


@op("liveshape.normed_gated_linear_q4gsw")
def normed_gated_linear_q4gsw(
    x: LiveTensor,
    norm_weight: LiveTensor,
    eps: float,
    weight: LiveTensor,
    scales: LiveTensor,
    group_size: int,
    out: LiveTensor,
) -> Steps:
    """A gated unit of a norm that nobody else wants."""

    def layers(rows: LiveTensor, norm: Norm | None) -> Steps:
        yield from gated_product(rows, weight, scales, group_size, None, out, norm)

    yield from _normed(x, norm_weight, eps, layers)
