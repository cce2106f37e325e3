"""What a dispatch takes by a roofline: a fixed part, and bytes or arithmetic, whichever takes longer.

Peaks are those of the class of a device, a GPU or a software adapter, so that the same file is planned alike on every
device of one. Only how they relate to each other decides, and that differs less between GPUs than the peaks do.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache

from liveshape.graph import Limits
from liveshape.graph.expression import Expression, is_whole
from liveshape.kernels.function_library import definitions
from liveshape.kernels.pointwise_table import FUNCTIONS

_TYPES = re.compile(r"->|//.*|\b(?:vec[234]|mat2x4|bitcast)(?:<\w+>)?|<\w+>")
_OPERATOR = re.compile(r"[-+*/%&|^~]|<[<=]?|>[>=]?|[=!]=")
_CALL = re.compile(r"\b([a-z]\w*)\(")
_DECLARED = re.compile(r"^(?:fn|const|struct|alias|var<private>)\s+(\w+)")


@dataclass(frozen=True)
class Cost:
    """Bytes read and written, and operations."""

    read: int = 0
    written: int = 0
    operations: int = 0

    def __add__(self, other: Cost) -> Cost:
        return Cost(self.read + other.read, self.written + other.written, self.operations + other.operations)

    @property
    def nbytes(self) -> int:
        """Read and written."""
        return self.read + self.written


@dataclass(frozen=True)
class Peaks:
    """Bytes and operations per second, bytes that many workgroups read again, and the seconds of an empty dispatch."""

    memory: float
    again: float
    operations: float
    dispatch: float


# An H200, by `liveshape devices --measure` and bench/gemv.py: 61.9 Tflop/s are half as many instructions.
_GPU = Peaks(memory=3.9e12, again=6.8e12, operations=31e12, dispatch=2.5e-6)
# Two threads of llvmpipe, by the same: caches are where it reads anyway.
_SOFTWARE = Peaks(memory=2.4e9, again=2.4e9, operations=7e9, dispatch=50e-6)


def peaks_of(limits: Limits) -> Peaks:
    """The peaks of the class of a device with these limits.

    >>> peaks_of(Limits()).memory > peaks_of(Limits(max_cooperating_threads=4)).memory
    True
    """
    return _GPU if limits.has_many_threads else _SOFTWARE


def seconds(dispatches: Iterable[Cost], peaks: Peaks) -> float:
    """What dispatches one after the other take.

    >>> peaks = Peaks(memory=100.0, again=100.0, operations=10.0, dispatch=1.0)
    >>> seconds([Cost(read=100, written=100), Cost(written=100, operations=50)], peaks)
    9.0
    """
    return sum(
        peaks.dispatch + max(each.nbytes / peaks.memory, each.operations / peaks.operations) for each in dispatches
    )


@cache
def operations_of(expression: Expression) -> int:
    """The operations of an element of an expression, as its text has them: each loop of the library counts once.

    >>> from liveshape.graph.expression import Applied
    >>> [operations_of(Expression(("float32",), (), (Applied(name, (0,), "float32"),))) for name in ("neg", "exp")]
    [1, 46]
    """
    found = 0
    for call in expression.calls:
        function = FUNCTIONS[call.function]
        whole = function.of_wholes([is_whole(expression.dtype_of(place)) for place in call.arguments], call.dtype)
        text = function.wholes if whole else function.floats or function.complexes
        found += _operations(text or "")
    return found


@cache
def _operations(text: str) -> int:
    """The operators and built-in functions of a text, and those of the functions of the library that it calls."""
    declared = _DECLARED.match(text)
    text = _TYPES.sub("", text[declared.end() :] if declared else text)
    library = definitions()
    called = _CALL.findall(text)
    return len(_OPERATOR.findall(text)) + sum(_operations(library[name]) if name in library else 1 for name in called)
