"""Configs as numbers, and refusals with every reason at once."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from liveshape.errors import FormatError, UnsupportedError
from liveshape.export.decoder.rope import inverse_frequencies, rotary_tables
from liveshape.export.model.checkpoint import Checkpoint, check_tensors
from liveshape.export.model.config import RopeScaling, check_context
from liveshape.export.model.families import FAMILIES
from liveshape.export.sources.gguf_config import from_gguf
from liveshape.export.sources.huggingface_config import from_hugging_face
from tests.export.reference import frequencies
from tests.export.tiny import LLAMA, QWEN2, QWEN3

GGUF = {
    "general.architecture": "llama",
    "llama.block_count": 2,
    "llama.context_length": 128,
    "llama.embedding_length": 64,
    "llama.feed_forward_length": 96,
    "llama.attention.head_count": 4,
    "llama.attention.head_count_kv": 2,
    "llama.attention.layer_norm_rms_epsilon": 1e-5,
    "llama.rope.freq_base": 500000.0,
    "tokenizer.ggml.bos_token_id": 1,
    "tokenizer.ggml.eos_token_id": 2,
    "tokenizer.ggml.eot_token_id": 7,
}


def test_llama() -> None:
    config = from_hugging_face(LLAMA, {"eos_token_id": [2, 9], "bos_token_id": 4})
    assert (config.hidden, config.heads, config.kv_heads, config.head_size) == (64, 4, 2, 16)
    assert (config.begin, config.ends, config.tied, config.qk_norm) == (4, (2, 9), False, False)
    assert config.rope_scaling == RopeScaling("llama3", 8.0, 1.0, 4.0, 32)
    assert from_hugging_face(LLAMA).ends == (2, 3)


def test_qwen() -> None:
    config = from_hugging_face(QWEN3)
    assert (config.family, config.qk_norm, config.tied, config.head_size, config.window) == (
        "qwen3",
        True,
        True,
        20,
        None,
    )
    assert from_hugging_face(QWEN2).window is None  # use_sliding_window is false


def test_rope_parameters_of_transformers_5() -> None:
    new = {key: value for key, value in LLAMA.items() if key not in ("rope_theta", "rope_scaling")}
    new["rope_parameters"] = {**LLAMA["rope_scaling"], "rope_theta": 7000.0}
    config = from_hugging_face(new)
    assert config.rope_theta == 7000.0
    assert config.rope_scaling == RopeScaling("llama3", 8.0, 1.0, 4.0, 32)


def test_all_reasons_at_once() -> None:
    other = {
        **LLAMA,
        "architectures": ["MambaForCausalLM"],
        "num_local_experts": 8,
        "hidden_act": "xielu",
        "rope_scaling": {"type": "proportional", "factor": 4.0},
        "quantization_config": {"quant_method": "awq"},
    }
    with pytest.raises(UnsupportedError) as refusal:
        from_hugging_face(other)
    for word in ("MambaForCausalLM", "LlamaForCausalLM", "num_local_experts = 8", "xielu", "proportional", "awq"):
        assert word in str(refusal.value)
    assert len(refusal.value.details) == 5


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"hidden_size": None}, "hidden_size = None"),
        ({"num_key_value_heads": 3}, "4 query heads"),
        ({"num_hidden_layers": 0}, "layers = 0"),
        ({"head_dim": 15}, "rotary size of 15"),
    ],
)
def test_broken_configs(change: dict[str, Any], message: str) -> None:
    with pytest.raises(FormatError, match=message):
        from_hugging_face({**LLAMA, **change})


NEAR, FULL = "sliding_attention", "full_attention"
EXPERTS = {"num_local_experts": 4, "num_experts_per_tok": 2}


@pytest.mark.parametrize(
    ("family", "change", "windows"),
    [
        ("mistral", {"sliding_window": 9}, [True] * 4),
        ("mistral", {"sliding_window": None}, [False] * 4),
        ("mistral", {"sliding_window": 9, "layer_types": [FULL, NEAR] * 2}, [False, True] * 2),
        ("mixtral", {"sliding_window": 9, "layer_types": [FULL, NEAR] * 2, **EXPERTS}, [True] * 4),
        ("phi3", {"sliding_window": 9, "layer_types": [FULL, NEAR] * 2}, [True] * 4),
        ("mistral", {"sliding_window": 9, "use_sliding_window": False}, [True] * 4),
        ("mistral", {}, [True] * 4),
        ("starcoder2", {"sliding_window": 9, "layer_types": [FULL, NEAR] * 2}, [True] * 4),
        ("starcoder2", {}, [False] * 4),
        ("llama", {"sliding_window": 9}, [False] * 4),  # which transformers does not look at
        ("qwen2", {"sliding_window": 9}, [False] * 4),
        (
            "qwen3",
            {"sliding_window": 9, "use_sliding_window": True, "layer_types": [FULL, NEAR] * 2},
            [False, True] * 2,
        ),
        ("qwen3", {"use_sliding_window": True, "max_window_layers": 1}, [False, True, True, True]),
        ("qwen2", {"use_sliding_window": True, "max_window_layers": 0}, [True] * 4),
        ("qwen2", {"use_sliding_window": True}, [False] * 4),
        ("phi3", {"sliding_window": 9}, [True] * 4),
        ("smollm3", {"sliding_window": 9, "use_sliding_window": True}, [False, False, False, True]),
        ("cohere2", {}, [True, True, True, False]),
        ("cohere2", {"sliding_window_pattern": 2}, [True, False] * 2),
        ("glm4", {"sliding_window": 9}, [False] * 4),
        ("gemma2", {}, [True, False] * 2),
        ("gemma2", {"layer_types": [NEAR, NEAR, FULL, FULL]}, [True, True, False, False]),
        ("gemma3", {}, [True] * 4),
        ("gemma3", {"sliding_window_pattern": 2}, [True, False] * 2),
    ],
)
def test_which_layers_have_a_window(family: str, change: dict[str, Any], windows: list[bool]) -> None:
    settings = {**LLAMA, "rope_scaling": None, "num_hidden_layers": 4, **change}
    config = from_hugging_face({**settings, "architectures": [FAMILIES[family].architecture]})
    assert [config.has_window(layer) for layer in range(4)] == windows


def test_windows_that_are_not_known() -> None:
    settings = {**QWEN2, "use_sliding_window": True}
    with pytest.raises(FormatError, match="num_hidden_layers = 5000"):
        from_hugging_face({**settings, "num_hidden_layers": 5000})
    with pytest.raises(UnsupportedError, match="layer type chunked_attention"):
        from_hugging_face({**settings, "layer_types": [FULL, "chunked_attention"]})
    with pytest.raises(FormatError, match="3 layer_types for 2 layers"):
        from_hugging_face({**settings, "layer_types": [FULL, NEAR, NEAR]})


def test_settings_of_one_family_are_refused_in_another() -> None:
    granite = {**LLAMA, "architectures": ["GraniteForCausalLM"], "residual_multiplier": 0.22, "logits_scaling": 4.0}
    config = from_hugging_face(granite)
    assert (config.residual_scale, config.logit_scale, config.attention_scale) == (0.22, 0.25, 1.0)
    with pytest.raises(UnsupportedError, match=r"residual_multiplier = 0\.22"):
        from_hugging_face({**granite, "architectures": ["LlamaForCausalLM"]})
    with pytest.raises(UnsupportedError, match=r"attn_logit_softcapping = 50\.0"):
        from_hugging_face({**granite, "attn_logit_softcapping": 50.0})
    with pytest.raises(UnsupportedError, match="use_bidirectional_attention"):
        from_hugging_face({**LLAMA, "architectures": ["Gemma3ForCausalLM"], "use_bidirectional_attention": True})


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("value", [False, None, 0])
def test_attention_that_is_not_causal(family: str, value: Any) -> None:
    settings = {**LLAMA, "architectures": [FAMILIES[family].architecture], "num_experts_per_tok": 2}
    with pytest.raises(UnsupportedError, match=f"is_causal = {value}: every token sees"):
        from_hugging_face({**settings, "is_causal": value})


def test_activations_by_the_name_that_a_family_gives_them() -> None:
    gemma = {**LLAMA, "architectures": ["Gemma2ForCausalLM"], "rope_scaling": None, "hidden_act": "silu"}
    assert from_hugging_face(gemma).activation == "gelu_tanh"
    assert from_hugging_face({**gemma, "hidden_activation": "relu"}).activation == "relu"
    assert from_hugging_face({**LLAMA, "hidden_activation": "relu"}).activation == "silu"
    with pytest.raises(UnsupportedError, match="hidden_act = None"):
        from_hugging_face({**gemma, "hidden_activation": None})


def test_partial_rotation_where_transformers_looks_at_it() -> None:
    plain = {**LLAMA, "rope_scaling": None}
    for settings in (plain, {**QWEN3, "head_dim": 16}, {**plain, "architectures": ["MistralForCausalLM"]}):
        whole = from_hugging_face(settings)
        assert from_hugging_face({**settings, "partial_rotary_factor": 0.5}) == whole
        assert whole.rotary_size == 16
    with pytest.raises(UnsupportedError, match=r"partial_rotary_factor = 0\.5 with rope scaling llama3"):
        from_hugging_face({**LLAMA, "partial_rotary_factor": 0.5})
    glm = {**plain, "architectures": ["Glm4ForCausalLM"], "head_dim": 16}
    assert from_hugging_face(glm).rotary_size == 8
    assert from_hugging_face({**glm, "partial_rotary_factor": 0.75}).rotary_size == 12
    inside = {"rope_type": "default", "partial_rotary_factor": 0.25}
    assert from_hugging_face({**glm, "partial_rotary_factor": 0.75, "rope_parameters": inside}).rotary_size == 4


def test_the_cap_that_gemma_3_does_not_have() -> None:
    gemma = {**LLAMA, "architectures": ["Gemma3ForCausalLM"], "rope_scaling": None}
    assert from_hugging_face({**gemma, "attn_logit_softcapping": 50.0}).attention_cap is None
    assert from_hugging_face({**gemma, "final_logit_softcapping": 30.0}).logit_cap == 30.0


def test_gemma_where_a_config_says_little() -> None:
    gemma = {**LLAMA, "architectures": ["Gemma2ForCausalLM"], "rope_scaling": None}
    del gemma["tie_word_embeddings"]
    config = from_hugging_face(gemma)
    assert (config.head_size, config.activation, config.tied, config.embedding_scale) == (256, "gelu_tanh", True, 8.0)
    assert (config.attention_cap, config.logit_cap, config.attention_scale) == (50.0, 30.0, 1 / 16)
    assert from_hugging_face({**gemma, "attn_logit_softcapping": None}).attention_cap is None


def test_ropes_of_gemma_3_as_transformers_4_and_5_write_them() -> None:
    gemma = {**LLAMA, "architectures": ["Gemma3ForCausalLM"], "rope_theta": 1e6}
    linear = {"rope_type": "linear", "factor": 8.0}
    old = from_hugging_face({**gemma, "rope_scaling": linear, "rope_local_base_freq": 500.0})
    ropes = {FULL: {**linear, "rope_theta": 1e6}, NEAR: {"rope_type": "default", "rope_theta": 500.0}}
    new = from_hugging_face({**gemma, "rope_scaling": None, "rope_parameters": ropes})
    assert old == new
    assert (new.rope_theta, new.local_theta, new.rope_scaling) == (1e6, 500.0, RopeScaling("linear", 8.0))
    with pytest.raises(UnsupportedError, match="rope scaling linear of layers with a sliding window"):
        from_hugging_face({**gemma, "rope_scaling": None, "rope_parameters": {FULL: linear, NEAR: linear}})


@pytest.mark.parametrize(
    "rope",
    [
        {"type": "longrope", "short_factor": [1.0] * 8},
        {"type": "longrope", "short_factor": [1.0] * 8, "long_factor": [1.0] * 7},
        {"type": "longrope", "short_factor": [1.0] * 8, "long_factor": [0.0] * 8},
        {"type": "longrope", "short_factor": [1.0] * 8, "long_factor": ["a"] * 8},
    ],
)
def test_longropes_that_are_not_whole(rope: dict[str, Any]) -> None:
    phi = {**LLAMA, "architectures": ["Phi3ForCausalLM"], "original_max_position_embeddings": 64}
    with pytest.raises(FormatError, match="long"):
        from_hugging_face({**phi, "rope_scaling": rope})


def test_experts() -> None:
    moe = {**LLAMA, "architectures": ["Qwen3MoeForCausalLM"], "num_experts": 8, "num_experts_per_tok": 2}
    moe |= {
        "moe_intermediate_size": 16,
        "decoder_sparse_step": 2,
        "mlp_only_layers": [3],
        "num_hidden_layers": 6,
        "head_dim": 16,
    }
    config = from_hugging_face(moe)
    assert [config.has_experts(layer) for layer in range(6)] == [False, True, False, False, False, True]
    plain = from_hugging_face({**moe, "architectures": ["Qwen3ForCausalLM"], "num_experts": None})
    assert config.parameters - plain.parameters == 2 * 3 * 64 * (8 * 16 - 96)
    with pytest.raises(FormatError, match="uses 9 of 8 experts"):
        from_hugging_face({**moe, "num_experts_per_tok": 9})
    many = from_hugging_face({**moe, "num_experts": 1000000})
    with pytest.raises(FormatError, match="2000000 experts, 9 tensors"):
        check_tensors(Checkpoint(many, dict.fromkeys(map(str, range(9)), ()), np.zeros))


@pytest.mark.parametrize(("max_seq", "max_context"), [(1, 64), (65, 64)])
def test_bounds(max_seq: int, max_context: int) -> None:
    with pytest.raises(UnsupportedError, match=f"--max-seq-len {max_seq}"):
        check_context(from_hugging_face(LLAMA), max_seq, max_context)


def test_gguf_metadata() -> None:
    config = from_gguf(GGUF, vocabulary=100, tied=True)
    assert (config.vocabulary, config.head_size, config.rope_theta, config.tied) == (100, 16, 500000.0, True)
    assert (config.begin, config.ends) == (1, (2, 7))


def test_gguf_refusals() -> None:
    with pytest.raises(UnsupportedError, match=r"(?s)architecture mamba.*llama, qwen2, qwen3"):
        from_gguf({**GGUF, "general.architecture": "mamba"}, 100, True)
    for key, value in (
        ("expert_shared_count", 1),
        ("attn_logit_softcapping", 50.0),
        ("residual_scale", 0.5),
        ("rope.scaling.type", "longrope"),
    ):
        with pytest.raises(UnsupportedError, match=str(value)):
            from_gguf({**GGUF, f"llama.{key}": value}, 100, True)
    with pytest.raises(UnsupportedError, match="softmax"):
        from_gguf({**GGUF, "llama.expert_gating_func": 2}, 100, True)
    with pytest.raises(FormatError, match=r"no llama\.attention\.head_count, which the model needs"):
        from_gguf({"general.architecture": "llama"}, 100, True)


@pytest.mark.parametrize("settings", [LLAMA, QWEN3], ids=["llama3", "default"])
def test_frequencies(settings: dict[str, Any]) -> None:
    config = from_hugging_face(settings)
    expected = frequencies(settings, config.head_size).numpy()
    np.testing.assert_allclose(inverse_frequencies(config), expected, rtol=1e-6)
    cos, sin = rotary_tables(config, 50)
    assert cos.shape == sin.shape == (50, config.head_size)
    np.testing.assert_allclose(sin[7, : config.head_size // 2], np.sin(7 * expected), atol=1e-6)


def test_a_dynamic_base_depends_on_the_context() -> None:
    plain = from_hugging_face(QWEN3)
    dynamic = from_hugging_face({**QWEN3, "rope_scaling": {"rope_type": "dynamic", "factor": 2.0}})
    np.testing.assert_array_equal(inverse_frequencies(dynamic, 128), inverse_frequencies(plain))
    longer = replace(plain, rope_theta=1e6 * (2 * 256 / 128 - 1) ** (20 / 18))
    np.testing.assert_allclose(inverse_frequencies(dynamic, 256), inverse_frequencies(longer), rtol=1e-6)
    with pytest.raises(FormatError, match="rotary size of 2 "):
        replace(dynamic, rotary_size=2)
    yarn = from_hugging_face({**QWEN3, "rope_scaling": {"rope_type": "yarn", "factor": 2.0}})
    with pytest.raises(FormatError, match="yarn needs a base"):
        replace(yarn, rope_theta=1.0)


def test_learned_positions_end() -> None:
    settings = {"architectures": ["GPT2LMHeadModel"], "n_embd": 48, "n_head": 3, "n_layer": 2, "n_positions": 64}
    config = from_hugging_face({**settings, "vocab_size": 100})
    assert (config.feed_forward, config.context, config.attention_scale) == (192, 64, None)
    assert from_hugging_face({**settings, "vocab_size": 100, "scale_attn_weights": False}).attention_scale == 1.0
    check_context(config, 16, 64)
    with pytest.raises(UnsupportedError, match="learned 64 positions"):
        check_context(config, 16, 65)
    with pytest.raises(UnsupportedError, match="scale_attn_by_inverse_layer_idx"):
        from_hugging_face({**settings, "vocab_size": 100, "scale_attn_by_inverse_layer_idx": True})


def test_linear_scaling_and_factors() -> None:
    plain = from_hugging_face(QWEN3)
    stretched = from_hugging_face({**QWEN3, "rope_scaling": {"type": "linear", "factor": 4.0}})
    np.testing.assert_allclose(inverse_frequencies(stretched), inverse_frequencies(plain) / 4)
    factors = np.arange(1, 11, dtype=np.float32)
    divided = replace(plain, rope_factors=tuple(factors.tolist()))
    np.testing.assert_allclose(inverse_frequencies(divided), inverse_frequencies(plain) / factors, rtol=1e-6)
