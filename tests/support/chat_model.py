"""A small language model that can be talked to, with random weights: as a GGUF file and as a Hugging Face folder."""

from __future__ import annotations

import json
import shutil
from importlib import resources
from pathlib import Path

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
