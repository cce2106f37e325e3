"""A program as a plain description: what a graph is built from, what torch evaluates, and what a failure prints."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from liveshape.run.bfloat16 import rounded

Shape = tuple[int, ...]
JUMP = "liveshape.jump_false"


@dataclass(frozen=True)
class Ref:
    """A value of the program by its number."""

    number: int


@dataclass(frozen=True, eq=False)
class Value:
    """A tensor (its bound, then its shape in each call) or a scalar; `data` is one array, or one item per call."""

    role: str  # input, constant, state or result; of a scalar: given or scalar
    dtype: str  # "" for a scalar
    bound: Shape = ()
    data: Any = None
    exact: bool = True  # nothing on the way to it rounds, so that every implementation has the same


@dataclass(frozen=True)
class Call:
    """One node. The last argument is its output; `targets` are the values that it sets, in the reference's order."""

    operator: str
    args: tuple[Any, ...]
    targets: tuple[Ref, ...]


@dataclass(frozen=True, eq=False)
class Program:
    """Everything a run needs: a graph is built from it, and the inputs of every call are in it."""

    seed: int
    count: int  # calls in a row
    values: tuple[Value, ...]
    calls: tuple[Call, ...]
    outputs: tuple[Ref, ...]

    @property
    def inputs(self) -> list[Ref]:
        return [Ref(number) for number, value in enumerate(self.values) if value.role in ("input", "given")]

    @property
    def states(self) -> list[Ref]:
        return [Ref(number) for number, value in enumerate(self.values) if value.role == "state"]

    def given(self, turn: int) -> list[Any]:
        """The inputs of one call."""
        return [self.values[ref.number].data[turn] for ref in self.inputs]


def refs(argument: Any) -> Iterator[Ref]:
    """Every value that an argument names."""
    if isinstance(argument, Ref):
        yield argument
    elif isinstance(argument, tuple):
        for item in argument:
            yield from refs(item)


def listing(program: Program, shapes: dict[int, list[Any]] | None = None) -> str:
    """A line per value that has data and per node; `shapes` are live shapes or numbers of a value, call by call."""

    def show(argument: Any) -> str:
        if isinstance(argument, Ref):
            return f"%{argument.number}"
        if isinstance(argument, tuple):
            return f"({', '.join(show(item) for item in argument)})"
        return repr(argument)

    def live(ref: Ref) -> str:
        value = program.values[ref.number]
        seen = (shapes or {}).get(ref.number, [])
        return f"{show(ref)} {value.dtype}{value.bound if value.dtype else ''} live {' '.join(map(str, seen))}"

    lines = [f"seed {program.seed}, {program.count} calls"]
    used = {ref for call in program.calls for ref in refs(call.args)} | {*program.outputs}
    for number, value in enumerate(program.values):
        if value.role not in ("result", "scalar") and Ref(number) in used:
            lines.append(f"  {value.role} {live(Ref(number))}")
    for index, call in enumerate(program.calls):
        args = ", ".join(show(argument) for argument in call.args[:-1])
        lines.append(f"  {index:3} {call.operator}({args}) -> {'; '.join(live(ref) for ref in call.targets)}")
    return "\n".join([*lines, f"  outputs {show(program.outputs)}"])


def without(program: Program, dropped: set[int]) -> Program | None:
    """The program without some nodes; None where another node or an output still needs what they make."""
    kept = [index for index in range(len(program.calls)) if index not in dropped]
    places = {old: new for new, old in enumerate(kept)}
    known = {number for number, value in enumerate(program.values) if value.role != "result"}
    calls = []
    for index in kept:
        call = program.calls[index]
        if any(ref.number not in known for ref in refs(call.args[:-1])):
            return None
        if call.operator == JUMP:
            later = [place for old, place in places.items() if old >= call.args[1]]
            call = replace(call, args=(call.args[0], later[0] if later else len(kept), None))
        known.update(ref.number for ref in call.targets)
        calls.append(call)
    outputs = tuple(ref for ref in program.outputs if ref.number in known)
    return replace(program, calls=tuple(calls), outputs=outputs) if calls and outputs else None


def shrunk(program: Program, fails: Callable[[Program], bool], seconds: float = 30) -> Program:
    """A smaller program that fails as well: outputs and stretches of nodes go, the last ones first."""
    end = time.monotonic() + seconds
    for ref in dict.fromkeys(program.outputs):
        rest = tuple(other for other in program.outputs if other != ref)
        if rest and time.monotonic() < end and fails(replace(program, outputs=rest)):
            program = replace(program, outputs=rest)
    length = max(len(program.calls) // 2, 1)
    while length:
        stop = len(program.calls)
        while stop > 0 and time.monotonic() < end:
            smaller = without(program, set(range(max(stop - length, 0), stop)))
            if smaller is not None and fails(smaller):
                program = smaller
            stop -= length
        length //= 2
    return program


def random_array(generator: np.random.Generator, dtype: str, shape: Shape, low: float, high: float, whole: bool) -> Any:
    """Elements between two bounds, both within reach; whole numbers where nothing may round."""
    if dtype == "bool":
        return generator.integers(0, 2, shape).astype(bool)
    if dtype == "bfloat16":
        return rounded(random_array(generator, "float32", shape, low, high, whole))
    if whole or dtype.startswith("int"):
        return generator.integers(int(low), int(high) + 1, shape).astype(dtype)
    return generator.uniform(low, high, shape).astype(dtype)
