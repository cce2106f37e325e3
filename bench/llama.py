"""The graph of a Llama as `liveshape export` writes it, with random 4-bit weights made in memory: no file, no torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from liveshape import ops
from liveshape.graph import Graph, Limits, Node, SymInt, Tensor
from liveshape.lower.fusion import fuse


@dataclass(frozen=True)
class Shape:
    """The sizes of a Llama; the defaults are those of Llama-3.2-1B."""

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


class Llama:
    """Adds values and nodes in program order."""

    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        self.nodes: list[Node] = []
        self.values: list[Any] = []
        self.random = np.random.default_rng(0)
        # One block of random bytes serves every weight: what they are does not change the time.
        self.bytes = self.random.integers(0, 256, 1 << 20, np.uint8)

    def tensor(self, *shape: int, dtype: str = "float32", data: Any = None) -> Tensor:
        view = None if data is None else memoryview(np.ascontiguousarray(data)).cast("B")
        tensor = Tensor(f"value {len(self.values)}", dtype, shape, constant=view)
        self.values.append(tensor)
        return tensor

    def scalar(self) -> SymInt:
        self.values.append(SymInt(f"value {len(self.values)}"))
        return self.values[-1]  # type: ignore[no-any-return]

    def node(self, operator: str, *args: Any) -> Any:
        index = len(self.nodes)
        self.nodes.append(ops.OPS[operator].bind(index, f"{operator} (node {index})", args))
        return args[-1]

    def packed(self, rows: int, columns: int) -> Tensor:
        return self.tensor(rows, columns // 2, dtype="uint8", data=np.resize(self.bytes, rows * columns // 2))

    def linear(self, x: Tensor, columns: int) -> Tensor:
        depth, group = x.max_shape[-1], self.shape.group
        scales = self.random.uniform(0.5, 1.0, (depth // group, columns)).astype(np.float32) / (8 * depth**0.5)
        weight, out = self.packed(columns, depth), self.tensor(*x.max_shape[:-1], columns)
        scales_tensor = self.tensor(depth // group, columns, data=scales)
        return self.node("et_vk.linear_q4gsw.default", x, weight, scales_tensor, group, None, out)  # type: ignore[no-any-return]

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
            self.tensor(s.max_context, s.head_size, data=np.tile(f(angles), 2).astype(np.float32))
            for f in (np.cos, np.sin)
        ]
        live = self.node("sym_size.int", tokens, 1, self.scalar())
        start = self.node("et_vk.select_as_symint.default", position, 0, 0, self.scalar())
        scales = self.tensor(
            s.vocabulary, s.hidden // s.group, data=np.full((s.vocabulary, s.hidden // s.group), 0.1, np.float32)
        )
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
        empty = np.zeros((1, s.max_context, s.kv_heads, s.head_size), np.float32)
        caches = [self.tensor(*empty.shape, data=empty) for _ in range(2)]
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
    """A graph for `liveshape.llm.program.token_graph`, fused for a device with these limits."""
    return fuse(Llama(shape).graph(), limits)
