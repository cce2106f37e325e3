"""A small language model that can be talked to, with random weights: as a GGUF file and as a Hugging Face folder, and a
LoRA adapter of that folder."""

from __future__ import annotations

import json
import shutil
from importlib import resources
from pathlib import Path

import numpy as np

from liveshape.export.sources.huggingface_config import from_hugging_face
from tests.export import tiny
from tests.export.test_readers import gguf_of_weights

CONTEXT = 1024
TEMPLATE = "{% for message in messages %}{{ message['role'] }}: {{ message['content'] }}\n{% endfor %}assistant:"


def write_gguf_model(path: Path) -> None:
    """Its tokens are the letters of ASCII."""
    letters = [chr(code).replace(" ", "▁") for code in range(32, 127)]
    tokens = ["<unk>", "<s>", "</s>", *letters, *(f"t{each}" for each in range(127 - len(letters)))]
    template = {"tokenizer.chat_template": TEMPLATE, "llama.context_length": CONTEXT}
    gguf_of_weights(path, **{"tokenizer.ggml.tokens": tokens}, **template)


def write_folder_model(folder: Path) -> None:
    """Its tokenizer is that of the shipped story model."""
    story = Path(str(resources.files("liveshape.demo").joinpath("story")))
    words = json.loads((story / "tokenizer.json").read_text())["model"]["vocab"]
    settings = tiny.LLAMA | {"vocab_size": len(words), "max_position_embeddings": CONTEXT}
    tiny.write_folder(folder, settings, tiny.random_weights(from_hugging_face(settings)))
    shutil.copy(story / "tokenizer.json", folder)
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": TEMPLATE}))


def write_adapter(folder: Path) -> None:
    """Of the query projection of the first layer."""
    width, rank = tiny.LLAMA["hidden_size"], 4
    generator, name = np.random.default_rng(0), "base_model.model.model.layers.0.self_attn.q_proj"
    folder.mkdir(parents=True)
    settings = {"peft_type": "LORA", "r": rank, "lora_alpha": 8, "target_modules": ["q_proj"]}
    (folder / "adapter_config.json").write_text(json.dumps(settings))
    pair = {"lora_A": (rank, width), "lora_B": (width, rank)}
    tensors = {
        f"{name}.{part}.weight": generator.standard_normal(shape).astype(np.float32) for part, shape in pair.items()
    }
    tiny.write_safetensors(folder / "adapter_model.safetensors", tensors)
