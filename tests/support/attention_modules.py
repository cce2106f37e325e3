"""Attention as people write it in torch: functions and modules of torch, and what transformers, timm, diffusers do.

Each takes rows x, another sequence, which rows of x are no padding, and a bias of scores.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

WIDTH, HEADS, SIZE = 32, 4, 8


def split(x: Tensor, heads: int = HEADS) -> Tensor:
    return x.view(x.shape[0], x.shape[1], heads, -1).transpose(1, 2)


def merged(y: Tensor) -> Tensor:
    return y.transpose(1, 2).reshape(y.shape[0], y.shape[2], -1)


class Projected(nn.Module):
    """Projections, and `attend` between them."""

    key_heads = HEADS

    def __init__(self) -> None:
        super().__init__()
        columns = self.key_heads * SIZE
        self.q, self.k, self.v, self.o = (nn.Linear(WIDTH, each) for each in (WIDTH, columns, columns, WIDTH))

    def forward(self, x: Tensor, other: Tensor, seen: Tensor, bias: Tensor) -> Any:
        q = split(self.q(x))
        k, v = (split(layer(x), self.key_heads) for layer in (self.k, self.v))
        return self.o(merged(self.attend(q, k, v, seen, bias)))

    def attend(self, q: Tensor, k: Tensor, v: Tensor, seen: Tensor, bias: Tensor) -> Tensor:
        return functional.scaled_dot_product_attention(q, k, v)


class Masked(Projected):
    def attend(self, q: Tensor, k: Tensor, v: Tensor, seen: Tensor, bias: Tensor) -> Tensor:
        return functional.scaled_dot_product_attention(q, k, v, attn_mask=seen[:, None, None, :])


class Biased(Projected):
    def attend(self, q: Tensor, k: Tensor, v: Tensor, seen: Tensor, bias: Tensor) -> Tensor:
        return functional.scaled_dot_product_attention(q, k, v, attn_mask=bias)


class Causal(Projected):
    def attend(self, q: Tensor, k: Tensor, v: Tensor, seen: Tensor, bias: Tensor) -> Tensor:
        return functional.scaled_dot_product_attention(q, k, v, is_causal=True)


class Grouped(Projected):
    key_heads = 2

    def attend(self, q: Tensor, k: Tensor, v: Tensor, seen: Tensor, bias: Tensor) -> Tensor:
        return functional.scaled_dot_product_attention(q, k, v, enable_gqa=True)


class Crossed(Projected):
    def forward(self, x: Tensor, other: Tensor, seen: Tensor, bias: Tensor) -> Any:
        q, k, v = split(self.q(x)), split(self.k(other)), split(self.v(other))
        return self.o(merged(functional.scaled_dot_product_attention(q, k, v)))


class Unsplit(Projected):
    """One head, as in the autoencoders of diffusers."""

    def forward(self, x: Tensor, other: Tensor, seen: Tensor, bias: Tensor) -> Any:
        return self.o(functional.scaled_dot_product_attention(self.q(x), self.k(x), self.v(x)))


class Eager(Projected):
    """transformers: eager_attention_forward with repeat_kv."""

    key_heads = 2

    def attend(self, q: Tensor, k: Tensor, v: Tensor, seen: Tensor, bias: Tensor) -> Tensor:
        k, v = (x[:, :, None].expand(-1, -1, 2, -1, -1).reshape(x.shape[0], HEADS, -1, SIZE) for x in (k, v))
        scores = torch.matmul(q, k.transpose(2, 3)) * SIZE**-0.5 + bias[:, :1, :, : k.shape[-2]]
        shares = functional.softmax(scores, dim=-1, dtype=torch.float32).to(q.dtype)
        return torch.matmul(shares, v)


class Bert(Projected):
    """transformers: BertSelfAttention with an extended attention mask."""

    def attend(self, q: Tensor, k: Tensor, v: Tensor, seen: Tensor, bias: Tensor) -> Tensor:
        extended = (1.0 - seen[:, None, None, :].to(q.dtype)) * torch.finfo(q.dtype).min
        return torch.matmul(functional.softmax(q @ k.transpose(-1, -2) / math.sqrt(SIZE) + extended, -1), v)


class DistilBert(Projected):
    """transformers: MultiHeadSelfAttention of DistilBERT."""

    def attend(self, q: Tensor, k: Tensor, v: Tensor, seen: Tensor, bias: Tensor) -> Tensor:
        scores = torch.matmul(q / math.sqrt(SIZE), k.transpose(2, 3))
        hidden = (~seen).view(q.shape[0], 1, 1, q.shape[2]).expand_as(scores)
        scores = scores.masked_fill(hidden, torch.tensor(torch.finfo(scores.dtype).min))
        return torch.matmul(functional.softmax(scores, dim=-1), v)


class T5(Projected):
    """transformers: T5Attention, a bias by distance and no scale."""

    def __init__(self) -> None:
        super().__init__()
        self.relative = nn.Embedding(16, HEADS)

    def attend(self, q: Tensor, k: Tensor, v: Tensor, seen: Tensor, bias: Tensor) -> Tensor:
        places = torch.arange(q.shape[2])
        distances = torch.clamp(places[None, :] - places[:, None] + 8, 0, 15)
        by_place = self.relative(distances).permute(2, 0, 1).unsqueeze(0)
        by_place = by_place + (1.0 - seen[:, None, None, :].to(q.dtype)) * -1e4
        scores = torch.matmul(q, k.transpose(3, 2)) + by_place
        return torch.matmul(functional.softmax(scores.float(), dim=-1).type_as(scores), v)


class Timm(nn.Module):
    """timm: Attention of vision transformers, without the fused function."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.o = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor, other: Tensor, seen: Tensor, bias: Tensor) -> Any:
        batch, rows, width = x.shape
        q, k, v = self.qkv(x).reshape(batch, rows, 3, HEADS, SIZE).permute(2, 0, 3, 1, 4).unbind(0)
        shares = (q * SIZE**-0.5 @ k.transpose(-2, -1)).softmax(dim=-1)
        return self.o((shares @ v).transpose(1, 2).reshape(batch, rows, width))


