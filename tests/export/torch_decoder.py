"""A decoder of the Llama family in torch, from which the golden programs are lowered: every line becomes an operator.

Activations keep the layout (1, S, heads, head size), so no transposes are left in the graph. Norm and rotary embedding
are spelled in the one form that the Vulkan patterns recognize, and the caches are buffers that live in the graph.
"""

from __future__ import annotations

from typing import Any

import torch

# Registers torch.ops.llama.sdpa_with_kv_cache.
from executorch.extension.llm.custom_ops import custom_ops  # noqa: F401
from torch import nn
from torch.nn import functional

from liveshape.export.decoder.rope import rotary_tables
from liveshape.export.model.config import ModelConfig
from tests.export.torch_weights import Weights


class RmsNorm(nn.Module):
    """The scaled inverse root mean square. `nn.RMSNorm` would split the graph in two."""

    def __init__(self, weight: torch.Tensor, eps: float) -> None:
        super().__init__()
        self.register_buffer("weight", weight)
        self.eps = eps

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x * torch.rsqrt((x * x).mean(-1, keepdim=True) + self.eps)) * self.weight


def rotate_half(x: torch.Tensor) -> torch.Tensor:
    """(a, b) becomes (-b, a), where a and b are the halves of the last dim."""
    a, b = x[..., : x.shape[-1] // 2], x[..., x.shape[-1] // 2 :]
    return torch.cat((-b, a), dim=-1)


def rotate(
    query: torch.Tensor, key: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Rotary embedding in the half-split form; what lies beyond the rotated part of a head passes through.

    The pattern covers query and key together, and the empty pass-through part belongs to it.
    """
    cos, sin = cos.unsqueeze(1), sin.unsqueeze(1)  # (S, 1, rotated)
    rotated = cos.shape[-1]
    query_turned, query_passed = query[..., :rotated], query[..., rotated:]
    key_turned, key_passed = key[..., :rotated], key[..., rotated:]
    query = torch.cat([(query_turned * cos) + (rotate_half(query_turned) * sin), query_passed], dim=-1)
    key = torch.cat([(key_turned * cos) + (rotate_half(key_turned) * sin), key_passed], dim=-1)
    return query, key


class Attention(nn.Module):
    """Grouped-query attention against the caches of this layer."""

    def __init__(self, config: ModelConfig, weights: Weights, prefix: str, max_context: int) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.head_size = config.heads, config.kv_heads, config.head_size
        self.q_proj = weights.linear(f"{prefix}.q_proj")
        self.k_proj = weights.linear(f"{prefix}.k_proj")
        self.v_proj = weights.linear(f"{prefix}.v_proj")
        self.o_proj = weights.linear(f"{prefix}.o_proj")
        self.q_norm, self.k_norm = nn.Identity(), nn.Identity()
        if config.qk_norm:
            self.q_norm = RmsNorm(weights.vector(f"{prefix}.q_norm.weight"), config.norm_eps)
            self.k_norm = RmsNorm(weights.vector(f"{prefix}.k_norm.weight"), config.norm_eps)
        cache = (1, max_context, config.kv_heads, config.head_size)
        self.register_buffer("k_cache", torch.zeros(cache))
        self.register_buffer("v_cache", torch.zeros(cache))

    def forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, position: int) -> torch.Tensor:
        length = x.shape[1]
        query = self.q_proj(x).view(1, length, self.heads, self.head_size)
        key = self.k_proj(x).view(1, length, self.kv_heads, self.head_size)
        value = self.v_proj(x).view(1, length, self.kv_heads, self.head_size)
        query, key = rotate(self.q_norm(query), self.k_norm(key), cos, sin)
        out = torch.ops.llama.sdpa_with_kv_cache(
            query, key, value, self.k_cache, self.v_cache, position, length, None, 0.0, True, None
        )
        return self.o_proj(out.view(1, length, self.heads * self.head_size))


class FeedForward(nn.Module):
    """SwiGLU."""

    def __init__(self, weights: Weights, prefix: str) -> None:
        super().__init__()
        self.gate_proj = weights.linear(f"{prefix}.gate_proj")
        self.up_proj = weights.linear(f"{prefix}.up_proj")
        self.down_proj = weights.linear(f"{prefix}.down_proj")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down_proj(functional.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    """Attention and feed-forward, each behind a norm and beside a residual."""

    def __init__(self, config: ModelConfig, weights: Weights, prefix: str, max_context: int) -> None:
        super().__init__()
        self.input_norm = RmsNorm(weights.vector(f"{prefix}.input_layernorm.weight"), config.norm_eps)
        self.attention = Attention(config, weights, f"{prefix}.self_attn", max_context)
        self.output_norm = RmsNorm(weights.vector(f"{prefix}.post_attention_layernorm.weight"), config.norm_eps)
        self.feed_forward = FeedForward(weights, f"{prefix}.mlp")

    def forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, position: int) -> torch.Tensor:
        x = x + self.attention(self.input_norm(x), cos, sin, position)
        return x + self.feed_forward(self.output_norm(x))


class Decoder(nn.Module):
    """Tokens (1, S) at a position (1,) to the logits (1, vocabulary) of the last one, or (1, S, vocabulary) of all.

    Example: `Decoder(config, weights, max_context=2048)(torch.tensor([[1, 2, 3]]), torch.tensor([0]))`.
    """

    def __init__(self, config: ModelConfig, weights: Weights, max_context: int, full_logits: bool = False) -> None:
        super().__init__()
        self.config, self.max_context, self.full_logits = config, max_context, full_logits
        self.embedding = weights.embedding("model.embed_tokens", config.hidden)
        self.layers = nn.ModuleList(
            [Layer(config, weights, f"model.layers.{index}", max_context) for index in range(config.layers)]
        )
        self.norm = RmsNorm(weights.vector("model.norm.weight"), config.norm_eps)
        self.head = weights.linear("model.embed_tokens" if config.tied else "lm_head")
        cos, sin = rotary_tables(config, max_context)
        self.register_buffer("cos", torch.from_numpy(cos))
        self.register_buffer("sin", torch.from_numpy(sin))

    def forward(self, tokens: torch.Tensor, input_pos: torch.Tensor) -> torch.Tensor:
        length = tokens.shape[1]
        position = self._position(input_pos, length)
        # The exporter replaces these slices by the whole tables and the start position.
        cos = self.cos.narrow(0, position, length)
        sin = self.sin.narrow(0, position, length)
        x = self.embedding(tokens)  # (1, S, hidden)
        for layer in self.layers:
            x = layer(x, cos, sin, position)
        if not self.full_logits:
            x = x[:, -1, :]
        return self.head(self.norm(x))

    def _position(self, input_pos: torch.Tensor, length: int) -> Any:
        position = input_pos[0].item()
        torch._check(position >= 0)
        torch._check(position < self.max_context)
        torch._check(position + length <= self.max_context)
        return position

    def clear_caches(self) -> None:
        """Forget every token: what the caches hold at export time would be written into the file."""
        for layer in self.layers:
            layer.attention.k_cache.zero_()
            layer.attention.v_cache.zero_()
