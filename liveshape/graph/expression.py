"""Pointwise arithmetic as a value: functions of `kernels/pointwise_table.py`, called one after the other.

A value of an expression is an operand, a number or what a call gave, and is told by its place: operands come first,
then numbers, then calls. Every call says the dtype that the file has for its result, which it is rounded to; `EXACT`
ones are steps of one operator and rounded by nobody.
"""

from __future__ import annotations

from collections.abc import Sequence
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

    >>> half = Expression(("float32",), ("float32",), (Applied("mul", (0, 1), "float32"),))
    >>> half.dtype, half.functions
    ('float32', ('mul',))
    """

    operands: tuple[str, ...]
    numbers: tuple[str, ...]
    calls: tuple[Applied, ...]

    def __str__(self) -> str:
        """As a person writes it: operands are x0, x1 and so on, numbers n0, values that are read twice v0.

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
            if sum(other.arguments.count(len(texts)) for other in self.calls) > 1:
                lines.append(f"v{place} = {text}")
                text = f"v{place}"
            texts.append(text)
        return "; ".join([*lines, texts[-1]])

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

    def after(self, inner: Expression, operand: int) -> Expression:
        """This expression of the result of another one, in the place of an operand.

        Its operands are those of `inner` and then its own without that one; its numbers likewise.

        >>> twice = Expression(("float32",), (), (Applied("add", (0, 0), "float32"),))
        >>> [call.arguments for call in twice.after(twice, 0).calls]
        [(0, 0), (1, 1)]
        """
        own = [place for place in range(len(self.operands)) if place != operand]
        operands = (*inner.operands, *(self.operands[place] for place in own))
        numbers = (*inner.numbers, *self.numbers)
        given = len(operands) + len(numbers)
        inside: dict[int, int] = {place: place for place in range(len(inner.operands))}
        inside |= {len(inner.operands) + place: len(operands) + place for place in range(len(inner.numbers))}
        before = len(inner.operands) + len(inner.numbers)
        inside |= {before + place: given + place for place in range(len(inner.calls))}
        outside = {place: len(inner.operands) + position for position, place in enumerate(own)}
        outside[operand] = given + len(inner.calls) - 1
        first = len(operands) + len(inner.numbers)
        outside |= {len(self.operands) + place: first + place for place in range(len(self.numbers))}
        before = len(self.operands) + len(self.numbers)
        outside |= {before + place: given + len(inner.calls) + place for place in range(len(self.calls))}
        calls = (*_moved(inner.calls, inside), *_moved(self.calls, outside))
        return Expression(operands, numbers, calls)

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
        return replace(self, operands=operands, calls=tuple(_moved(self.calls, places)))

    def merged(self, operand: int, same: int) -> Expression:
        """This expression where one operand is another one, which comes before it.

        >>> product = Expression(("float32", "float32"), (), (Applied("mul", (0, 1), "float32"),))
        >>> product.merged(1, 0).calls
        (Applied(function='mul', arguments=(0, 0), dtype='float32'),)
        """
        count = len(self.operands) + len(self.numbers) + len(self.calls)
        places = {place: same if place == operand else place - (place > operand) for place in range(count)}
        operands = self.operands[:operand] + self.operands[operand + 1 :]
        return replace(self, operands=operands, calls=tuple(_moved(self.calls, places)))


def _moved(calls: Sequence[Applied], places: dict[int, int]) -> list[Applied]:
    return [replace(call, arguments=tuple(places[place] for place in call.arguments)) for call in calls]
