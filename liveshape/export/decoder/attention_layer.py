"""Attention against the KV cache: one fused SDPA operator, or unfused (matmul, softmax, matmul) for models with
attention logit softcapping or attention sinks.

Sliding-window attention adds a mask to the causal one. The mask covers the live context only, so no cache row that was
never written is attended to.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from liveshape.export.decoder.arithmetic import Arithmetic
from liveshape.export.file.delegate_blob import BlobTensor, LiveInt
from liveshape.export.model.config import ModelConfig

# The masked score: below every other, and finite in float16.
_HIDDEN = -60000.0


@dataclass
class Attention:
    """Attention of all layers of one graph. `context` is the KV cache's length; windows below `masked` have masks.

    Example: `Attention(config, arithmetic, 2048, length, position, 8192).mixed(query, key, value, near=False)`.
    """

    config: ModelConfig
    arithmetic: Arithmetic
    context: int
    length: LiveInt
    position: LiveInt
    masked: int
    _end: LiveInt | None = None
    _distances: BlobTensor | None = None
    _visible: dict[tuple[bool, bool], BlobTensor] = field(default_factory=dict)

    def mixed(
        self, query: BlobTensor, key: BlobTensor, value: BlobTensor, near: bool, sinks: BlobTensor | None = None
    ) -> BlobTensor:
        """Attention output (1, S, heads, head size); `near`: sliding-window layer; `sinks`: sink logits (heads,)."""
        near = near and self.config.window is not None and self.config.window < self.masked
        caches = self._cache(), self._cache()
        if self.config.attention_cap is not None or sinks is not None:
            return self._spelled_out(query, key, value, caches, near, sinks)
        mask = self._mask(near, causal=False) if near else None
        # Dropout 0.0, causal.
        rest = self.position, self.length, mask, 0.0, True, self.config.attention_scale
        return self.arithmetic.graph.call(
            "sdpa_with_kv_cache.default", query, key, value, *caches, *rest, shape=query.shape
        )

    def _cache(self) -> BlobTensor:
        shape = 1, self.context, self.config.kv_heads, self.config.head_size
        return self.arithmetic.graph.state(self.arithmetic.tensors.repeated(f"cache.{shape[1]}", shape, 0.0))

    def _spelled_out(
        self,
        query: BlobTensor,
        key: BlobTensor,
        value: BlobTensor,
        caches: tuple[BlobTensor, BlobTensor],
        near: bool,
        sinks: BlobTensor | None,
    ) -> BlobTensor:
        """Unfused grouped-query attention: one batched matmul, with the query heads of a KV head as its rows."""
        config, arithmetic, graph = self.config, self.arithmetic, self.arithmetic.graph
        pairs, heads, size, group = config.kv_heads, config.heads, config.head_size, config.heads // config.kv_heads
        rows = graph.live("mul", self.length, group, bound=self.length.bound * group)
        keys, values = (self._written(each, cache) for each, cache in zip((key, value), caches, strict=True))
        keys = arithmetic.view(arithmetic.permuted(keys, (0, 2, 3, 1)), (pairs, size, keys.shape[1]))
        values = arithmetic.view(arithmetic.permuted(values, (0, 2, 1, 3)), (pairs, values.shape[1], size))
        queries = arithmetic.view(arithmetic.permuted(query, (0, 2, 1, 3)), (pairs, rows, size))
        scores = graph.call("aten.bmm.default", queries, keys, shape=(pairs, rows, self._until()))
        scale = size**-0.5 if config.attention_scale is None else config.attention_scale
        cap = config.attention_cap
        scores = arithmetic.scaled(scores, scale) if cap is None else arithmetic.capped(scores, cap, scale)
        scores = arithmetic.view(scores, (heads, self.length, self._until()))
        hidden = arithmetic.number(_HIDDEN)
        scores = graph.call("aten.where.self", self._mask(near, causal=True), scores, hidden, shape=scores.shape)
        shares = arithmetic.softmax(scores)
        left = None if sinks is None else self._left_by_sinks(scores, shares, sinks)
        shares = arithmetic.view(shares, (pairs, rows, self._until()))
        mixed = graph.call("aten.bmm.default", shares, values, shape=(pairs, rows, size))
        if left is not None:
            mixed = arithmetic.mul(arithmetic.view(mixed, (heads, self.length, size)), left)
        return arithmetic.permuted(arithmetic.view(mixed, (1, heads, self.length, size)), (0, 2, 1, 3))

    def _left_by_sinks(self, scores: BlobTensor, shares: BlobTensor, sinks: BlobTensor) -> BlobTensor:
        """Attention weight left beside the sink, (heads, S, 1): sigmoid(log-sum-exp of the scores - sink)."""
        arithmetic, graph = self.arithmetic, self.arithmetic.graph
        column = (*scores.shape[:2], 1)
        highest, its_share = (
            graph.call("aten.amax.default", each, (-1,), True, shape=column) for each in (scores, shares)
        )
        # The softmax of the highest score is exp(score - log-sum-exp).
        logarithm = graph.call("aten.log10.default", its_share, shape=column)
        total = graph.call("aten.sub.Tensor", highest, arithmetic.scaled(logarithm, math.log(10)), 1, shape=column)
        sinks = arithmetic.view(sinks, (scores.shape[0], 1, 1))
        above = graph.call("aten.sub.Tensor", total, sinks, 1, shape=column)
        return graph.call("aten.sigmoid.default", above, shape=column)

    def _written(self, new: BlobTensor, cache: BlobTensor) -> BlobTensor:
        """Write new keys or values into the cache; returns its valid rows (1, live context, KV heads, head size)."""
        graph = self.arithmetic.graph
        graph.call("update_cache.default", new, cache, self.position, shape=(1,))
        # By the size of this very tensor, which proves to a reader of the graph that no later row is read.
        count = graph.live("sym_size.int", new, 1, bound=self.length.bound)
        end = graph.live("add", self.position, count, bound=self.context)
        return graph.call("aten.slice_copy.Tensor", cache, 1, 0, end, 1, shape=(1, end, *cache.shape[2:]))

    def _until(self) -> LiveInt:
        """The live context length: position plus new tokens."""
        if self._end is None:
            self._end = self.arithmetic.graph.live("add", self.position, self.length, bound=self.context)
        return self._end

    def _mask(self, near: bool, causal: bool) -> BlobTensor:
        """The boolean attention mask (S, live context): sliding window, causal, or both."""
        if (near, causal) not in self._visible:
            graph, far = self.arithmetic.graph, self._far()
            seen: list[BlobTensor] = []
            if near and self.config.window is not None:
                seen.append(graph.call("aten.lt.Scalar", far, self.config.window, shape=far.shape, dtype="bool"))
            if causal:
                seen.append(graph.call("aten.ge.Scalar", far, 0, shape=far.shape, dtype="bool"))
            both = len(seen) == 2
            mask = graph.call("aten.logical_and.default", *seen, shape=far.shape, dtype="bool") if both else seen[0]
            self._visible[near, causal] = mask
        return self._visible[near, causal]

    def _far(self) -> BlobTensor:
        """Distance of each key before each query in tokens, (S, live context)."""
        if self._distances is None:
            graph, end = self.arithmetic.graph, self._until()
            queries = self.counted(self.position, self.length)
            column = graph.call(
                "aten.view_copy.default", queries, (self.length, 1), shape=(self.length, 1), dtype="int32"
            )
            shape = self.length, end
            keys = self.counted(0, end)
            self._distances = graph.call("aten.sub.Tensor", column, keys, 1, shape=shape, dtype="int32")
        return self._distances

    def counted(self, start: LiveInt | int, length: LiveInt) -> BlobTensor:
        """Position ids from `start` to the end of the live context (arange)."""
        # dtype, layout, device, pin_memory.
        rest = None, None, None, None
        arguments = start, self._until(), 1, *rest
        return self.arithmetic.graph.call("aten.arange.start_step", *arguments, shape=(length,), dtype="int32")
