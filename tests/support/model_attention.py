"""Attention as the models of transformers, torch.nn and diffusers write it: what surrounds the products differs most.

docs/attention.md has the source of each. Arguments are those of `attention_modules.py`.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from tests.support.attention_modules import HEADS, SIZE, WIDTH, Projected, merged, split

LONGEST = 64
LEAST = torch.finfo(torch.float32).min


def additive(seen: Tensor, dtype: torch.dtype) -> Tensor:
    """What transformers makes of padding: zero, or the least number."""
    return (1.0 - seen[:, None, None, :].to(dtype)) * LEAST


class Gpt2(nn.Module):
    """One projection of three, a scale by the layer's number, a causal mask that is cut from a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.o = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.register_buffer("below", torch.ones(1, 1, LONGEST, LONGEST, dtype=torch.bool).tril())

    def forward(self, x: Tensor, other: Tensor, seen: Tensor, bias: Tensor) -> Any:
        q, k, v = (split(each) for each in self.qkv(x).split(WIDTH, dim=2))
        scores = q @ k.transpose(-1, -2) / torch.full([], SIZE**0.5, dtype=q.dtype) / 2.0
        rows, keys = q.size(-2), k.size(-2)
        below = self.below[:, :, keys - rows : keys, :keys]
        scores = torch.where(below, scores, torch.full([], torch.finfo(scores.dtype).min, dtype=scores.dtype))
        return self.o(merged(functional.softmax(scores, dim=-1) @ v))


class Bloom(nn.Module):
    """Heads beside each other in one projection; alibi is the addend of the product, and a mask follows."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.o = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor, other: Tensor, seen: Tensor, bias: Tensor) -> Any:
        batch, rows, _ = x.shape
        fused = self.qkv(x).view(batch, rows, HEADS, 3, SIZE)
        q, k, v = (fused[..., place, :].transpose(1, 2) for place in range(3))
        slopes = torch.tensor([2.0 ** -(2 * (head + 1)) for head in range(HEADS)])
        places = ((seen.cumsum(-1) - 1) * seen)[:, None, :]
        alibi = (slopes[..., None] * places).reshape(batch * HEADS, 1, rows).to(q.dtype)
        flat = q.reshape(batch * HEADS, -1, SIZE), k.reshape(batch * HEADS, -1, SIZE).transpose(-1, -2)
        scores = alibi.baddbmm(batch1=flat[0], batch2=flat[1], beta=1.0, alpha=SIZE**-0.5)
        scores = scores.view(batch, HEADS, rows, -1) + additive(seen, q.dtype)
        shares = functional.softmax(scores, dim=-1, dtype=torch.float32).to(q.dtype)
        out = torch.bmm(shares.view(batch * HEADS, rows, -1), v.reshape(batch * HEADS, -1, SIZE))
        return self.o(merged(out.view(batch, HEADS, rows, SIZE)))


class Mpt(nn.Module):
    """chunk, a bias of positions, masked_fill."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.o = nn.Linear(WIDTH, 3 * WIDTH, bias=False), nn.Linear(WIDTH, WIDTH)
        slopes = torch.tensor([2.0 ** -(2 * (head + 1)) for head in range(HEADS)])
        self.register_buffer("by_place", slopes[:, None, None] * torch.arange(1 - LONGEST, 1)[None, None])

    def forward(self, x: Tensor, other: Tensor, seen: Tensor, bias: Tensor) -> Any:
        q, k, v = (split(each) for each in self.qkv(x).chunk(3, dim=2))
        scores = torch.matmul(q, k.transpose(-1, -2)) * SIZE**-0.5
        scores = scores + self.by_place[:, :, -k.shape[2] :]
        scores = scores.masked_fill(~seen[:, None, None, :], LEAST)
        shares = functional.softmax(scores.float(), dim=-1).to(v.dtype)
        return self.o(merged(torch.matmul(shares, v)))


