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
from liveshape.kernels import composition, pointwise_kernel, pointwise_text
from liveshape.kernels.pointwise_text import COMPUTED
from liveshape.lower import fusion, q4_patterns
from liveshape.lower.def_use import DefUse
from liveshape.lower.pattern import Fusion
from liveshape.ops import pointwise

CACHED: tuple[Any, ...] = (pointwise_kernel.pointwise_kernel, composition.composed)
EXACT = ("copy", "to_bool", "neg", "abs")  # round nothing, and what they are of is hidden


def every_result(expression: Expression, _: bool = False) -> frozenset[int]:
    """All calls that round to floats, and what a kernel computes before them: hidden twice by one zero, with only its
    sign changed between, is not hidden.

    >>> from liveshape.graph.expression import Applied
    >>> calls = Applied("to_bool", (0,), "bool"), Applied("mul", (0, 0), "float32"), Applied("copy", (2,), "float32")
    >>> sorted(every_result(Expression(("float32",), (), calls)))
    [-1, 1]
    """
    rounding = [(n, call.dtype) for n, call in enumerate(expression.calls) if call.function not in EXACT]
    found = frozenset(n for n, dtype in rounding if not is_whole(dtype) and not is_complex(dtype))
    return found | {COMPUTED} if rounding else found


_applied = fusion.applied


def _applied_in_order(row: Fusion, uses: DefUse, limits: Limits) -> Graph:
    return uses.graph if row.reorders else _applied(row, uses, limits)


@contextmanager
def nothing_contracted() -> Iterator[None]:
    """Every graph that is fused and every kernel that is generated within."""
    with ExitStack() as patches:
        for module in (
            pointwise_text,
            composition,
            pointwise,
            q4_patterns,
        ):  # gates have no params: they are not composed
            patches.enter_context(mock.patch.object(module, "hidden", every_result))
        patches.enter_context(mock.patch.object(fusion, "applied", _applied_in_order))
        _forget()
        yield
    _forget()


def _forget() -> None:
    for cached in CACHED:
        cached.cache_clear()
