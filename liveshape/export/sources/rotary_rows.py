"""Permutes Q and K rows from interleaved RoPE (adjacent pairs, GPT-J style) to the half-split order (NeoX style) that
our RoPE operator takes. Attention scores are the same, since queries and keys are permuted alike.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from liveshape.export.model.config import ModelConfig
from liveshape.export.model.tensor_place import PairedHeads

Order = npt.NDArray[np.int64]


def halves_of(config: ModelConfig, name: str) -> Order | None:
    """The row permutation of a Q or K projection, interleaved to half-split; None for other tensors.

    Example: `halves_of(config, "model.layers.0.self_attn.q_proj.weight")`.
    """
    return order_of(paired_heads(config, name))


def paired_heads(config: ModelConfig, name: str) -> PairedHeads | None:
    """The heads of a Q or K projection; None for other tensors.

    Example: `paired_heads(config, "model.layers.0.self_attn.q_proj.weight")`.
    """
    heads = {"q_proj": config.heads, "k_proj": config.kv_heads}.get(name.rpartition(".")[0].rpartition(".")[2])
    return None if heads is None else PairedHeads(heads, config.head_size, config.rotary_size)


def order_of(pairs: PairedHeads | None) -> Order | None:
    """The row of the file for each row of the model; None if they are the same."""
    return None if pairs is None else pairs_to_halves(pairs.heads, pairs.size, pairs.rotated)


def pairs_to_halves(heads: int, size: int, rotated: int) -> Order:
    """The permutation from adjacent pairs to halves, for heads of which the first `rotated` elements have RoPE.

    >>> pairs_to_halves(heads=2, size=6, rotated=4)
    array([ 0,  2,  1,  3,  4,  5,  6,  8,  7,  9, 10, 11])
    """
    head = np.arange(size)
    head[:rotated] = head[:rotated].reshape(-1, 2).T.reshape(-1)
    return (np.arange(heads)[:, None] * size + head).reshape(-1)
