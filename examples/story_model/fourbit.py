"""Symmetric 4-bit weights in groups of 32, exactly as torchao's IntxWeightOnlyConfig(int4, PerGroup(32)) rounds them.

Quantization-aware training needs no autograd trick: the forward and backward pass see the quantized weights, and the
gradient is applied to the float ones (the straight-through estimator).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

GROUP = 32
LOWEST, HIGHEST = -8, 7


def round_groups(groups: torch.Tensor) -> torch.Tensor:
    """(N, 32) weights, each row quantized to 4 bits with its own scale and dequantized.

    >>> round_groups(torch.tensor([[7.5, -7.5, 0.4, 0.6]]))
    tensor([[ 7., -8.,  0.,  1.]])
    """
    scale = groups.abs().amax(dim=1, keepdim=True) / ((HIGHEST - LOWEST) / 2)
    scale = scale.clamp(min=torch.finfo(groups.dtype).smallest_normal)
    return (groups * (1.0 / scale)).round().clamp(LOWEST, HIGHEST) * scale


@contextmanager
def four_bits(model: nn.Module) -> Iterator[None]:
    """Inside, every matrix of the model holds its 4-bit values; after it, the full ones again.

    >>> with four_bits(model):
    ...     loss = model(tokens, targets)
    ...     loss.backward()
    """
    matrices = [weight for weight in model.parameters() if weight.dim() == 2]
    full = torch.cat([weight.detach().reshape(-1, GROUP) for weight in matrices])
    _fill(matrices, round_groups(full))
    try:
        yield
    finally:
        _fill(matrices, full)


@torch.no_grad()
def _fill(matrices: list[nn.Parameter], groups: torch.Tensor) -> None:
    sizes = [weight.numel() // GROUP for weight in matrices]
    for weight, part in zip(matrices, groups.split(sizes), strict=True):
        weight.copy_(part.view_as(weight))
