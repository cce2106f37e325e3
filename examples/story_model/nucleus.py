"""Nucleus (top-p) sampling without a sort: the cut is found by bisection, the draw by the Gumbel race."""

from __future__ import annotations

import torch

BISECTIONS = 12


def draw(logits: torch.Tensor, temperature: torch.Tensor, top_p: float) -> torch.Tensor:
    """One id per row of `logits` (batch, vocabulary), from the likeliest ids that hold `top_p` of the mass.

    The cut is at most max(p) / 4096 too low, so the set may hold a few ids more than a sort would keep.

    >>> draw(torch.tensor([[9.0, 0.0, 0.0]]), torch.tensor([[0.5]]), 0.9)
    tensor([0])
    """
    logits = logits.float() / temperature
    p = torch.softmax(logits, dim=-1)
    low = torch.zeros_like(temperature)
    high = p.amax(dim=-1, keepdim=True)
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        enough = torch.where(p >= middle, p, 0.0).sum(dim=-1, keepdim=True) >= top_p
        low, high = torch.where(enough, middle, low), torch.where(enough, high, middle)
    # rand is in [0, 1): the clamp keeps both logarithms finite.
    gumbel = -torch.log(-torch.log(torch.rand_like(p).clamp(1e-20, 1 - 1e-7)))
    return torch.where(p >= low, logits + gumbel, float("-inf")).argmax(dim=-1)
