"""Tiny random language models as people have them: GGUF files of every block type, and Hugging Face folders."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from liveshape.export.sources.ggml_blocks import FORMATS
from liveshape.export.sources.gguf_model import open_gguf
from liveshape.export.sources.huggingface_config import from_hugging_face
from tests.export.gguf_files import WRITERS, stored, write_gguf
from tests.export.tiny import LLAMA, random_weights, write_folder

WIDE: dict[str, Any] = {
    **LLAMA,
    "hidden_size": 256,  # a block of the K-quants
    "intermediate_size": 512,
    "vocab_size": 330,  # no multiple of 4
    "rope_scaling": None,
    "max_position_embeddings": 256,
}
NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.o_proj": "attn_output",
    **{f"self_attn.{part}_proj": f"attn_{part}" for part in "qkv"},
    **{f"mlp.{part}_proj": f"ffn_{part}" for part in ("gate", "up", "down")},
}
WORDS = ("the", "cat", "sat", "on", "a", "mat", "and", "dog", "ran", "he", "at", "in")
NUMBERS = {form.name: number for number, form in FORMATS.items()}


def write_model_gguf(path: Path, form: str, tied: bool = False, **metadata: Any) -> None:
    """A tiny Llama as a GGUF file with its matrices in a format, its norms as floats."""
    settings = {**WIDE, "tie_word_embeddings": tied}
    generator = np.random.default_rng(7)
    tensors = {}
    for name, weight in random_weights(from_hugging_face(settings)).items():
        own = name
        for theirs, ours in NAMES.items():
            own = own.replace(f"{theirs}.", f"{ours}.")
        own = own.replace("model.layers", "blk")
        tensors[own] = blocks_of(weight, form, generator) if weight.ndim == 2 else stored(weight, "F32")
    general = {
        "general.architecture": "llama",
        "llama.embedding_length": 256,
        "llama.feed_forward_length": 512,
        "llama.block_count": 2,
        "llama.attention.head_count": 4,
        "llama.attention.head_count_kv": 2,
        "llama.attention.layer_norm_rms_epsilon": 1e-5,
        "llama.context_length": 256,
        "llama.rope.freq_base": 10000.0,
    }
    write_gguf(path, {**general, **sentencepiece(), **metadata}, tensors)


def blocks_of(weight: Any, name: str, generator: np.random.Generator) -> tuple[int, tuple[int, ...], bytes]:
    """A matrix in blocks; of those that tests cannot write it has random ones."""
    if name in WRITERS:
        return stored(weight, name)
    form = FORMATS[NUMBERS[name]]
    if name == "BF16":
        return NUMBERS[name], weight.shape, (weight.view(np.uint32) >> 16).astype("<u2").tobytes()
    records = np.frombuffer(generator.bytes(weight.size // form.weights * form.nbytes), form.record).copy()
    for field in ("d", "dmin"):
        if field in (form.record.names or ()):
            records[field] = generator.standard_normal(len(records)) / 400
    if "e" in (form.record.names or ()):
        records["e"] = generator.integers(118, 123, len(records))
    return NUMBERS[name], weight.shape, records.tobytes()


def sentencepiece() -> dict[str, Any]:
    """A vocabulary of bytes, letters and a few words, with scores."""
    letters = ["▁", *"abcdefghijklmnopqrstuvwxyz", ".", ","]
    pieces = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *letters, *WORDS]
    pieces = list(dict.fromkeys([*pieces, *(f"▁{word}" for word in WORDS), "th", "▁t", "▁th"]))
    pieces += [f"<extra_{each}>" for each in range(WIDE["vocab_size"] - len(pieces))]
    kinds = [2, 3, 3, *[6] * 256, *[1] * (len(pieces) - 259)]
    kinds = [4 if piece.startswith("<extra") else kind for piece, kind in zip(pieces, kinds, strict=True)]
    return {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": pieces,
        "tokenizer.ggml.scores": [-float(place) for place in range(len(pieces))],
        "tokenizer.ggml.token_type": kinds,
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.chat_template": "{% for message in messages %}{{ message.content }} {% endfor %}",
    }


def byte_level(flavour: str = "smollm") -> dict[str, Any]:
    """A vocabulary of GPT-2's bytes with merges."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    letters = {**{byte: chr(byte) for byte in printable}, **{byte: chr(256 + at) for at, byte in enumerate(others)}}
    pieces = ["<|endoftext|>", *(letters[byte] for byte in range(256))]
    merges = ["t h", "th e", "Ġ the", "Ġ c", "a t", "Ġc at", "Ġ a", "Ġ s", "Ġs at", "i n", "1 2"]
    pieces += ["".join(merge.split()) for merge in merges]
    pieces += [f"<|extra_{each}|>" for each in range(WIDE["vocab_size"] - len(pieces))]
    kinds = [4 if piece.startswith("<|extra") else 3 if piece.startswith("<|") else 1 for piece in pieces]
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": flavour,
        "tokenizer.ggml.tokens": pieces,
        "tokenizer.ggml.scores": [0.0] * len(pieces),
        "tokenizer.ggml.token_type": kinds,
        "tokenizer.ggml.merges": merges,
        "tokenizer.ggml.bos_token_id": 0,
        "tokenizer.ggml.eos_token_id": 0,
    }


def write_model_folder(folder: Path, settings: dict[str, Any], dtype: str = "BF16") -> None:
    """A Hugging Face folder of random weights, with the tokenizer of the GGUF files."""
    write_folder(folder, settings, random_weights(from_hugging_face(settings)), dtype)
    write_model_gguf(folder / "words.gguf", "F16")
    words = open_gguf(folder / "words.gguf").files
    (folder / "words.gguf").unlink()
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (folder / name).write_bytes(words[name])
