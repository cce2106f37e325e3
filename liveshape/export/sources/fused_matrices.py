"""Fused checkpoint tensors (qkv_proj, gate_up_proj, stacked experts) split into the matrices of a decoder."""

from __future__ import annotations

from collections.abc import Iterator

from liveshape.export.model.config import ModelConfig

Shape = tuple[int, ...]
# Their GGUF files store gate and up fused as ffn_up.
_GATE_AND_UP = ("phi3", "glm4")


def parts(config: ModelConfig, name: str, shape: Shape) -> Iterator[tuple[str, Shape, int]]:
    """Split a fused tensor: Hugging Face name, shape and first row of each matrix.

    A tensor that is not fused, or does not fit the config, is yielded as it is. Vectors have rows of one element.

    Example: `list(parts(config, "model.layers.0.self_attn.qkv_proj.weight", (96, 64)))`.
    """
    stem, _, ending = name.rpartition(".")
    owner, _, layer = stem.rpartition(".")
    query, pair = config.heads * config.head_size, config.kv_heads * config.head_size
    rows: dict[str, int] = {}
    if layer == "qkv_proj":
        rows = {"q_proj": query, "k_proj": pair, "v_proj": pair}
    elif layer == "gate_up_proj" or (
        layer == "up_proj" and config.family in _GATE_AND_UP and shape[0] == 2 * config.feed_forward
    ):
        rows = {"gate_proj": config.feed_forward, "up_proj": config.feed_forward}
    elif owner.endswith(".experts") and len(shape) == (2 if ending == "bias" else 3) and 0 not in shape:
        rows = {f"{number}.{layer}": shape[1] for number in range(shape[0])}
        shape = (shape[0] * shape[1], *shape[2:])
    if not rows or sum(rows.values()) != shape[0]:
        yield name, shape, 0
        return
    start = 0
    for part, count in rows.items():
        yield f"{owner}.{part}.{ending}", (count, *shape[1:]), start
        start += count
