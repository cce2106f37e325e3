"""Attention over a KV cache that a program spells out (matmul, softmax, matmul), as our exporter does where scores are
soft-capped or heads have sinks.

It is recognized by its operators: scores of grouped heads, a causal mask of positions, perhaps with a sliding window,
and what sinks leave of the weights of all keys.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from liveshape.graph import Graph, Node, Tensor
from liveshape.graph.constants import all_bytes
from liveshape.graph.traits import Role
from liveshape.llm.program.sliding_windows import Distances
from liveshape.lower.pattern_operators import (
    LOG10,
    MATRICES,
    MAXIMUM,
    MUL,
    PERMUTE,
    SIGMOID,
    SOFTMAX,
    SUB,
    TANH,
    UPDATE_CACHE,
    VIEW,
    WHERE,
)

_HIDDEN = -1e4  # a masked score that no other one is near
_SWAPPED = (0, 2, 1, 3)  # rows and heads
_KEYS = (0, 2, 3, 1)  # heads, then a column for each key


@dataclass(frozen=True, eq=False)
class SpelledAttention:
    """What attention is given: softmax(cap(q @ k * scale), sinks) @ v over the keys up to each query's own."""

    q: Tensor  # [1, S, heads, size]
    k: Tensor  # the new rows of the caches
    v: Tensor
    k_cache: Tensor
    v_cache: Tensor
    scale: float
    window: int  # 0: none
    softcap: float  # 0: none
    sinks: Tensor | None  # [heads]


class _Mismatch(Exception):
    """An operator or an argument is not that of attention."""


def _must(condition: Any) -> None:
    if not condition:
        raise _Mismatch


def spelled_attentions(graph: Graph, distances: Distances) -> dict[Node, SpelledAttention]:
    """Each attention that is spelled out, by the last of its nodes.

    Example: `spelled_attentions(graph, Distances(graph, tokens, position)).values()`.
    """
    matcher = _Matcher(graph, distances)
    found = {node: matcher.ending_at(node) for node in graph.nodes if node.name == PERMUTE}
    return {node: each for node, each in found.items() if each is not None}


class _Matcher:
    def __init__(self, graph: Graph, distances: Distances) -> None:
        self._graph, self._distances = graph, distances

    def ending_at(self, node: Node) -> SpelledAttention | None:
        try:
            return self._attention(node.args[-1])
        except _Mismatch:
            return None

    def _attention(self, out: Tensor) -> SpelledAttention:
        _, _, heads, size = out.max_shape
        mixed = self._viewed(self._permuted(out, _SWAPPED), (1, heads, None, size))
        left = None
        if self._is(mixed, MUL):
            mixed, left = self._made(mixed, MUL).args[:2]
            mixed = self._viewed(mixed, (heads, None, size))
        shares, values = self._made(mixed, MATRICES).args[:2]
        key_heads = values.max_shape[0]
        shares = self._viewed(shares, (key_heads, None, None))
        v, v_cache = self._rows_of_cache(self._permuted(self._viewed(values, (key_heads, None, size)), _SWAPPED))
        scores, dim, _ = self._made(shares, SOFTMAX).args[:3]
        _must(dim in (-1, 2))
        sinks = None if left is None else self._sinks(left, scores, shares, heads)
        mask, seen, hidden = self._made(scores, WHERE).args[:3]
        window = self._distances.window_of(mask, causal=True)
        _must(window is not None and _number(hidden) <= _HIDDEN)
        whole = self._made(seen, VIEW)
        first, count, end = whole.args[1]
        _must(first == heads and self._distances.is_count(count) and self._distances.is_end(end))
        product, scale, softcap = self._capped(whole.args[0])
        queries, keys = self._made(product, MATRICES).args[:2]
        q = self._permuted(self._viewed(queries, (key_heads, None, size)), _SWAPPED)
        k, k_cache = self._rows_of_cache(self._permuted(self._viewed(keys, (key_heads, size, None)), _KEYS))
        _must(q.max_shape == out.max_shape and k_cache.max_shape[2:] == v_cache.max_shape[2:] == (key_heads, size))
        return SpelledAttention(q, k, v, k_cache, v_cache, scale, window or 0, softcap, sinks)

    def _capped(self, scores: Any) -> tuple[Any, float, float]:
        """The product of queries and keys, its scale and its soft cap."""
        inner, cap = self._scaled(scores)
        if not self._is(inner, TANH):
            return inner, cap, 0.0
        _must(cap > 0)
        product, scale = self._scaled(self._made(inner, TANH).args[0])
        return product, scale * cap, cap

    def _sinks(self, left: Any, scores: Any, shares: Any, heads: int) -> Tensor:
        """The sinks, if `left` is sigmoid(log-sum-exp of the scores - sinks)."""
        total, column, alpha = self._made(self._made(left, SIGMOID).args[0], SUB).args[:3]
        highest, logarithm, beta = self._made(total, SUB).args[:3]
        exponent, factor = self._scaled(logarithm)
        share = self._made(exponent, LOG10).args[0]
        _must(alpha == beta == 1 and math.isclose(factor, math.log(10), rel_tol=1e-3))
        for maximum, of in ((highest, scores), (share, shares)):
            _must(self._made(maximum, MAXIMUM).args[:3] == (of, (-1,), True))
        sinks: Tensor = self._viewed(column, (heads, 1, 1))
        _must(sinks.constant is not None and sinks.max_shape == (heads,))
        return sinks

    def _rows_of_cache(self, value: Any) -> tuple[Tensor, Tensor]:
        """The new rows of a cache, and the cache of which a value is the rows so far: how many, the mask tells."""
        node = self._maker(value)
        _must(node.traits.role is Role.SLICE)
        cache: Tensor = node.named["x"]
        update = self._made(cache, UPDATE_CACHE)
        _must(tuple(node.named[name] for name in ("dim", "start", "step")) == (1, 0, 1) and update.index < node.index)
        new: Tensor = update.named["value"]
        return new, cache

    def _scaled(self, value: Any) -> tuple[Any, float]:
        """What a value is the product of: a tensor and a number, which is 1 if it is no product."""
        if not self._is(value, MUL):
            return value, 1.0
        inner, factor = self._made(value, MUL).args[:2]
        return inner, _number(factor)

    def _permuted(self, value: Any, order: tuple[int, ...]) -> Any:
        node = self._made(value, PERMUTE)
        _must(node.args[1] == order)
        return node.args[0]

    def _viewed(self, value: Any, shape: tuple[int | None, ...]) -> Any:
        """What a value is a view of, if its sizes are these; those of None follow from the number of elements."""
        node = self._made(value, VIEW)
        sizes = node.args[1]
        _must(len(sizes) == len(shape))
        _must(all(wanted is None or size == wanted for size, wanted in zip(sizes, shape, strict=True)))
        return node.args[0]

    def _is(self, value: Any, operator: str) -> bool:
        return self._maker(value).name == operator

    def _made(self, value: Any, operator: str) -> Node:
        node = self._maker(value)
        _must(node.name == operator)
        return node

    def _maker(self, value: Any) -> Node:
        makers = self._graph.writers.get(value, ()) if isinstance(value, Tensor) else ()
        _must(len(makers) == 1)
        return self._graph.nodes[makers[0]]


def _number(value: Any) -> float:
    """The number that a constant of one element holds."""
    dtypes = {"float32": "<f4", "float16": "<f2"}
    _must(isinstance(value, Tensor) and value.constant is not None and value.max_shape == (1,))
    _must(value.dtype in dtypes)
    return float(np.frombuffer(all_bytes(value.constant), dtypes[value.dtype])[0])
