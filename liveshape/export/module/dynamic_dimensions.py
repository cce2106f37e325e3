"""The legal sizes of a program before and after it is lowered: none may be lost without an error."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

import sympy
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.utils._sympy.value_ranges import bound_sympy

from liveshape.errors import UnsupportedError
from liveshape.export.module.size_decisions import shape_env_of
from liveshape.formats.signature import MAX_SIZE, Signature

_LEAST = 2  # torch traces as if no size were below this
_TRIED = 1000  # combinations of sizes that a condition is tried with


@dataclass(frozen=True)
class DynamicDimension:
    """A dimension of an input with its legal sizes, as declared and as torch bounds them."""

    input: str
    axis: int
    name: str  # of its torch.export.Dim
    declared: tuple[int, int]
    bounds: tuple[int, int]

    def __str__(self) -> str:
        return f"{self.name} (dimension {self.axis} of {self.input})"


@dataclass(frozen=True)
class LegalSizes:
    """What `legal_sizes` found before a program is lowered."""

    shape_env: ShapeEnv | None
    dimensions: tuple[DynamicDimension, ...]
    names: Mapping[Any, str]  # of symbols
    ranges: Mapping[Any, tuple[int, int]]  # of symbols
    guards: int

    def refuse_lost(self, lowered: Any) -> None:
        """Raise UnsupportedError if lowering fixed or narrowed a dimension, or decided on a size that is one of many.

        Example: `legal_sizes(program, signature).refuse_lost(edge.exported_program())`.
        """
        if self.shape_env is None:
            return
        conditions = [guard for guard in self.shape_env.guards[self.guards :] if guard.expr.free_symbols]
        self._refuse_conditions([guard for guard in conditions if len(guard.expr.free_symbols) > 1])
        values = {node.name: node.meta.get("val") for node in lowered.graph.nodes if node.op == "placeholder"}
        for dimension in self.dimensions:
            value = values.get(dimension.input)
            if value is None:
                continue
            now = _bounds(value.shape[dimension.axis], self.shape_env)
            if now[0] > dimension.bounds[0] or now[1] < dimension.bounds[1]:
                raise UnsupportedError(self._narrowed(dimension, now, conditions))
        self._refuse_conditions(conditions)

    def _refuse_conditions(self, conditions: Iterable[Any]) -> None:
        for condition in conditions:
            broken = self._counterexample(condition.expr)
            if broken:
                sizes = " and ".join(f"{self.names[symbol]} = {size}" for symbol, size in broken.items())
                raise UnsupportedError(
                    f"lowering takes {self._text(condition.expr)} for granted{_place(condition)}, and {sizes} is legal "
                    "as well: results would be wrong there, so nothing was written. Declare dynamic_shapes that fulfil "
                    "it, or write that part of the module in other operators"
                )

    def _narrowed(self, dimension: DynamicDimension, now: tuple[int, int], conditions: list[Any]) -> str:
        least, most = dimension.declared
        became = f"the number {now[0]}" if now[0] == now[1] else f"{now[0]} to {now[1]}"
        symbols = {symbol for symbol, name in self.names.items() if name == dimension.name}
        guilty = [each for each in conditions if symbols & each.expr.free_symbols]
        why = f", because {self._text(guilty[0].expr)} was decided{_place(guilty[0])}" if guilty else ""
        remedy = (
            f"ask for another upper bound than {now[1]}, with the example at that bound"
            if now[0] == now[1]
            else f'ask for Dim("{dimension.name}", min={max(now[0], least)}, max={now[1]})'
        )
        return (
            f"{dimension}: sizes from {least} to {most} were asked for, and lowering made it {became}{why}. Calls of "
            f"other sizes would be wrong, so nothing was written: {remedy}, or write that part of the module in other "
            "operators"
        )

    def _counterexample(self, condition: Any) -> dict[Any, int]:
        """Legal sizes that break a condition; empty where none was found."""
        symbols = sorted(condition.free_symbols, key=str)
        if not all(symbol in self.ranges for symbol in symbols):
            return {}
        each = max(2, int(_TRIED ** (1 / len(symbols))))
        for sizes in product(*(_spread(*self.ranges[symbol], each) for symbol in symbols)):
            combination = {symbol: sympy.Integer(size) for symbol, size in zip(symbols, sizes, strict=True)}
            if condition.xreplace(combination) == sympy.false and not _is_about_one(condition, combination):
                return {symbol: int(size) for symbol, size in combination.items()}
        return {}

    def _text(self, condition: Any) -> str:
        return str(condition.xreplace({symbol: sympy.Symbol(name) for symbol, name in self.names.items()}))


def legal_sizes(program: Any, signature: Signature) -> LegalSizes:
    """The dynamic dimensions of an exported program before it is lowered, with the names of its signature.

    Example: `legal_sizes(torch.export.export(module, args, dynamic_shapes=shapes), signature)`.
    """
    shape_env = shape_env_of(program)
    if shape_env is None:
        return LegalSizes(None, (), {}, {}, 0)
    values = {node.name: node.meta.get("val") for node in program.graph.nodes if node.op == "placeholder"}
    dimensions: list[DynamicDimension] = []
    names: dict[Any, str] = {}
    for inputs in signature.inputs:
        for axis, size in enumerate(inputs.sizes or ()):
            length = values[inputs.name].shape[axis]
            if isinstance(length, int) or size.min == size.max:
                continue
            name = size.symbol or str(length)
            bounds = _bounds(length, shape_env)
            if bounds[1] >= MAX_SIZE:
                raise UnsupportedError(
                    f"{name} (dimension {axis} of {inputs.name}) has no upper bound, and memory is allocated for the "
                    f'largest size: ask for torch.export.Dim("{name}", min={size.min}, max=...)'
                )
            dimensions.append(DynamicDimension(inputs.name, axis, name, (size.min, size.max), bounds))
            for symbol in length.node.expr.free_symbols:
                names.setdefault(symbol, name)
    ranges = {symbol: _bounds_of(symbol, shape_env) for symbol in names}
    return LegalSizes(shape_env, tuple(dimensions), names, ranges, len(shape_env.guards))


def _bounds(length: Any, shape_env: ShapeEnv) -> tuple[int, int]:
    return (length, length) if isinstance(length, int) else _bounds_of(length.node.expr, shape_env)


def _bounds_of(expression: Any, shape_env: ShapeEnv) -> tuple[int, int]:
    bounds = bound_sympy(shape_env.replace(expression), shape_env.var_to_range)
    return max(_LEAST, int(bounds.lower)), int(bounds.upper) if bounds.upper < MAX_SIZE else MAX_SIZE


def _is_about_one(condition: Any, sizes: Mapping[Any, Any]) -> bool:
    """Whether a condition only says that a size is more than 1, as torch assumes of every size; at 1 it broadcasts."""
    sides = [side.xreplace(sizes) for side in (condition.lhs, condition.rhs) if side.free_symbols]
    return not isinstance(condition, sympy.Eq) and len(sides) == 1 and sides[0] <= 1


def _spread(least: int, most: int, count: int) -> Iterator[int]:
    """Sizes of a range, all of them where there are few; both ends always."""
    step = max(1, -(-(most - least) // (count - 1)))
    yield from range(least, most, step)
    yield most


def _place(guard: Any) -> str:
    """Where a condition was asked, as the end of a sentence."""
    place: Any = getattr(guard.sloc, "framework_loc", None)
    if not hasattr(place, "filename"):
        return ""
    return f" in {place.filename.rpartition('site-packages/')[2]}:{place.lineno}"
