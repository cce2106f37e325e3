"""Configs as numbers, and refusals with every reason at once."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from liveshape.errors import FormatError, UnsupportedError
from liveshape.export.config import RopeScaling, check_context, from_gguf, from_hugging_face
from liveshape.export.rope import inverse_frequencies, rotary_tables
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
        "architectures": ["MixtralForCausalLM"],
        "num_local_experts": 8,
        "hidden_act": "gelu",
        "rope_scaling": {"type": "yarn", "factor": 4.0},
        "quantization_config": {"quant_method": "awq"},
    }
    with pytest.raises(UnsupportedError) as refusal:
        from_hugging_face(other)
    for word in ("MixtralForCausalLM", "LlamaForCausalLM", "num_local_experts = 8", "gelu", "yarn", "awq"):
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


def test_a_sliding_window_is_refused_only_beyond_it() -> None:
    config = from_hugging_face({**LLAMA, "architectures": ["MistralForCausalLM"], "sliding_window": 64})
    check_context(config, 16, 64)
    with pytest.raises(UnsupportedError, match="--max-context 64 or less"):
        check_context(config, 16, 128)


@pytest.mark.parametrize(("max_seq", "max_context"), [(1, 64), (65, 64)])
def test_bounds(max_seq: int, max_context: int) -> None:
    with pytest.raises(UnsupportedError, match=f"--max-seq-len {max_seq}"):
        check_context(from_hugging_face(LLAMA), max_seq, max_context)


def test_gguf_metadata() -> None:
    config = from_gguf(GGUF, vocabulary=100, tied=True)
    assert (config.vocabulary, config.head_size, config.rope_theta, config.tied) == (100, 16, 500000.0, True)
    assert (config.begin, config.ends) == (1, (2, 7))


def test_gguf_refusals() -> None:
    with pytest.raises(UnsupportedError, match=r"(?s)architecture gemma3.*llama, qwen2, qwen3"):
        from_gguf({**GGUF, "general.architecture": "gemma3"}, 100, True)
    with pytest.raises(UnsupportedError, match="8 experts"):
        from_gguf({**GGUF, "llama.expert_count": 8}, 100, True)
    with pytest.raises(FormatError, match="not complete"):
        from_gguf({"general.architecture": "llama"}, 100, True)


@pytest.mark.parametrize("settings", [LLAMA, QWEN3], ids=["llama3", "default"])
def test_frequencies(settings: dict[str, Any]) -> None:
    config = from_hugging_face(settings)
    expected = frequencies(settings, config.head_size).numpy()
    np.testing.assert_allclose(inverse_frequencies(config), expected, rtol=1e-6)
    cos, sin = rotary_tables(config, 50)
    assert cos.shape == sin.shape == (50, config.head_size)
    np.testing.assert_allclose(sin[7, : config.head_size // 2], np.sin(7 * expected), atol=1e-6)


def test_linear_scaling_and_factors() -> None:
    plain = from_hugging_face(QWEN3)
    stretched = from_hugging_face({**QWEN3, "rope_scaling": {"type": "linear", "factor": 4.0}})
    np.testing.assert_allclose(inverse_frequencies(stretched), inverse_frequencies(plain) / 4)
    factors = np.arange(1, 11, dtype=np.float32)
    divided = replace(plain, rope_factors=tuple(factors.tolist()))
    np.testing.assert_allclose(inverse_frequencies(divided), inverse_frequencies(plain) / factors, rtol=1e-6)
