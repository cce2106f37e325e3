"""Training: a loss with its gradient, gradients of linear layers, weights to 4 bits, and a step of AdamW."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from liveshape.check.meanings.meaning_table import meaning
from liveshape.check.meanings.weight_meanings import grouped_weight


@meaning("et_vk.fused_ce.default")
def _cross_entropy(logits: Any, labels: Any, n_valid: float) -> Sequence[Any]:
    """The loss, and its gradient by the logits; rows whose label is below zero do not count."""
    wide, counted = logits.astype(np.float64), np.flatnonzero(labels >= 0)
    shifted = wide - wide.max(-1, keepdims=True, initial=-np.inf)
    logs = shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))
    gradient = np.zeros_like(wide)
    gradient[counted] = np.exp(logs[counted])
    gradient[counted, labels[counted]] -= 1
    return [-logs[counted, labels[counted]].sum() / n_valid, gradient / n_valid]


@meaning("et_vk.linear_dW.default")
def _gradient_of_weight(d_out: Any, x: Any) -> Sequence[Any]:
    rows, given = (each.reshape(-1, each.shape[-1]).astype(np.float64) for each in (d_out, x))
    return [rows.T @ given]


@meaning("et_vk.linear_q4gsw_backward.default")
def _gradient_of_input(d_out: Any, weight: Any, scales: Any, group: int) -> Sequence[Any]:
    return [d_out.astype(np.float64) @ grouped_weight(weight, scales, group)]


@meaning("et_vk.q4gsw_requant.default")
def _requantized(latent: Any, scales: Any, group: int) -> Sequence[Any]:
    """Codes offset by 8, two of a byte, the low one first; a scale of zero gives the code of zero."""
    rows, width = latent.shape
    step = np.repeat(scales.astype(np.float32), group, axis=0)[:width].T
    with np.errstate(all="ignore"):
        codes = np.where(step == 0, 0, np.rint(latent.astype(np.float32) / step))
    nibbles = np.zeros((rows, width + width % 2), np.uint8)
    nibbles[:, :width] = np.clip(codes, -8, 7) + 8
    return [nibbles[:, ::2] | nibbles[:, 1::2] << 4]


@meaning("adamw_step.default", "et_vk.adamw_step.default")
def _adamw(
    param: Any, m: Any, v: Any, grad: Any, lr: float, beta1: float, beta2: float, eps: float, weight_decay: float,
    bias_correction1: float, bias_correction2: float,
) -> Sequence[Any]:  # fmt: skip
    """Parameters and moments, in place and as results."""
    weight, first, second, slope = (each.astype(np.float64) for each in (param, m, v, grad))
    first = beta1 * first + (1 - beta1) * slope
    second = beta2 * second + (1 - beta2) * slope**2
    move = first / bias_correction1 / (np.sqrt(second / bias_correction2) + eps)
    weight = weight * (1 - lr * weight_decay) - lr * move
    return [weight, first, second] * 2
