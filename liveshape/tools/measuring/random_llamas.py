"""Llama graphs of well-known sizes with random 4-bit weights, as `liveshape export` writes them: no file, no torch.

Speed does not depend on the values of weights, so all share a few megabytes of random bytes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from liveshape import ops
from liveshape.graph import Graph, Limits, Node, SymInt, Tensor
from liveshape.graph.elements import prod
from liveshape.lower.fusion import fuse


@dataclass(frozen=True)
class Shape:
    """Hyperparameters of a Llama; the defaults are Llama-3.2-1B."""

    layers: int = 16
    hidden: int = 2048
    ffn: int = 8192
    heads: int = 32
    kv_heads: int = 8
    head_size: int = 64
    vocabulary: int = 128256
    group: int = 32
    max_seq_len: int = 512
    max_context: int = 2048


SHAPES = {
    "tiny": Shape(2, 256, 768, 8, 4, 32, 4096, 32, 128, 256),
    "135m": Shape(30, 576, 1536, 9, 3, 64, 49152),
    "1b": Shape(),
    "8b": Shape(32, 4096, 14336, 32, 8, 128, 128256),
}


def shape_of(name: str, max_context: int) -> Shape:
    """Hyperparameters by name, with a KV cache of at least `max_context` tokens.

    >>> shape_of("1b", 4224).max_context, shape_of("1b", 7).max_context
    (4224, 2048)
    """
    shape = SHAPES[name]
    return replace(shape, max_context=max(shape.max_context, max_context))


class Pool:
    """Random bytes that constants share on the host, at different offsets; on the device each has its own copy.

    >>> pool = Pool(np.arange(4, dtype=np.uint8), 8, 2)
    >>> len(pool.take(8)), pool.take(8)[0]
    (8, 0)
    """

    def __init__(self, block: Any, nbytes: int, takers: int) -> None:
        data: Any = np.resize(block.view(np.uint8), nbytes + takers * _APART)
        self._data = memoryview(data)
        self._next = 0

    def take(self, nbytes: int) -> memoryview:
        """The next `nbytes` bytes, at a new offset."""
        begin = self._next
        self._next += _APART
        return self._data[begin : begin + nbytes]


_APART = 64  # bytes between the offsets of two constants
_BLOCK = 1 << 20  # random elements that are drawn


class Llama:
    """Builds the graph of a Llama: adds values and nodes in program order."""

    def __init__(self, shape: Shape) -> None:
        self.shape = s = shape
        self.nodes: list[Node] = []
        self.values: list[Any] = []
        random = np.random.default_rng(0)
        block = random.random(_BLOCK, np.float32) / 2 + 0.5
        depths, widest = {s.hidden, s.heads * s.head_size, s.ffn}, max(s.vocabulary, s.ffn, s.heads * s.head_size)
        takers, most = 8 * (s.layers + 1), s.hidden * max(widest, *depths)
        self.scales = {depth: Pool(block / np.float32(8 * depth**0.5), 4 * most // s.group, takers) for depth in depths}
        self.nibbles = Pool(random.integers(0, 256, _BLOCK, np.uint8), most // 2, takers)
        cache = s.max_context * s.kv_heads * s.head_size
        self.zeros = Pool(np.zeros(_BLOCK, np.float32), 4 * cache, takers)

    def tensor(self, *shape: int, dtype: str = "float32", data: Any = None) -> Tensor:
        view = data if data is None or isinstance(data, memoryview) else memoryview(data).cast("B")
        tensor = Tensor(f"value {len(self.values)}", dtype, shape, constant=view)
        self.values.append(tensor)
        return tensor

    def scalar(self) -> SymInt:
        self.values.append(SymInt(f"value {len(self.values)}"))
        return self.values[-1]  # type: ignore[no-any-return]

    # Operators by name, as an exporter writes them.
    def node(self, operator: str, *args: Any) -> Any:
        index = len(self.nodes)
        self.nodes.append(ops.OPS[operator].bind(index, f"{operator} (node {index})", args))
        return args[-1]

    def packed(self, rows: int, columns: int) -> Tensor:
        return self.tensor(rows, columns // 2, dtype="uint8", data=self.nibbles.take(rows * columns // 2))

    def linear(self, x: Tensor, columns: int) -> Tensor:
        depth, group = x.max_shape[-1], self.shape.group
        scales = self.tensor(depth // group, columns, data=self.scales[depth].take(4 * columns * depth // group))
        weight, out = self.packed(columns, depth), self.tensor(*x.max_shape[:-1], columns)
        return self.node("et_vk.linear_q4gsw.default", x, weight, scales, group, None, out)  # type: ignore[no-any-return]

    def norm(self, x: Tensor) -> Tensor:
        weight = self.tensor(x.max_shape[-1], data=np.ones(x.max_shape[-1], np.float32))
        return self.node("et_vk.rms_norm.default", x, weight, 1e-5, self.tensor(*x.max_shape))  # type: ignore[no-any-return]

    def view(self, x: Tensor, sizes: tuple[Any, ...], *shape: int) -> Tensor:
        return self.node("aten.view_copy.default", x, sizes, self.tensor(*shape))  # type: ignore[no-any-return]

    def graph(self) -> Graph:
        """tokens [1, S], input_pos [1] -> logits [1, V] of the last token."""
        s = self.shape
        length = s.max_seq_len
        tokens, position = self.tensor(1, length, dtype="int64"), self.tensor(1, dtype="int64")
        angles = np.outer(np.arange(s.max_context), 500000.0 ** (-np.arange(0, s.head_size, 2) / s.head_size))
        tables = [
            self.tensor(s.max_context, s.head_size, data=np.tile(f(angles), 2).astype(np.float32, order="C"))
            for f in (np.cos, np.sin)
        ]
        live = self.node("sym_size.int", tokens, 1, self.scalar())
        start = self.node("et_vk.select_as_symint.default", position, 0, 0, self.scalar())
        groups = s.hidden // s.group
        scales = self.tensor(s.vocabulary, groups, data=self.scales[s.hidden].take(4 * s.vocabulary * groups))
        embedding = self.packed(s.vocabulary, s.hidden)
        x = self.tensor(1, length, s.hidden)
        self.node("et_vk.embedding_q4gsw.default", embedding, scales, s.group, tokens, True, x)
        for _ in range(s.layers):
            x = self.layer(x, tables, live, start)
        last = self.node("aten.select_copy.int", x, 1, -1, self.tensor(1, s.hidden))
        logits = self.linear(self.norm(last), s.vocabulary)
        return Graph("forward", tuple(self.nodes), tuple(self.values), (tokens, position), (logits,))

    def layer(self, x: Tensor, tables: list[Tensor], live: SymInt, start: SymInt) -> Tensor:
        s = self.shape
        length = s.max_seq_len
        h = self.norm(x)
        q, k, v = (
            self.view(self.linear(h, heads * s.head_size), (1, live, heads, s.head_size), 1, length, heads, s.head_size)
            for heads in (s.heads, s.kv_heads, s.kv_heads)
        )
        turned = (self.tensor(*q.max_shape), self.tensor(*k.max_shape))
        q, k = self.node("et_vk.apply_rotary_emb_hf.default", q, k, *tables, start, turned)
        rows = (1, s.max_context, s.kv_heads, s.head_size)
        caches = [self.tensor(*rows, data=self.zeros.take(4 * prod(rows))) for _ in range(2)]
        out = self.tensor(*q.max_shape)
        self.node("sdpa_with_kv_cache.default", q, k, v, *caches, start, live, None, 0.0, True, None, out)
        mixed = self.view(out, (1, live, s.heads * s.head_size), 1, length, s.heads * s.head_size)
        x = self.node("aten.add.Tensor", x, self.linear(mixed, s.hidden), 1, self.tensor(*x.max_shape))
        h = self.norm(x)
        gate = self.linear(h, s.ffn)
        sigmoid = self.node("aten.sigmoid.default", gate, self.tensor(*gate.max_shape))
        silu = self.node("aten.mul.Tensor", gate, sigmoid, self.tensor(*gate.max_shape))
        gated = self.node("aten.mul.Tensor", silu, self.linear(h, s.ffn), self.tensor(*gate.max_shape))
        return self.node("aten.add.Tensor", x, self.linear(gated, s.hidden), 1, self.tensor(*x.max_shape))  # type: ignore[no-any-return]


def llama_graph(shape: Shape, limits: Limits) -> Graph:
    """The Llama graph for `liveshape.llm.program.token_graph.token_graph`, fused for a device with these limits."""
    return fuse(Llama(shape).graph(), limits)
