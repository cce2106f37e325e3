"""Every way in which exporters spell attention is one operator, right at every live size, rows that see nothing too.

`SPELLINGS` has the source of each: the function that writes it, as torch.export and ExecuTorch decompose it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from liveshape.check.meanings.meaning_table import MEANINGS
from liveshape.device.backends import open_device
from liveshape.graph import Graph, Tensor
from liveshape.lower.fusion import fuse
from tests.support.attention_modules import KINDS, MultiHead
from tests.support.chains import executor_of
from tests.support.model_attention import MODELS
from tests.support.movements import Movements

BATCH, ROWS, KEYS, HEADS = 3, 21, 13, 4
CALLS = ((3, 21, 13), (1, 1, 1), (2, 5, 13), (3, 2, 7), (1, 21, 1))
INFINITE = float("-inf")


@dataclass(frozen=True)
class Spelling:
    """How attention is written. `write` gets the chain with its operands, and gives the result (batch, rows, width)."""

    source: str
    write: Callable[[Spelled], Tensor]
    mask: tuple[
        str, ...
    ] = ()  # dimensions of a mask, by letters of batch, heads, rows and keys; 1 where it is repeated
    dtype: str = "float32"  # of the mask
    nan: bool = False  # what a row gives that sees nothing
    masked: float = INFINITE
    scale: float | None = None
    key_heads: int = HEADS
    size: int = 8
    value_size: int = 0  # another one than that of the keys
    bias: tuple[str, ...] = ()  # dimensions of what is added to the scores beside a mask
    itself: bool = False  # attention of rows to the rows themselves, from one fused projection
    floats: str = "float32"
    batch: int = BATCH
    causal: bool = False


class Spelled(Movements):
    """Queries x, and keys and values of a second input."""

    def __init__(self, case: Spelling) -> None:
        super().__init__()
        self.case, self.size, self.scale = case, case.size, case.size**-0.5
        self.value_size = case.value_size or case.size
        width = HEADS * case.size
        widths = [3 * width] if case.itself else [width, case.key_heads * case.size, case.key_heads * self.value_size]
        self.x, (self.batch, self.rows) = self.live((case.batch, ROWS, widths[0]), 2, case.floats)
        self.keys = self.rows
        self.operands = [self.x]
        if not case.itself:
            memory, (_, self.keys) = self.live((case.batch, KEYS, widths[1]), 2, case.floats)
            self.operands += [memory, self.input((case.batch, KEYS, widths[2]), case.floats)]
        letters = {
            "b": case.batch,
            "h": HEADS,
            "u": case.batch * HEADS,
            "r": ROWS,
            "k": ROWS if case.itself else KEYS,
            "w": WINDOWS,
            "g": WINDOW_HEADS,
            "1": 1,
        }
        self.mask: Any = None
        if case.mask:
            self.mask = self.input(tuple(letters[letter] for letter in case.mask), case.dtype)
        self.bias = self.input(tuple(letters[letter] for letter in case.bias)) if case.bias else None
        self.units = self.times(self.batch, HEADS)

    def split(self, place: int, heads: int = HEADS) -> Tensor:
        """An operand as (batch, heads, rows, size)."""
        rows, size = self.keys if place else self.rows, self.value_size if place == 2 else self.size
        return self.permute(self.view(self.operands[place], self.batch, rows, heads, size), 0, 2, 1, 3)

    def together(self, x: Tensor, *last: Any) -> Tensor:
        """Batches and heads as one dimension."""
        return self.view(x, self.units, *last)

    def scaled(self, x: Tensor, factor: float, operator: str = "aten::mul.Scalar_out") -> Tensor:
        return self.broadcast(operator, x, factor)

    def softmax(self, scores: Tensor) -> Tensor:
        return self.node("aten._softmax.default", scores, -1, False, self.tensor(scores.max_shape, scores.dtype))

    def guarded(self, scores: Tensor) -> Tensor:
        """torch's _safe_softmax, as it is decomposed."""
        shares = self.softmax(scores)
        infinite = self.node("aten.eq.Scalar", scores, INFINITE, self.tensor(scores.max_shape, "bool"))
        seen = self.node("aten.logical_not.default", infinite, self.tensor(scores.max_shape, "bool"))
        column = (*scores.max_shape[:-1], 1)
        any_seen = self.node("aten::any.out", seen, (-1,), True, self.tensor(column, "bool"))
        filled = self.tensor(shares.max_shape, shares.dtype)
        zeros = self.node("aten.full_like.default", shares, 0, None, None, None, False, None, filled)
        unseen = self.node("aten.logical_not.default", any_seen, self.tensor(column, "bool"))
        return self.broadcast("aten.where.self", unseen, zeros, shares)

    def merged(self, x: Tensor) -> Tensor:
        """(units, rows, size) as (batch, rows, width)."""
        heads = self.permute(self.view(x, self.batch, HEADS, self.rows, self.value_size), 0, 2, 1, 3)
        return self.view(heads, self.batch, self.rows, HEADS * self.value_size)

    def scores(self, q: Tensor, k: Tensor) -> Tensor:
        """(batch, heads, rows, keys) of (batch, heads, rows, size) and (batch, heads, size, keys), as matmul is."""
        left = self.together(self.expand(q, self.batch, HEADS, self.rows, self.size), self.rows, self.size)
        right = self.together(self.expand(k, self.batch, HEADS, self.size, self.keys), self.size, self.keys)
        return self.view(self.product(left, right), self.batch, HEADS, self.rows, self.keys)

    def mixed(self, shares: Tensor, v: Tensor) -> Tensor:
        left = self.together(self.expand(shares, self.batch, HEADS, self.rows, self.keys), self.rows, self.keys)
        size = self.value_size
        right = self.together(self.expand(v, self.batch, HEADS, self.keys, size), self.keys, size)
        return self.product(left, right)

    def repeated(self, x: Tensor) -> Tensor:
        """transformers' repeat_kv."""
        group, size = HEADS // self.case.key_heads, x.max_shape[-1]
        spread = self.expand(self.unsqueeze(x, 2), self.batch, self.case.key_heads, group, self.keys, size)
        return self.view(spread, self.batch, HEADS, self.keys, size)

    def cast(self, x: Tensor, dtype: str) -> Tensor:
        given = (x, None, None, None, None, False, None)
        return self.node("aten._to_copy.default", *given, self.tensor(x.max_shape, dtype))


