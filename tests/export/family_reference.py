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
        if self.kind == "gpt2":
            self.settings = settings = {**GPT2_AS_OTHERS, **{ours: settings[key] for ours, key in GPT2_KEYS.items()}}
            self.weights = gpt2_as_others(self.weights)
        self.heads, self.pairs = settings["num_attention_heads"], settings.get("num_key_value_heads")
        self.pairs = self.pairs or self.heads
        self.size = settings.get("head_dim") or settings["hidden_size"] // self.heads

    def logits(self, tokens: list[int]) -> Array:
        settings = self.settings
        x = self.weights["model.embed_tokens.weight"][tokens]
        x = x * (math.sqrt(settings["hidden_size"]) if self.gemma else settings.get("embedding_multiplier", 1.0))
        if self.kind == "gpt2":
            x = x + self.weights["model.embed_positions.weight"][: self.count]
        residual = settings.get("residual_multiplier", 1.0)
        for index in range(settings["num_hidden_layers"]):
            layer = f"model.layers.{index}"
            if self.kind == "olmo2":
                x = x + self.norm(f"{layer}.post_attention_layernorm", self.attention(layer, index, x))
                x = x + self.norm(f"{layer}.post_feedforward_layernorm", self.feed_forward(layer, index, x))
            elif self.gemma or self.kind == "glm4":
                names = ("post_attention", "pre_feedforward", "post_feedforward")
                after, before, last = ("post_self_attn", "post_attention", "post_mlp") if not self.gemma else names
                inner = self.attention(layer, index, self.norm(f"{layer}.input_layernorm", x))
                x = x + self.norm(f"{layer}.{after}_layernorm", inner)
                inner = self.feed_forward(layer, index, self.norm(f"{layer}.{before}_layernorm", x))
                x = x + self.norm(f"{layer}.{last}_layernorm", inner)
            elif self.kind == "cohere2":
                inner = self.norm(f"{layer}.input_layernorm", x)
                x = x + self.attention(layer, index, inner) + self.feed_forward(layer, index, inner)
            else:
                x = x + residual * self.attention(layer, index, self.norm(f"{layer}.input_layernorm", x))
                inner = self.norm(f"{layer}.post_attention_layernorm", x)
                x = x + residual * self.feed_forward(layer, index, inner)
        tied = settings["tie_word_embeddings"]
        out = self.norm("model.norm", x) @ self.weights["model.embed_tokens.weight" if tied else "lm_head.weight"].T
        out = out / settings.get("logits_scaling", 1.0) * settings.get("logit_scale", 1.0)
        return cap(out, settings.get("final_logit_softcapping"))

    def norm(self, name: str, x: Array) -> Array:
        weight = self.weights[f"{name}.weight"] + (1 if self.gemma else 0)
        if self.kind in ("starcoder2", "cohere2", "gpt2"):
            eps = self.settings[{"starcoder2": "norm_epsilon"}.get(self.kind, "layer_norm_eps")]
            x = x - x.mean(-1, keepdims=True)
            return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * weight + self.weights.get(f"{name}.bias", 0)
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
        if self.rotates(index):
            query, key = self.rotated(query, index), self.rotated(key, index)
        scores = query @ np.repeat(key, self.heads // self.pairs, 0).swapaxes(1, 2) * self.scale()
        scores = cap(scores, self.settings.get("attn_logit_softcapping"))
        before = np.arange(self.count)[:, None] - np.arange(self.count)
        seen = (before >= 0) & (before < self.settings["sliding_window"] if self.near(index) else True)
        scores = np.where(seen, scores, -np.inf)
        if self.kind == "gpt_oss":
            sinks = np.broadcast_to(self.weights[f"{name}.sinks"][:, None, None], (self.heads, self.count, 1))
            scores = np.concatenate([scores, sinks], -1)
        scores = softmax(scores)[..., : self.count]
        mixed = scores @ np.repeat(value, self.heads // self.pairs, 0)
        return self.linear(f"{name}.o_proj", mixed.swapaxes(0, 1).reshape(self.count, -1))

    def rotates(self, index: int) -> bool:
        if self.kind == "smollm3":
            return bool(self.settings["no_rope_layers"][index])
        return self.kind != "gpt2" and (self.kind != "cohere2" or self.near(index))

    def scale(self) -> float:
        if self.gemma:
            return float(self.settings["query_pre_attn_scalar"] ** -0.5)
        return float(self.settings.get("attention_multiplier", self.size**-0.5))

    def near(self, index: int) -> bool:
        """Whether a layer has a window."""
        if self.settings.get("sliding_window") is None:
            return False
        if self.kind == "cohere2":
            return bool(self.settings["layer_types"][index] == "sliding_attention")
        if self.kind in ("gemma2", "gpt_oss"):
            return index % 2 == 0
        if self.kind == "gemma3_text":
            return (index + 1) % self.settings["sliding_window_pattern"] != 0
        return self.kind != "qwen2" or index >= self.settings["max_window_layers"]

    def rotated(self, x: Array, index: int) -> Array:
        width = int(self.size * self.settings.get("partial_rotary_factor", 0.5 if self.kind == "glm" else 1.0))
        turning, rest = x[..., :width], x[..., width:]
        local = self.kind == "gemma3_text" and self.near(index)
        theta = self.settings["rope_local_base_freq" if local else "rope_theta"]
        rope, amplitude = self.settings.get("rope_scaling"), 1.0
        context = self.settings["max_position_embeddings"]
        if rope and rope.get("rope_type") == "dynamic" and self.count > context:
            theta *= (rope["factor"] * self.count / context - (rope["factor"] - 1)) ** (width / (width - 2))
        frequencies = theta ** (-np.arange(0, width, 2) / width)
        if rope and "yarn" in rope.values():
            frequencies, amplitude = yarn(frequencies, rope, theta, width, context)
        if rope and rope.get("rope_type") == "linear" and not local:
            frequencies = frequencies / rope["factor"]
        if rope and rope.get("type") == "longrope":
            original = self.settings["original_max_position_embeddings"]
            frequencies = frequencies / np.array(rope["long_factor" if self.count > original else "short_factor"])
            stretch = self.settings["max_position_embeddings"] / original
            amplitude = math.sqrt(1 + math.log(stretch) / math.log(original))
        turn = amplitude * np.exp(1j * np.outer(np.arange(self.count), frequencies))
        if self.kind in ("glm", "glm4", "cohere2"):
            pair = (turning[..., ::2] + 1j * turning[..., 1::2]) * turn
            return np.concatenate([np.stack([pair.real, pair.imag], -1).reshape(turning.shape), rest], -1)
        pair = (turning[..., : width // 2] + 1j * turning[..., width // 2 :]) * turn
        return np.concatenate([pair.real, pair.imag, rest], -1)

    def feed_forward(self, layer: str, index: int, x: Array) -> Array:
        act = {"silu": silu, "relu": relu, "gelu": exact_gelu}[self.settings.get("hidden_act", "silu")]
        if self.kind == "starcoder2":
            return self.linear(f"{layer}.mlp.c_proj", gelu(self.linear(f"{layer}.mlp.c_fc", x)))
        if self.kind == "gpt2":
            return self.linear(f"{layer}.mlp.down_proj", gelu(self.linear(f"{layer}.mlp.up_proj", x)))
        if self.kind in ("phi3", "glm", "glm4"):
            gate, up = np.split(self.linear(f"{layer}.mlp.gate_up_proj", x), 2, axis=-1)
            return self.linear(f"{layer}.mlp.down_proj", silu(gate) * up)
        if self.kind == "gpt_oss":
            return self.stacked_mixture(f"{layer}.mlp", x)
        if self.kind == "mixtral":
            return self.mixture(f"{layer}.block_sparse_moe", ("w1", "w3", "w2"), self.settings["num_local_experts"], x)
        if self.kind == "qwen3_moe" and index not in self.settings["mlp_only_layers"]:
            names = ("gate_proj", "up_proj", "down_proj")
            return self.mixture(f"{layer}.mlp", names, self.settings["num_experts"], x)
        gate = self.linear(f"{layer}.mlp.gate_proj", x)
        gate = gelu(gate) if self.gemma else act(gate)
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

    def stacked_mixture(self, name: str, x: Array) -> Array:
        """Experts whose gates and ups are columns in turns."""
        scores, out = self.linear(f"{name}.router", x), np.zeros_like(x)
        gate_up, down = (self.weights[f"{name}.experts.{each}_proj"] for each in ("gate_up", "down"))
        gate_up_bias, down_bias = (self.weights[f"{name}.experts.{each}_proj_bias"] for each in ("gate_up", "down"))
        for row in range(self.count):
            chosen = np.argsort(-scores[row])[: self.settings["num_experts_per_tok"]]
            for number, share in zip(chosen, softmax(scores[row, chosen]), strict=True):
                both = x[row] @ gate_up[number] + gate_up_bias[number]
                inner = clamped_gate(both[::2], both[1::2], self.settings["swiglu_limit"])
                out[row] += share * (inner @ down[number] + down_bias[number])
        return out


GPT2_KEYS = {"hidden_size": "n_embd", "num_attention_heads": "n_head", "num_hidden_layers": "n_layer"}
GPT2_KEYS |= {"layer_norm_eps": "layer_norm_epsilon"}
GPT2_AS_OTHERS = {"tie_word_embeddings": True}


def gpt2_as_others(weights: Mapping[str, Array]) -> dict[str, Array]:
    """What GPT-2 calls and stores otherwise."""
    made: dict[str, Array] = {}
    for whole, weight in weights.items():
        name = whole.replace("transformer.h.", "model.layers.").replace("transformer.", "model.")
        for theirs, ours in (("wte", "embed_tokens"), ("wpe", "embed_positions"), ("ln_f", "norm")):
            name = name.replace(theirs, ours)
        name = name.replace("ln_1", "input_layernorm").replace("ln_2", "post_attention_layernorm")
        name = name.replace("mlp.c_fc", "mlp.up_proj").replace("mlp.c_proj", "mlp.down_proj")
        name = name.replace("attn.c_proj", "self_attn.o_proj")
        inner = weight.T if weight.ndim == 2 and ".h." in whole else weight
        if "c_attn" in name:
            for each, part in zip("qkv", np.split(inner, 3), strict=True):
                made[name.replace("attn.c_attn", f"self_attn.{each}_proj")] = part
        else:
            made[name] = inner
    return made


def yarn(frequencies: Array, rope: Mapping[str, Any], theta: float, width: int, context: int) -> tuple[Array, float]:
    """Stretched frequencies and the factor of cosines and sines, pair by pair."""
    original, factor = rope.get("original_max_position_embeddings", context), rope["factor"]
    ends = [
        width * math.log(original / (turns * 2 * math.pi)) / (2 * math.log(theta))
        for turns in (rope.get("beta_fast", 32), rope.get("beta_slow", 1))
    ]
    if rope.get("truncate", True):
        ends = [math.floor(ends[0]), math.ceil(ends[1])]
    first, last = max(ends[0], 0), min(ends[1], width - 1)
    made = []
    for pair, frequency in enumerate(frequencies):
        share = min(max((pair - first) / (last - first), 0), 1)
        made.append(frequency / factor * share + frequency * (1 - share))
    sharp = [1 + 0.1 * weight * math.log(factor) for weight in (rope.get("mscale", 1), rope.get("mscale_all_dim", 0))]
    return np.array(made), sharp[0] / sharp[1]


def clamped_gate(gate: Array, up: Array, limit: float) -> Array:
    gate, up = np.minimum(gate, limit), np.clip(up, -limit, limit)
    return (up + 1) * gate / (1 + np.exp(-1.702 * gate))


def cap(x: Array, limit: float | None) -> Array:
    return x if limit is None else np.tanh(x / limit) * limit


def softmax(x: Array) -> Array:
    powers = np.exp(x - x.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def silu(x: Array) -> Array:
    return x / (1 + np.exp(-x))


def relu(x: Array) -> Array:
    return np.maximum(x, 0)


def exact_gelu(x: Array) -> Array:
    return x / 2 * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))


def gelu(x: Array) -> Array:
    return x / 2 * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
