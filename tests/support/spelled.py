"""Groupwise quantized weights as a file spells them out: minima as a product of their own, int8 dequantized first."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from tests.support.chains import Chain


class Weights(NamedTuple):
    """weight[n, k] = codes[n, k] * scales[n, k // group] + minima[n, k // group]."""

    bits: int
    codes: np.ndarray  # int8 (N, K)
    scales: np.ndarray  # (N, K / group)
    minima: np.ndarray | None

    @property
    def group(self) -> int:
        return self.codes.shape[1] // self.scales.shape[1]

    @property
    def packed(self) -> np.ndarray:
        """Two 4-bit codes per byte."""
        raised = (self.codes + 8).astype(np.uint8)
        return raised[:, 1::2] << 4 | raised[:, ::2]

    @property
    def values(self) -> np.ndarray:
        """The weights in float64."""
        codes = self.codes.astype(np.float64) * np.repeat(self.scales.astype(np.float64), self.group, axis=1)
        return codes if self.minima is None else codes + np.repeat(self.minima.astype(np.float64), self.group, axis=1)


class Kind(NamedTuple):
    """How the weights of a layer are quantized."""

    bits: int = 4
    minima: bool = False
    group: int = 4
    dtype: str = "float32"

    def draw(self, random: np.random.Generator, columns: int, depth: int) -> Weights:
        most = 1 << (self.bits - 1)
        codes = random.integers(-most, most, (columns, depth)).astype(np.int8)
        shape = columns, depth // self.group
        scales = (random.random(shape) + 0.5) / most / depth**0.5
        minima = (random.standard_normal(shape) / depth**0.5).astype(self.dtype) if self.minima else None
        return Weights(self.bits, codes, scales.astype(self.dtype), minima)


@dataclass
class Spelled:
    """Linears and embeddings in a chain; `length` is the live number of rows of (1, rows, depth)."""

    chain: Chain
    length: Any
    dtype: str = "float32"
    flat: dict[Any, Any] = field(default_factory=dict)
    sums: dict[Any, Any] = field(default_factory=dict)

    def linear(self, x: Any, weights: Weights, bias: Any = None, *more: int) -> Any:
        """Rows (1, S, K) to rows (1, S, N), which may be taken apart."""
        rows, columns = x.max_shape[1], len(weights.codes)
        out = (self._of_nibbles if weights.bits == 4 else self._of_bytes)(x, weights, bias)
        if weights.minima is not None:
            if out.max_shape != (1, rows, columns):
                out = self._view(out, columns)
            sums, minima = self._sums(x, weights.group), self.chain.constant(weights.minima)
            term = self.chain.node("aten.linear.default", sums, minima, None, self._tensor(1, rows, columns))
            out = self.chain.node("aten.add.Tensor", out, term, 1, self._tensor(1, rows, columns))
        apart = more or (columns,)
        return out if out.max_shape == (1, rows, *apart) else self._view(out, *apart)

    def embedding(self, ids: Any, weights: Weights) -> Any:
        lead, width = ids.max_shape, weights.codes.shape[1]
        scales = self.chain.constant(weights.scales)
        if weights.bits == 8:
            table = self._numbers(weights)
            args = (table, ids, -1, False, False)
            found = self.chain.node("aten.embedding.default", *args, self._tensor(*lead, width))
        else:
            args = self.chain.constant(weights.packed), scales, weights.group, ids, True
            found = self.chain.node("et_vk.embedding_q4gsw.default", *args, self._tensor(*lead, width))
        if weights.minima is None:
            return found
        groups = weights.scales.shape[1]
        args = (self.chain.constant(weights.minima), ids, -1, False, False)
        minima = self.chain.node("aten.embedding.default", *args, self._tensor(*lead, groups))
        column = self._view(minima, groups, 1)
        spread = (1, self.length, groups, weights.group)
        out = self._tensor(*lead, groups, weights.group)
        repeated = self.chain.node("aten.expand_copy.default", column, spread, False, out)
        return self.chain.node("aten.add.Tensor", found, self._view(repeated, width), 1, self._tensor(*lead, width))

    def _of_nibbles(self, x: Any, weights: Weights, bias: Any) -> Any:
        scales = self.chain.constant(np.ascontiguousarray(weights.scales.T))
        args = x, self.chain.constant(weights.packed), scales, weights.group, bias
        out = self._tensor(*x.max_shape[:-1], len(weights.codes))
        return self.chain.node("et_vk.linear_q4gsw.default", *args, out)

    def _of_bytes(self, x: Any, weights: Weights, bias: Any) -> Any:
        """On rows of two dimensions, as every runtime takes them."""
        _, rows, depth = x.max_shape
        if x not in self.flat:
            args = x, (self.length, depth), self._tensor(rows, depth)
            self.flat[x] = self.chain.node("aten.view_copy.default", *args)
        args = self.flat[x], self._numbers(weights), bias
        return self.chain.node("aten.linear.default", *args, self._tensor(rows, len(weights.codes)))

    def _numbers(self, weights: Weights) -> Any:
        codes, scales = self.chain.constant(weights.codes), self.chain.constant(weights.scales)
        args = codes, (1, weights.group), scales, None, None, -128, 127, None
        return self.chain.node("torchao.dequantize_affine.default", *args, self._tensor(*weights.codes.shape))

    def _sums(self, x: Any, group: int) -> Any:
        if (x, group) not in self.sums:
            groups = x.max_shape[-1] // group
            apart, out = self._view(x, groups, group), self._tensor(*x.max_shape[:-1], groups)
            self.sums[x, group] = self.chain.node("aten.sum.dim_IntList", apart, (-1,), False, None, out)
        return self.sums[x, group]

    def _view(self, x: Any, *sizes: int) -> Any:
        rows = x.max_shape[0] if x.rank == 2 else x.max_shape[1]
        out = self._tensor(1, rows, *sizes)
        return self.chain.node("aten.view_copy.default", x, (1, self.length, *sizes), out)

    def _tensor(self, *shape: int) -> Any:
        return self.chain.tensor(shape, self.dtype)
