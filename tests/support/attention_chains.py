"""Attention that is being spelled: what an exporter writes is a chain of nodes, of queries and of keys and values.

`attention_spellings.py` has the spellings.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from liveshape.graph import Tensor
from tests.support.movements import Movements

BATCH, ROWS, KEYS, HEADS = 3, 21, 13, 4
CALLS = ((3, 21, 13), (1, 1, 1), (2, 5, 13), (3, 2, 7), (1, 21, 1))  # batch, rows and keys
INFINITE = float("-inf")
WINDOWS, WINDOW_HEADS = 2, 2  # together the heads of the golden


@dataclass(frozen=True)
class Spelling:
    """How attention is written. `write` gets the chain with its operands, and gives the result (batch, rows, width)."""

    source: str
    write: Callable[[Spelled], Tensor]
    mask: tuple[
        str, ...
    ] = ()  # dimensions of a mask, by letters of batch, heads, rows and keys; 1 where it is repeated
    dtype: str = "float32"  # of the mask
    nan: bool = False  # what a row gives that sees nothing
    masked: float = INFINITE
    scale: float | None = None
    key_heads: int = HEADS
    size: int = 8
    value_size: int = 0  # another one than that of the keys
    bias: tuple[str, ...] = ()  # dimensions of what is added to the scores beside a mask
    itself: bool = False  # attention of rows to the rows themselves, from one fused projection
    floats: str = "float32"
    batch: int = BATCH
    causal: bool = False


class Spelled(Movements):
    """Queries x, and keys and values of a second input."""

    def __init__(self, case: Spelling) -> None:
        super().__init__()
        self.case, self.size, self.scale = case, case.size, case.size**-0.5
        self.value_size = case.value_size or case.size
        width = HEADS * case.size
        widths = [3 * width] if case.itself else [width, case.key_heads * case.size, case.key_heads * self.value_size]
        self.x, (self.batch, self.rows) = self.live((case.batch, ROWS, widths[0]), 2, case.floats)
        self.keys = self.rows
        self.operands = [self.x]
        if not case.itself:
            memory, (_, self.keys) = self.live((case.batch, KEYS, widths[1]), 2, case.floats)
            self.operands += [memory, self.input((case.batch, KEYS, widths[2]), case.floats)]
        letters = {
            "b": case.batch,
            "h": HEADS,
            "u": case.batch * HEADS,
            "r": ROWS,
            "k": ROWS if case.itself else KEYS,
            "w": WINDOWS,
            "g": WINDOW_HEADS,
            "1": 1,
        }
        self.mask: Any = None
        if case.mask:
            self.mask = self.input(tuple(letters[letter] for letter in case.mask), case.dtype)
        self.bias = self.input(tuple(letters[letter] for letter in case.bias)) if case.bias else None
        self.units = self.times(self.batch, HEADS)

    def split(self, place: int, heads: int = HEADS) -> Tensor:
        """An operand as (batch, heads, rows, size)."""
        rows, size = self.keys if place else self.rows, self.value_size if place == 2 else self.size
        return self.permute(self.view(self.operands[place], self.batch, rows, heads, size), 0, 2, 1, 3)

    def together(self, x: Tensor, *last: Any) -> Tensor:
        """Batches and heads as one dimension."""
        return self.view(x, self.units, *last)

    def scaled(self, x: Tensor, factor: float, operator: str = "aten::mul.Scalar_out") -> Tensor:
        return self.broadcast(operator, x, factor)

    def softmax(self, scores: Tensor) -> Tensor:
        return self.node("aten._softmax.default", scores, -1, False, self.tensor(scores.max_shape, scores.dtype))

    def guarded(self, scores: Tensor) -> Tensor:
        """torch's _safe_softmax, as it is decomposed."""
        shares = self.softmax(scores)
        infinite = self.node("aten.eq.Scalar", scores, INFINITE, self.tensor(scores.max_shape, "bool"))
        seen = self.node("aten.logical_not.default", infinite, self.tensor(scores.max_shape, "bool"))
        column = (*scores.max_shape[:-1], 1)
        any_seen = self.node("aten::any.out", seen, (-1,), True, self.tensor(column, "bool"))
        filled = self.tensor(shares.max_shape, shares.dtype)
        zeros = self.node("aten.full_like.default", shares, 0, None, None, None, False, None, filled)
        unseen = self.node("aten.logical_not.default", any_seen, self.tensor(column, "bool"))
        return self.broadcast("aten.where.self", unseen, zeros, shares)

    def merged(self, x: Tensor) -> Tensor:
        """(units, rows, size) as (batch, rows, width)."""
        heads = self.permute(self.view(x, self.batch, HEADS, self.rows, self.value_size), 0, 2, 1, 3)
        return self.view(heads, self.batch, self.rows, HEADS * self.value_size)

    def scores(self, q: Tensor, k: Tensor) -> Tensor:
        """(batch, heads, rows, keys) of (batch, heads, rows, size) and (batch, heads, size, keys), as matmul is."""
        left = self.together(self.expand(q, self.batch, HEADS, self.rows, self.size), self.rows, self.size)
        right = self.together(self.expand(k, self.batch, HEADS, self.size, self.keys), self.size, self.keys)
        return self.view(self.product(left, right), self.batch, HEADS, self.rows, self.keys)

    def mixed(self, shares: Tensor, v: Tensor) -> Tensor:
        left = self.together(self.expand(shares, self.batch, HEADS, self.rows, self.keys), self.rows, self.keys)
        size = self.value_size
        right = self.together(self.expand(v, self.batch, HEADS, self.keys, size), self.keys, size)
        return self.product(left, right)

    def repeated(self, x: Tensor) -> Tensor:
        """transformers' repeat_kv."""
        group, size = HEADS // self.case.key_heads, x.max_shape[-1]
        spread = self.expand(self.unsqueeze(x, 2), self.batch, self.case.key_heads, group, self.keys, size)
        return self.view(spread, self.batch, HEADS, self.keys, size)

    def cast(self, x: Tensor, dtype: str) -> Tensor:
        given = (x, None, None, None, None, False, None)
        return self.node("aten._to_copy.default", *given, self.tensor(x.max_shape, dtype))


def drawn(case: Spelling, generator: np.random.Generator, batch: int, rows: int, keys: int) -> list[Any]:
    """Inputs of a call; now and then a row sees nothing."""
    width = HEADS * case.size
    if case.itself:
        arrays = [generator.standard_normal((batch, rows, 3 * width))]
    else:
        own, values = (case.key_heads * size for size in (case.size, case.value_size or case.size))
        shapes = (batch, rows, width), (batch, keys, own), (batch, keys, values)
        arrays = [generator.standard_normal(shape) for shape in shapes]
    found = [array.astype(case.floats) for array in arrays]
    if case.mask:
        letters = {
            "b": batch,
            "h": HEADS,
            "u": batch * HEADS,
            "r": rows,
            "k": keys,
            "w": WINDOWS,
            "g": WINDOW_HEADS,
            "1": 1,
        }
        shape = tuple(letters[letter] for letter in case.mask)
        hidden = (generator.random(shape) < 0.4) | (generator.random((*shape[:-1], 1)) < 0.3)
        if case.dtype == "bool":
            found.append(hidden)
        else:
            found.append(np.where(hidden, INFINITE, generator.standard_normal(shape)).astype(case.dtype))
        if case.bias:
            shape = tuple(letters[letter] for letter in case.bias)
            found.append(generator.standard_normal(shape).astype("float32"))
    return found
