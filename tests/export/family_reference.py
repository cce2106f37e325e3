"""Decoders of every family written a second time, from their papers: all tokens at once, no cache, float64.

Settings are those of a config.json and weights those of a checkpoint, as they are stored.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


def logits(settings: Mapping[str, Any], weights: Mapping[str, Any], tokens: list[int]) -> Array:
    """The logits of every token, (tokens, vocabulary)."""
    return _Model(settings, weights, len(tokens)).logits(tokens)


class _Model:
    def __init__(self, settings: Mapping[str, Any], weights: Mapping[str, Any], count: int) -> None:
        self.settings, self.count = settings, count
        self.weights = {name: np.asarray(weight, np.float64) for name, weight in weights.items()}
        self.kind = settings["model_type"]
        self.gemma = self.kind.startswith("gemma")
        self.heads, self.pairs = settings["num_attention_heads"], settings["num_key_value_heads"]
        self.size = settings.get("head_dim") or settings["hidden_size"] // self.heads

    def logits(self, tokens: list[int]) -> Array:
        settings = self.settings
        x = self.weights["model.embed_tokens.weight"][tokens]
        x = x * (math.sqrt(settings["hidden_size"]) if self.gemma else settings.get("embedding_multiplier", 1.0))
        residual = settings.get("residual_multiplier", 1.0)
        for index in range(settings["num_hidden_layers"]):
            layer = f"model.layers.{index}"
            if self.kind == "olmo2":
                x = x + self.norm(f"{layer}.post_attention_layernorm", self.attention(layer, index, x))
                x = x + self.norm(f"{layer}.post_feedforward_layernorm", self.feed_forward(layer, index, x))
            elif self.gemma:
                inner = self.attention(layer, index, self.norm(f"{layer}.input_layernorm", x))
                x = x + self.norm(f"{layer}.post_attention_layernorm", inner)
                inner = self.feed_forward(layer, index, self.norm(f"{layer}.pre_feedforward_layernorm", x))
                x = x + self.norm(f"{layer}.post_feedforward_layernorm", inner)
            else:
                x = x + residual * self.attention(layer, index, self.norm(f"{layer}.input_layernorm", x))
                inner = self.norm(f"{layer}.post_attention_layernorm", x)
                x = x + residual * self.feed_forward(layer, index, inner)
        tied = settings["tie_word_embeddings"]
        out = self.norm("model.norm", x) @ self.weights["model.embed_tokens.weight" if tied else "lm_head.weight"].T
        out = out / settings.get("logits_scaling", 1.0)
        return cap(out, settings.get("final_logit_softcapping"))

    def norm(self, name: str, x: Array) -> Array:
        weight = self.weights[f"{name}.weight"] + (1 if self.gemma else 0)
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + self.settings["rms_norm_eps"]) * weight

    def linear(self, name: str, x: Array) -> Array:
        return x @ self.weights[f"{name}.weight"].T + self.weights.get(f"{name}.bias", 0)

    def attention(self, layer: str, index: int, x: Array) -> Array:
        name, widths = f"{layer}.self_attn", np.array([self.heads, self.pairs, self.pairs]) * self.size
        if self.kind == "phi3":
            query, key, value = np.split(self.linear(f"{name}.qkv_proj", x), np.cumsum(widths)[:2], axis=-1)
        else:
            query, key, value = (self.linear(f"{name}.{each}_proj", x) for each in "qkv")
        if self.kind == "olmo2":
            query, key = self.norm(f"{name}.q_norm", query), self.norm(f"{name}.k_norm", key)
        query, key, value = (each.reshape(self.count, -1, self.size).swapaxes(0, 1) for each in (query, key, value))
        if self.kind in ("gemma3_text", "qwen3_moe"):
            query, key = self.norm(f"{name}.q_norm", query), self.norm(f"{name}.k_norm", key)
        if self.kind != "smollm3" or self.settings["no_rope_layers"][index]:
            query, key = self.rotated(query, index), self.rotated(key, index)
        scores = query @ np.repeat(key, self.heads // self.pairs, 0).swapaxes(1, 2) * self.scale()
        scores = cap(scores, self.settings.get("attn_logit_softcapping"))
        before = np.arange(self.count)[:, None] - np.arange(self.count)
        seen = (before >= 0) & (before < self.settings["sliding_window"] if self.near(index) else True)
        scores = softmax(np.where(seen, scores, -np.inf))
        mixed = scores @ np.repeat(value, self.heads // self.pairs, 0)
        return self.linear(f"{name}.o_proj", mixed.swapaxes(0, 1).reshape(self.count, -1))

    def scale(self) -> float:
        if self.gemma:
            return float(self.settings["query_pre_attn_scalar"] ** -0.5)
        return float(self.settings.get("attention_multiplier", self.size**-0.5))

    def near(self, index: int) -> bool:
        """Whether a layer has a window."""
        if self.settings.get("sliding_window") is None:
            return False
        if self.kind == "gemma2":
            return index % 2 == 0
        if self.kind == "gemma3_text":
            return (index + 1) % self.settings["sliding_window_pattern"] != 0
        return self.kind != "qwen2" or index >= self.settings["max_window_layers"]

    def rotated(self, x: Array, index: int) -> Array:
        width = int(self.size * self.settings.get("partial_rotary_factor", 1.0))
        turning, rest = x[..., :width], x[..., width:]
        local = self.kind == "gemma3_text" and self.near(index)
        theta = self.settings["rope_local_base_freq" if local else "rope_theta"]
        frequencies = theta ** (-np.arange(0, width, 2) / width)
        rope, amplitude = self.settings.get("rope_scaling"), 1.0
        if rope and rope.get("rope_type") == "linear" and not local:
            frequencies = frequencies / rope["factor"]
        if rope and rope.get("type") == "longrope":
            original = self.settings["original_max_position_embeddings"]
            frequencies = frequencies / np.array(rope["long_factor" if self.count > original else "short_factor"])
            stretch = self.settings["max_position_embeddings"] / original
            amplitude = math.sqrt(1 + math.log(stretch) / math.log(original))
        turn = amplitude * np.exp(1j * np.outer(np.arange(self.count), frequencies))
        pair = (turning[..., : width // 2] + 1j * turning[..., width // 2 :]) * turn
        return np.concatenate([pair.real, pair.imag, rest], -1)

    def feed_forward(self, layer: str, index: int, x: Array) -> Array:
        if self.kind == "phi3":
            gate, up = np.split(self.linear(f"{layer}.mlp.gate_up_proj", x), 2, axis=-1)
            return self.linear(f"{layer}.mlp.down_proj", silu(gate) * up)
        if self.kind == "mixtral":
            return self.mixture(f"{layer}.block_sparse_moe", ("w1", "w3", "w2"), self.settings["num_local_experts"], x)
        if self.kind == "qwen3_moe" and index not in self.settings["mlp_only_layers"]:
            names = ("gate_proj", "up_proj", "down_proj")
            return self.mixture(f"{layer}.mlp", names, self.settings["num_experts"], x)
        gate = self.linear(f"{layer}.mlp.gate_proj", x)
        gate = gelu(gate) if self.gemma else silu(gate)
        return self.linear(f"{layer}.mlp.down_proj", gate * self.linear(f"{layer}.mlp.up_proj", x))

    def mixture(self, name: str, names: tuple[str, str, str], count: int, x: Array) -> Array:
        """Token by token, those experts alone that it chose."""
        shares = softmax(self.linear(f"{name}.gate", x))
        out = np.zeros_like(x)
        assert shares.shape[1] == count
        for row in range(self.count):
            chosen = np.argsort(-shares[row])[: self.settings["num_experts_per_tok"]]
            whole = shares[row, chosen].sum() if self.settings.get("norm_topk_prob", True) else 1.0
            for number in chosen:
                gate, up, down = (f"{name}.experts.{number}.{each}" for each in names)
                inner = silu(self.linear(gate, x[row])) * self.linear(up, x[row])
                out[row] += shares[row, number] / whole * self.linear(down, inner)
        return out


def cap(x: Array, limit: float | None) -> Array:
    return x if limit is None else np.tanh(x / limit) * limit


def softmax(x: Array) -> Array:
    powers = np.exp(x - x.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def silu(x: Array) -> Array:
    return x / (1 + np.exp(-x))


def gelu(x: Array) -> Array:
    return x / 2 * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