class Falcon(Projected):
    """One head of keys and values, which the product repeats."""

    key_heads = 1

    def attend(self, q: Tensor, k: Tensor, v: Tensor, seen: Tensor, bias: Tensor) -> Tensor:
        scores = q @ k.transpose(-1, -2)
        scores = scores / math.sqrt(SIZE)
        return functional.softmax(scores + additive(seen, q.dtype), dim=-1, dtype=q.dtype) @ v


def turned(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    half = x.shape[-1] // 2
    return x * cos + torch.cat((-x[..., half:], x[..., :half]), dim=-1) * sin


class NeoX(nn.Module):
    """Heads of three parts, of which the first quarter turns with its position."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.o = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor, other: Tensor, seen: Tensor, bias: Tensor) -> Any:
        batch, rows, _ = x.shape
        q, k, v = self.qkv(x).view(batch, rows, HEADS, 3 * SIZE).transpose(1, 2).chunk(3, dim=-1)
        angles = torch.arange(rows)[:, None] * torch.tensor([1.0, 0.1, 1.0, 0.1])
        cos, sin = angles.cos().to(q.dtype), angles.sin().to(q.dtype)
        q, k = (torch.cat((turned(y[..., :4], cos, sin), y[..., 4:]), dim=-1) for y in (q, k))
        scores = torch.matmul(q, k.transpose(2, 3)) * SIZE**-0.5 + bias[:, :1]
        shares = functional.softmax(scores, dim=-1, dtype=torch.float32).to(q.dtype)
        return self.o(merged(torch.matmul(shares, v)))


class Vit(Projected):
    """transpose after the scores are scaled, and nothing else."""

    def attend(self, q: Tensor, k: Tensor, v: Tensor, seen: Tensor, bias: Tensor) -> Tensor:
        shares = functional.softmax(torch.matmul(q, k.transpose(-1, -2)) * SIZE**-0.5, dim=-1, dtype=torch.float32)
        return torch.matmul(shares.to(q.dtype), v)


class Whisper(Projected):
    """Queries are scaled when they are projected."""

    def forward(self, x: Tensor, other: Tensor, seen: Tensor, bias: Tensor) -> Any:
        q = (self.q(x) * SIZE**-0.5).view(x.shape[0], -1, HEADS, SIZE).transpose(1, 2).contiguous()
        k, v = (split(layer(other)) for layer in (self.k, self.v))
        shares = functional.softmax(torch.matmul(q, k.transpose(2, 3)) * 1.0, dim=-1)
        return self.o(merged(torch.matmul(shares, v)))


class Bart(Projected):
    """Batches and heads as one dimension; a mask is added to a view of four."""

    def attend(self, q: Tensor, k: Tensor, v: Tensor, seen: Tensor, bias: Tensor) -> Tensor:
        batch, _, rows, _ = q.shape
        flat = [x.reshape(batch * HEADS, -1, SIZE) for x in (q * SIZE**-0.5, k, v)]
        scores = torch.bmm(flat[0], flat[1].transpose(1, 2)).view(batch, HEADS, rows, -1) + additive(seen, q.dtype)
        shares = functional.softmax(scores.view(batch * HEADS, rows, -1), dim=-1)
        return torch.bmm(shares, flat[2]).view(batch, HEADS, rows, SIZE)


class Deberta(Projected):
    """Scores of contents to places and of places to contents are added, then padding is filled."""

    def __init__(self) -> None:
        super().__init__()
        self.places = nn.Embedding(2 * LONGEST, WIDTH)

    def attend(self, q: Tensor, k: Tensor, v: Tensor, seen: Tensor, bias: Tensor) -> Tensor:
        rows, scale = q.shape[2], math.sqrt(3 * SIZE)
        counted = torch.arange(rows)
        apart = (counted[:, None] - counted[None, :] + LONGEST).clamp(0, 2 * LONGEST - 1)
        of_places = self.places.weight.view(2 * LONGEST, HEADS, SIZE).permute(1, 2, 0)
        index = apart[None, None].expand(q.shape[0], HEADS, rows, rows)
        c2p = torch.gather(torch.matmul(q, of_places), -1, index) / scale
        p2c = torch.gather(torch.matmul(k, of_places), -1, index.transpose(-1, -2)).transpose(-1, -2) / scale
        scores = torch.matmul(q, k.transpose(-1, -2) / scale) + (c2p + p2c)
        return torch.matmul(functional.softmax(scores.masked_fill(~seen[:, None, None, :], LEAST), -1), v)


WINDOW, IMAGE = 4, 16


class Swin(Projected):
    """Windows of an image: a bias of each head by distance, and masks where windows were shifted over an edge."""

    def __init__(self) -> None:
        super().__init__()
        self.image = nn.Parameter(torch.randn(1, IMAGE, WIDTH))
        self.table = nn.Parameter(torch.randn(2 * WINDOW - 1, HEADS))
        counted = torch.arange(WINDOW)
        self.register_buffer("apart", counted[:, None] - counted[None, :] + WINDOW - 1)
        edges = torch.zeros(IMAGE // WINDOW, WINDOW, WINDOW)
        edges[-1, :2, 2:] = edges[-1, 2:, :2] = -100.0
        self.register_buffer("edges", edges)

    def forward(self, x: Tensor, other: Tensor, seen: Tensor, bias: Tensor) -> Any:
        rows = (self.image + x[:, :1]).roll(-2, 1).reshape(-1, WINDOW, WIDTH)
        q, k, v = (split(layer(rows)) for layer in (self.q, self.k, self.v))
        scores = torch.matmul(q, k.transpose(-1, -2)) / math.sqrt(SIZE)
        by_place = self.table[self.apart.view(-1)].view(WINDOW, WINDOW, -1).permute(2, 0, 1).contiguous()
        scores = scores + by_place.unsqueeze(0)
        count = self.edges.shape[0]
        scores = scores.view(rows.shape[0] // count, count, HEADS, WINDOW, WINDOW)
        scores = scores + self.edges.unsqueeze(1).unsqueeze(0)
        shares = functional.softmax(scores.view(-1, HEADS, WINDOW, WINDOW), dim=-1)
        return self.o(merged(torch.matmul(shares, v))).reshape(x.shape[0], IMAGE, WIDTH)


class Sam(Projected):
    """Places of rows and of columns are scored apart, and added as one."""

    def __init__(self) -> None:
        super().__init__()
        self.image = nn.Parameter(torch.randn(1, IMAGE, WIDTH))
        self.of_rows, self.of_columns = (nn.Parameter(torch.randn(4, 4, SIZE)) for _ in range(2))

    def forward(self, x: Tensor, other: Tensor, seen: Tensor, bias: Tensor) -> Any:
        rows = self.image + x[:, :1]
        q, k, v = (split(layer(rows)).reshape(-1, IMAGE, SIZE) for layer in (self.q, self.k, self.v))
        scores = (q * SIZE**-0.5) @ k.transpose(-2, -1)
        square = q.reshape(-1, 4, 4, SIZE)
        by_row = torch.einsum("bhwc,hkc->bhwk", square, self.of_rows)
        by_column = torch.einsum("bhwc,wkc->bhwk", square, self.of_columns)
        scores = scores + (by_row[..., None] + by_column[..., None, :]).reshape(-1, IMAGE, IMAGE)
        out = (functional.softmax(scores, dtype=torch.float32, dim=-1).to(q.dtype) @ v).view(-1, HEADS, IMAGE, SIZE)
        return self.o(merged(out))


class Latent(Projected):
    """Keys of two parts, of which all heads share one, and values that are narrower (multi-head latent attention)."""

    def __init__(self) -> None:
        super().__init__()
        self.shared, self.turned = nn.Linear(WIDTH, 4), nn.Linear(WIDTH, HEADS * 4)

    def forward(self, x: Tensor, other: Tensor, seen: Tensor, bias: Tensor) -> Any:
        q, k, v = (split(layer(x)) for layer in (self.q, self.k, self.v))
        q = torch.cat((q, split(self.turned(x))), -1)
        k = torch.cat((k, split(self.shared(x), 1).expand(-1, HEADS, -1, -1)), -1)
        return self.o(merged(functional.scaled_dot_product_attention(q, k, v, attn_mask=bias, scale=0.25)))


class Encoder(nn.Module):
    """torch.nn.TransformerEncoderLayer."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(WIDTH, HEADS, 48, batch_first=True)

    def forward(self, x: Tensor, other: Tensor, seen: Tensor, bias: Tensor) -> Any:
        return self.layer(x, src_key_padding_mask=~seen)


class MaskedProcessor(Projected):
    """diffusers: AttnProcessor with a mask, which is the addend of the product."""

    def forward(self, x: Tensor, other: Tensor, seen: Tensor, bias: Tensor) -> Any:
        q, k, v = (split(layer(x)).reshape(-1, x.shape[1], SIZE) for layer in (self.q, self.k, self.v))
        mask = additive(seen, q.dtype)[:, 0].repeat_interleave(HEADS, dim=0)
        mask = mask.expand(-1, x.shape[1], -1)
        shares = torch.baddbmm(mask, q, k.transpose(-1, -2), beta=1, alpha=SIZE**-0.5).softmax(dim=-1)
        out = torch.bmm(shares, v).reshape(x.shape[0], HEADS, -1, SIZE)
        return self.o(out.permute(0, 2, 1, 3).reshape(x.shape[0], -1, WIDTH))


class Picture(Projected):
    """diffusers: the one head of an autoencoder's middle, behind a group norm of channels."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.GroupNorm(4, WIDTH)

    def forward(self, x: Tensor, other: Tensor, seen: Tensor, bias: Tensor) -> Any:
        rows = self.norm(x.transpose(1, 2)).transpose(1, 2)
        q, k, v = (split(layer(rows), 1) for layer in (self.q, self.k, self.v))
        return x + self.o(merged(functional.scaled_dot_product_attention(q, k, v)))


class Joint(Projected):
    """diffusers: two sequences attend to both (FluxAttnProcessor, JointAttnProcessor2_0)."""

    def forward(self, x: Tensor, other: Tensor, seen: Tensor, bias: Tensor) -> Any:
        q, k, v = (torch.cat((split(layer(other)), split(layer(x))), dim=2) for layer in (self.q, self.k, self.v))
        out = merged(functional.scaled_dot_product_attention(q, k, v))
        return self.o(out[:, other.shape[1] :])


class Added(Projected):
    """diffusers: AttnAddedKVProcessor, keys of the text before those of the image."""

    def forward(self, x: Tensor, other: Tensor, seen: Tensor, bias: Tensor) -> Any:
        q = split(self.q(x)).reshape(-1, x.shape[1], SIZE)
        k, v = (
            torch.cat([split(layer(each)).reshape(-1, each.shape[1], SIZE) for each in (other, x)], dim=1)
            for layer in (self.k, self.v)
        )
        empty = torch.empty(q.shape[0], q.shape[1], k.shape[1], dtype=q.dtype)
        shares = torch.baddbmm(empty, q, k.transpose(-1, -2), beta=0, alpha=SIZE**-0.5).softmax(-1)
        out = torch.bmm(shares, v).reshape(x.shape[0], HEADS, -1, SIZE)
        return self.o(out.permute(0, 2, 1, 3).reshape(x.shape[0], -1, WIDTH))


MODELS = (
    Gpt2, Bloom, Mpt, Falcon, NeoX, Vit, Whisper, Bart, Deberta, Swin, Sam, Latent, Encoder, MaskedProcessor, Picture,
    Joint, Added,
)  # fmt: skip


class Models(nn.Module):
    """One of each, side by side."""

    def __init__(self) -> None:
        super().__init__()
        self.kinds = nn.ModuleList(kind() for kind in MODELS)

    def forward(self, x: Tensor, other: Tensor, seen: Tensor, bias: Tensor) -> Any:
        return tuple(kind(x, other, seen, bias) for kind in self.kinds)