def causal_mask(chain: Spelled) -> Tensor:
    """torch.ones(rows, keys, dtype=torch.bool).tril(diagonal=0)."""
    size = chain.operands[1].max_shape[1]
    ones = chain.tensor((ROWS, size), "bool")
    chain.node("aten.full.default", (chain.rows, chain.keys), True, None, None, None, False, ones)
    places = []
    for live, bound, dim in ((chain.keys, size, -2), (chain.rows, ROWS, -1)):
        count = chain.tensor((bound,), "int32")
        chain.node("aten.arange.start_step", 0, live, 1, None, None, None, False, count)
        places.append(chain.unsqueeze(count, dim))
    distance = chain.broadcast("aten.sub.Tensor", *places, 1)
    below = chain.node("aten.le.Scalar", distance, 0, chain.tensor(distance.max_shape, "bool"))
    return chain.node("aten.logical_and.default", below, ones, chain.tensor(distance.max_shape, "bool"))


def sdpa(chain: Spelled) -> Tensor:
    """The square root of the scale on both sides, and a guard."""
    q, k, v = (chain.split(place) for place in range(3))
    root = chain.scale**0.5
    scores = chain.scores(chain.scaled(q, root), chain.scaled(chain.permute(k, 0, 1, 3, 2), root))
    mask = causal_mask(chain) if chain.case.causal else chain.mask
    if chain.case.dtype == "bool":
        seen, hidden = (chain.node("aten::scalar_tensor.out", x, chain.tensor(())) for x in (0.0, INFINITE))
        mask = chain.broadcast("aten.where.self", mask, seen, hidden)
    if mask is not None:
        scores = chain.broadcast("aten.add.Tensor", scores, mask, 1)
    out = chain.mixed(chain.guarded(scores), v)
    # The result of torch lies as (rows, batch, heads, size).
    heads = chain.permute(chain.view(out, chain.batch, HEADS, chain.rows, chain.value_size), 2, 0, 1, 3)
    heads = chain.permute(chain.permute(heads, 1, 2, 0, 3), 0, 2, 1, 3)
    return chain.view(heads, chain.batch, chain.rows, HEADS * chain.value_size)


def eager(chain: Spelled) -> Tensor:
    """transformers' eager_attention_forward: grouped heads, softmax in float32."""
    q, k, v = chain.split(0), chain.split(1, chain.case.key_heads), chain.split(2, chain.case.key_heads)
    if chain.case.key_heads != HEADS:
        k, v = chain.repeated(k), chain.repeated(v)
    scores = chain.scaled(chain.scores(q, chain.permute(k, 0, 1, 3, 2)), chain.scale)
    if chain.mask is not None:
        scores = chain.broadcast("aten.add.Tensor", scores, chain.mask, 1, dtype=chain.case.floats)
    half = chain.case.floats == "float16"
    shares = chain.softmax(chain.cast(scores, "float32") if half else scores)
    return chain.merged(chain.mixed(chain.cast(shares, "float16") if half else shares, v))


def divided(chain: Spelled) -> Tensor:
    """Scores divided by a tensor of one number, a mask by where."""
    q, k, v = (chain.split(place) for place in range(3))
    root = chain.constant(np.full((), math.sqrt(chain.size), np.float32))
    scores = chain.broadcast("aten.div.Tensor", chain.scores(q, chain.permute(k, 0, 1, 3, 2)), root)
    if chain.mask is not None:
        hidden = chain.constant(np.full((1,), chain.case.masked, np.float32))
        scores = chain.broadcast("aten.where.self", chain.mask, scores, hidden)
    return chain.merged(chain.mixed(chain.softmax(scores), v))


