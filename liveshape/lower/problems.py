"""What cannot run, told by operator: how often, why, and whether leaving it out of the delegate would help."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from liveshape import ops
from liveshape.errors import UnsupportedError
from liveshape.ops.registry import INTERNAL

_MAX_NODES, _MAX_REASONS = 3, 3  # that a line names
# Overloads whose out-variant is not called `<overload>_out`.
_OUT_OF = {"default": "out", "Tensor": "out", "dim": "out", "dim_IntList": "IntList_out"}


@dataclass(frozen=True)
class Problem:
    """Why a part of a program cannot run here; `operator` is empty where it is a tensor."""

    node: str
    operator: str
    reason: str

    def __str__(self) -> str:
        return f"{self.node}: {self.reason}"


@dataclass(frozen=True)
class MissingOperator:
    """All problems with one operator. `outside` says whether it would run outside of the delegate, None if that makes
    no difference: it is there already, or is no operator."""

    operator: str
    count: int
    reasons: tuple[str, ...]
    nodes: tuple[str, ...]
    outside: bool | None

    def __str__(self) -> str:
        reasons = _listed(self.reasons, _MAX_REASONS, "; ")
        if not self.operator:
            return f"{_listed(self.nodes, _MAX_NODES)}: {reasons}"
        nodes = [node.removeprefix(self.operator).strip(" ()") or node for node in self.nodes]
        text = f"{self.count} x {self.operator} ({_listed(nodes, _MAX_NODES)}): {reasons}"
        return f"{text}; {self.verdict}" if self.verdict else text

    @property
    def verdict(self) -> str:
        """What leaving it out of the delegate does, in words; what to do about one that is outside already."""
        if self.outside is None:
            unknown = "::" in self.operator and ops.callable_by_files(self.operator) is None
            return "compute it in your module by operators that `liveshape ops` lists" if unknown else ""
        if not self.outside:
            return "it would not run outside of the delegate either"
        blocked = f"VulkanPartitioner(operator_blocklist=[exir_ops.edge.{self.operator}])"
        return f"outside of the delegate it would run: export with {blocked}"


def by_operator(problems: Iterable[Problem]) -> list[MissingOperator]:
    """The problems of each operator as one, the most frequent first.

    Example: `[missing.count for missing in by_operator(problems)]`.
    """
    groups: dict[str, list[Problem]] = {}
    for problem in problems:
        # Tensors are told apart by what is wrong with them.
        groups.setdefault(problem.operator or f" {problem.reason}", []).append(problem)
    found = [
        MissingOperator(
            row[0].operator,
            len(row),
            tuple({_kind(problem.reason): problem.reason for problem in reversed(row)}.values())[::-1],
            tuple(dict.fromkeys(problem.node for problem in row)),
            _outside(row[0].operator),
        )
        for row in groups.values()
    ]
    return sorted(found, key=lambda missing: -missing.count)


def unsupported(name: str, problems: Sequence[Problem]) -> UnsupportedError:
    """The error for a method with these problems; its details have every node.

    Example: `raise unsupported("forward", problems)`.
    """
    lines = "\n  ".join(str(missing) for missing in by_operator(problems))
    parts = "1 part of it is" if len(problems) == 1 else f"{len(problems)} parts of it are"
    details = tuple((problem.node, problem.reason) for problem in problems)
    return UnsupportedError(f"{name} cannot run: {parts} not supported\n  {lines}", details)


def advice(dtype: str) -> str:
    """What to do about a dtype that no tensor can have here, as the end of a sentence.

    >>> advice("int16"), advice("quint4x2")
    ('; cast to int32 before export', '')
    """
    wide = {"complex32": "complex64", "complex128": "complex64"}
    if dtype in wide or dtype.startswith(("int", "uint", "float")):
        return f"; cast to {wide.get(dtype, 'float32' if dtype.startswith('float') else 'int32')} before export"
    return ""


def _outside(operator: str) -> bool | None:
    if "." not in operator or "::" in operator or operator.startswith(INTERNAL):
        return None
    # One generator serves both names: what it refuses within the delegate it refuses outside, too.
    return operator not in ops.OPS and portable_name(operator) is not None


def portable_name(operator: str) -> str | None:
    """The name that a program calls an operator of a delegate by where it is left outside, if that can run.

    >>> portable_name("aten.mm.default"), portable_name("aten.select_copy.int"), portable_name("et_vk.none.default")
    ('aten::mm.out', 'aten::select_copy.int_out', None)
    """
    namespace, _, rest = operator.partition(".")
    base, _, overload = rest.rpartition(".")
    if base.endswith("_"):
        names = [base if overload == "default" else rest]
    else:
        names = [f"{base}.{overload}_out", f"{base}.{_OUT_OF.get(overload, overload)}"]
    return next((name for each in names if ops.callable_by_files(name := f"{namespace}::{each}") is not None), None)


def _kind(reason: str) -> str:
    """What reasons have in common that differ in the numbers of nodes, values and sizes alone."""
    return re.sub(r"\d+", "", reason)


def _listed(items: Sequence[str], most: int, between: str = ", ") -> str:
    more = f"{between}and {len(items) - most} more" if len(items) > most else ""
    return between.join(items[:most]) + more
