"""Pointwise arithmetic as a value: functions of `kernels/pointwise_table.py`, called one after the other.

A value of an expression is an operand, a number or what a call gave, and is told by its place: operands come first,
then numbers, then calls. Every call says the dtype that the file has for its result, which it is rounded to; `EXACT`
ones are steps of one operator and rounded by nobody. The last call is the result; other values that somebody reads are
stored beside it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

EXACT = {"float": "float32", "whole": "int32"}
_WHOLE = frozenset({"int32", "int64", "bool", "int8", "uint8"})


def is_whole(dtype: str) -> bool:
    """Whether values of a dtype are computed in i32.

    >>> is_whole("bool"), is_whole("float16")
    (True, False)
    """
    return dtype in _WHOLE


@dataclass(frozen=True)
class Applied:
    """A function of the table, the places of its arguments, and the dtype of its result."""

    function: str
    arguments: tuple[int, ...]
    dtype: str


@dataclass(frozen=True)
class Expression:
    """Calls over operands of these dtypes and over numbers, float32 or int32; the last call is the result.

    `kept` are the places of further values that are stored, operands or calls before the last.

    >>> half = Expression(("float32",), ("float32",), (Applied("mul", (0, 1), "float32"),))
    >>> half.dtype, half.functions
    ('float32', ('mul',))
    """

    operands: tuple[str, ...]
    numbers: tuple[str, ...]
    calls: tuple[Applied, ...]
    kept: tuple[int, ...] = ()

    def __str__(self) -> str:
        """As a person writes it: operands are x0, x1 and so on, numbers n0, values that are read twice or kept v0.

        >>> calls = Applied("add", (0, 1), "float32"), Applied("mul", (2, 2), "float32")
        >>> str(Expression(("float32",), ("float32",), calls))
        'v0 = add(x0, n0); mul(v0, v0)'
        """
        texts = [f"x{place}" for place in range(len(self.operands))] + [
            f"n{place}" for place in range(len(self.numbers))
        ]
        lines = []
        for place, call in enumerate(self.calls):
            text = f"{call.function}({', '.join(texts[each] for each in call.arguments)})"
            if sum(other.arguments.count(len(texts)) for other in self.calls) + self.kept.count(len(texts)) > 1:
                lines.append(f"v{place} = {text}")
                text = f"v{place}"
            texts.append(text)
        return "; ".join([*lines, ", ".join([texts[-1], *(texts[place] for place in self.kept)])])

    @property
    def dtype(self) -> str:
        """That of the result."""
        return self.calls[-1].dtype

    @property
    def functions(self) -> tuple[str, ...]:
        """The functions that it calls, in order."""
        return tuple(call.function for call in self.calls)

    def dtype_of(self, place: int) -> str:
        """The dtype of a value."""
        given = (*self.operands, *self.numbers)
        return given[place] if place < len(given) else self.calls[place - len(given)].dtype

    @property
    def results(self) -> tuple[int, ...]:
        """The places of all values that are stored: the last call, and what is kept."""
        return (len(self.operands) + len(self.numbers) + len(self.calls) - 1, *self.kept)

    def after(self, inner: Expression, values: Mapping[int, int], *, keeps: bool = False) -> Expression:
        """This expression where operands are values of another one: the place of each there, by the operand.

        Its operands are those of `inner` and then its own without these; its numbers likewise. It keeps what it kept,
        then the result of `inner` if it `keeps` that, and what `inner` kept.

        >>> twice = Expression(("float32",), (), (Applied("add", (0, 0), "float32"),))
        >>> [call.arguments for call in twice.after(twice, {0: 1}).calls]
        [(0, 0), (1, 1)]
        >>> str(twice.after(twice, {0: 1}, keeps=True))
        'v0 = add(x0, x0); add(v0, v0), v0'
        """
        own = [place for place in range(len(self.operands)) if place not in values]
        operands = (*inner.operands, *(self.operands[place] for place in own))
        given = len(operands) + len(inner.numbers) + len(self.numbers)
        inside = _places(inner, range(len(inner.operands)), len(operands), given)
        outside = dict(zip(own, range(len(inner.operands), len(operands)), strict=True))
        outside |= {operand: inside[place] for operand, place in values.items()}
        ordered = [outside[place] for place in range(len(self.operands))]
        outside = _places(self, ordered, len(operands) + len(inner.numbers), given + len(inner.calls))
        calls = (*_moved(inner.calls, inside), *_moved(self.calls, outside))
        stored = inner.results if keeps else inner.kept
        kept = (*(outside[place] for place in self.kept), *(inside[place] for place in stored))
        return Expression(operands, (*inner.numbers, *self.numbers), calls, kept)

    def reordered(self, order: Sequence[int]) -> Expression:
        """This expression with its operands in another order.

        >>> ratio = Expression(("float32", "int32"), (), (Applied("div", (0, 1), "float32"),))
        >>> ratio.reordered((1, 0)).calls
        (Applied(function='div', arguments=(1, 0), dtype='float32'),)
        """
        places = {place: position for position, place in enumerate(order)}
        count = len(self.operands) + len(self.numbers) + len(self.calls)
        places |= {place: place for place in range(len(self.operands), count)}
        operands = tuple(self.operands[place] for place in order)
        kept = tuple(places[place] for place in self.kept)
        return replace(self, operands=operands, calls=tuple(_moved(self.calls, places)), kept=kept)


def _places(expression: Expression, operands: Sequence[int], numbers: int, calls: int) -> dict[int, int]:
    """Where the values of an expression are in a longer one: its operands, and from where on its numbers and calls."""
    places = dict(enumerate(operands))
    places |= {len(places) + place: numbers + place for place in range(len(expression.numbers))}
    return places | {len(places) + place: calls + place for place in range(len(expression.calls))}


def _moved(calls: Sequence[Applied], places: dict[int, int]) -> list[Applied]:
    return [replace(call, arguments=tuple(places[place] for place in call.arguments)) for call in calls]
