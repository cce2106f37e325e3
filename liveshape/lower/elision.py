"""View elision, undone: a static view has no instruction, only the memory of its base.

Such a tensor is read but never written. Its base is the tensor that was last written to its place in the
exporter's memory plan before the first read, or a state or an input that lives there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from liveshape.formats import (
    DelegateCall,
    ExecutionPlan,
    IntListRef,
    JumpFalseCall,
    KernelCall,
    MoveCall,
    OptionalTensorListRef,
    TensorListRef,
    TensorSpec,
)
from liveshape.graph.elements import prod

Writes = Callable[[Any], Iterable[int]]


Views = dict[int, list[int]]  # by their base


def elided_views(plan: ExecutionPlan, writes: Writes) -> tuple[Views, Views]:
    """The views that no instruction makes: those of what is there when a call begins, and those of results.

    `writes` gives the ids that an instruction writes, lists resolved.
    """
    written = {index for instruction in plan.instructions for index in writes(instruction)}
    before: dict[Any, int] = {}  # place in memory -> the input or the state there, which comes before its views
    for index, spec in enumerate(plan.values):
        if isinstance(spec, TensorSpec) and spec.memory is not None:
            before.setdefault(_place(spec), index)
    latest: dict[Any, int] = {}  # place in memory -> the result that holds it now
    of_start: Views = {}
    of_results: Views = {}
    seen: set[int] = {*plan.inputs, *written}

    def visit(index: int) -> None:
        spec = plan.values[index]
        if isinstance(spec, TensorSpec) and spec.memory is not None and not spec.data_index and index not in seen:
            seen.add(index)
            place = _place(spec)
            if place in latest:
                of_results.setdefault(latest[place], []).append(index)
            elif before[place] != index:
                of_start.setdefault(before[place], []).append(index)

    for instruction in plan.instructions:
        for index in _resolved(plan, _arguments(instruction)):
            visit(index)
        for index in writes(instruction):
            spec = plan.values[index]
            if isinstance(spec, TensorSpec) and spec.memory is not None:
                latest[_place(spec)] = index
    for index in plan.outputs:
        visit(index)
    return of_start, of_results


def _place(spec: TensorSpec) -> tuple[Any, ...]:
    """Where a tensor lies; what starts at the same byte but is longer or of another type is not the same thing."""
    return spec.memory, spec.dtype, prod(spec.shape)


def _arguments(instruction: Any) -> tuple[int, ...]:
    if isinstance(instruction, (KernelCall, DelegateCall)):
        return tuple(instruction.args)
    if isinstance(instruction, MoveCall):
        return (instruction.source,)
    return (instruction.condition,) if isinstance(instruction, JumpFalseCall) else ()


def _resolved(plan: ExecutionPlan, indices: Iterable[int]) -> Iterable[int]:
    for index in indices:
        spec = plan.values[index]
        if isinstance(spec, (IntListRef, TensorListRef, OptionalTensorListRef)):
            yield from (item for item in spec.ids if item >= 0)
        else:
            yield index
