"""Training operators: loss with gradient, gradients of linear layers, 4-bit codes of weights, and AdamW in place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from tests.ops.cases.quantized import ROWS, _packed
from tests.support.exporting import quiet
from tests.support.graphs import MAX, Const, In, InOut, OpCase, Out

Shape = Callable[[int], tuple[int, ...]]
FEW = (0, 1, 2, 5, 17, MAX)


def _loose(dtype: str, atol: float = 2e-5) -> dict[str, float]:
    return {"atol": 4e-3, "rtol": 4e-3} if dtype == "float16" else {"atol": atol, "rtol": 2e-5}


def _fused_ce(dtype: str, shape: Shape, n_valid: float, spread: float = 1.0) -> OpCase:
    """Labels below zero do not count; scores far apart would overflow without care."""

    def labels(size: int) -> Callable[..., Any]:
        return lambda generator, rows: generator.integers(-1, max(shape(size)[1], 1), rows)

    def golden(logits: torch.Tensor, given: torch.Tensor, _: int) -> tuple[torch.Tensor, torch.Tensor]:
        scores = logits.double().requires_grad_()
        counted = torch.nn.functional.cross_entropy(scores, given.long(), ignore_index=-1, reduction="sum") / n_valid
        counted.backward()
        return counted.detach(), scores.grad

    return OpCase(
        name=f"fused_ce {dtype} {shape(0)} by {n_valid} spread {spread}",
        op="et_vk.fused_ce.default",
        args_at=lambda s: [
            In(dtype, shape(s), lambda generator, given: generator.standard_normal(given) * spread),
            In("int64", shape(s)[:1], labels(s)),
            n_valid,
            (Out(dtype, ()), Out(dtype, shape(s))),
        ],
        golden=golden,
        sizes=FEW,
        **_loose(dtype, 1e-4 if spread > 1 else 2e-5),
    )


def _adamw(dtype: str, shape: Shape, weight_decay: float, step: int) -> OpCase:
    settings = {"lr": 1e-2, "betas": (0.9, 0.99), "eps": 1e-8, "weight_decay": weight_decay}
    corrections = [1 - beta**step for beta in settings["betas"]]

    def golden(param: torch.Tensor, m: torch.Tensor, v: torch.Tensor, grad: torch.Tensor, _: int) -> Any:
        """torch's own optimizer, at the step before with the moments given."""
        parameter = torch.nn.Parameter(param.double())
        parameter.grad = grad.double()
        optimizer = torch.optim.AdamW([parameter], **settings)
        state = {"step": torch.tensor(float(step - 1)), "exp_avg": m.double(), "exp_avg_sq": v.double()}
        optimizer.state[parameter] = state
        optimizer.step()
        return (parameter.detach(), state["exp_avg"], state["exp_avg_sq"]) * 2

    def squares(generator: np.random.Generator, given: tuple[int, ...]) -> np.ndarray:
        return generator.random(given) + 0.01

    return OpCase(
        name=f"adamw_step {dtype} {shape(0)} decay {weight_decay} step {step}",
        op="adamw_step.default",
        args_at=lambda s: [
            InOut(dtype, shape(s)),
            InOut(dtype, shape(s)),
            InOut(dtype, shape(s), squares),
            In(dtype, shape(s)),
            *(settings["lr"], *settings["betas"], settings["eps"], weight_decay, *corrections),
            tuple(Out(dtype, shape(s)) for _ in range(3)),
        ],
        golden=golden,
        sizes=FEW,
        **_loose(dtype),
    )


def _linear_dw(dtype: str, lead: Shape, columns: int, depth: int) -> OpCase:
    return OpCase(
        name=f"linear_dW {dtype} {lead(0)} {depth} to {columns}",
        op="et_vk.linear_dW.default",
        args_at=lambda s: [In(dtype, (*lead(s), columns)), In(dtype, (*lead(s), depth)), Out(dtype, (columns, depth))],
        golden=lambda d_out, x, _: d_out.double().reshape(-1, columns).t() @ x.double().reshape(-1, depth),
        sizes=FEW,
        **({"atol": 5e-2, "rtol": 5e-3} if dtype == "float16" else {"atol": 5e-5, "rtol": 5e-5}),
    )


