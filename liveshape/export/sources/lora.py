"""LoRA adapters in peft's format, merged into the weights of a checkpoint while they are read.

An adapter has two low-rank matrices per layer: the merged weight is weight + scale * B @ A. Other settings of
adapter_config.json are refused, since ignoring them would give another model.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from liveshape.disk import read_bytes
from liveshape.errors import FormatError, InputError, UnsupportedError
from liveshape.export.model.checkpoint import Checkpoint
from liveshape.export.model.families import FAMILIES
from liveshape.export.model.layout import Array, Layout
from liveshape.export.model.tensor_place import TensorPlace
from liveshape.export.sources.rotary_rows import halves_of
from liveshape.export.sources.safetensors import SafetensorsFolder

_CONFIG = "adapter_config.json"
_PREFIX = "base_model.model."
_TENSOR = re.compile(r"(.+)\.(lora_A|lora_B)(?:\.default)?\.weight|(.+)\.(lora_embedding_A|lora_embedding_B)")
# Supported settings, and those that only concern training or provenance.
_FOLLOWED = {"alpha_pattern", "lora_alpha", "peft_type", "r", "rank_pattern", "target_modules", "use_rslora"}
_HARMLESS = {
    "auto_mapping",
    "base_model_name_or_path",
    "ensure_weight_tying",
    "exclude_modules",
    "inference_mode",
    "init_lora_weights",
    "layers_pattern",
    "layers_to_transform",
    "loftq_config",
    "lora_dropout",
    "megatron_config",
    "megatron_core",
    "peft_version",
    "revision",
    "task_type",
}
_LARGEST = float(np.finfo(np.float32).max)
_MOST = 1e9  # exclusive bound of ranks and alphas
_NEUTRAL: tuple[Any, ...] = (None, False, "none", "", [], {}, 0)


@dataclass(frozen=True)
class LoraAdapter:
    """The low-rank pair of a layer: `down` (r, inputs) is A, `up` (outputs, r) is B; of an embedding B.T and A.T."""

    down: Array
    up: Array
    scale: float

    @property
    def shape(self) -> tuple[int, int]:
        return self.up.shape[0], self.down.shape[1]

    def change(self, rows: slice) -> Array:
        """The delta of some rows of the weight: scale * B @ A."""
        return (self.up[rows] * self.scale) @ self.down


def with_adapter(checkpoint: Checkpoint, folder: Path) -> Checkpoint:
    """Merge the LoRA adapter of a folder into a checkpoint. Layers that it changes become floats.

    Example: `with_adapter(open_checkpoint("SmolLM2-135M/"), Path("my-adapter/"))`.
    """
    adapters = read_adapters(folder, checkpoint.shapes)
    if FAMILIES[checkpoint.config.family].interleaved:
        # The checkpoint's Q and K rows are permuted for RoPE, the adapter's are not.
        for name, adapter in adapters.items():
            if (halves := halves_of(checkpoint.config, name)) is not None:
                adapters[name] = replace(adapter, up=adapter.up[halves])

    def rows(name: str, rows: slice) -> Array:
        weight = checkpoint.read_rows(name, rows)
        return weight + adapters[name].change(rows) if name in adapters else weight

    def read(name: str) -> Array:
        return rows(name, slice(None))

    def stored(name: str) -> Layout | None:
        return None if name in adapters else checkpoint.stored(name)

    def place(name: str) -> TensorPlace | None:
        return None if name in adapters else checkpoint.place(name)

    return replace(checkpoint, read=read, rows=rows, stored=stored, place=place)


def read_adapters(folder: Path, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, LoraAdapter]:
    """Read the LoRA adapters of a folder, by the name of the weight that each changes.

    Example: `read_adapters(Path("my-adapter/"), checkpoint.shapes)["model.layers.0.self_attn.q_proj.weight"].scale`.
    """
    config = _config(folder)
    tensors = SafetensorsFolder(folder)
    found: dict[str, dict[str, str]] = {}
    for stored in tensors.tensors:
        match = _TENSOR.fullmatch(stored.removeprefix(_PREFIX))
        if match is None:
            raise UnsupportedError(
                f"{folder}: the adapter has the tensor {stored[:120]}; only lora_A and lora_B of linear layers and of "
                "the embedding can be merged"
            )
        module, kind = match[1] or match[3], match[2] or match[4]
        parts = found.setdefault(module, {})
        if kind in parts:
            raise FormatError(f"{folder}: the adapter has {kind} of {module[:120]} twice: {parts[kind]} and {stored}")
        parts[kind] = stored
    if not found:
        raise FormatError(f"{folder}: the adapter has no tensors")
    adapters: dict[str, LoraAdapter] = {}
    for module, parts in found.items():
        name, adapter = _adapter(folder, tensors, module, parts, config, shapes)
        if name in adapters:
            raise FormatError(f"{folder}: the adapter changes {name} twice, as {module} and under another name")
        adapters[name] = adapter
    return adapters


def _adapter(
    folder: Path,
    tensors: SafetensorsFolder,
    module: str,
    parts: Mapping[str, str],
    config: Mapping[str, Any],
    shapes: Mapping[str, tuple[int, ...]],
) -> tuple[str, LoraAdapter]:
    # Adapters of base models have no `model.` prefix.
    names = [name for name in (f"{module}.weight", f"model.{module}.weight") if name in shapes]
    if not names:
        raise FormatError(f"{folder}: the adapter changes {module[:120]}, which the model does not have")
    where = f"{folder}: the adapter of {module}"
    if set(parts) == {"lora_A", "lora_B"}:
        down, up = tensors.read(parts["lora_A"]), tensors.read(parts["lora_B"])
    elif set(parts) == {"lora_embedding_A", "lora_embedding_B"}:
        down, up = tensors.read(parts["lora_embedding_B"]).T, tensors.read(parts["lora_embedding_A"]).T
    else:
        raise FormatError(f"{where} has {' and '.join(sorted(parts))}; a pair of A and B is needed")
    rank = _for_module(config, "r", "rank_pattern", module)
    if down.ndim != 2 or up.ndim != 2 or (up.shape[0], down.shape[1]) != tuple(shapes[names[0]]):
        raise FormatError(f"{where} of shapes {up.shape} and {down.shape} does not fit the weight {shapes[names[0]]}")
    if not down.shape[0] == up.shape[1] == rank:
        raise FormatError(f"{where} has ranks {down.shape[0]} and {up.shape[1]}; {_CONFIG} says {rank:g}")
    alpha = _for_module(config, "lora_alpha", "alpha_pattern", module)
    scale = alpha / (math.sqrt(rank) if config.get("use_rslora") else rank)
    largest = rank * scale * math.prod(float(np.abs(part).max(initial=0)) for part in (down, up))
    if not largest < _LARGEST:  # or it is no number
        raise FormatError(f"{where} has values that are infinite or no numbers: damaged, or its training diverged")
    return names[0], LoraAdapter(down, up, scale)


def _for_module(config: Mapping[str, Any], key: str, patterns: str, module: str) -> float:
    """The rank or alpha of a module: the first match of the pattern table, else the global value."""
    for pattern, value in config[patterns].items():
        if module == pattern or module.endswith(f".{pattern}"):
            return float(value)
    return float(config[key])


def _config(folder: Path) -> dict[str, Any]:
    path = folder / _CONFIG
    if not path.exists():
        raise InputError(f"{folder} has no {_CONFIG}: give the folder that peft's save_pretrained wrote")
    stored = read_bytes(path)
    try:
        config = json.loads(stored.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise FormatError(f"{path} is not JSON: {error}") from error
    if not isinstance(config, dict):
        raise FormatError(f"{path} is not a table of settings")
    if config.get("peft_type") != "LORA":
        raise UnsupportedError(f"{path}: peft_type is {config.get('peft_type')!r:.40}; only LORA can be merged")
    unknown = {
        key: value
        for key, value in config.items()
        if key not in _FOLLOWED and key not in _HARMLESS and value not in _NEUTRAL
    }
    if unknown:
        listing = ", ".join(f"{key} = {value!r:.60}" for key, value in sorted(unknown.items()))
        raise UnsupportedError(f"{path} asks for {listing}, which is not merged; merge it with peft's merge_and_unload")
    for key in ("rank_pattern", "alpha_pattern"):
        config[key] = config.get(key) or {}
        if not isinstance(config[key], dict) or not all(re.fullmatch(r"[\w.]+", name) for name in config[key]):
            raise UnsupportedError(
                f"{path}: {key} is {config[key]!r:.80}; names of modules with numbers can be followed"
            )
    numbers: list[tuple[str, Any]] = [(key, config.get(key)) for key in ("r", "lora_alpha")]
    numbers += [pair for key in ("rank_pattern", "alpha_pattern") for pair in config[key].items()]
    for name, value in numbers:
        if type(value) not in (int, float) or not 0 < value < _MOST:
            raise FormatError(f"{path}: {name} is {value!r:.40}; a number above 0 is needed")
    return config
