"""The table of model architectures: how each differs from Llama, and its names for config keys and tensors."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Activation = Literal["silu", "gelu", "gelu_tanh", "relu"]


@dataclass(frozen=True)
class Norms:
    """The norms of a layer by the names of their weights: pre- and post-norm of attention and of the feed-forward."""

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
_AROUND_GLM = Norms("input_layernorm", "post_self_attn_layernorm", "post_attention_layernorm", "post_mlp_layernorm")
_AFTER = Norms(None, "post_attention_layernorm", None, "post_feedforward_layernorm")
_ONE = Norms("input_layernorm", None, None, None)


@dataclass(frozen=True)
class Family:
    """One architecture (model_type).

    `settings` are config.json keys that change what a layer computes and are supported for this architecture alone;
    `defaults` are transformers' values of absent keys; `keys` and `tensors` map its own names of config keys and
    tensors.

    Example: `FAMILIES["gemma2"].norms.names`.
    """

    architecture: str
    gguf: bool = True  # whether it is a GGUF general.architecture
    norms: Norms = field(default_factory=Norms)
    layer_norm: bool = False  # rather than RMSNorm
    qk_norm: Literal["heads", "rows"] | None = None  # per head, or over all heads of a token together
    parallel: bool = False  # parallel attention and MLP: both read the same norm
    gated: bool = True  # gated MLP (SwiGLU, GeGLU)
    scales_embedding: bool = False  # by sqrt(hidden)
    sinks: bool = False  # attention sinks: a learned logit per head in the softmax's denominator
    learned_positions: bool = False  # learned absolute position embeddings instead of RoPE
    interleaved: bool = False  # RoPE rotates adjacent elements (GPT-J style), not the two halves of a head (NeoX style)
    partial_rotary: bool = False  # partial_rotary_factor is supported
    norms_less_one: bool = False  # Hugging Face's files store norm weights minus 1
    neighbours: bool = False  # GGUF files store Q and K permuted for interleaved RoPE
    windows: tuple[bool, ...] = (True,)  # which layers have the sliding window, if any; the pattern repeats
    layer_types: bool = True  # the layer_types key overrides `windows`
    optional_window: bool = False  # the sliding window counts only with use_sliding_window
    rotates_windows_alone: bool = False  # full-attention layers have no RoPE (NoPE)
    settings: frozenset[str] = frozenset()
    ignored: frozenset[str] = frozenset()  # keys of other architectures that transformers ignores for this one
    defaults: Mapping[str, Any] = field(default_factory=dict)
    keys: Mapping[str, str] = field(default_factory=dict)
    tensors: Mapping[str, str] = field(default_factory=dict)  # dotted name components, theirs to ours
    gguf_tensors: Mapping[str, str] = field(default_factory=dict)  # of a layer, in GGUF files
    transposed: tuple[str, ...] = ()  # name suffixes of weights stored (inputs, outputs), such as GPT-2's Conv1D
    stacked_experts: bool = False  # one tensor for all experts, (inputs, outputs), gate and up interleaved
    quantized: str | None = None  # the quant_method that its checkpoints may have

    @property
    def title(self) -> str:
        """Display name."""
        return self.architecture.removesuffix("ForCausalLM").removesuffix("LMHeadModel")

    def embedding_scale(self, hidden: int) -> float:
        """The factor of the token embeddings."""
        return math.sqrt(hidden) if self.scales_embedding else 1.0


_MULTIPLIERS = frozenset(("attention_multiplier", "embedding_multiplier", "logits_scaling", "residual_multiplier"))
_QWEN: dict[str, Any] = {"max_window_layers": 28, "sliding_window": 4096}
_GEMMA: dict[str, Any] = {
    "head_dim": 256,
    "hidden_activation": "gelu_pytorch_tanh",
    "query_pre_attn_scalar": 256,
    "tie_word_embeddings": True,
}
_GEMMA_KEYS = {"hidden_act": "hidden_activation"}
_GLM: dict[str, Any] = {"head_dim": 128, "partial_rotary_factor": 0.5, "rms_norm_eps": 1.5625e-7}

FAMILIES: Mapping[str, Family] = {
    "llama": Family("LlamaForCausalLM", neighbours=True, windows=(False,)),
    # layer_types count: with them transformers loads a Mistral as a Ministral.
    "mistral": Family("MistralForCausalLM", gguf=False, defaults={"sliding_window": 4096}),
    "ministral": Family("MinistralForCausalLM", gguf=False, defaults={"sliding_window": 4096}),
    "qwen2": Family("Qwen2ForCausalLM", optional_window=True, defaults=_QWEN),
    "qwen3": Family(
        "Qwen3ForCausalLM",
        qk_norm="heads",
        optional_window=True,
        defaults={**_QWEN, "head_dim": 128},
    ),
    "phi3": Family(
        "Phi3ForCausalLM",
        partial_rotary=True,
        layer_types=False,
        defaults={"original_max_position_embeddings": 4096, "rms_norm_eps": 1e-5},
    ),
    "gemma2": Family(
        "Gemma2ForCausalLM",
        norms=_AROUND,
        scales_embedding=True,
        norms_less_one=True,
        windows=(True, False),
        settings=frozenset(("attn_logit_softcapping", "final_logit_softcapping", "query_pre_attn_scalar")),
        defaults={**_GEMMA, "sliding_window": 4096, "attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0},
        keys=_GEMMA_KEYS,
    ),
    "gemma3": Family(
        "Gemma3ForCausalLM",
        norms=_AROUND,
        qk_norm="heads",
        scales_embedding=True,
        norms_less_one=True,
        windows=(True, True, True, True, True, False),
        settings=frozenset(("final_logit_softcapping", "query_pre_attn_scalar")),
        ignored=frozenset(("attn_logit_softcapping",)),
        # The text_config of the multimodal checkpoints lists little more than what differs from these.
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
        keys=_GEMMA_KEYS,
    ),
    "olmo2": Family(
        "Olmo2ForCausalLM",
        norms=_AFTER,
        qk_norm="rows",
        windows=(False,),
        defaults={"rms_norm_eps": 1e-5},
    ),
    "granite": Family("GraniteForCausalLM", neighbours=True, windows=(False,), settings=_MULTIPLIERS),
    "smollm3": Family(
        "SmolLM3ForCausalLM",
        neighbours=True,
        optional_window=True,
        settings=frozenset(("no_rope_layers",)),
        defaults={"no_rope_layer_interval": 4, "rope_theta": 2e6, "tie_word_embeddings": True},
    ),
    "mixtral": Family(
        "MixtralForCausalLM",
        gguf=False,
        layer_types=False,
        settings=frozenset(("num_local_experts",)),
        defaults={"rope_theta": 1e6, "rms_norm_eps": 1e-5},
        tensors={"block_sparse_moe": "mlp", "w1": "gate_proj", "w2": "down_proj", "w3": "up_proj"},
    ),
    "qwen3moe": Family(
        "Qwen3MoeForCausalLM",
        qk_norm="heads",
        layer_types=False,
        optional_window=True,
        settings=frozenset(("num_experts", "num_local_experts")),
        defaults={"sliding_window": 4096},
    ),
    "starcoder2": Family(
        "Starcoder2ForCausalLM",
        layer_norm=True,
        gated=False,
        layer_types=False,
        defaults={"hidden_act": "gelu_pytorch_tanh", "norm_epsilon": 1e-5, "tie_word_embeddings": True},
        keys={"rms_norm_eps": "norm_epsilon"},
        tensors={"mlp.c_fc": "mlp.up_proj", "mlp.c_proj": "mlp.down_proj"},
    ),
    "glm": Family("GlmForCausalLM", gguf=False, interleaved=True, partial_rotary=True, windows=(False,), defaults=_GLM),
    "glm4": Family(
        "Glm4ForCausalLM",
        norms=_AROUND_GLM,
        interleaved=True,
        partial_rotary=True,
        windows=(False,),
        defaults=_GLM,
    ),
    "cohere2": Family(
        "Cohere2ForCausalLM",
        norms=_ONE,
        layer_norm=True,
        parallel=True,
        interleaved=True,
        windows=(True, True, True, False),
        rotates_windows_alone=True,
        settings=frozenset(("logit_scale",)),
        defaults={"layer_norm_eps": 1e-5, "logit_scale": 0.0625, "sliding_window": 4096, "tie_word_embeddings": True},
        keys={"rms_norm_eps": "layer_norm_eps"},
    ),
    "gpt2": Family(
        "GPT2LMHeadModel",
        layer_norm=True,
        gated=False,
        learned_positions=True,
        windows=(False,),
        settings=frozenset(("scale_attn_weights",)),
        defaults={"activation_function": "gelu_new", "layer_norm_epsilon": 1e-5, "tie_word_embeddings": True},
        keys={
            "hidden_act": "activation_function",
            "hidden_size": "n_embd",
            "intermediate_size": "n_inner",
            "max_position_embeddings": "n_positions",
            "num_attention_heads": "n_head",
            "num_hidden_layers": "n_layer",
            "rms_norm_eps": "layer_norm_epsilon",
        },
        tensors={
            "wte": "embed_tokens",
            "wpe": "embed_positions",
            "h": "layers",
            "ln_1": "input_layernorm",
            "ln_2": "post_attention_layernorm",
            "ln_f": "norm",
            "attn.c_attn": "self_attn.qkv_proj",
            "attn.c_proj": "self_attn.o_proj",
            "mlp.c_fc": "mlp.up_proj",
            "mlp.c_proj": "mlp.down_proj",
        },
        transposed=("qkv_proj.weight", "o_proj.weight", "up_proj.weight", "down_proj.weight"),
    ),
    "gpt-oss": Family(
        "GptOssForCausalLM",
        sinks=True,
        windows=(True, False),
        settings=frozenset(("num_local_experts", "quantization_config", "swiglu_alpha", "swiglu_limit")),
        defaults={
            "head_dim": 64,
            "rms_norm_eps": 1e-5,
            "rope_parameters": {
                "rope_type": "yarn",
                "factor": 32.0,
                "truncate": False,
                "original_max_position_embeddings": 4096,
            },
            "rope_theta": 150000.0,
            "sliding_window": 128,
            "swiglu_alpha": 1.702,
            "swiglu_limit": 7.0,
        },
        tensors={
            "self_attn.sinks": "self_attn.sinks.weight",
            "mlp.router": "mlp.gate",
            "experts.gate_up_proj": "experts.gate_up_proj.weight",
            "experts.down_proj": "experts.down_proj.weight",
            "gate_up_proj_bias": "gate_up_proj.bias",
            "down_proj_bias": "down_proj.bias",
            "gate_up_proj_blocks": "gate_up_proj.blocks",
            "gate_up_proj_scales": "gate_up_proj.scales",
            "down_proj_blocks": "down_proj.blocks",
            "down_proj_scales": "down_proj.scales",
        },
        gguf_tensors={"attn_sinks": "self_attn.sinks", "post_attention_norm": "post_attention_layernorm"},
        stacked_experts=True,
        quantized="mxfp4",
    ),
}
