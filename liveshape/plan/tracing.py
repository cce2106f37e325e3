"""Symbolic tracing of an operator: run once on integers that record their arithmetic, its plan is then replayed.

While shapes stay and only live integers move, an operator takes the same branches as long as every comparison that it
made (the guards) comes out the same. A trace is a function of those integers: guards first, then params and grid of
each step. Where a guard fails it gives None, and the operator is planned as ever.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from liveshape.kernels import Variant

Computed = tuple[tuple[bytes, tuple[int, int, int]], ...]  # params and grid of each step
Replay = Callable[..., Computed | None]


class Untraceable(Exception):
    """An operator did something with a live scalar that a trace cannot replay."""


class Trace:
    """The recorded arithmetic, as lines of a function."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._arguments: list[str] = []
        self._constants: dict[str, Any] = {}

    def argument(self, value: int) -> Symbol:
        """A live integer."""
        self._arguments.append(f"a{len(self._arguments)}")
        return Symbol(self, value, self._arguments[-1])

    def result(self, value: int, text: str) -> Symbol:
        """An integer that was computed from live ones."""
        name = f"v{len(self._lines)}"
        self._lines.append(f"{name} = {text}")
        return Symbol(self, value, name)

    def guard(self, outcome: bool, text: str) -> bool:
        """Record a guard: how a comparison came out."""
        self._lines.append(f"if {'not ' if outcome else ''}({text}): return None")
        return outcome

    def replay(self, steps: Sequence[tuple[Variant, Sequence[Any], Sequence[Any]]]) -> Replay:
        """The function, from the params and the grid of every step."""
        rows = []
        for place, (variant, params, grid) in enumerate(steps):
            self._constants[f"pack{place}"] = variant.kernel.layout.pack
            packed = f"pack{place}({', '.join(self._text(value) for value in params)})" if params else "b''"
            rows.append(f"({packed}, ({', '.join(self._text(value) for value in grid)}))")
        lines = [*self._lines, f"return ({''.join(row + ', ' for row in rows)})"]
        source = f"def replay({', '.join(self._arguments)}):\n" + "\n".join(f"    {line}" for line in lines)
        exec(source, self._constants)
        found: Replay = self._constants["replay"]
        return found

    def _text(self, value: Any) -> str:
        if isinstance(value, Symbol):
            return value.name
        name = f"c{len(self._constants)}"
        self._constants[name] = value
        return name


class Symbol:
    """A symbolic integer: it computes as its value does, and records each operation in the trace."""

    __slots__ = ("name", "trace", "value")
    __hash__ = None  # type: ignore[assignment]  # a table would keep what holds for this value alone

    def __init__(self, trace: Trace, value: int, name: str) -> None:
        self.trace, self.value, self.name = trace, value, name

    def _pair(self, other: Any) -> tuple[int, str]:
        if isinstance(other, Symbol):
            return other.value, other.name
        if isinstance(other, int):
            return int(other), repr(int(other))
        raise Untraceable(f"a live number and {other!r}")

    def __add__(self, other: Any) -> Symbol:
        value, name = self._pair(other)
        return self.trace.result(self.value + value, f"{self.name} + {name}")

    __radd__ = __add__

    def __mul__(self, other: Any) -> Symbol:
        value, name = self._pair(other)
        return self.trace.result(self.value * value, f"{self.name} * {name}")

    __rmul__ = __mul__

    def __sub__(self, other: Any) -> Symbol:
        value, name = self._pair(other)
        return self.trace.result(self.value - value, f"{self.name} - {name}")

    def __rsub__(self, other: Any) -> Symbol:
        value, name = self._pair(other)
        return self.trace.result(value - self.value, f"{name} - {self.name}")

    def __floordiv__(self, other: Any) -> Symbol:
        value, name = self._pair(other)
        return self.trace.result(self.value // value, f"{self.name} // {name}")

    def __rfloordiv__(self, other: Any) -> Symbol:
        value, name = self._pair(other)
        return self.trace.result(value // self.value, f"{name} // {self.name}")

    def __mod__(self, other: Any) -> Symbol:
        value, name = self._pair(other)
        return self.trace.result(self.value % value, f"{self.name} % {name}")

    def __rmod__(self, other: Any) -> Symbol:
        value, name = self._pair(other)
        return self.trace.result(value % self.value, f"{name} % {self.name}")

    def __neg__(self) -> Symbol:
        return self.trace.result(-self.value, f"-{self.name}")

    def __lt__(self, other: Any) -> bool:
        value, name = self._pair(other)
        return self.trace.guard(self.value < value, f"{self.name} < {name}")

    def __le__(self, other: Any) -> bool:
        value, name = self._pair(other)
        return self.trace.guard(self.value <= value, f"{self.name} <= {name}")

    def __gt__(self, other: Any) -> bool:
        value, name = self._pair(other)
        return self.trace.guard(self.value > value, f"{self.name} > {name}")

    def __ge__(self, other: Any) -> bool:
        value, name = self._pair(other)
        return self.trace.guard(self.value >= value, f"{self.name} >= {name}")

    def __eq__(self, other: object) -> bool:
        if other is None:
            return False
        value, name = self._pair(other)
        return self.trace.guard(self.value == value, f"{self.name} == {name}")

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __bool__(self) -> bool:
        return self.trace.guard(bool(self.value), self.name)

    def __index__(self) -> int:
        raise Untraceable("a live number as a count or an index of Python's own")

    def __float__(self) -> float:
        raise Untraceable("a live number as a float")