def filled(chain: Spelled) -> Tensor:
    """Queries that are scaled before, masked_fill."""
    q, k, v = (chain.split(place) for place in range(3))
    scores = chain.scores(chain.scaled(q, chain.scale), chain.permute(k, 0, 1, 3, 2))
    scores = chain.node(
        "aten.masked_fill.Scalar", scores, chain.mask, chain.case.masked, chain.tensor(scores.max_shape)
    )
    return chain.merged(chain.mixed(chain.softmax(scores), v))


def unscaled(chain: Spelled) -> Tensor:
    """T5: a bias of positions, the first summand, and no scale."""
    q, k, v = (chain.split(place) for place in range(3))
    scores = chain.broadcast("aten.add.Tensor", chain.mask, chain.scores(q, chain.permute(k, 0, 1, 3, 2)), 1)
    return chain.merged(chain.mixed(chain.softmax(scores), v))


def one_projection(chain: Spelled) -> Tensor:
    """timm: qkv.reshape(B, N, 3, H, D).permute(2, 0, 3, 1, 4).unbind(0)."""
    split = chain.view(chain.x, chain.batch, chain.rows, 3, HEADS, chain.size)
    q, k, v = (chain.select(chain.permute(split, 2, 0, 3, 1, 4), 0, place) for place in range(3))
    scores = chain.scores(chain.scaled(q, chain.scale), chain.permute(k, 0, 1, 3, 2))
    return chain.merged(chain.mixed(chain.softmax(scores), v))


def biased(chain: Spelled) -> Tensor:
    """Two summands, or one and a mask that hides keys behind it."""
    q, k, v = (chain.split(place) for place in range(3))
    scores = chain.scaled(chain.scores(q, chain.permute(k, 0, 1, 3, 2)), chain.scale)
    scores = chain.broadcast("aten.add.Tensor", scores, chain.bias, 1)
    if chain.case.dtype == "bool":
        given = (scores, chain.mask, chain.case.masked, chain.tensor(scores.max_shape))
        scores = chain.node("aten.masked_fill.Scalar", *given)
    else:
        scores = chain.broadcast("aten.add.Tensor", scores, chain.mask, 1)
    return chain.merged(chain.mixed(chain.softmax(scores), v))


def hidden_then_biased(chain: Spelled) -> Tensor:
    """What is added to scores of -inf changes nothing of them."""
    q, k, v = (chain.split(place) for place in range(3))
    scores = chain.scaled(chain.scores(q, chain.permute(k, 0, 1, 3, 2)), chain.scale)
    scores = chain.node("aten.masked_fill.Scalar", scores, chain.mask, INFINITE, chain.tensor(scores.max_shape))
    scores = chain.broadcast("aten.add.Tensor", scores, chain.bias, 1)
    return chain.merged(chain.mixed(chain.softmax(scores), v))


def units_of(chain: Spelled, place: int) -> Tensor:
    """An operand with batches and heads as one dimension."""
    size = chain.value_size if place == 2 else chain.size
    return chain.together(chain.split(place), chain.keys if place else chain.rows, size)


def units_with_masks(chain: Spelled) -> Tensor:
    """Bloom and BART: products of units, what is added to units, and a mask that is added to a view of four."""
    q, k, v = (units_of(chain, place) for place in range(3))
    scores = chain.scaled(chain.product(q, chain.permute(k, 0, 2, 1)), chain.scale)
    if chain.bias is not None:
        scores = chain.broadcast("aten.add.Tensor", chain.bias, scores, 1)
    four = chain.view(scores, chain.batch, HEADS, chain.rows, chain.keys)
    shares = chain.softmax(
        chain.together(chain.broadcast("aten.add.Tensor", four, chain.mask, 1), chain.rows, chain.keys)
    )
    return chain.merged(chain.product(shares, v))


def shared(chain: Spelled) -> Tensor:
    """Falcon: the product repeats the one head of keys and values."""
    q, k, v = (chain.split(place, 1 if place else HEADS) for place in range(3))
    scores = chain.scaled(chain.scores(q, chain.permute(k, 0, 1, 3, 2)), 1 / math.sqrt(chain.size), "aten.mul.Scalar")
    return chain.merged(chain.mixed(chain.softmax(chain.broadcast("aten.add.Tensor", scores, chain.mask, 1)), v))


def divided_twice(chain: Spelled) -> Tensor:
    """GPT-2: divided by the root of the size and by the number of the layer, then a causal mask."""
    q, k, v = (chain.split(place) for place in range(3))
    scores = chain.scores(q, chain.permute(k, 0, 1, 3, 2))
    for number in (math.sqrt(chain.size), 2.0):
        divisor = chain.constant(np.full((), number, np.float32))
        scores = chain.broadcast("aten.div.Tensor", scores, divisor)
    hidden = chain.constant(np.full((), chain.case.masked, np.float32))
    scores = chain.broadcast("aten.where.self", chain.mask, scores, hidden)
    return chain.merged(chain.mixed(chain.softmax(scores), v))


