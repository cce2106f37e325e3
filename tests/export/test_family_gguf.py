"""GGUF files of every family, by hand: they are the same model as the folder that they were converted from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from liveshape.errors import UnsupportedError
from liveshape.export.model.checkpoint import check_tensors
from liveshape.export.model.config import ModelConfig
from liveshape.export.model.families import FAMILIES
from liveshape.export.sources.gguf_config import from_gguf
from liveshape.export.sources.gguf_model import open_gguf
from liveshape.export.sources.huggingface_config import from_hugging_face
from tests.export.family_models import MODELS
from tests.export.gguf_files import write_gguf
from tests.export.tiny import Arrays, random_weights

TOKENS = ["<unk>", "<s>", "</s>", *(f"t{each}" for each in range(125))]
WORDS = {
    "tokenizer.ggml.model": "llama",
    "tokenizer.ggml.tokens": TOKENS,
    "tokenizer.ggml.scores": [0.0] * len(TOKENS),
    "tokenizer.ggml.token_type": [2, 3, 3, *[1] * 125],
    "tokenizer.ggml.bos_token_id": 1,
    "tokenizer.ggml.eos_token_id": 2,
}
# What converters write beside the numbers that all have. Some things are not in the metadata but known of the family.
MORE: Mapping[str, dict[str, Any]] = {
    "phi3": {"attention.sliding_window": 13},
    "phi3_long": {"rope.dimension_count": 12, "rope.scaling.original_context_length": 64},
    "gemma2": {
        "attention.sliding_window": 9,
        "attn_logit_softcapping": 1.5,
        "final_logit_softcapping": 3.0,
        "attention.key_length": 24,
    },
    "gemma3": {
        "attention.sliding_window": 9,
        "attention.key_length": 24,
        "rope.scaling.type": "linear",
        "rope.scaling.factor": 8.0,
    },
    "olmo2": {},
    "granite": {"embedding_scale": 12.0, "residual_scale": 0.5, "attention.scale": 0.25, "logit_scale": 8.0},
    "smollm3": {},
    "llama": {"expert_count": 4, "expert_used_count": 2},
    "qwen3moe": {
        "expert_count": 5,
        "expert_used_count": 3,
        "expert_feed_forward_length": 32,
        "attention.key_length": 16,
    },
    "starcoder2": {"attention.sliding_window": 11, "attention.layer_norm_epsilon": 1e-4},
    "glm4": {"attention.key_length": 16, "rope.dimension_count": 12},
    "cohere2": {"attention.sliding_window": 9, "attention.layer_norm_epsilon": 1e-4, "logit_scale": 0.3},
    "gpt2": {"attention.layer_norm_epsilon": 1e-4},
    "gpt-oss": {
        "expert_count": 4,
        "expert_used_count": 2,
        "expert_feed_forward_length": 96,
        "expert_gating_func": 3,
        "attention.key_length": 20,
        "attention.sliding_window": 9,
        "rope.scaling.type": "yarn",
        "rope.scaling.factor": 4.0,
        "rope.scaling.original_context_length": 16,
        "rope.scaling.yarn_beta_fast": 4.0,
    },
}
# The same models as folders, as far as they can be: a GGUF file knows one pattern of windows, one scale.
FOLDERS: Mapping[str, dict[str, Any]] = {
    "phi3": MODELS["phi3"],
    "phi3_long": MODELS["phi4_mini"],
    "gemma2": {**MODELS["gemma2"], "query_pre_attn_scalar": None},
    "gemma3": {
        **MODELS["gemma3"],
        "query_pre_attn_scalar": None,
        "sliding_window_pattern": 6,
        "rope_local_base_freq": 1e4,
    },
    "olmo2": MODELS["olmo2"],
    "granite": {**MODELS["granite"], "residual_multiplier": 0.5, "attention_multiplier": 0.25},
    "smollm3": {**MODELS["smollm3"], "no_rope_layers": None},
    "llama": MODELS["mixtral"],
    "qwen3moe": {**MODELS["qwen3moe"], "mlp_only_layers": [], "norm_topk_prob": True},
    "starcoder2": MODELS["starcoder2"],
    "glm4": MODELS["glm4"],
    "cohere2": {**MODELS["cohere2"], "layer_types": None},
    "gpt2": MODELS["gpt2"],
    "gpt-oss": {**MODELS["gpt_oss"], "swiglu_limit": 7.0},
}
OUTER = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}
OUTER |= {"model.embed_positions": "position_embd"}
INNER = {
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    **{f"self_attn.{part}_proj": f"attn_{part}" for part in "qkv"},
    **{f"mlp.{part}_proj": f"ffn_{part}" for part in ("gate", "up", "down")},
    "mlp.gate": "ffn_gate_inp",
    "self_attn.sinks": "attn_sinks",
}
NORMS = {
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
    "pre_feedforward_layernorm": "ffn_norm",
    "post_self_attn_layernorm": "post_attention_norm",
    "post_mlp_layernorm": "post_ffw_norm",
}


def gguf_name(name: str, architecture: str) -> str:
    stem, ending = name.rsplit(".", 1)
    if stem in OUTER:
        return f"{OUTER[stem]}.{ending}"
    _, _, layer, inner = stem.split(".", 3)
    if inner == "post_attention_layernorm" and architecture in ("gemma2", "gemma3", "olmo2", "gpt-oss"):
        return f"blk.{layer}.post_attention_norm.{ending}"
    return f"blk.{layer}.{(INNER | NORMS)[inner]}.{ending}"


def in_pairs(weight: Any, heads: int, rotated: int) -> Any:
    """Rows of the two halves of what turns of a head, beside each other."""
    apart = weight.reshape(heads, -1, *weight.shape[1:])
    turning = apart[:, :rotated].reshape(heads, 2, rotated // 2, *weight.shape[1:]).swapaxes(1, 2)
    both = [turning.reshape(heads, rotated, *weight.shape[1:]), apart[:, rotated:]]
    return np.concatenate(both, axis=1).reshape(weight.shape)


def tensors_of(config: ModelConfig, weights: Arrays, architecture: str) -> dict[str, Any]:
    """As llama.cpp's converter stores them."""
    made: Arrays = {}

    def below(name: str, weight: Any) -> None:
        made[name] = np.concatenate([made[name], weight]) if name in made else weight

    for name, weight in weights.items():
        part = name.split(".")[-2]
        heads = {"q_proj": config.heads, "k_proj": config.kv_heads}.get(part)
        if heads and architecture in ("llama", "granite", "smollm3"):
            apart = weight.reshape(heads, 2, config.head_size // 2, -1).swapaxes(1, 2)
            weight = apart.reshape(weight.shape)
        if heads and architecture in ("glm4", "cohere2"):
            weight = in_pairs(weight, heads, config.rotary_size)
        ending = name.split(".")[-1]
        if ".experts." in name:
            layer, kind = name.split(".")[2], name.split(".")[-2].removesuffix("_proj")
            below(f"blk.{layer}.ffn_{kind}_exps.{ending}", weight[None])
        elif architecture in ("phi3", "gpt2") and part in ("q_proj", "k_proj", "v_proj"):
            below(f"blk.{name.split('.')[2]}.attn_qkv.{ending}", weight)
        elif architecture in ("phi3", "glm4") and part in ("gate_proj", "up_proj"):
            below(f"blk.{name.split('.')[2]}.ffn_up.weight", weight)
        else:
            made[gguf_name(name, architecture)] = weight
    return {name: (0, weight.shape, np.ascontiguousarray(weight).tobytes()) for name, weight in made.items()}


@pytest.mark.parametrize("name", FOLDERS)
def test_the_same_model_as_its_folder(name: str, tmp_path: Path) -> None:
    pytest.importorskip("tokenizers")
    settings, architecture = FOLDERS[name], name.removesuffix("_long")
    config = from_hugging_face(settings)
    weights = random_weights(config)
    tensors = tensors_of(config, weights, architecture)
    numbers = {
        "block_count": config.layers,
        "context_length": config.context,
        "embedding_length": config.hidden,
        "feed_forward_length": config.feed_forward,
        "attention.head_count": config.heads,
        "attention.head_count_kv": config.kv_heads,
        "attention.layer_norm_rms_epsilon": 1e-5,
        "rope.freq_base": config.rope_theta,
        **MORE[name],
    }
    if config.rope_scaling is not None and config.rope_scaling.kind == "longrope":
        numbers["rope.scaling.attn_factor"] = config.rope_scaling.amplitude
        for kind, factors in (("short", config.rope_scaling.short), ("long", config.rope_scaling.long)):
            tensors[f"rope_factors_{kind}.weight"] = (0, (len(factors),), np.array(factors, np.float32).tobytes())
    metadata = {f"{architecture}.{key}": value for key, value in numbers.items()}
    write_gguf(tmp_path / "tiny.gguf", {"general.architecture": architecture, **metadata, **WORDS}, tensors)
    checkpoint = open_gguf(tmp_path / "tiny.gguf")
    check_tensors(checkpoint)
    assert set(checkpoint.shapes) == set(weights)
    for tensor, weight in weights.items():
        np.testing.assert_array_equal(checkpoint.read(tensor), weight, err_msg=tensor)
        rows = slice(3, 9)
        np.testing.assert_array_equal(checkpoint.read_rows(tensor, rows), weight[rows], err_msg=tensor)
    assert_close(checkpoint.config, replace(config, family=architecture))


def assert_close(one: ModelConfig, other: ModelConfig) -> None:
    """Two configs are the same but for float32 in the file."""
    for key, value in vars(one).items():
        wanted = getattr(other, key)
        if key == "rope_scaling" and value is not None:
            for numbers in ("factor", "amplitude", "low_frequency", "high_frequency", "short", "long"):
                np.testing.assert_allclose(getattr(value, numbers), getattr(wanted, numbers), rtol=1e-6)
            assert (value.kind, value.original_context) == (wanted.kind, wanted.original_context)
        elif key == "windowed" and one.window is None:
            assert other.window is None
        elif isinstance(value, float):
            assert value == pytest.approx(wanted, rel=1e-6), key
        else:
            assert value == wanted, key


@pytest.mark.parametrize(("family", "layers"), [("gemma2", 46), ("gemma3", 62)])
def test_the_scale_of_27b(family: str, layers: int) -> None:
    numbers = {
        "block_count": layers,
        "embedding_length": 5376,
        "feed_forward_length": 8,
        "attention.head_count": 32,
        "attention.key_length": 128,
        "attention.layer_norm_rms_epsilon": 1e-6,
    }
    metadata = {"general.architecture": family, **{f"{family}.{key}": value for key, value in numbers.items()}}
    assert from_gguf(metadata, 100, True).attention_scale == 168**-0.5
    assert from_gguf({**metadata, f"{family}.block_count": 8}, 100, True).attention_scale is None
    assert from_gguf({**metadata, f"{family}.attention.sliding_window_pattern": 2}, 100, True).windowed == (True, False)


def test_windows_of_families_whose_pattern_is_not_known() -> None:
    for family in ("olmo2", "granite", "qwen3"):
        metadata = {"general.architecture": family, f"{family}.attention.sliding_window": 4096}
        assert FAMILIES[family].gguf
        with pytest.raises(UnsupportedError, match="sliding_window = 4096"):
            from_gguf(metadata, 100, True)
