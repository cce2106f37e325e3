"""Small random models of the Llama family, exported like real ones and cached on disk, with their torch modules."""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tests.support.exporting import quiet


@dataclass(frozen=True)
class Tiny:
    """What makes one model different from another; everything else is fixed."""

    name: str
    layers: int = 2
    quantization: str = "4w"
    max_seq: int = 8
    max_context: int = 40
    full_logits: bool = False
    half: bool = False
    qwen: bool = False
    vocabulary: int = 97


def config_of(tiny: Tiny) -> Any:
    from liveshape.export.sources.huggingface_config import from_hugging_face

    return from_hugging_face(
        {
            "architectures": ["Qwen3ForCausalLM" if tiny.qwen else "LlamaForCausalLM"],
            "hidden_size": 32,
            "num_hidden_layers": tiny.layers,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "intermediate_size": 64,
            "vocab_size": tiny.vocabulary,
            "max_position_embeddings": tiny.max_context,
            "tie_word_embeddings": tiny.qwen,
            "bos_token_id": 1,
            "eos_token_id": [2, 3],
        }
    )


@functools.cache
def checkpoint_of(tiny: Tiny) -> Any:
    """Its random weights."""
    from liveshape.export.model.checkpoint import Checkpoint, expected_tensors

    config = config_of(tiny)
    shapes = dict(expected_tensors(config))
    generator = np.random.default_rng(7)
    tensors = {
        name: (generator.standard_normal(shape) * 0.3 + ("norm" in name)).astype(np.float32)
        for name, shape in shapes.items()
    }
    return Checkpoint(config, shapes, tensors.__getitem__)


def settings_of(tiny: Tiny) -> Any:
    from liveshape.export.folder import Settings
    from liveshape.export.model.config import Quantization

    return Settings(Quantization(tiny.quantization), tiny.max_seq, tiny.max_context, tiny.half, tiny.full_logits)


@functools.cache
def decoder(tiny: Tiny) -> Any:
    """The torch module, with the weights of the file."""
    with quiet():
        from tests.export.torch_road import build_decoder

    return build_decoder(checkpoint_of(tiny), settings_of(tiny)).eval()


@functools.cache
def program(tiny: Tiny) -> Path:
    """The `.pte`."""
    from tests.export.exported import written

    return written(f"llama/{tiny.name}", checkpoint_of(tiny), settings_of(tiny))


def logits_of(tiny: Tiny, ids: list[int]) -> Any:
    """Torch's logits of every position of a text from its start, (tokens, vocabulary)."""
    model = decoder(tiny)
    model.clear_caches()
    full, model.full_logits = model.full_logits, True
    try:
        with torch.no_grad():
            return model(torch.tensor([ids]), torch.tensor([0]))[0].numpy()
    finally:
        model.full_logits = full


__all__ = ["Tiny", "decoder", "logits_of", "program", "replace"]
