"""A GGUF file as a checkpoint: tensors by Hugging Face's names, its vocabulary as a tokenizer.json."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from liveshape.errors import FormatError, UnsupportedError
from liveshape.export.model.checkpoint import Checkpoint, generation_config
from liveshape.export.model.config import LARGEST, ModelConfig
from liveshape.export.model.families import FAMILIES, Family
from liveshape.export.model.layout import Grouped, Layout
from liveshape.export.model.tensor_place import TensorPlace
from liveshape.export.sources.fused_matrices import parts
from liveshape.export.sources.gguf import GgufFile
from liveshape.export.sources.gguf_config import from_gguf, token_of
from liveshape.export.sources.rotary_rows import order_of, paired_heads
from liveshape.export.sources.vocabulary import Vocabulary, tokenizer_files

_OUTER = {
    "token_embd": "model.embed_tokens",
    "position_embd": "model.embed_positions",
    "output_norm": "model.norm",
    "output": "lm_head",
}
_INNER = {
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "attn_qkv": "self_attn.qkv_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "ffn_gate_inp": "mlp.gate",
    "ffn_gate_exps": "mlp.experts.gate_proj",
    "ffn_up_exps": "mlp.experts.up_proj",
    "ffn_down_exps": "mlp.experts.down_proj",
}
_LAYER = re.compile(r"blk\.(\d+)\.(\w+)\.(weight|bias)")
_FACTORS = "rope_freqs.weight"
_LONG_FACTORS = ("rope_factors_short.weight", "rope_factors_long.weight")


def open_gguf(path: Path) -> Checkpoint:
    """Open a GGUF file as a checkpoint.

    Example: `open_gguf(Path("SmolLM2-135M-Instruct.Q4_1.gguf"))`.
    """
    file = GgufFile(path)
    config = from_gguf(
        file.metadata, _vocabulary_size(file), tied="output.weight" not in file.tensors, factors=_long_factors(file)
    )
    if _FACTORS in file.tensors:
        config = replace(config, rope_factors=tuple(_factors(file, _FACTORS, config.rotary_size // 2)))
    _take_apart(file, config)
    matrices = [name for name in file.tensors if name not in (_FACTORS, *_LONG_FACTORS)]
    names = {hugging_face_name(name, FAMILIES[config.family]): name for name in matrices}
    if len(names) < len(matrices):
        raise FormatError(f"{path}: two of its tensors are the same one under two names")
    family = FAMILIES[config.family]
    if family.neighbours and config.rotary_size != config.head_size:
        raise UnsupportedError(
            f"{path}: only {config.rotary_size} of {config.head_size} dims of a head are rotated, "
            "which GGUF files of this architecture store in an order that is not defined"
        )

    def place(name: str) -> TensorPlace:
        tensor = file.tensors[names[name]]
        pairs = paired_heads(config, name) if family.neighbours or family.interleaved else None
        return TensorPlace(str(path), tensor.offset, tensor.format.name, tensor.shape, pairs)

    def placed(name: str, rows: slice) -> slice | npt.NDArray[np.int64]:
        """The file's rows for rows of the model: undoes the permutation for interleaved RoPE."""
        order = order_of(place(name).pairs)
        return rows if order is None else order[rows]

    def read(name: str, rows: slice = slice(None)) -> npt.NDArray[np.float32]:
        return file.read(names[name], placed(name, rows))

    def stored(name: str) -> Layout | None:
        return file.tensors[names[name]].layout

    def grouped(name: str, rows: slice) -> Grouped:
        return file.grouped(names[name], placed(name, rows))

    files = dict(tokenizer_files(vocabulary_of(file)))
    files["generation_config.json"] = generation_config(config)
    shapes = {name: file.tensors[own].shape for name, own in names.items()}
    return Checkpoint(config, shapes, read, files, read, stored, grouped, place)


def _long_factors(file: GgufFile) -> tuple[list[float], list[float]] | None:
    if not all(name in file.tensors for name in _LONG_FACTORS):
        return None
    short, long = (_factors(file, name) for name in _LONG_FACTORS)
    return short, long