WINDOWS, WINDOW_HEADS = 2, 2  # together the heads of the golden


def windows(chain: Spelled) -> Tensor:
    """Members of the batch are windows of images: each has the same bias of heads, and each image the same masks."""
    count = chain.times(chain.batch, WINDOWS)

    def split(place: int) -> Tensor:
        rows = chain.keys if place else chain.rows
        parts = chain.view(chain.operands[place], chain.batch, rows, WINDOWS, WINDOW_HEADS, chain.size)
        return chain.view(chain.permute(parts, 0, 2, 3, 1, 4), count, WINDOW_HEADS, rows, chain.size)

    def units(x: Tensor, *last: Any) -> Tensor:
        return chain.view(chain.expand(x, count, WINDOW_HEADS, *last), chain.times(count, WINDOW_HEADS), *last)

    q, k, v = (split(place) for place in range(3))
    keys = chain.permute(chain.scaled(k, chain.scale), 0, 1, 3, 2)
    scores = chain.product(units(q, chain.rows, chain.size), units(keys, chain.size, chain.keys))
    scores = chain.view(scores, count, WINDOW_HEADS, chain.rows, chain.keys)
    scores = chain.broadcast("aten.add.Tensor", scores, chain.unsqueeze(chain.bias, 0), 1)
    images = chain.scalar()
    chain.bounds[images] = chain.case.batch
    chain.node("floordiv", count, WINDOWS, images)
    of_images = chain.view(scores, images, WINDOWS, WINDOW_HEADS, chain.rows, chain.keys)
    mask = chain.unsqueeze(chain.unsqueeze(chain.mask, 1), 0)
    masked = chain.broadcast("aten.add.Tensor", of_images, mask, 1)
    shares = chain.softmax(chain.view(masked, count, WINDOW_HEADS, chain.rows, chain.keys))
    out = chain.product(units(shares, chain.rows, chain.keys), units(v, chain.keys, chain.size))
    parts = chain.view(out, chain.batch, WINDOWS, WINDOW_HEADS, chain.rows, chain.size)
    return chain.view(chain.permute(parts, 0, 3, 1, 2, 4), chain.batch, chain.rows, HEADS * chain.size)


def multihead(chain: Spelled) -> Tensor:
    """F.multi_head_attention_forward with need_weights: rows first, units of batch and head, baddbmm of a mask."""
    width = HEADS * chain.size
    same = chain.constant(np.eye(width, dtype=np.float32))

    def linear(x: Tensor) -> Tensor:
        return chain.node("aten.linear.default", x, same, None, chain.tensor((*x.max_shape[:-1], width)))

    projected = [linear(chain.permute(linear(x), 1, 0, 2)) for x in chain.operands]
    q, k, v = (
        chain.permute(chain.view(x, rows, chain.units, chain.size), 1, 0, 2)
        for x, rows in zip(projected, (chain.rows, chain.keys, chain.keys), strict=True)
    )
    scaled, keys = chain.scaled(q, chain.scale), chain.permute(k, 0, 2, 1)
    if chain.mask is None:
        scores = chain.product(scaled, keys)
    else:
        shape = (chain.case.batch * HEADS, ROWS, KEYS)
        scores = chain.node("aten.baddbmm.default", chain.mask, scaled, keys, 1, 1, chain.tensor(shape))
    out = chain.permute(chain.product(chain.softmax(scores), v), 1, 0, 2)
    flat = chain.view(out, chain.times(chain.rows, chain.batch), HEADS * chain.size)
    # A row that sees nothing would spread over the columns of others.
    projected_flat = flat if chain.mask is not None else linear(flat)
    there = chain.view(projected_flat, chain.rows, chain.batch, width)
    return chain.permute(there, 1, 0, 2)


def processor(chain: Spelled) -> Tensor:
    """diffusers' AttnProcessor: head_to_batch_dim, baddbmm of nothing with alpha."""
    q, k, v = (
        chain.together(chain.split(place), chain.keys if place else chain.rows, chain.size) for place in range(3)
    )
    empty = chain.constant(np.zeros(1, np.float32))
    scores = chain.tensor((chain.case.batch * HEADS, ROWS, KEYS))
    chain.node("aten.baddbmm.default", empty, q, chain.permute(k, 0, 2, 1), 0, chain.scale, scores)
    return chain.merged(chain.product(chain.softmax(scores), v))


