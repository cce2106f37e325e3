"""Small random models: their configs, their weights under Hugging Face's names, and their files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from liveshape.export.model.checkpoint import Checkpoint, expected_tensors
from liveshape.export.model.config import ModelConfig
from liveshape.export.sources.huggingface_config import from_hugging_face

Arrays = dict[str, npt.NDArray[np.float32]]

LLAMA: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 130,  # no multiple of 4
    "max_position_embeddings": 128,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "tie_word_embeddings": False,
    "bos_token_id": 1,
    "eos_token_id": [2, 3],
    "rope_scaling": {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 32,
    },
}
DEEP = {**LLAMA, "num_hidden_layers": 4, "rope_scaling": None, "hidden_size": 48, "num_attention_heads": 3}
DEEP |= {"num_key_value_heads": 1}
QWEN3 = {
    **LLAMA,
    "architectures": ["Qwen3ForCausalLM"],
    "head_dim": 20,  # heads * head_dim is not hidden_size
    "vocab_size": 128,
    "tie_word_embeddings": True,
    "rope_scaling": None,
    "rope_theta": 1000000.0,
    "sliding_window": None,
}
QWEN2 = {
    **LLAMA,
    "architectures": ["Qwen2ForCausalLM"],
    "tie_word_embeddings": True,
    "rope_scaling": None,
    "use_sliding_window": False,
    "sliding_window": 16,
    "vocab_size": 128,
}


_INTO_ATTENTION = ("q_proj.weight", "k_proj.weight", "v_proj.weight")
_EVERYWHERE = ("proj.weight", "norm.weight")
# The tensors of a family that have a bias.
BIASES = {
    "qwen2": _INTO_ATTENTION,
    "starcoder2": _EVERYWHERE,
    "glm": _INTO_ATTENTION,
    "glm4": _INTO_ATTENTION,
    "gpt2": _EVERYWHERE,
    "gpt-oss": ("proj.weight", "mlp.gate.weight"),
}


def random_weights(config: ModelConfig, seed: int = 0) -> Arrays:
    """Weights of a size that keeps activations near 1; norms near 1; some families have biases."""
    generator = np.random.default_rng(seed)
    made: Arrays = {}
    for name, shape in expected_tensors(config):
        noise = generator.standard_normal(shape).astype(np.float32)
        made[name] = 1 + noise / 10 if len(shape) == 1 else noise / np.sqrt(np.float32(shape[1]))
        if name.endswith("sinks.weight"):
            made[name] = noise
        if name.endswith(BIASES.get(config.family, ())):
            made[name.replace("weight", "bias")] = generator.standard_normal(shape[0]).astype(np.float32) / 4
    return made


def checkpoint_of(settings: dict[str, Any], seed: int = 0) -> Checkpoint:
    config = from_hugging_face(settings)
    weights = random_weights(config, seed)
    return Checkpoint(config, {name: weight.shape for name, weight in weights.items()}, weights.__getitem__)


def write_folder(folder: Path, settings: dict[str, Any], weights: Arrays, dtype: str = "F32") -> None:
    """A Hugging Face folder; its tokenizer is a stand-in."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(settings))
    (folder / "tokenizer.json").write_text("{}")
    write_safetensors(folder / "model.safetensors", weights, dtype)


def write_safetensors(path: Path, tensors: Arrays, dtype: str = "F32") -> None:
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    body = b""
    for name, tensor in tensors.items():
        kind = "U8" if tensor.dtype == np.uint8 else dtype
        content = stored_as(tensor, kind)
        offsets = [len(body), len(body) + len(content)]
        header[name] = {"dtype": kind, "shape": list(tensor.shape), "data_offsets": offsets}
        body += content
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + body)


def stored_as(tensor: npt.NDArray[np.float32], dtype: str) -> bytes:
    if dtype == "BF16":
        return (np.ascontiguousarray(tensor).view(np.uint32) >> 16).astype("<u2").tobytes()
    return tensor.astype({"F64": "<f8", "F32": "<f4", "F16": "<f2", "U8": "u1"}[dtype]).tobytes()
