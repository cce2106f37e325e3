"""Every way in which exporters spell attention: the source of each, and the function that writes it, as torch.export
and ExecuTorch decompose it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch

from liveshape.graph import Graph, Tensor
from tests.support.attention_chains import (
    HEADS,
    INFINITE,
    KEYS,
    ROWS,
    WINDOW_HEADS,
    WINDOWS,
    Spelled,
    Spelling,
)


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


def written(case: Spelling) -> tuple[Spelled, Graph]:
    chain = Spelled(case)
    return chain, chain.graph(case.write(chain))