LEAST = float(np.finfo(np.float32).min)
SPELLINGS = {
    "sdpa": Spelling("torch 2.11: _scaled_dot_product_attention_math, by ExecuTorch 1.3", sdpa),
    "sdpa of odd heads": Spelling("the same, heads of 6", sdpa, size=6),
    "sdpa of one member": Spelling("the same, a batch of one", sdpa, batch=1),
    "eager of one member": Spelling("eager_attention_forward of a batch of one", eager, nan=True, key_heads=2, batch=1),
    "sdpa that is causal": Spelling("the same, is_causal=True", sdpa, dtype="bool", causal=True),
    "sdpa with a mask of booleans": Spelling("the same, where(mask, 0, -inf)", sdpa, ("b", "1", "1", "k"), "bool"),
    "sdpa of large heads": Spelling("the same, heads of 144", sdpa, size=144),
    "sdpa with a mask of keys": Spelling("the same, a mask added", sdpa, ("b", "1", "1", "k")),
    "sdpa with a mask of rows": Spelling("the same", sdpa, ("r", "k")),
    "sdpa with a whole mask": Spelling("the same", sdpa, ("b", "h", "r", "k")),
    "eager": Spelling("transformers 5: eager_attention_forward", eager, nan=True),
    "eager with grouped heads": Spelling("the same, repeat_kv", eager, ("b", "1", "r", "k"), nan=True, key_heads=2),
    "eager with one head of keys": Spelling("multi-query", eager, ("b", "1", "r", "k"), nan=True, key_heads=1),
    "eager in halves": Spelling(
        "the same, softmax(dtype=torch.float32).to(query.dtype)", eager, ("b", "1", "r", "k"), "float16", nan=True,
        key_heads=2, floats="float16",
    ),
    "divided": Spelling("BERT of transformers 4: scores / math.sqrt(size)", divided, nan=True),
    "where": Spelling("torch.where(mask, scores, -inf)", divided, ("b", "1", "1", "k"), "bool", nan=True),
    "where the least": Spelling("GPT-2: torch.where", divided, ("r", "k"), "bool", masked=LEAST),
    "masked_fill": Spelling("DistilBERT: masked_fill", filled, ("b", "1", "1", "k"), "bool", masked=LEAST),
    "masked_fill -inf": Spelling("scores.masked_fill(mask, -inf)", filled, ("b", "1", "r", "k"), "bool", nan=True),
    "position bias": Spelling("T5: position_bias", unscaled, ("1", "h", "r", "k"), nan=True, scale=1.0),
    "one projection": Spelling("timm: Attention.forward", one_projection, itself=True, nan=True),
    "multihead with a mask": Spelling("the same, a mask of units", multihead, ("u", "r", "k"), nan=True),
    "multihead": Spelling("torch.nn.MultiheadAttention, need_weights", multihead, nan=True),
    "sdpa of narrow values": Spelling("the same, values of 12 beside keys of 24", sdpa, size=24, value_size=12),
    "sdpa of wide values": Spelling("the same, values of 10 beside keys of 6", sdpa, size=6, value_size=10),
    "eager of wide values": Spelling("the same", eager, nan=True, key_heads=2, size=8, value_size=16),
    "two summands": Spelling(
        "Bloom: baddbmm of alibi, a mask added", biased, ("b", "1", "r", "k"), nan=True, bias=("b", "h", "1", "k")
    ),
    "a bias and masked_fill": Spelling(
        "MPT: position_bias, masked_fill", biased, ("b", "1", "r", "k"), "bool", masked=LEAST, bias=("h", "1", "k")
    ),
    "masked_fill and a bias": Spelling(
        "a summand behind -inf", hidden_then_biased, ("b", "1", "r", "k"), "bool", nan=True, bias=("h", "r", "k")
    ),
    "windows": Spelling(
        "Swin: relative_position_bias and the mask of shifted windows", windows, ("w", "r", "k"), nan=True,
        bias=("g", "r", "k"),
    ),
    "sdpa of heads of 256": Spelling("the same, heads of 256", sdpa, ("b", "1", "1", "k"), size=256),
    "sdpa of heads of 512": Spelling("the same, heads of 512", sdpa, size=512),
    "units with a mask": Spelling("BART: bmm of units", units_with_masks, ("b", "1", "1", "k"), nan=True),
    "units with alibi and a mask": Spelling(
        "Bloom: baddbmm of alibi, decomposed", units_with_masks, ("b", "1", "r", "k"), nan=True, bias=("u", "1", "k")
    ),
    "one head of keys in a product": Spelling("Falcon", shared, ("b", "1", "1", "k"), nan=True, key_heads=1),
    "divided twice": Spelling(
        "GPT-2: scale_attn_by_inverse_layer_idx", divided_twice, ("1", "1", "r", "k"), "bool", masked=LEAST,
        scale=8**-0.5 / 2,
    ),
    "processor": Spelling("diffusers: AttnProcessor.get_attention_scores", processor, nan=True),
}  # fmt: skip


