"""The student: a small Llama with Hugging Face's names and half-split rotary layout, so that its folder exports."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn


@dataclass(frozen=True)
class Config:
    """Sizes of the student; every matrix has rows that are multiples of the 4-bit group."""

    vocab_size: int = 4096
    hidden_size: int = 256
    intermediate_size: int = 768
    num_hidden_layers: int = 8
    num_attention_heads: int = 8
    num_key_value_heads: int = 4
    max_position_embeddings: int = 512
    rope_theta: float = 10000.0
    rms_norm_eps: float = 1e-5

    def __post_init__(self) -> None:
        assert self.hidden_size % 32 == 0, f"hidden_size {self.hidden_size} is no multiple of the group 32"
        assert self.intermediate_size % 32 == 0, f"intermediate_size {self.intermediate_size} is no multiple of 32"
        assert self.num_attention_heads % self.num_key_value_heads == 0

    @property
    def head_dim(self) -> int:
        return self.hidden_size // self.num_attention_heads

    def file_bytes(self, parameters: int) -> int:
        """What the exported 4-bit program takes: nibbles, scales, the head's second scales, KV cache, rotary tables."""
        scales = 4 * self.vocab_size * self.hidden_size // 32
        cache = 4 * self.max_position_embeddings * self.num_key_value_heads * self.head_dim
        rotary = 2 * 4 * self.max_position_embeddings * self.head_dim
        return int(parameters * 0.625) + scales + cache + rotary


class RMSNorm(nn.Module):
    """RMSNorm with a learned weight."""

    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        wide = x.float()
        return ((wide * torch.rsqrt((wide * wide).mean(-1, keepdim=True) + self.eps)) * self.weight).to(x.dtype)


def rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Rotary embedding, the first half of each head against the second; x is (B, H, S, D)."""
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-second, first), dim=-1) * sin


class Attention(nn.Module):
    """Causal attention with grouped queries (GQA)."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        width, grouped = config.hidden_size, config.num_key_value_heads * config.head_dim
        self.q_proj = nn.Linear(width, width, bias=False)
        self.k_proj = nn.Linear(width, grouped, bias=False)
        self.v_proj = nn.Linear(width, grouped, bias=False)
        self.o_proj = nn.Linear(width, width, bias=False)

    def forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        batch, steps, width = x.shape
        dim = self.config.head_dim
        query, key, value = (
            projection(x).view(batch, steps, -1, dim).transpose(1, 2)
            for projection in (self.q_proj, self.k_proj, self.v_proj)
        )
        query, key = rotate(query, cos, sin), rotate(key, cos, sin)
        repeats = self.config.num_attention_heads // self.config.num_key_value_heads
        key, value = key.repeat_interleave(repeats, dim=1), value.repeat_interleave(repeats, dim=1)
        seen = F.scaled_dot_product_attention(query, key, value, is_causal=True)  # (B, H, S, D)
        mixed: torch.Tensor = self.o_proj(seen.transpose(1, 2).reshape(batch, steps, width))
        return mixed


class FeedForward(nn.Module):
    """SwiGLU."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.up_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.down_proj = nn.Linear(config.intermediate_size, config.hidden_size, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))
        return out


class Layer(nn.Module):
    """Attention, then feed-forward, each with a pre-norm and a residual."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.input_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.self_attn = Attention(config)
        self.post_attention_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.mlp = FeedForward(config)

    def forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        x = x + self.self_attn(self.input_layernorm(x), cos, sin)
        fed: torch.Tensor = self.mlp(self.post_attention_layernorm(x))
        return x + fed


class Body(nn.Module):
    """What Hugging Face calls `model`: embedding, layers, last norm."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList(Layer(config) for _ in range(config.num_hidden_layers))
        self.norm = RMSNorm(config.hidden_size, config.rms_norm_eps)


class Student(nn.Module):
    """The whole model; the head is the embedding.

    >>> logits = Student(Config())(torch.zeros(1, 5, dtype=torch.long))  # (1, 5, 4096)
    """

    cos: torch.Tensor
    sin: torch.Tensor

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.model = Body(config)
        half = config.head_dim // 2
        frequency = config.rope_theta ** (-torch.arange(half, dtype=torch.float32) / half)
        angle = torch.outer(torch.arange(config.max_position_embeddings, dtype=torch.float32), frequency).repeat(1, 2)
        self.register_buffer("cos", angle.cos(), persistent=False)  # (context, head_dim)
        self.register_buffer("sin", angle.sin(), persistent=False)
        for name, weight in self.named_parameters():
            if weight.dim() == 2:
                last = name.endswith(("o_proj.weight", "down_proj.weight"))
                nn.init.normal_(weight, std=0.02 / ((2 * config.num_hidden_layers) ** 0.5 if last else 1.0))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        steps = tokens.shape[1]
        x = self.model.embed_tokens(tokens)
        cos, sin = self.cos[:steps].to(x.dtype), self.sin[:steps].to(x.dtype)
        for layer in self.model.layers:
            x = layer(x, cos, sin)
        return F.linear(self.model.norm(x), self.model.embed_tokens.weight)

    def loss(self, tokens: torch.Tensor, ignored: int) -> torch.Tensor:
        """Mean cross entropy of every next token of `tokens` (B, S + 1), except where it is `ignored`."""
        logits = self(tokens[:, :-1])
        return F.cross_entropy(logits.flatten(0, 1).float(), tokens[:, 1:].flatten(), ignore_index=ignored)
