"""Tiny models of every family: their config.json, and random weights in the form in which checkpoints store them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from liveshape.export.model.families import FAMILIES
from liveshape.export.sources.huggingface_config import from_hugging_face
from tests.export.tiny import Arrays, random_weights, write_folder

CONTEXT = 64
BASE: dict[str, Any] = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 128,
    "max_position_embeddings": CONTEXT,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "tie_word_embeddings": False,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
FACTORS = {
    "rope_scaling": {
        "type": "longrope",
        "short_factor": [1.0, 1.1, 1.2, 1.3, 1.4, 1.5],
        "long_factor": [1.0, 2.0, 3.0, 4.0, 6.0, 8.0],
    },
    "partial_rotary_factor": 0.75,
}


def settings_of(architecture: str, kind: str, **changes: Any) -> dict[str, Any]:
    return {**BASE, "architectures": [architecture], "model_type": kind, **changes}


GEMMA: dict[str, Any] = {
    "head_dim": 24,
    "hidden_activation": "gelu_pytorch_tanh",
    "query_pre_attn_scalar": 20,
    "sliding_window": 9,
    "tie_word_embeddings": True,
    "attn_logit_softcapping": None,
    "final_logit_softcapping": None,
}
MODELS: dict[str, dict[str, Any]] = {
    "mistral": settings_of("MistralForCausalLM", "mistral", sliding_window=9),
    "qwen2": settings_of(
        "Qwen2ForCausalLM",
        "qwen2",
        use_sliding_window=True,
        sliding_window=7,
        max_window_layers=1,
        layer_types=["full_attention", "sliding_attention"],
    ),
    "phi3": settings_of("Phi3ForCausalLM", "phi3", sliding_window=13),
    "phi4_mini": settings_of(
        "Phi3ForCausalLM", "phi3", tie_word_embeddings=True, original_max_position_embeddings=CONTEXT, **FACTORS
    )
    | {"max_position_embeddings": 4 * CONTEXT},
    "phi4_mini_long": settings_of("Phi3ForCausalLM", "phi3", original_max_position_embeddings=16, **FACTORS),
    "gemma2": settings_of("Gemma2ForCausalLM", "gemma2", **GEMMA)
    | {"num_hidden_layers": 3, "attn_logit_softcapping": 1.5, "final_logit_softcapping": 3.0},
    "gemma3": settings_of(
        "Gemma3ForCausalLM",
        "gemma3_text",
        **GEMMA,
        sliding_window_pattern=3,
        rope_local_base_freq=100.0,
        rope_scaling={"rope_type": "linear", "factor": 8.0},
    )
    | {"num_hidden_layers": 4, "num_key_value_heads": 1},
    "olmo2": settings_of("Olmo2ForCausalLM", "olmo2"),
    "granite": settings_of(
        "GraniteForCausalLM",
        "granite",
        embedding_multiplier=12.0,
        residual_multiplier=0.22,
        attention_multiplier=0.4,
        logits_scaling=8.0,
    ),
    "smollm3": settings_of("SmolLM3ForCausalLM", "smollm3", tie_word_embeddings=True, no_rope_layers=[1, 0, 1])
    | {"num_hidden_layers": 3},
    "mixtral": settings_of("MixtralForCausalLM", "mixtral", num_local_experts=4, num_experts_per_tok=2),
    "qwen3moe": settings_of(
        "Qwen3MoeForCausalLM",
        "qwen3_moe",
        head_dim=16,
        num_experts=5,
        num_experts_per_tok=3,
        moe_intermediate_size=32,
        norm_topk_prob=False,
        mlp_only_layers=[0],
    ),
    "llama_yarn": settings_of(
        "LlamaForCausalLM",
        "llama",
        rope_scaling={"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16, "beta_fast": 4.0},
    ),
    "qwen2_yarn": settings_of(
        "Qwen2ForCausalLM",
        "qwen2",
        rope_scaling={"type": "yarn", "factor": 2.5, "mscale": 1.2, "mscale_all_dim": 0.7, "truncate": False},
        hidden_act="relu",
    ),
    "llama_dynamic": settings_of(
        "LlamaForCausalLM", "llama", rope_scaling={"rope_type": "dynamic", "factor": 3.0}, hidden_act="gelu"
    )
    | {"max_position_embeddings": 40},
    "starcoder2": settings_of("Starcoder2ForCausalLM", "starcoder2", sliding_window=11, norm_epsilon=1e-4),
    "glm": settings_of("GlmForCausalLM", "glm", head_dim=24, attention_bias=True),
    "glm4": settings_of("Glm4ForCausalLM", "glm4", head_dim=16, attention_bias=True, partial_rotary_factor=0.75),
    "cohere2": settings_of(
        "Cohere2ForCausalLM",
        "cohere2",
        layer_norm_eps=1e-4,
        logit_scale=0.3,
        sliding_window=9,
        tie_word_embeddings=True,
        layer_types=["sliding_attention", "full_attention", "sliding_attention"],
    )
    | {"num_hidden_layers": 3},
    "gpt2": {
        "architectures": ["GPT2LMHeadModel"],
        "model_type": "gpt2",
        "n_embd": 96,
        "n_head": 3,
        "n_layer": 2,
        "n_positions": CONTEXT,
        "vocab_size": 128,
        "activation_function": "gelu_new",
        "layer_norm_epsilon": 1e-4,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "tie_word_embeddings": True,
    },
    "gpt_oss": settings_of(
        "GptOssForCausalLM",
        "gpt_oss",
        head_dim=20,
        num_local_experts=4,
        num_experts_per_tok=2,
        sliding_window=9,
        swiglu_limit=0.5,
        rope_scaling={
            "rope_type": "yarn",
            "factor": 4.0,
            "truncate": False,
            "original_max_position_embeddings": 16,
            "beta_fast": 4.0,
        },
    )
    | {"num_hidden_layers": 3},
}


def as_stored(settings: dict[str, Any], weights: Arrays) -> Arrays:
    """Weights as a checkpoint of this family has them: some on top of each other, norms of Gemma less one."""
    kind = settings["model_type"]
    made: Arrays = {}
    theirs = {ours: name for name, ours in FAMILIES[from_hugging_face(settings).family].tensors.items()}
    for name, weight in weights.items():
        whole = name
        if kind in ("phi3", "gpt2"):
            for each in "qkv":
                whole = whole.replace(f".{each}_proj", ".qkv_proj")
        if kind in ("phi3", "glm", "glm4"):
            whole = whole.replace(".gate_proj", ".gate_up_proj").replace(".up_proj", ".gate_up_proj")
        if kind != "mixtral" or ".mlp." in name:
            for ours, other in theirs.items():
                whole = whole.replace(f".{ours}.", f".{other}.")
        if kind == "gpt2":
            whole = whole.replace("model.", "transformer.", 1)
        less = np.float32(1 if kind.startswith("gemma") and name.endswith("norm.weight") else 0)
        made[whole] = np.concatenate([made[whole], weight]) if whole in made else weight - less
    for name, weight in made.items():
        if kind == "gpt2" and weight.ndim == 2 and ".h." in name:
            made[name] = np.ascontiguousarray(weight.T)
    return stacked(settings, made) if kind == "gpt_oss" else made


def stacked(settings: dict[str, Any], weights: Arrays) -> Arrays:
    """Experts of all numbers in one tensor, matrices as (inputs, outputs), gate and up in turns."""
    made = {name.replace("sinks.weight", "sinks"): each for name, each in weights.items() if ".experts." not in name}
    for layer in range(settings["num_hidden_layers"]):
        name = f"model.layers.{layer}.mlp.experts"
        for ending, stored in (("weight", ""), ("bias", "_bias")):
            gates, ups, downs = (
                np.stack([weights[f"{name}.{n}.{kind}_proj.{ending}"] for n in range(settings["num_local_experts"])])
                for kind in ("gate", "up", "down")
            )
            both = np.stack([gates, ups], axis=2).reshape(len(gates), -1, *gates.shape[2:])
            made[f"{name}.gate_up_proj{stored}"] = np.ascontiguousarray(both.swapaxes(1, -1))
            made[f"{name}.down_proj{stored}"] = np.ascontiguousarray(downs.swapaxes(1, -1))
    return made


def folder_of(path: Path, settings: dict[str, Any]) -> tuple[Path, Arrays]:
    """A Hugging Face folder of a model, and its weights."""
    weights = as_stored(settings, random_weights(from_hugging_face(settings)))
    write_folder(path, settings, weights)
    return path, weights
