"""A program in the making: what is known of every value, so that each new node is one that torch accepts.

Every value has its shape at the bound and in each call that will be made; operators are tried on zeros of all of these
shapes, which tells the shapes of what they make, and whether they fit at all.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from tests.graphs.program import JUMP, Call, Program, Ref, Shape, Value, random_array
from tests.graphs.semantics import MEANING

MOST_ELEMENTS = 9000
MOST_RANK = 5
LARGE = 30.0  # numbers above this are brought down before they are used again
WHOLE = float(1 << 20)  # up to here sums and products of whole floats stay exact
SIZES = (1, 2, 3, 5, 7, 11, 16, 17, 29, 31)
_WHOLE_IN = {"float16": 2048, "bfloat16": 256}  # up to here whole numbers are exact
_WIDE = {"bfloat16": torch.float64, "float32": torch.float64, "float16": torch.float64, "bool": torch.bool}


@dataclass
class Known:
    """What is known of a tensor: its shape at the bound and in every call, and between what its elements lie."""

    role: str
    dtype: str
    shapes: list[Shape]
    exact: bool
    low: float
    high: float
    data: Any = None

    @property
    def bound(self) -> Shape:
        return self.shapes[0]

    @property
    def rank(self) -> int:
        return len(self.shapes[0])

    @property
    def span(self) -> float:
        return max(abs(self.low), abs(self.high))

    @property
    def floating(self) -> bool:
        return "float" in self.dtype

    def least(self, axis: int) -> int:
        """The smallest live size of a dimension."""
        return min(shape[axis] for shape in self.shapes)

    def steady(self, axis: int) -> bool:
        """Whether a dimension never moves."""
        return len({shape[axis] for shape in self.shapes}) == 1


@dataclass
class Number:
    """What is known of a live scalar: its value at the build and in every call, or only its range."""

    role: str
    values: list[Any] | None
    low: int
    high: int


class Writer:
    """Adds nodes to a program; `pool` are the tensors and `scalars` the live scalars that a node may use."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.chance = random.Random(seed)
        self.stateful = self.chance.random() < 0.6  # may keep something from call to call
        self.generator = np.random.default_rng(seed)
        self.count = self.chance.choice((4, 4, 5, 6))
        self.known: list[Known | Number] = []
        self.calls: list[Call] = []
        self.pool: list[Ref] = []
        self.scalars: list[Ref] = []
        self.depth = 0  # of branches and loops around the next node
        self.symbols = {"S": self._sizes((17, 29, 43)), "T": self._sizes((5, 9, 12))}

    def _sizes(self, bounds: tuple[int, ...]) -> list[int]:
        bound = self.chance.choice(bounds)
        allowed = [size for size in (*SIZES, bound - 1, bound) if size <= bound]
        return [bound, *(self.chance.choice(allowed) for _ in range(self.count))]

    def __getitem__(self, ref: Ref) -> Any:
        return self.known[ref.number]

    def keep(self, value: Known | Number) -> Ref:
        self.known.append(value)
        return Ref(len(self.known) - 1)

    # Values

    def shapes(self, *sizes: int | str) -> list[Shape]:
        """A shape with symbols in it, at the bound and in every call."""
        return [
            tuple(self.symbols[size][turn] if isinstance(size, str) else size for size in sizes)
            for turn in range(self.count + 1)
        ]

    def input(
        self, shapes: list[Shape], dtype: str = "float32", low: float = -2, high: float = 2, exact: bool = False
    ) -> Ref:
        """A new input of the program, with its data for every call."""
        exact = exact or "float" not in dtype
        draws = [random_array(self.generator, dtype, shape, low, high, exact) for shape in shapes[1:]]
        ref = self.keep(Known("input", dtype, shapes, exact, low, high, draws))
        if self.depth == 0:
            self.pool.append(ref)
        return ref

    def constant(
        self, shape: Shape, dtype: str = "float32", low: float = -1, high: float = 1, exact: bool = False
    ) -> Ref:
        """A constant; now and then one that the program has already."""
        like = [
            Ref(number)
            for number, known in enumerate(self.known)
            if isinstance(known, Known)
            and known.role == "constant"
            and (known.dtype, known.bound, known.low, known.high, known.exact) == (dtype, shape, low, high, exact)
        ]
        if like and self.chance.random() < 0.5:
            return self.chance.choice(like)
        return self.held(random_array(self.generator, dtype, shape, low, high, exact), low, high, exact)

    def held(self, array: Any, low: float, high: float, exact: bool, role: str = "constant") -> Ref:
        """A constant or a state that begins with these elements."""
        shapes = [tuple(array.shape)] * (self.count + 1)
        return self.keep(Known(role, str(array.dtype), shapes, exact, low, high, array))

    def number(self, values: list[Any] | None, low: int = 0, high: int = 0, role: str = "scalar") -> Ref:
        """A live scalar that a node sets, or that the caller gives."""
        ref = self.keep(Number(role, values, min(values) if values else low, max(values) if values else high))
        self.scalars.append(ref)
        return ref

    def choose(self, test: Any = None, among: list[Ref] | None = None) -> Ref | None:
        """A tensor that fits, late ones more likely than early ones."""
        fitting = [ref for ref in (self.pool if among is None else among) if test is None or test(self[ref])]
        if not fitting:
            return None
        late = fitting[-6:] if self.chance.random() < 0.7 else fitting
        return self.chance.choice(late)

    # Nodes

    def emit(
        self,
        operator: str,
        *args: Any,
        dtype: str | tuple[str, ...] = "",
        low: float = -1,
        high: float = 1,
        exact: bool = False,
        into: tuple[Ref, ...] = (),
        also: tuple[Ref, ...] = (),
        shown: bool = True,
        shapes: list[Shape] | None = None,
    ) -> Any:
        """Add a node with new outputs, or with given ones; None where torch has no answer for these shapes.

        `also` are values that it writes beside its outputs; `shown` puts what it makes among what others may use.
        Where the data decides the shape of its output, `shapes` says it.
        """
        found = self._shapes(operator, args) if shapes is None else [shapes]
        if found is None:
            return None
        dtypes = (dtype,) if isinstance(dtype, str) else dtype
        exact = exact and max(abs(low), abs(high)) <= min(_WHOLE_IN.get(kind, math.inf) for kind in dtypes)
        if into:
            if not all(self._fits(self[ref], rows) for ref, rows in zip(into, found, strict=False)):
                return None
            for ref, rows in zip(into, found, strict=False):
                known = self[ref]
                known.shapes[1:] = rows[1:]
                known.exact = known.exact and exact
                known.low, known.high = min(known.low, low), max(known.high, high)
        else:
            sizes = [np.prod(row) for rows in found for row in rows]
            if max(sizes) > MOST_ELEMENTS or min(sizes) < 1 or any(len(rows[0]) > MOST_RANK for rows in found):
                return None
            into = tuple(
                self.keep(Known("result", kind, rows, exact or "float" not in kind, low, high))
                for kind, rows in zip(dtypes, found, strict=False)
            )
            if shown:
                self.pool += into
        output: Any = into[0] if isinstance(dtype, str) else into
        self.calls.append(Call(operator, (*args, output), (*into, *also)))
        return output

    def mutate(self, operator: str, target: Ref, *args: Any, place: int = 0) -> bool:
        """Add a node that writes a tensor in place and gives it back."""
        full = (*args[:place], target, *args[place:])
        if self._shapes(operator, full) is None:
            return False
        self.calls.append(Call(operator, (*full, target), (target,)))
        return True

    def set(self, operator: str, *args: Any, low: int = 0, high: int = 0, known: bool = True) -> Ref:
        """Add a node that sets a live scalar."""
        numbers = [self[arg] for arg in args if self._live(arg)]
        values = None
        if known and all(number.values is not None for number in numbers):
            values = [MEANING[operator](*(self._at(arg, turn) for arg in args)) for turn in range(self.count + 1)]
        ref = self.number(values, low, high)
        self.calls.append(Call(operator, (*args, ref), (ref,)))
        return ref

    def call(self, operator: str, args: tuple[Any, ...], targets: tuple[Ref, ...]) -> None:
        """Add a node whose shapes are known."""
        self.calls.append(Call(operator, args, targets))

    def join(self, one: Known, other: Known, shapes: list[Shape]) -> Ref:
        """A tensor that either of two may end in."""
        low, high = min(one.low, other.low), max(one.high, other.high)
        return self.keep(Known("result", one.dtype, shapes, one.exact and other.exact, low, high))

    def unwritten(self, shape: Shape) -> Ref:
        """A result without meaning, of one element, as some operators have it."""
        return self.keep(Known("result", "float32", [shape] * (self.count + 1), True, 0, 0))

    def jump(self, condition: Any, target: int) -> int:
        """Add a jump; where it goes can be said later by `land`."""
        self.calls.append(Call(JUMP, (condition, target, None), ()))
        return len(self.calls) - 1

    def land(self, jump: int) -> None:
        """Let a jump go to the next node."""
        condition, _, _ = self.calls[jump].args
        self.calls[jump] = Call(JUMP, (condition, len(self.calls), None), ())

    def _fits(self, target: Known, rows: list[Shape]) -> bool:
        return all(
            len(row) == target.rank and all(size <= most for size, most in zip(row, target.bound, strict=True))
            for row in rows
        )

    def _shapes(self, operator: str, args: tuple[Any, ...]) -> list[list[Shape]] | None:
        """The shapes of every output, at the bound first: the largest sizes where a live scalar decides."""
        found: list[list[Shape]] = []
        for turn in range(self.count + 1):
            try:
                result = MEANING[operator](*(self._at(arg, turn) for arg in args))
            except (RuntimeError, IndexError, ValueError, TypeError):
                if turn or not self._live(args):
                    return None
                found.append([])
                continue
            results = result if isinstance(result, tuple | list) else (result,)
            found.append([tuple(each.shape) for each in results])
        columns = [list(column) for column in zip(*(rows for rows in found if rows), strict=True)]
        for column in columns:
            bound = tuple(max(sizes) for sizes in zip(*column, strict=True))
            column[: len(column) - self.count] = [bound]
        return columns

    def _live(self, argument: Any) -> bool:
        if isinstance(argument, tuple):
            return any(self._live(item) for item in argument)
        return isinstance(argument, Ref) and isinstance(self[argument], Number)

    def _at(self, argument: Any, turn: int) -> Any:
        if isinstance(argument, tuple):
            return tuple(self._at(item, turn) for item in argument)
        if not isinstance(argument, Ref):
            return argument
        known = self[argument]
        if isinstance(known, Number):
            return known.low if known.values is None else known.values[turn]
        return torch.zeros((), dtype=_WIDE.get(known.dtype, torch.int64)).expand(known.shapes[turn])

    # The end

    def program(self, outputs: list[Ref]) -> Program:
        values = []
        for known in self.known:
            if isinstance(known, Number):
                data = known.values[1:] if known.role == "given" and known.values else None
                values.append(Value(known.role, "", (), data))
            else:
                values.append(Value(known.role, known.dtype, known.bound, known.data, known.exact))
        return Program(self.seed, self.count, tuple(values), tuple(self.calls), tuple(outputs))
