"""Kernels where nothing is contracted across operators that were fused: their bytes are those of the operators apart.

A driver may round a product and a sum once where both are in one kernel. Here every result goes through a zero that is
known at run time alone, as `kernels/pointwise_text.py` does it where more could be cancelled than a rounding. Rows of
the table of fusions that say `reorders` are left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

from liveshape.graph import Graph, Limits
from liveshape.graph.elements import is_complex
from liveshape.graph.expression import Expression, is_whole
from liveshape.kernels import composition, pointwise_kernel, pointwise_text, prologues
from liveshape.kernels.composition import Epilogue
from liveshape.kernels.prologues import Prologue
from liveshape.lower import fusion, q4_patterns
from liveshape.lower.def_use import DefUse
from liveshape.lower.pattern import Fusion
from liveshape.ops import pointwise

ANYWAY = -1  # no call: what a kernel computes before an expression, or reads behind one, is hidden by its zero
CACHED: tuple[Any, ...] = (pointwise_kernel.pointwise_kernel, composition.composed, prologues.loading)
CONVERSIONS = ("copy", "to_bool")
_FLOATS = ("float32", "float16", "bfloat16")


def every_result(expression: Expression) -> frozenset[int]:
    """All calls that give floats, but of a conversion alone: nothing is contracted with it.

    >>> from liveshape.graph.expression import Applied
    >>> calls = Applied("to_bool", (0,), "bool"), Applied("mul", (0, 0), "float32")
    >>> sorted(every_result(Expression(("float32",), (), calls)))
    [-1, 1]
    """
    if len(expression.calls) == 1 and expression.calls[0].function in CONVERSIONS:
        return frozenset()
    calls = enumerate(expression.calls)
    return frozenset({ANYWAY, *(n for n, call in calls if not is_whole(call.dtype) and not is_complex(call.dtype))})


_setter, _getter = Epilogue._setter, Prologue._getter


def _hiding_setter(self: Epilogue, *how: Any) -> list[str]:
    lines = _setter(self, *how)
    head = f"let {composition.EPILOGUE}computed = "
    assert lines[1].startswith(head)
    if self.computed in _FLOATS and every_result(self.expression):
        lines[1] = f"{head}hidden_from_algebra({lines[1][len(head) : -1]}, params.{composition.NUMBER}zero);"
    return lines


def _hiding_getter(self: Prologue, *how: Any) -> list[str]:
    lines = _getter(self, *how)
    place = next(place for place, line in enumerate(lines) if line.startswith("return "))
    element, value = lines[place].removeprefix("return ").removesuffix(");").split("(", 1)
    if self.expression.dtype in _FLOATS and every_result(self.expression):
        last = value.removesuffix(".x")
        seen = f"hidden_from_algebra({last}, params.{prologues.NUMBER}zero)"
        lines[place] = f"return {element}({seen}{value[len(last) :]});"
    return lines


_applied = fusion.applied


def _applied_in_order(row: Fusion, uses: DefUse, limits: Limits) -> Graph:
    return uses.graph if row.reorders else _applied(row, uses, limits)


@contextmanager
def nothing_contracted() -> Iterator[None]:
    """Every graph that is fused and every kernel that is generated within."""
    with ExitStack() as patches:
        for module in (pointwise_text, pointwise, q4_patterns):  # gates have no params: they are not composed
            patches.enter_context(mock.patch.object(module, "hidden", every_result))
        patches.enter_context(mock.patch.object(Epilogue, "_setter", _hiding_setter))
        patches.enter_context(mock.patch.object(Prologue, "_getter", _hiding_getter))
        patches.enter_context(mock.patch.object(fusion, "applied", _applied_in_order))
        _forget()
        yield
    _forget()


def _forget() -> None:
    for cached in CACHED:
        cached.cache_clear()
