"""Training on a device: fused cross entropy with its gradient, the backward of linears, the optimizer step (AdamW)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from liveshape.errors import ShapeError, UnsupportedError
from liveshape.graph import Limits
from liveshape.graph.elements import prod
from liveshape.graph.live import LiveTensor
from liveshape.kernels import Dispatch, Kernel
from liveshape.kernels.requests import GetLimits, Scratch
from liveshape.ops.copies import copy_strided, copy_values
from liveshape.ops.matmul import ProductsByDepth, Steps, product
from liveshape.ops.reduction import SUM, reduce
from liveshape.ops.registry import Tensors, op
from liveshape.ops.shapes import Strided, ceil_div
from liveshape.ops.softmax import LOG_SUM_EXPS
from liveshape.ops.stages import Units, is_long, partials_of, reduction_threads, share_of

CROSS_ENTROPY = Kernel.load("training/cross_entropy")
CROSS_ENTROPY_BY_PARTS = Kernel.load("training/cross_entropy", STAGE="results")
ADAMW = Kernel.load("training/adamw")
REQUANTIZE_Q4 = Kernel.load("quantization/requantize_q4")
NIBBLES = ProductsByDepth.of_weight("nibbles")


@op("et_vk.fused_ce.default")
def fused_ce(logits: LiveTensor, labels: LiveTensor, n_valid: float, out: Tensors) -> Steps:
    """The sum of the rows' cross entropies over n_valid, and its gradient; rows with a negative label do not count."""
    loss, gradient = out
    losses: LiveTensor = yield Scratch("float32", logits.max_shape[:1])
    if logits.rank != 2 or labels.shape != logits.shape[:1]:
        raise ShapeError(f"scores {logits.shape} and labels {labels.shape} must be [rows, classes] and [rows]")
    limits: Limits = yield GetLimits()
    totals = yield from partials_of(Units(logits.max_shape[0], logits.max_shape[-1], inner=True), limits)
    rows, length = logits.shape
    if rows and not length:
        raise ShapeError(f"scores {logits.shape} have no class that a label could name")
    gradient.shape = logits.shape
    losses.shape = (rows,)
    units = Units(rows, length, inner=True)
    values: dict[str, Any] = {"n_valid": n_valid, "not_a_number": math.nan}
    tensors = losses, gradient, logits, labels
    if totals is None or not is_long(units, limits):
        yield CROSS_ENTROPY(*tensors, **values, **reduction_threads(units, limits))
    else:
        parts = reduction_threads(units, limits, share_of(units, limits))
        yield LOG_SUM_EXPS(totals, logits, **parts, inner=1)
        yield CROSS_ENTROPY_BY_PARTS(*tensors, totals, **values, **parts)
    yield from reduce(SUM, losses, None, False, loss)


@op("adamw_step.default", "et_vk.adamw_step.default", mutates=("param", "m", "v"))
def adamw_step(
    param: LiveTensor,
    m: LiveTensor,
    v: LiveTensor,
    grad: LiveTensor,
    lr: float,
    beta1: float,
    beta2: float,
    eps: float,
    weight_decay: float,
    bias_correction1: float,
    bias_correction2: float,
    out: Tensors,
) -> Iterator[Dispatch]:
    """The results are what was changed in place: a copy, or the same memory, which they may name."""
    if not param.shape == m.shape == v.shape == grad.shape:
        raise ShapeError(f"a weight {param.shape}, its moments {m.shape}, {v.shape} and gradient {grad.shape} differ")
    vec4s = ceil_div(param.numel, 4)
    yield ADAMW(
        param, m, v, grad, count=vec4s, decay=1 - lr * weight_decay, kept=(beta1, beta2),
        taken=(1 - beta1, 1 - beta2), correction=(bias_correction1, bias_correction2), rate=lr, eps=eps, threads=vec4s,
    )  # fmt: skip
    for changed, result in zip((param, m, v), out, strict=True):
        result.shape = changed.shape
        yield from copy_values(changed, result)


@op("et_vk.linear_dW.default")
def linear_dw(d_out: LiveTensor, x: LiveTensor, out: LiveTensor) -> Steps:
    """d_out.T @ x over all rows; d_out is transposed first, since a product reads its left operand by rows."""
    if not d_out.rank or not x.rank:
        raise ShapeError(f"gradients {d_out.shape} and inputs {x.shape} must be rows")
    turned: LiveTensor = yield Scratch(d_out.dtype, (d_out.max_shape[-1], prod(d_out.max_shape[:-1])))
    if prod(d_out.shape[:-1]) != prod(x.shape[:-1]):
        raise ShapeError(f"gradients {d_out.shape} and inputs {x.shape} must have as many rows")
    rows, columns, depth = prod(x.shape[:-1]), d_out.shape[-1], x.shape[-1]
    turned.shape, out.shape = (columns, rows), (columns, depth)
    yield from copy_strided(d_out, turned, Strided((columns, rows), (1, columns)))
    yield from product(turned, x, out, 1, columns, depth, rows, transposed=False)


@op("et_vk.linear_q4gsw_backward.default")
def linear_q4gsw_backward(
    d_out: LiveTensor, weight: LiveTensor, scales: LiveTensor, group_size: int, out: LiveTensor
) -> Steps:
    """d_out @ weight: the gradient of a 4-bit layer's input."""
    *lead, depth = d_out.shape
    columns = weight.shape[1] * 2
    if weight.shape[0] != depth:
        raise ShapeError(f"gradients {d_out.shape} do not fit a weight of {weight.shape} bytes")
    _check_groups(scales, group_size, depth, columns)
    out.shape = (*lead, columns)
    yield from product(
        d_out, weight, out, 1, prod(lead), columns, depth, transposed=False, kernels=NIBBLES, scales=(scales,),
        GROUP=group_size, SCALE_STRIDE=scales.shape[1],
    )  # fmt: skip


@op("et_vk.q4gsw_requant.default")
def q4gsw_requant(latent: LiveTensor, scales: LiveTensor, group_size: int, out: LiveTensor) -> Iterator[Dispatch]:
    """Requantize weights to 4-bit codes under scales that stay."""
    if latent.rank != 2:
        raise ShapeError(f"weights {latent.shape} must be [columns, depth]")
    rows, width = latent.shape
    _check_groups(scales, group_size, rows, width)
    if out.dtype != "uint8":
        raise UnsupportedError(f"4-bit codes go to bytes of uint8, not to {out.dtype}")
    out.shape = (rows, ceil_div(width, 2))
    words = ceil_div(out.numel, 4)
    yield REQUANTIZE_Q4(
        out, latent, scales, count=words, bytes=out.numel, row_bytes=out.shape[1], width=width, group=group_size,
        scale_stride=scales.shape[1], threads=words,
    )  # fmt: skip


def _check_groups(scales: LiveTensor, group: int, columns: int, depth: int) -> None:
    """The kernels trust these sizes: nothing else keeps them inside the scales."""
    if group < 1 or scales.rank != 2 or scales.shape[0] < ceil_div(depth, group) or scales.shape[1] < columns:
        raise ShapeError(
            f"scales {scales.shape} must be [groups, columns], for {columns} columns of {depth} by groups of {group}"
        )
