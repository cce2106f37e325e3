"""4-bit layers together with what comes before or after them: `lower/layers.py` finds where that is the same."""

from __future__ import annotations

from liveshape.graph.live import LiveTensor
from liveshape.kernels.requests import Scratch
from liveshape.ops.binary import binary
from liveshape.ops.quantized import Q4Kernels, Steps, linear_q4gsw, q4_product
from liveshape.ops.registry import op

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
