"""A checkpoint of any format: its config, its tensors by Hugging Face's names, and its tokenizer files."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from liveshape.errors import FormatError, UnsupportedError
from liveshape.export.model.config import ModelConfig
from liveshape.export.model.layout import Grouped, Layout
from liveshape.export.model.tensor_place import TensorPlace

_SHOWN = 8
# Buffers in older checkpoints that are computed from the config.
_COMPUTED = ("rotary_emb.inv_freq", "attn.bias", "attn.masked_bias")


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint. `shapes` has every tensor; `read` loads one as float32; `files` maps file names to contents.

    `rows` loads some rows of a tensor where that is cheaper than all of them. `stored` is the quantization layout of a
    matrix in the source, None if it is floats, and `grouped` loads its rows without dequantizing. `place` is where a
    tensor lies in the source, None if its numbers are not there as they are.

    Example: `open_checkpoint("SmolLM2-135M/").config.layers`.
    """

    config: ModelConfig
    shapes: Mapping[str, tuple[int, ...]]
    read: Callable[[str], npt.NDArray[np.float32]]
    files: Mapping[str, bytes] = field(default_factory=dict)
    rows: Callable[[str, slice], npt.NDArray[np.float32]] | None = None
    stored: Callable[[str], Layout | None] = lambda name: None
    grouped: Callable[[str, slice], Grouped] | None = None
    place: Callable[[str], TensorPlace | None] = lambda name: None

    def read_rows(self, name: str, rows: slice) -> npt.NDArray[np.float32]:
        """Load rows of a tensor as float32."""
        return self.read(name)[rows] if self.rows is None else self.rows(name, rows)


def expected_tensors(config: ModelConfig) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Name and shape of every tensor that a decoder of this config needs; biases are optional.

    Example: `dict(expected_tensors(config))["model.norm.weight"]`.
    """
    query, pair = config.heads * config.head_size, config.kv_heads * config.head_size
    yield "model.embed_tokens.weight", (config.vocabulary, config.hidden)
    if config.learned_positions:
        yield "model.embed_positions.weight", (config.context, config.hidden)
    for index in range(config.layers):
        layer = f"model.layers.{index}"
        for name in config.norms.names:
            yield f"{layer}.{name}.weight", (config.hidden,)
        yield f"{layer}.self_attn.q_proj.weight", (query, config.hidden)
        yield f"{layer}.self_attn.k_proj.weight", (pair, config.hidden)
        yield f"{layer}.self_attn.v_proj.weight", (pair, config.hidden)
        yield f"{layer}.self_attn.o_proj.weight", (config.hidden, query)
        if config.sinks:
            yield f"{layer}.self_attn.sinks.weight", (config.heads,)
        if config.qk_norm:
            yield f"{layer}.self_attn.q_norm.weight", (query if config.joint_qk_norm else config.head_size,)
            yield f"{layer}.self_attn.k_norm.weight", (pair if config.joint_qk_norm else config.head_size,)
        if config.experts is not None and config.has_experts(index):
            yield f"{layer}.mlp.gate.weight", (config.experts.count, config.hidden)
            for number in range(config.experts.count):
                yield from _feed_forward(config, f"{layer}.mlp.experts.{number}", config.experts.feed_forward)
        else:
            yield from _feed_forward(config, f"{layer}.mlp", config.feed_forward)
    yield "model.norm.weight", (config.hidden,)
    if not config.tied:
        yield "lm_head.weight", (config.vocabulary, config.hidden)


def _feed_forward(config: ModelConfig, name: str, width: int) -> Iterator[tuple[str, tuple[int, ...]]]:
    if config.gated:
        yield f"{name}.gate_proj.weight", (width, config.hidden)
    yield f"{name}.up_proj.weight", (width, config.hidden)
    yield f"{name}.down_proj.weight", (config.hidden, width)


def check_tensors(checkpoint: Checkpoint) -> None:
    """Validate a checkpoint against its config: missing tensors, wrong shapes, unused tensors.

    Example: `check_tensors(open_checkpoint("model.gguf"))`.
    """
    # First: a config may claim billions of layers, and below every tensor of each is listed.
    mixture, layers, experts = checkpoint.config.experts, checkpoint.config.layers, 0
    if mixture is not None:
        experts = mixture.count * max(layers // mixture.every - len(set(mixture.plain)), 1)
    for count, what in ((layers, "layers"), (experts, "experts")):
        if count > len(checkpoint.shapes):
            raise FormatError(
                f"the checkpoint does not fit its config: {count} {what}, {len(checkpoint.shapes)} tensors"
            )
    expected = dict(expected_tensors(checkpoint.config))
    # Linear layers and LayerNorms may have a bias.
    added = {
        f"{name.removesuffix('weight')}bias": shape[:1]
        for name, shape in expected.items()
        if name.endswith(".weight") and (len(shape) == 2 or checkpoint.config.layer_norm)
    }
    expected |= {name: shape for name, shape in added.items() if name in checkpoint.shapes}
    missing = [name for name in expected if name not in checkpoint.shapes]
    if missing:
        raise FormatError(f"the checkpoint lacks {_list(missing)}")
    wrong = [
        f"{name}: {tuple(checkpoint.shapes[name])} instead of {shape}"
        for name, shape in expected.items()
        if tuple(checkpoint.shapes[name]) != shape
    ]
    if wrong:
        raise FormatError(f"the checkpoint does not fit its config: {_list(wrong)}")
    unused = [
        name
        for name in checkpoint.shapes
        if name not in expected and name != "lm_head.weight" and not name.endswith(_COMPUTED)
    ]
    if unused:
        raise UnsupportedError(
            f"the checkpoint has tensors that a {checkpoint.config.family} decoder does not use: {_list(unused)}; "
            "leaving them out would give another model",
            tuple((name, "not used") for name in unused),
        )


def generation_config(config: ModelConfig) -> bytes:
    """A `generation_config.json` with the BOS and EOS ids, for a checkpoint that has none."""
    content: dict[str, Any] = {"bos_token_id": config.begin, "eos_token_id": list(config.ends)}
    return (json.dumps({key: value for key, value in content.items() if value is not None}, indent=2) + "\n").encode()


def _list(names: list[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more
