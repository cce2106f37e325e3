"""Weights rounded with error feedback, layer by layer, while a calibration text runs through them in numpy.

Every layer sees what the rounded layers before it make of the text, so that it makes up for their errors as well.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from liveshape.errors import UnsupportedError
from liveshape.export.checkpoint import Checkpoint
from liveshape.export.feedback import fed_back
from liveshape.export.recipe import Recipe, prepared
from liveshape.export.rope import rotary_tables
from liveshape.export.rounding import restored
from liveshape.export.weights import Array, Grouped

_TEXT = Path(__file__).with_name("calibration.txt")
_LENGTH = 256  # tokens of a window
FAMILIES = ("llama", "mistral", "qwen2", "qwen3")


def calibrated(
    checkpoint: Checkpoint, windows: Sequence[Sequence[int]], recipe: Recipe
) -> Iterator[tuple[str, Grouped | Array]]:
    """Every matrix of the layers with its name, in the order of the model; 4-bit ones with error feedback.

    `windows` are rows of tokens of equal length. What the recipe keeps or gives 8 bits is as `prepared` makes it.

    Example: `for name, weight in calibrated(checkpoint, windows, Recipe("4w")): write(name, weight)`.
    """
    config = checkpoint.config
    if config.family not in FAMILIES:
        raise UnsupportedError(
            f"a {config.family} model cannot be calibrated; {', '.join(FAMILIES)} can: export without --calibrate"
        )
    x = np.stack([_table_rows(checkpoint, window) for window in windows])  # (windows, S, hidden)
    cos, sin = (table[:, None] for table in rotary_tables(config, x.shape[1]))  # (S, 1, rotated)
    made: list[tuple[str, Grouped | Array]] = []

    def linear(name: str, inputs: Array) -> Array:
        weight = made_of(checkpoint, f"{name}.weight", recipe, inputs)
        made.append((f"{name}.weight", weight))
        out = inputs @ (restored(weight) if isinstance(weight, Grouped) else weight).T
        return out + checkpoint.read(f"{name}.bias") if f"{name}.bias" in checkpoint.shapes else out

    def norm(name: str, inputs: Array) -> Array:
        mean = np.square(inputs).mean(-1, keepdims=True)
        return inputs / np.sqrt(mean + np.float32(config.norm_eps)) * checkpoint.read(f"{name}.weight")

    for index in range(config.layers):
        layer = f"model.layers.{index}"
        inner = norm(f"{layer}.input_layernorm", x)
        query, key, value = (
            linear(f"{layer}.self_attn.{part}_proj", inner).reshape(*x.shape[:2], -1, config.head_size)
            for part in "qkv"
        )
        if config.qk_norm:
            query, key = norm(f"{layer}.self_attn.q_norm", query), norm(f"{layer}.self_attn.k_norm", key)
        mixed = attention(rotated(query, cos, sin), rotated(key, cos, sin), value)
        x = x + linear(f"{layer}.self_attn.o_proj", mixed)
        inner = norm(f"{layer}.post_attention_layernorm", x)
        gate, up = (linear(f"{layer}.mlp.{part}_proj", inner) for part in ("gate", "up"))
        x = x + linear(f"{layer}.mlp.down_proj", gate / (1 + np.exp(-gate)) * up)
        yield from made
        made.clear()


def calibration_windows(checkpoint: Checkpoint) -> list[list[int]]:
    """The text that comes with the package in the tokens of a checkpoint, cut into windows that a text could begin.

    Example: `calibrated(checkpoint, calibration_windows(checkpoint), Recipe("4w"))`.
    """
    import tokenizers

    tokenizer = tokenizers.Tokenizer.from_str(checkpoint.files["tokenizer.json"].decode())
    ids = tokenizer.encode(_TEXT.read_text(encoding="utf-8"), add_special_tokens=False).ids
    begin = tokenizer.encode("").ids[:1]
    step = min(_LENGTH, checkpoint.config.context) - len(begin)
    return [[*begin, *ids[start : start + step]] for start in range(0, len(ids) - step + 1, step)]


def made_of(checkpoint: Checkpoint, name: str, recipe: Recipe, inputs: Array) -> Grouped | Array:
    """A matrix as the recipe has it, with error feedback for these inputs where it is rounded to 4 bits."""
    stored, parameters = checkpoint.grouped(name), checkpoint.config.parameters
    form = recipe.form(name, checkpoint.shapes[name][1], parameters)
    if form is None or form.bits != 4 or (stored is not None and recipe.keeps(name, stored, parameters)):
        return prepared(checkpoint, name, recipe)
    flat = inputs.reshape(-1, inputs.shape[-1])
    return fed_back(checkpoint.read(name), flat.T @ flat / np.float32(len(flat)), form.group)


def rotated(x: Array, cos: Array, sin: Array) -> Array:
    """Rotary embedding in the half-split form; what lies beyond the rotated part of a head passes through."""
    size = cos.shape[-1]
    turned, first, second = x[..., :size], x[..., : size // 2], x[..., size // 2 : size]
    return np.concatenate([turned * cos + np.concatenate([-second, first], -1) * sin, x[..., size:]], -1)


def attention(query: Array, key: Array, value: Array) -> Array:
    """Causal attention of (windows, S, heads, size), several query heads to a key head; (windows, S, heads * size)."""
    windows, length, heads, size = query.shape
    shared = heads // key.shape[2]
    apart = query.reshape(windows, length, -1, shared, size).transpose(0, 2, 3, 1, 4)  # (windows, kv, shared, S, size)
    scores = apart @ key.transpose(0, 2, 3, 1)[:, :, None] / np.float32(np.sqrt(size))
    scores += np.where(np.tri(length, dtype=bool), np.float32(0), np.float32(-np.inf))
    scores = np.exp(scores - scores.max(-1, keepdims=True))
    mixed = scores / scores.sum(-1, keepdims=True) @ value.transpose(0, 2, 1, 3)[:, :, None]
    return mixed.transpose(0, 3, 1, 2, 4).reshape(windows, length, heads * size)


def _table_rows(checkpoint: Checkpoint, ids: Sequence[int]) -> Array:
    """The embeddings of tokens. The table is read a row at a time: it may not fit the memory as floats."""
    return np.concatenate([checkpoint.rows("model.embed_tokens.weight", slice(each, each + 1)) for each in ids])
