"""A Hugging Face folder as a checkpoint: config.json, safetensors, and the tokenizer files, copied."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from liveshape.disk import read_bytes
from liveshape.errors import FormatError
from liveshape.export.model.checkpoint import Checkpoint, generation_config
from liveshape.export.model.config import ModelConfig
from liveshape.export.model.families import FAMILIES
from liveshape.export.model.layout import Grouped, Layout, restored
from liveshape.export.model.tensor_place import TensorPlace
from liveshape.export.sources.fused_matrices import parts
from liveshape.export.sources.huggingface_config import from_hugging_face
from liveshape.export.sources.rotary_rows import order_of, paired_heads
from liveshape.export.sources.safetensors import SafetensorsFolder, StoredTensor, check_float
from liveshape.export.sources.stacked_experts import BLOCK, Mxfp4Tensor, experts_apart
from liveshape.formats.file_kinds import HEAD, foreign_kind

_TAKEN_ALONG = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "chat_template.jinja",
    "chat_template.json",
    "generation_config.json",
)
_PICTURES = re.compile(r"(model\.)?(vision_tower|multi_modal_projector)\.")


def open_folder(folder: Path) -> Checkpoint:
    """Open a Hugging Face model folder, as `hf download` or `save_pretrained` writes it.

    Example: `open_folder(Path("SmolLM2-135M-Instruct"))`.
    """
    found = _json(folder / "config.json")
    generation = _json(folder / "generation_config.json") if (folder / "generation_config.json").exists() else {}
    config = from_hugging_face(found, generation)
    family = FAMILIES[config.family]
    tensors = SafetensorsFolder(folder)
    matrices, blocks = _matrices(folder, config, tensors)
    tensors.tensors = matrices
    if "tie_word_embeddings" not in found:
        config = replace(config, tied="lm_head.weight" not in matrices)

    def located(name: str) -> TensorPlace:
        tensor = matrices[name]
        plus = 1.0 if family.norms_less_one and name.endswith("norm.weight") else 0.0
        pairs = paired_heads(config, name) if family.interleaved else None
        return TensorPlace(tensor.path, tensor.offset, tensor.kind, tensor.shape, pairs, plus)

    def place(name: str) -> TensorPlace | None:
        return None if name in blocks or matrices[name].strides is not None else located(name)

    def read(name: str, rows: slice = slice(None)) -> npt.NDArray[np.float32]:
        if name in blocks:
            return restored(blocks[name].grouped(rows))
        found = located(name)
        order = order_of(found.pairs)
        stored = tensors.read(name, rows if order is None else order[rows])
        return stored + np.float32(found.plus) if found.plus else stored

    def stored(name: str) -> Layout | None:
        return Layout(8, BLOCK) if name in blocks else None

    def grouped(name: str, rows: slice) -> Grouped:
        return blocks[name].grouped(rows)

    files = {name: read_bytes(folder / name) for name in _TAKEN_ALONG if (folder / name).exists()}
    if "tokenizer.json" not in files:
        raise FormatError(
            f'{folder} has no tokenizer.json; transformers writes one: python -c "from transformers '
            f"import AutoTokenizer as T; T.from_pretrained('{folder}').save_pretrained('{folder}')\""
        )
    files.setdefault("generation_config.json", generation_config(config))
    shapes = {name: tensor.shape for name, tensor in (matrices | blocks).items()}
    return Checkpoint(config, shapes, read, files, read, stored, grouped, place)


def _matrices(
    folder: Path, config: ModelConfig, tensors: SafetensorsFolder
) -> tuple[dict[str, StoredTensor], dict[str, Mxfp4Tensor]]:
    """Every tensor of the model by name, fused ones split: float tensors, and MXFP4 tensors."""
    family = FAMILIES[config.family]
    texts = [name for name in tensors.tensors if not (config.text_only and _PICTURES.match(name))]
    names = {name: own_name(name, family.tensors) for name in texts}
    # Checkpoints of base models (without the ForCausalLM wrapper) have no `model.` prefix.
    prefix = "" if any(name.startswith("model.") for name in names.values()) else "model."
    whole = {own if own == "lm_head.weight" else prefix + own: tensors.tensors[name] for name, own in names.items()}
    if len(whole) < len(names):
        raise FormatError(f"{folder}: two of its tensors are the same one under two names")
    found = experts_apart(whole) if family.stacked_experts else whole
    matrices: dict[str, StoredTensor] = {}
    for name, tensor in found.items():
        if isinstance(tensor, Mxfp4Tensor):
            continue
        check_float(name, tensor)
        if len(tensor.shape) == 2 and name.endswith(family.transposed):
            tensor = tensor.transposed()
        for part, shape, start in parts(config, name, tensor.shape):
            if part in matrices:
                raise FormatError(f"{folder}: {name} has {part}, which is in another tensor as well")
            matrices[part] = tensor.part(shape, start)
    return matrices, {name: tensor for name, tensor in found.items() if isinstance(tensor, Mxfp4Tensor)}


def own_name(name: str, names: Mapping[str, str]) -> str:
    """Normalize a tensor name: the family's own names, and the prefixes of multimodal wrappers.

    >>> own_name("model.layers.0.block_sparse_moe.experts.3.w2.weight", FAMILIES["mixtral"].tensors)
    'model.layers.0.mlp.experts.3.down_proj.weight'
    >>> own_name("language_model.model.norm.weight", {}), own_name("model.language_model.norm.weight", {})
    ('model.norm.weight', 'model.norm.weight')
    """
    name = name.removeprefix("language_model.").removeprefix("transformer.")
    name = f".{name.replace('model.language_model.', 'model.')}."
    for theirs, ours in names.items():
        name = name.replace(f".{theirs}.", f".{ours}.")
    return name[1:-1]


def _json(path: Path) -> dict[str, Any]:
    stored = read_bytes(path)
    try:
        content = json.loads(stored.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        kind = None if stored.lstrip().startswith(b"{") else foreign_kind(stored[:HEAD])
        raise FormatError(f"{path} is not JSON{f', but {kind}' if kind else f': {error}'}") from error
    if not isinstance(content, dict):
        raise FormatError(f"{path} is not a table of settings")
    return content
