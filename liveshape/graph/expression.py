"""Pointwise arithmetic as a value: functions of `kernels/pointwise_table.py`, called one after the other.

A value of an expression is an operand, a number or what a call gave, and is told by its place: operands come first,
then numbers, then calls. Every call says the dtype that the file has for its result, which it is rounded to; `EXACT`
ones are steps of one operator and rounded by nobody. The last call is the result; other values that somebody reads are
stored beside it.
"""

from __future__ import annotations

from dataclasses import dataclass

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
