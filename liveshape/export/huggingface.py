"""A Hugging Face folder as a checkpoint: config.json, safetensors, and its tokenizer files as they are."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from liveshape.errors import FormatError
from liveshape.export.checkpoint import Checkpoint, generation_config
from liveshape.export.config import from_hugging_face
from liveshape.export.safetensors import SafetensorsFolder

_TAKEN_ALONG = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "chat_template.jinja",
    "generation_config.json",
)


def open_folder(folder: Path) -> Checkpoint:
    """A folder as `hf download` makes it.

    Example: `open_folder(Path("SmolLM2-135M-Instruct"))`.
    """
    found = _json(folder / "config.json")
    generation = _json(folder / "generation_config.json") if (folder / "generation_config.json").exists() else {}
    config = from_hugging_face(found, generation)
    tensors = SafetensorsFolder(folder)
    # Checkpoints of bare models leave the prefix out.
    prefix = "" if any(name.startswith("model.") for name in tensors.tensors) else "model."
    stored = {name if name == "lm_head.weight" else prefix + name: name for name in tensors.tensors}
    if "tie_word_embeddings" not in found:
        config = replace(config, tied="lm_head.weight" not in stored)
    files = {name: (folder / name).read_bytes() for name in _TAKEN_ALONG if (folder / name).exists()}
    if "tokenizer.json" not in files:
        raise FormatError(
            f'{folder} has no tokenizer.json; transformers writes one: python -c "from transformers '
            f"import AutoTokenizer as T; T.from_pretrained('{folder}').save_pretrained('{folder}')\""
        )
    files.setdefault("generation_config.json", generation_config(config))
    return Checkpoint(
        config,
        {name: tensors.tensors[own].shape for name, own in stored.items()},
        lambda name: tensors.read(stored[name]),
        files,
        lambda name, rows: tensors.read(stored[name], rows),
    )


def _json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise FormatError(f"{path} is not JSON: {error}") from error
    if not isinstance(content, dict):
        raise FormatError(f"{path} is not a table of settings")
    return content