class Diffusers(Projected):
    """diffusers: AttnProcessor, heads among the batch and baddbmm of nothing."""

    def forward(self, x: Tensor, other: Tensor, seen: Tensor, bias: Tensor) -> Any:
        q, k, v = (
            split(layer(rows)).reshape(rows.shape[0] * HEADS, rows.shape[1], SIZE)
            for layer, rows in ((self.q, x), (self.k, other), (self.v, other))
        )
        empty = torch.empty(q.shape[0], q.shape[1], k.shape[1], dtype=q.dtype)
        shares = torch.baddbmm(empty, q, k.transpose(-1, -2), beta=0, alpha=SIZE**-0.5).softmax(-1)
        out = torch.bmm(shares, v).reshape(x.shape[0], HEADS, x.shape[1], SIZE)
        return self.o(out.permute(0, 2, 1, 3).reshape(x.shape[0], x.shape[1], WIDTH))


class MultiHead(nn.Module):
    """torch.nn.MultiheadAttention, without weights as its result and with."""

    def __init__(self, weights: bool) -> None:
        super().__init__()
        self.attention, self.weights = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True), weights

    def forward(self, x: Tensor, other: Tensor, seen: Tensor, bias: Tensor) -> Any:
        return self.attention(x, x, x, key_padding_mask=~seen, need_weights=self.weights)[0]


KINDS = (
    Projected, Masked, Biased, Causal, Grouped, Crossed, Unsplit, Eager, Bert, DistilBert, T5, Timm, Diffusers,
)  # fmt: skip


class All(nn.Module):
    """One of each, side by side."""

    def __init__(self) -> None:
        super().__init__()
        self.kinds = nn.ModuleList([*(kind() for kind in KINDS), MultiHead(False), MultiHead(True)])

    def forward(self, x: Tensor, other: Tensor, seen: Tensor, bias: Tensor) -> Any:
        return tuple(kind(x, other, seen, bias) for kind in self.kinds)