def golden(case: Spelling, operands: list[Any], mask: Any, bias: Any = None) -> np.ndarray:
    """torch in float64."""
    batch, rows, _ = operands[0].shape
    if case.itself:
        operands = list(operands[0].reshape(batch, rows, 3, -1).transpose(2, 0, 1, 3))
    q, k, v = (
        torch.from_numpy(x.astype(np.float64)).reshape(*x.shape[:2], -1, size).transpose(1, 2)
        for x, size in zip(operands, (case.size, case.size, case.value_size or case.size), strict=True)
    )
    k, v = (x.repeat_interleave(HEADS // x.shape[1], 1) for x in (k, v))
    scores = q @ k.transpose(2, 3) * (case.size**-0.5 if case.scale is None else case.scale)
    if bias is not None:
        added = torch.from_numpy(bias).double()
        added = added.reshape(batch, HEADS, 1, -1) if case.bias[0] == "u" else added
        scores = scores + (added.repeat(WINDOWS, 1, 1) if case.bias[0] == "g" else added)
    if mask is not None:
        seen = torch.from_numpy(mask)
        seen = seen.repeat_interleave(WINDOW_HEADS, 0) if case.mask[0] == "w" else seen
        seen = seen.reshape(batch, HEADS, *mask.shape[1:]) if case.mask[0] == "u" else seen
        hidden = ~seen if case.write in (divided, divided_twice, sdpa) and seen.dtype == torch.bool else seen
        scores = scores.masked_fill(hidden, case.masked) if seen.dtype == torch.bool else scores + seen.double()
    if case.causal:
        scores = scores.masked_fill(~torch.ones(scores.shape[-2:], dtype=torch.bool).tril(), INFINITE)
    shares = scores.softmax(-1)
    if not case.nan:
        shares = shares.nan_to_num(0.0)
    return (shares @ v).transpose(1, 2).reshape(batch, rows, -1).numpy()


def drawn(case: Spelling, generator: np.random.Generator, batch: int, rows: int, keys: int) -> list[Any]:
    """Inputs of a call; now and then a row sees nothing."""
    width = HEADS * case.size
    if case.itself:
        arrays = [generator.standard_normal((batch, rows, 3 * width))]
    else:
        own, values = (case.key_heads * size for size in (case.size, case.value_size or case.size))
        shapes = (batch, rows, width), (batch, keys, own), (batch, keys, values)
        arrays = [generator.standard_normal(shape) for shape in shapes]
    found = [array.astype(case.floats) for array in arrays]
    if case.mask:
        letters = {
            "b": batch,
            "h": HEADS,
            "u": batch * HEADS,
            "r": rows,
            "k": keys,
            "w": WINDOWS,
            "g": WINDOW_HEADS,
            "1": 1,
        }
        shape = tuple(letters[letter] for letter in case.mask)
        hidden = (generator.random(shape) < 0.4) | (generator.random((*shape[:-1], 1)) < 0.3)
        if case.dtype == "bool":
            found.append(hidden)
        else:
            found.append(np.where(hidden, INFINITE, generator.standard_normal(shape)).astype(case.dtype))
        if case.bias:
            shape = tuple(letters[letter] for letter in case.bias)
            found.append(generator.standard_normal(shape).astype("float32"))
    return found


def written(case: Spelling) -> tuple[Spelled, Graph]:
    chain = Spelled(case)
    return chain, chain.graph(case.write(chain))


@pytest.mark.parametrize("name", SPELLINGS)
def test_each_spelling_is_one_operator_and_right(name: str) -> None:
    case = SPELLINGS[name]
    chain, graph = written(case)
    fused = fuse(graph, open_device().limits)
    kinds = [node.name for node in fused.nodes]
    assert kinds.count("liveshape.attention") == 1
    copies = [kind for kind in kinds if kind in ("aten.permute_copy.default", "aten.expand_copy.default")]
    # The program never asks for the sizes of the one's values; the other cuts images into windows and joins them.
    assert len(copies) == {multihead: 1, windows: 4}.get(case.write, 0), kinds
    assert not [kind for kind in kinds if "bmm" in kind or "softmax" in kind or "where" in kind or "add" in kind]
    executor = executor_of(fused, open_device())
    tolerance = 4e-3 if case.floats == "float16" else 2e-5
    generator = np.random.default_rng(len(name))
    for batch, rows, keys in (*CALLS, *reversed(CALLS)):
        batch = min(batch, case.batch)
        inputs = drawn(case, generator, batch, rows, rows if case.itself else keys)
        executor.poison()
        result = executor.execute(inputs)[0].astype(np.float64)
        expected = golden(case, inputs[: len(chain.operands)], *inputs[len(chain.operands) :] or [None])
        np.testing.assert_allclose(result, expected, tolerance, tolerance, err_msg=f"at {(batch, rows, keys)}")
        meant = meaning_of(fused, inputs)
        if meant is not None:
            np.testing.assert_allclose(meant.reshape(expected.shape), expected, tolerance, tolerance)


def meaning_of(graph: Graph, inputs: list[Any]) -> Any:
    """What `check` takes the operator to mean, where it reads inputs."""
    (node,) = (node for node in graph.nodes if node.name == "liveshape.attention")
    given = dict(zip(graph.inputs, inputs, strict=True))
    args = [given.get(each, each) for each in node.args[:-1]]
    if any(isinstance(each, Tensor) for each in args):
        return None
    return MEANINGS[node.name](*args)[0]


def kinds_of(case: Spelling, chain: Spelled, *outputs: Tensor) -> list[str]:
    return [node.name for node in fuse(chain.graph(*outputs), open_device().limits).nodes]


@pytest.mark.parametrize("name", ["sdpa", "eager", "processor"])
def test_scores_that_something_else_reads_are_kept(name: str) -> None:
    case = SPELLINGS[name]
    chain = Spelled(case)
    out = case.write(chain)
    shares = next(node.args[-1] for node in chain.nodes if node.name == "aten._softmax.default")
    assert "liveshape.attention" not in kinds_of(case, chain, out, shares)
    chain = Spelled(case)
    out = case.write(chain)
    scores = next(node.args[-1] for node in chain.nodes if node.name in ("aten.bmm.default", "aten.baddbmm.default"))
    doubled = chain.broadcast("aten.add.Tensor", scores, scores, 1)
    assert "liveshape.attention" not in kinds_of(case, chain, out, doubled)


def masked_before_scaled(chain: Spelled) -> Tensor:
    q, k, v = (chain.split(place) for place in range(3))
    scores = chain.broadcast("aten.add.Tensor", chain.scores(q, chain.permute(k, 0, 1, 3, 2)), chain.mask, 1)
    return chain.merged(chain.mixed(chain.softmax(chain.scaled(scores, 0.5)), v))


def guarded_by_others(chain: Spelled) -> Tensor:
    """A guard that looks at the scores before their mask."""
    q, k, v = (chain.split(place) for place in range(3))
    scores = chain.scores(q, chain.permute(k, 0, 1, 3, 2))
    guard = chain.guarded(scores)
    where = chain.nodes[-1]
    shares = chain.softmax(chain.broadcast("aten.add.Tensor", scores, chain.mask, 1))
    guarded = chain.broadcast("aten.where.self", where.args[0], where.args[1], shares)
    assert guard is not guarded
    return chain.merged(chain.mixed(guarded, v))


def along_rows(chain: Spelled) -> Tensor:
    q, k, v = (chain.split(place) for place in range(3))
    scores = chain.broadcast("aten.add.Tensor", chain.scores(q, chain.permute(k, 0, 1, 3, 2)), chain.mask, 1)
    shares = chain.node("aten._softmax.default", scores, 2, False, chain.tensor(scores.max_shape))
    return chain.merged(chain.mixed(shares, v))


def capped(chain: Spelled) -> Tensor:
    """Gemma 2."""
    q, k, v = (chain.split(place) for place in range(3))
    scores = chain.scaled(chain.scores(q, chain.permute(k, 0, 1, 3, 2)), chain.scale / 50)
    bounded = chain.scaled(chain.node("aten.tanh.default", scores, chain.tensor(scores.max_shape)), 50.0)
    return chain.merged(chain.mixed(chain.softmax(chain.broadcast("aten.add.Tensor", bounded, chain.mask, 1)), v))


def with_sinks(chain: Spelled) -> Tensor:
    """gpt-oss: a score of each head that has no value, and the largest score subtracted."""
    q, k, v = (chain.split(place) for place in range(3))
    scores = chain.scaled(chain.scores(q, chain.permute(k, 0, 1, 3, 2)), chain.scale)
    sinks = chain.expand(chain.constant(np.ones((1, HEADS, 1, 1), np.float32)), chain.batch, HEADS, chain.rows, 1)
    wide = (*scores.max_shape[:-1], KEYS + 1)
    whole = chain.node("aten.cat.default", (scores, sinks), -1, chain.tensor(wide))
    most = chain.node("aten.amax.default", whole, (-1,), True, chain.tensor((*wide[:-1], 1)))
    shares = chain.softmax(chain.broadcast("aten.sub.Tensor", whole, most, 1))
    return chain.merged(chain.mixed(chain.slice(shares, 3, 0, -1), v))


def scaled_by_heads(chain: Spelled) -> Tensor:
    """Swin v2: a learned scale of each head."""
    q, k, v = (chain.split(place) for place in range(3))
    scales = chain.input((HEADS, 1, 1))
    scores = chain.broadcast("aten.mul.Tensor", chain.scores(q, chain.permute(k, 0, 1, 3, 2)), scales)
    return chain.merged(chain.mixed(chain.softmax(scores), v))


def hidden_then_masked(chain: Spelled) -> Tensor:
    """GPT-2 with padding: the least number, and a mask of padding added to it."""
    q, k, v = (chain.split(place) for place in range(3))
    scores = chain.scores(q, chain.permute(k, 0, 1, 3, 2))
    below = chain.input((ROWS, KEYS), "bool")
    scores = chain.broadcast("aten.where.self", below, scores, chain.constant(np.full((), LEAST, np.float32)))
    return chain.merged(chain.mixed(chain.softmax(chain.broadcast("aten.add.Tensor", scores, chain.mask, 1)), v))


def heads_left_out(chain: Spelled) -> Tensor:
    """head_mask: weights are multiplied before the values are."""
    q, k, v = (chain.split(place) for place in range(3))
    shares = chain.softmax(chain.scores(q, chain.permute(k, 0, 1, 3, 2)))
    kept = chain.input((1, HEADS, 1, 1))
    return chain.merged(chain.mixed(chain.broadcast("aten.mul.Tensor", shares, kept), v))


NEARLY = {
    "scores within a bound": capped,
    "sinks": with_sinks,
    "a scale of each head": scaled_by_heads,
    "a mask that is scaled with the scores": masked_before_scaled,
    "the least number, then a mask": hidden_then_masked,
    "a factor of the weights": heads_left_out,
    "a guard of other scores": guarded_by_others,
    "softmax along rows": along_rows,
}


@pytest.mark.parametrize("name", NEARLY)
def test_what_is_nearly_attention_stays(name: str) -> None:
    case = Spelling("", NEARLY[name], ("b", "1", "1", "k"))
    chain = Spelled(case)
    assert "liveshape.attention" not in kinds_of(case, chain, NEARLY[name](chain))


def table_of(title: str) -> list[list[str]]:
    """The cells of the table under a title of docs/attention.md."""
    page = (Path(__file__).parents[2] / "docs/attention.md").read_text(encoding="utf-8")
    section = page.split(f"## {title}\n")[1].split("\n## ")[0]
    rows = [line.strip("| ").split(" | ") for line in section.splitlines() if line.startswith("|")]
    return rows[2:]


def test_the_list_of_spellings_is_what_is_tested() -> None:
    known = set(SPELLINGS) | {kind.__name__ for kind in (*KINDS, *MODELS, MultiHead)}
    rows = table_of("One operator")
    named = [name for row in rows for name in row[2].split(", ")]
    assert set(named) == known, set(named) ^ known
    assert len(named) == len(set(named))
    assert all(len(row) == 3 and row[0] and row[1] for row in rows)
    others = [row[2] for row in table_of("Not one operator, because")]
    assert sorted(others) == sorted(NEARLY | {"test_scores_that_something_else_reads_are_kept": None})


def test_keys_that_are_written_in_between_are_copied_before() -> None:
    case = Spelling("", eager, scale=1.0)
    chain = Spelled(case)
    q, k, v = (chain.split(place) for place in range(3))
    other = chain.input(chain.operands[1].max_shape)
    scores = chain.scores(q, chain.permute(k, 0, 1, 3, 2))
    chain.node("liveshape.move", other, chain.operands[1])
    graph = fuse(chain.graph(chain.merged(chain.mixed(chain.softmax(scores), v))), open_device().limits)
    kinds = [node.name for node in graph.nodes]
    assert kinds.index("liveshape.move") < kinds.index("liveshape.attention")
    (attention,) = (node for node in graph.nodes if node.name == "liveshape.attention")
    assert chain.operands[1] not in attention.inputs
    generator = np.random.default_rng(0)
    first, second = drawn(case, generator, 3, 21, 13), drawn(case, generator, 3, 21, 13)
    result = executor_of(graph, open_device()).execute([*first, second[1]])[0]
    np.testing.assert_allclose(result, golden(case, first, None), 2e-5, 2e-5)


# What GPUs run: blocks of few rows, tiles, by shuffles and without; and sums in one order.
WAYS = {
    "many threads": {"max_cooperating_threads": 256, "lanes": 0, "max_invocations": 128},
    "shuffles": {"max_cooperating_threads": 256, "lanes": 0, "subgroup": 8, "max_invocations": 128},
    "one order": {"one_order": True},
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    "name",
    [
        "sdpa of odd heads", "eager with grouped heads", "one projection", "sdpa of narrow values",
        "sdpa of wide values", "a bias and masked_fill", "windows",
    ],
)  # fmt: skip
def test_every_kernel_reads_along_strides(name: str, way: str) -> None:
    case = SPELLINGS[name]
    chain, graph = written(case)
    limits = replace(open_device().limits, **WAYS[way])
    executor = executor_of(fuse(graph, limits), open_device(limits=limits))
    generator = np.random.default_rng(1)
    for batch, rows, keys in CALLS:
        inputs = drawn(case, generator, batch, rows, rows if case.itself else keys)
        executor.poison()
        expected = golden(case, inputs[: len(chain.operands)], *inputs[len(chain.operands) :] or [None])
        np.testing.assert_allclose(executor.execute(inputs)[0], expected, 2e-5, 2e-5, err_msg=f"{(batch, rows, keys)}")


def test_scores_of_an_operator_with_several_results_stay() -> None:
    chain = Movements()
    scores, values = chain.input((3, 21, 26)), chain.input((3, 13, 8))
    half = chain.tensor((3, 21, 13))
    chain.node("aten.split_with_sizes_copy.default", scores, (13, 13), -1, (half, chain.tensor((3, 21, 13))))
    shares = chain.node("aten._softmax.default", half, -1, False, chain.tensor((3, 21, 13)))
    graph = chain.graph(chain.node("aten.bmm.default", shares, values, chain.tensor((3, 21, 8))))
    assert [node.name for node in fuse(graph, open_device().limits).nodes] == [node.name for node in graph.nodes]
