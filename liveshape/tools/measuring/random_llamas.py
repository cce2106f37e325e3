"""Llama graphs of well-known sizes with random weights, as `liveshape export` writes them: no file, no torch.

Weights are of 4 bits, or as a GGUF file of a usual mix of formats has them.

Speed does not depend on the values of weights, so all share a few megabytes of random bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from liveshape import ops
from liveshape.export.model.layout import Layout
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
    mix: str | None = None  # of the formats of a GGUF file


def _q4_k_m(layer: str, index: int, layers: int) -> Layout:
    """More bits for the head, and for values and the down projection in half of the layers."""
    more = index < layers // 8 or index >= 7 * layers // 8 or (index - layers // 8) % 3 == 2
    if layer == "head" or (more and layer in ("v", "down")):
        return Layout(8, 16)  # Q6_K
    return Layout(4, 32, minima=True)  # Q4_K


# The layout of a matrix by its name, the index of its layer, and how many layers there are.
MIXES: dict[str, Callable[[str, int, int], Layout]] = {
    "q4_k_m": _q4_k_m,
    "q8_0": lambda layer, index, layers: Layout(8, 32),
}

SHAPES = {
    "tiny": Shape(2, 256, 768, 8, 4, 32, 4096, 32, 128, 256),
    "135m": Shape(30, 576, 1536, 9, 3, 64, 49152),
    "1b": Shape(),
    "8b": Shape(32, 4096, 14336, 32, 8, 128, 128256),
    **{f"1b-{mix}": Shape(mix=mix) for mix in MIXES},
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
_LEAST_GROUP = 16  # of a mix


class Llama:
    """Builds the graph of a Llama: adds values and nodes in program order."""

    def __init__(self, shape: Shape) -> None:
        self.shape = s = shape
        self.nodes: list[Node] = []
        self.values: list[Any] = []
        self.live = SymInt("rows")  # of a call
        self.begun = 0  # layers
        self.sums: dict[Tensor, Tensor] = {}  # of groups of what linear layers take
        random = np.random.default_rng(0)
        block = random.random(_BLOCK, np.float32) / 2 + 0.5
        depths, widest = {s.hidden, s.heads * s.head_size, s.ffn}, max(s.vocabulary, s.ffn, s.heads * s.head_size)
        takers, most = 16 * (s.layers + 1), s.hidden * max(widest, *depths)
        room = 4 * most // (s.group if s.mix is None else _LEAST_GROUP)
        self.scales = {depth: Pool(block / np.float32(8 * depth**0.5), room, takers) for depth in depths}
        self.codes = Pool(random.integers(0, 256, _BLOCK, np.uint8), most // 2 if s.mix is None else most, takers)
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
        return self.tensor(rows, columns // 2, dtype="uint8", data=self.codes.take(rows * columns // 2))

    def floats(self, depth: int, *shape: int) -> Tensor:
        """Scales or minima of a weight of this depth."""
        return self.tensor(*shape, data=self.scales[depth].take(4 * prod(shape)))

    def linear(self, x: Tensor, columns: int, layer: str = "") -> Tensor:
        """A linear layer; the `layer` and how many layers there are already tell its layout in a mix."""
        s, depth = self.shape, x.max_shape[-1]
        layout = Layout(4, s.group) if s.mix is None else MIXES[s.mix](layer, self.begun - 1, s.layers)
        groups = depth // layout.group
        if layout.bits == 8:
            return self.of_bytes(x, columns, layout.group)
        out = self.tensor(*x.max_shape[:-1], columns)
        scales = self.floats(depth, groups, columns)
        self.node("et_vk.linear_q4gsw.default", x, self.packed(columns, depth), scales, layout.group, None, out)
        return self.with_minima(x, out, layout.group) if layout.minima else out

    def of_bytes(self, x: Tensor, columns: int, group: int) -> Tensor:
        """Weights of 8 bits are dequantized, and rows have two dimensions."""
        rows, depth = x.max_shape[-2:]
        codes = self.tensor(columns, depth, dtype="int8", data=self.codes.take(columns * depth))
        scales = self.floats(depth, columns, depth // group)
        args = codes, (1, group), scales, None, None, -128, 127, None
        weight = self.node("torchao.dequantize_affine.default", *args, self.tensor(columns, depth))
        flat = x if x.rank == 2 else self.view(x, (self.live, depth), rows, depth)
        out = self.node("aten.linear.default", flat, weight, None, self.tensor(rows, columns))
        return out if x.rank == 2 else self.view(out, (1, self.live, columns), 1, rows, columns)

    def with_minima(self, x: Tensor, out: Tensor, group: int) -> Tensor:
        """Plus the minimum of each group of weights times the sum of these elements of x, which layers share."""
        *lead, depth = x.max_shape
        if x not in self.sums:
            groups = depth // group
            apart = self.view(x, (1, self.live, groups, group), *lead, groups, group)
            self.sums[x] = self.node("aten.sum.dim_IntList", apart, (-1,), False, None, self.tensor(*lead, groups))
        minima = self.floats(depth, out.max_shape[-1], depth // group)
        term = self.node("aten.linear.default", self.sums[x], minima, None, self.tensor(*out.max_shape))
        return self.node("aten.add.Tensor", out, term, 1, self.tensor(*out.max_shape))  # type: ignore[no-any-return]

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
        live = self.live = self.node("sym_size.int", tokens, 1, self.scalar())
        start = self.node("et_vk.select_as_symint.default", position, 0, 0, self.scalar())
        groups = s.hidden // s.group
        scales = self.floats(s.hidden, s.vocabulary, groups)
        embedding = self.packed(s.vocabulary, s.hidden)
        x = self.tensor(1, length, s.hidden)
        self.node("et_vk.embedding_q4gsw.default", embedding, scales, s.group, tokens, True, x)
        for _ in range(s.layers):
            x = self.layer(x, tables, live, start)
        last = self.node("aten.select_copy.int", x, 1, -1, self.tensor(1, s.hidden))
        logits = self.linear(self.norm(last), s.vocabulary, "head")
        return Graph("forward", tuple(self.nodes), tuple(self.values), (tokens, position), (logits,))

    def layer(self, x: Tensor, tables: list[Tensor], live: SymInt, start: SymInt) -> Tensor:
        s, size = self.shape, self.shape.head_size
        self.begun += 1
        length = s.max_seq_len
        h = self.norm(x)
        q, k, v = (
            self.view(self.linear(h, heads * size, name), (1, live, heads, size), 1, length, heads, size)
            for name, heads in (("q", s.heads), ("k", s.kv_heads), ("v", s.kv_heads))
        )
        turned = (self.tensor(*q.max_shape), self.tensor(*k.max_shape))
        q, k = self.node("et_vk.apply_rotary_emb_hf.default", q, k, *tables, start, turned)
        rows = (1, s.max_context, s.kv_heads, s.head_size)
        caches = [self.tensor(*rows, data=self.zeros.take(4 * prod(rows))) for _ in range(2)]
        out = self.tensor(*q.max_shape)
        self.node("sdpa_with_kv_cache.default", q, k, v, *caches, start, live, None, 0.0, True, None, out)
        mixed = self.view(out, (1, live, s.heads * s.head_size), 1, length, s.heads * s.head_size)
        x = self.node("aten.add.Tensor", x, self.linear(mixed, s.hidden, "o"), 1, self.tensor(*x.max_shape))
        h = self.norm(x)
        gate = self.linear(h, s.ffn, "gate")
        sigmoid = self.node("aten.sigmoid.default", gate, self.tensor(*gate.max_shape))
        silu = self.node("aten.mul.Tensor", gate, sigmoid, self.tensor(*gate.max_shape))
        gated = self.node("aten.mul.Tensor", silu, self.linear(h, s.ffn, "up"), self.tensor(*gate.max_shape))
        return self.node("aten.add.Tensor", x, self.linear(gated, s.hidden, "down"), 1, self.tensor(*x.max_shape))  # type: ignore[no-any-return]


def llama_graph(shape: Shape, limits: Limits) -> Graph:
    """The Llama graph for `liveshape.llm.program.token_graph.token_graph`, fused for a device with these limits."""
    return fuse(Llama(shape).graph(), limits)