def _factors(file: GgufFile, name: str, count: int | None = None) -> list[float]:
    """RoPE frequency factors, `count` of them if that is known."""
    shape = file.tensors[name].shape
    if len(shape) != 1 or count not in (None, shape[0]):
        needed = f"{count} are needed" if count is not None else "a row of them is needed"
        raise FormatError(f"{file.path}: tensor {name} has shape {shape}: {needed}, a factor for each pair of a head")
    found: list[float] = file.read(name).tolist()
    wrong = next((factor for factor in found if not 0 < factor <= LARGEST), None)
    if wrong is not None:
        raise FormatError(
            f"{file.path}: tensor {name} has a factor of {wrong}; frequencies are divided by numbers above 0"
        )
    return found


def _take_apart(file: GgufFile, config: ModelConfig) -> None:
    """Split fused tensors, in place."""
    for name, tensor in list(file.tensors.items()):
        found = list(parts(config, hugging_face_name(name, FAMILIES[config.family]), tensor.shape))
        if len(found) > 1:
            del file.tensors[name]
            for part, shape, start in found:
                row = prod(shape[1:]) // tensor.format.weights * tensor.format.nbytes
                file.tensors[part] = replace(tensor, name=part, shape=shape, offset=tensor.offset + start * row)


def hugging_face_name(name: str, family: Family = FAMILIES["llama"]) -> str:
    """Map a GGUF tensor name to Hugging Face's; unknown names are kept.

    >>> hugging_face_name("blk.3.attn_q.weight"), hugging_face_name("output_norm.weight")
    ('model.layers.3.self_attn.q_proj.weight', 'model.norm.weight')
    """
    norms = family.norms
    inner = {
        **_INNER,
        "attn_norm": norms.into_attention,
        "post_attention_norm": norms.out_of_attention,
        "ffn_norm": norms.into_feed_forward,
        "post_ffw_norm": norms.out_of_feed_forward,
        **family.gguf_tensors,
    }
    if (match := _LAYER.fullmatch(name)) and (found := inner.get(match[2])):
        return f"model.layers.{match[1]}.{found}.{match[3]}"
    stem, _, ending = name.rpartition(".")
    return f"{_OUTER[stem]}.{ending}" if stem in _OUTER else name


def vocabulary_of(file: GgufFile) -> Vocabulary:
    """The tokenizer vocabulary of a GGUF file."""
    get = file.metadata.get
    tokens = _listed(file, "tokens", str)
    if not tokens:
        raise FormatError(f"{file.path} has no tokenizer (tokenizer.ggml.tokens)")
    model, flavour = str(get("tokenizer.ggml.model")), str(get("tokenizer.ggml.pre", "default"))
    begins = get("tokenizer.ggml.add_bos_token", model == "llama" or flavour == "llama-bpe")
    template = get("tokenizer.chat_template")
    if not isinstance(template, str | None):
        raise FormatError(f"{file.path}: tokenizer.chat_template is a text, it has {template!r:.60}")
    return Vocabulary(
        model=model,
        flavour=flavour,
        tokens=tokens,
        kinds=_listed(file, "token_type", int) or [1] * len(tokens),
        scores=_listed(file, "scores", float, int),
        merges=_listed(file, "merges", str),
        begin=token_of(file.metadata, "bos_token_id"),
        end=token_of(file.metadata, "eos_token_id"),
        padding=token_of(file.metadata, "padding_token_id"),
        adds_begin=bool(begins),
        adds_space=bool(get("tokenizer.ggml.add_space_prefix", True)),
        chat_template=template,
    )


def _listed(file: GgufFile, key: str, *kinds: type) -> Any:
    """A tokenizer.ggml array with its element types checked, or None."""
    found = file.metadata.get(f"tokenizer.ggml.{key}")
    if found is not None and not (isinstance(found, list) and all(type(each) in kinds for each in found)):
        raise FormatError(f"{file.path}: tokenizer.ggml.{key} must be a list of {kinds[0].__name__}")
    if kinds[0] is float and found is not None and not all(map(math.isfinite, found)):
        raise FormatError(f"{file.path}: tokenizer.ggml.{key} has scores that are no numbers")
    return found


def _vocabulary_size(file: GgufFile) -> int:
    if "token_embd.weight" not in file.tensors:
        raise FormatError(f"{file.path} has no tensor token_embd.weight: it holds no whole model")
    return file.tensors["token_embd.weight"].shape[0]