def _backward(dtype: str, depth: int, columns: int, group: int, lead: Shape, scale_dtype: str = "") -> OpCase:
    generator = np.random.default_rng((depth, columns, group))
    packed, values = _packed(generator, columns, depth, 2)
    scales = ((generator.random((-(-depth // group), columns)) + 0.5) / 16).astype(scale_dtype or dtype)
    weight = torch.from_numpy(values * np.repeat(scales.astype(np.float64), group, axis=0)[:depth].T)
    given_scales = np.pad(scales, ((0, 0), (0, 3)), constant_values=np.nan)
    return OpCase(
        name=f"linear_q4gsw_backward {dtype} {lead(0)} {depth} to {columns} by {group} scales {scales.dtype}",
        op="et_vk.linear_q4gsw_backward.default",
        args_at=lambda s: [
            In(dtype, (*lead(s), columns)),
            Const(packed),
            Const(given_scales),
            group,
            Out(dtype, (*lead(s), depth)),
        ],
        golden=lambda d_out, _: d_out.double() @ weight,
        sizes=ROWS,
        **({"atol": 3e-2, "rtol": 5e-3} if dtype == "float16" else {"atol": 5e-5, "rtol": 2e-5}),
    )


def _requant(dtype: str, shape: Shape, group: int) -> OpCase:
    """Weights in quarters of a step, so that halves, which round to even, are among them; a scale may be zero."""

    def scales(size: int) -> tuple[int, int]:
        rows, width = shape(size)
        return -(-width // group), rows

    def golden(latent: torch.Tensor, given: torch.Tensor, _: int) -> torch.Tensor:
        with quiet():
            from executorch.backends.vulkan.custom_ops_lib import q4gsw_requant_impl
        return q4gsw_requant_impl(latent.float(), given.float(), group)

    return OpCase(
        name=f"q4gsw_requant {dtype} {shape(0)} by {group}",
        op="et_vk.q4gsw_requant.default",
        args_at=lambda s: [
            In(dtype, shape(s), lambda generator, given: generator.integers(-40, 40, given) / 8),
            In(dtype, scales(s), lambda generator, given: generator.integers(0, 3, given) / 4),
            group,
            Out("uint8", (shape(s)[0], -(-shape(s)[1] // 2))),
        ],
        golden=golden,
        sizes=FEW,
    )


CASES = [
    _fused_ce("float32", lambda s: (s, 29), 7.0),
    _fused_ce("float32", lambda s: (3, s * 30 + 1), 3.0, spread=60.0),
    _fused_ce("float16", lambda s: (s, 37), 2.0),
    _adamw("float32", lambda s: (s, 5), 0.01, 1),
    _adamw("float32", lambda s: (s,), 0.0, 10),
    _adamw("float16", lambda s: (3, s), 0.01, 3),
    _linear_dw("float32", lambda s: (s,), 10, 18),
    _linear_dw("float32", lambda s: (2, s), 36, 64),
    _linear_dw("float32", lambda s: (1, s), 3, 7),
    _linear_dw("float16", lambda s: (s,), 24, 12),
    _backward("float32", 64, 48, 32, lambda s: (1, s)),
    _backward("float32", 30, 17, 6, lambda s: (s,)),
    _backward("float16", 64, 24, 16, lambda s: (s,)),
    _backward("float32", 16, 70, 16, lambda s: (s,), scale_dtype="float16"),
    _requant("float32", lambda s: (s, 29), 8),
    _requant("float32", lambda s: (6, s), 16),
    _requant("float16", lambda s: (s, 16), 8),
]
