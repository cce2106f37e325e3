"""The families of decoders, as data: what each does differently from a Llama, and what its settings are called."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Activation = Literal["silu", "gelu_tanh"]


@dataclass(frozen=True)
class Norms:
    """The norms of a layer by the names of their weights: of what goes into each half of it and of what comes out."""

    into_attention: str | None = "input_layernorm"
    out_of_attention: str | None = None
    into_feed_forward: str | None = "post_attention_layernorm"
    out_of_feed_forward: str | None = None

    @property
    def names(self) -> tuple[str, ...]:
        every = (self.into_attention, self.out_of_attention, self.into_feed_forward, self.out_of_feed_forward)
        return tuple(name for name in every if name is not None)


_AROUND = Norms(
    "input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm", "post_feedforward_layernorm"
)
_AFTER = Norms(None, "post_attention_layernorm", None, "post_feedforward_layernorm")


@dataclass(frozen=True)
class Family:
    """One family.

    `settings` are those of its config.json that change what a layer computes and that are followed for it alone;
    `defaults` are what it means where it says nothing.

    Example: `FAMILIES["gemma2"].norms.names`.
    """

    architecture: str
    gguf: bool = True  # whether GGUF files of this name are known
    norms: Norms = field(default_factory=Norms)
    qk_norm: Literal["heads", "rows"] | None = None  # of each head, or of all heads of a token together
    scales_embedding: bool = False  # by the root of its width
    norms_less_one: bool = False  # in Hugging Face's files
    neighbours: bool = False  # in GGUF files rows that turn as a pair lie beside each other
    windows: tuple[bool, ...] = (True,)  # which layers look through the window if there is one; layers take turns
    optional_window: bool = False  # a window is meant only if use_sliding_window says so
    settings: frozenset[str] = frozenset()
    defaults: Mapping[str, Any] = field(default_factory=dict)

    def embedding_scale(self, hidden: int) -> float:
        """What the rows of its table are multiplied with."""
        return math.sqrt(hidden) if self.scales_embedding else 1.0


_MULTIPLIERS = frozenset(("attention_multiplier", "embedding_multiplier", "logits_scaling", "residual_multiplier"))
_CAPS = frozenset(("attn_logit_softcapping", "final_logit_softcapping", "query_pre_attn_scalar"))
_GEMMA: dict[str, Any] = {
    "head_dim": 256,
    "hidden_activation": "gelu_pytorch_tanh",
    "query_pre_attn_scalar": 256,
    "tie_word_embeddings": True,
}

FAMILIES: Mapping[str, Family] = {
    "llama": Family("LlamaForCausalLM", neighbours=True, windows=(False,)),
    "mistral": Family("MistralForCausalLM", gguf=False),
    "qwen2": Family("Qwen2ForCausalLM", optional_window=True),
    "qwen3": Family("Qwen3ForCausalLM", qk_norm="heads", optional_window=True),
    "phi3": Family("Phi3ForCausalLM"),
    "gemma2": Family(
        "Gemma2ForCausalLM",
        norms=_AROUND,
        scales_embedding=True,
        norms_less_one=True,
        windows=(True, False),
        settings=_CAPS,
        defaults={**_GEMMA, "sliding_window": 4096, "attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0},
    ),
    "gemma3": Family(
        "Gemma3ForCausalLM",
        norms=_AROUND,
        qk_norm="heads",
        scales_embedding=True,
        norms_less_one=True,
        windows=(True, True, True, True, True, False),
        settings=_CAPS,
        # Those of the larger ones, with pictures, say little more than what differs from these.
        defaults={
            **_GEMMA,
            "num_attention_heads": 8,
            "num_key_value_heads": 4,
            "vocab_size": 262208,
            "max_position_embeddings": 131072,
            "sliding_window": 4096,
            "rope_theta": 1e6,
            "rope_local_base_freq": 1e4,
        },
    ),
    "olmo2": Family("Olmo2ForCausalLM", norms=_AFTER, qk_norm="rows", windows=(False,)),
    "granite": Family("GraniteForCausalLM", neighbours=True, windows=(False,), settings=_MULTIPLIERS),
    "smollm3": Family(
        "SmolLM3ForCausalLM",
        neighbours=True,
        optional_window=True,
        settings=frozenset(("no_rope_layers",)),
        defaults={"no_rope_layer_interval": 4, "rope_theta": 2e6, "tie_word_embeddings": True},
    ),
    "mixtral": Family("MixtralForCausalLM", gguf=False, settings=frozenset(("num_local_experts",))),
    "qwen3moe": Family(
        "Qwen3MoeForCausalLM",
        qk_norm="heads",
        optional_window=True,
        settings=frozenset(("num_experts", "num_local_experts")),
    ),
}
