"""A decoder written a second time, the way model papers do: all tokens at once, heads first, no cache, float64.

Float32 is for long texts, where what counts is the mean over many tokens.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch.nn import functional


def logits(
    settings: Mapping[str, Any],
    weights: Mapping[str, Any],
    tokens: list[int],
    dtype: torch.dtype = torch.float64,
    inputs: dict[str, Any] | None = None,
) -> np.ndarray[Any, Any]:
    """The logits of every token, (tokens, vocabulary); settings are those of a config.json.

    `inputs`, where given, receives what each linear layer reads, by its name.
    """

    def tensor(name: str) -> torch.Tensor:
        """One at a time: all of a model in float64 is gigabytes of a test worker."""
        return torch.tensor(np.asarray(weights[name]), dtype=dtype)

    heads, pairs = settings["num_attention_heads"], settings["num_key_value_heads"]
    size = settings.get("head_dim") or settings["hidden_size"] // heads
    eps = settings["rms_norm_eps"]

    def linear(name: str, x: torch.Tensor) -> torch.Tensor:
        if inputs is not None:
            inputs[name] = x.numpy()
        bias = tensor(f"{name}.bias") if f"{name}.bias" in weights else None
        return functional.linear(x, tensor(f"{name}.weight"), bias)

    def norm(name: str, x: torch.Tensor) -> torch.Tensor:
        return functional.rms_norm(x, x.shape[-1:], tensor(f"{name}.weight"), eps)

    count = len(tokens)
    angles = torch.outer(torch.arange(count).double(), frequencies(settings, size))
    turn = torch.polar(torch.ones_like(angles), angles).to(dtype.to_complex())  # (S, size / 2)

    def rotated(x: torch.Tensor) -> torch.Tensor:
        pair = torch.complex(x[..., : size // 2], x[..., size // 2 :]) * turn
        return torch.cat([pair.real, pair.imag], -1)

    x = tensor("model.embed_tokens.weight")[torch.tensor(tokens)]
    for index in range(settings["num_hidden_layers"]):
        layer = f"model.layers.{index}"
        inner = norm(f"{layer}.input_layernorm", x)
        query, key, value = (
            linear(f"{layer}.self_attn.{name}_proj", inner).view(count, -1, size).transpose(0, 1) for name in "qkv"
        )
        if f"{layer}.self_attn.q_norm.weight" in weights:
            query, key = norm(f"{layer}.self_attn.q_norm", query), norm(f"{layer}.self_attn.k_norm", key)
        key, value = rotated(key).repeat_interleave(heads // pairs, 0), value.repeat_interleave(heads // pairs, 0)
        scores = rotated(query) @ key.transpose(1, 2) / math.sqrt(size)
        scores = scores.masked_fill(torch.ones(count, count).triu(1).bool(), -math.inf)
        mixed = (scores.softmax(-1) @ value).transpose(0, 1).reshape(count, -1)
        x = x + linear(f"{layer}.self_attn.o_proj", mixed)
        inner = norm(f"{layer}.post_attention_layernorm", x)
        gate = functional.silu(linear(f"{layer}.mlp.gate_proj", inner))
        x = x + linear(f"{layer}.mlp.down_proj", gate * linear(f"{layer}.mlp.up_proj", inner))
    head = "lm_head" if "lm_head.weight" in weights else "model.embed_tokens"
    return linear(head, norm("model.norm", x)).float().numpy()


def frequencies(settings: Mapping[str, Any], size: int) -> torch.Tensor:
    """As transformers computes them, pair by pair."""
    found = [settings["rope_theta"] ** (-2 * pair / size) for pair in range(size // 2)]
    scaling = settings.get("rope_scaling")
    if scaling is None:
        return torch.tensor(found, dtype=torch.float64)
    low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
    context, factor = scaling["original_max_position_embeddings"], scaling["factor"]
    scaled = []
    for frequency in found:
        length = 2 * math.pi / frequency
        if length < context / high:
            scaled.append(frequency)
        elif length > context / low:
            scaled.append(frequency / factor)
        else:
            smooth = (context / length - low) / (high - low)
            scaled.append((1 - smooth) * frequency / factor + smooth * frequency)
    return torch.tensor(scaled, dtype=torch.float64)
