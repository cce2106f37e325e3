"""The table of operators. An operator is one generator; its annotations say how its arguments are read.

The exporter merges equal scalars whatever their type, so a float may arrive as an int and an int as a float:
`bind` reads every scalar of a file through the annotation of its parameter, and nowhere else.
"""

from __future__ import annotations

import functools
import inspect
import math
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from liveshape.errors import FormatError
from liveshape.graph import Node, SymInt, Tensor
from liveshape.graph.live import LiveScalar, LiveTensor
from liveshape.graph.sources import NodeSource
from liveshape.graph.traits import NOTHING_KNOWN, Traits

Ints = tuple[int, ...]
Tensors = tuple[LiveTensor, ...]
Number = int | float | bool
INTERNAL = "liveshape."  # how the names of operators begin that no file may call
# Operators are written in terms of live values; a node holds what these are live values of.
_OF_GRAPH: Mapping[type, type] = {LiveTensor: Tensor, LiveScalar: SymInt}


@dataclass(frozen=True)
class Parameter:
    """One parameter of an operator: the scalar types it takes, and whether it may be absent or a list."""

    name: str
    kinds: tuple[type, ...]
    optional: bool
    many: bool


_TABLE_RANK = 2


@dataclass(frozen=True)
class Op:
    """An operator under its exported name."""

    name: str
    run: Callable[..., Any]
    parameters: tuple[Parameter, ...]
    alias: bool
    reads_data: bool
    control: bool
    mutates: tuple[int, ...]
    gathers: tuple[int, int] | None
    masks: int | None = None
    traits: Traits = NOTHING_KNOWN

    @property
    def arity(self) -> int:
        """How many arguments a call has, the output counted as one."""
        return len(self.parameters)

    @property
    def many(self) -> bool:
        """Whether it gives a list."""
        return self.parameters[-1].many

    def bind(self, index: int, label: str, args: tuple[Any, ...], sources: tuple[NodeSource, ...] = ()) -> Node:
        """A node of this operator, from `sources` of a file: checks the number and the types of its arguments, once."""
        if len(args) != len(self.parameters):
            names = ", ".join(parameter.name for parameter in self.parameters)
            raise FormatError(
                f"{label}: {len(args)} arguments given, {self.name} takes {len(self.parameters)} ({names})"
            )
        read = tuple(
            argument if position == len(args) - 1 else _read(label, parameter, argument)
            for position, (parameter, argument) in enumerate(zip(self.parameters, args, strict=True))
        )
        _check_output(label, self.parameters[-1], read[-1])
        if self.gathers is not None and (table := read[self.gathers[1]]).rank != _TABLE_RANK:
            name = self.parameters[self.gathers[1]].name
            raise FormatError(f"{label}: {name} is a table of rows, a tensor of shape {table.max_shape} was given")
        live = tuple(position for position, argument in enumerate(read[:-1]) if is_live(argument))
        return Node(
            index=index,
            label=label,
            name=self.name,
            run=self.run,
            args=read,
            live=live,
            alias=self.alias,
            reads_data=self.reads_data or self._counts(read),
            control=self.control,
            mutates=self.mutates,
            gathers=None if self.gathers is None else ((self.gathers[0],), (self.gathers[1],)),
            parameters=tuple(parameter.name for parameter in self.parameters),
            traits=self.traits,
            sources=sources,
        )

    def _counts(self, args: tuple[Any, ...]) -> bool:
        """Whether an index is a mask, of which only the data knows how much it selects."""
        indices = () if self.masks is None else args[self.masks]
        return any(isinstance(index, Tensor) and index.dtype == "bool" for index in indices)


OPS: dict[str, Op] = {}
_DEFINED: dict[Callable[..., Any], Op] = {}


def defined_by(run: Callable[..., Any]) -> Op:
    """The operator that a generator defines, for those who put it into a graph themselves.

    >>> from liveshape.ops import control
    >>> defined_by(control.move).name
    'liveshape.move'
    """
    return _DEFINED[run]


def callable_by_files(name: str) -> Op | None:
    """The operator that a file means by a name; those that only we put into a graph have none.

    >>> callable_by_files("liveshape.move") is None
    True
    """
    return None if name.startswith(INTERNAL) else OPS.get(name)


def op(
    *names: str,
    alias: bool = False,
    reads_data: bool = False,
    control: bool = False,
    mutates: tuple[str, ...] = (),
    gathers: tuple[str, str] | None = None,
    masks: str | None = None,
    schema: str = "",
    **traits: Any,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a generator under its exported names; the last parameter is the output, but for keyword-only ones, which
    no file gives.

    `alias`: the output may share the first argument's memory. `reads_data`: planned at every call, because the plan
    depends on values. `mutates`: parameters it writes in place. `gathers`: one whose elements are rows of another.
    `masks`: a list of indices; one of booleans makes the plan depend on data. `schema`: what a file gives, by names in
    order, where the generator does not read all of it. `traits`: the fields of `Traits`, what the operator is to those
    who do not know it.

    >>> @op("aten.neg.default", rows=elementwise())
    ... def neg(x: Tensor, out: Tensor): ...  # doctest: +SKIP
    """

    declared = Traits(**traits)

    def register(run: Callable[..., Any]) -> Callable[..., Any]:
        hints = typing.get_type_hints(run)
        given = inspect.signature(run).parameters.values()
        parameters = tuple(_parameter(each.name, hints[each.name]) for each in given if each.kind != each.KEYWORD_ONLY)
        called = run
        if schema:
            read = {parameter.name: parameter for parameter in parameters}
            parameters = tuple(read.get(name, Parameter(name, (), False, False)) for name in schema.split())
            called = _reading(run, [schema.split().index(name) for name in read])
        places = {parameter.name: position for position, parameter in enumerate(parameters)}
        mutated = tuple(places[name] for name in mutates)
        gathered = None if gathers is None else (places[gathers[0]], places[gathers[1]])
        masked = None if masks is None else places[masks]
        unknown = declared.parameters() - places.keys()
        if unknown:
            raise ValueError(f"operator {names[0]} has no parameters {sorted(unknown)}, which its traits name")
        for name in names:
            # The same lines come again where an import was interrupted: Python runs the file anew.
            if name in OPS and inspect.unwrap(OPS[name].run).__code__ != inspect.unwrap(run).__code__:
                raise ValueError(f"operator {name} is registered twice")
            OPS[name] = Op(name, called, parameters, alias, reads_data, control, mutated, gathered, masked, declared)
        _DEFINED[run] = OPS[names[0]]
        _DEFINED.setdefault(inspect.unwrap(run), OPS[names[0]])  # what it was made of
        return run

    return register


def exported(operator: str, overload: str = "default") -> tuple[str, str]:
    """An operator of aten as delegates and as outer programs call it.

    >>> exported("abs"), exported("eq", "Scalar")
    (('aten.abs.default', 'aten::abs.out'), ('aten.eq.Scalar', 'aten::eq.Scalar_out'))
    """
    return f"aten.{operator}.{overload}", f"aten::{operator}.{'' if overload == 'default' else f'{overload}_'}out"


def register_first_alone(name: str, **traits: Any) -> None:
    """Register what gives the first result of an operator and none of the others: what its `first_alone` names.

    Example: `register_first_alone("aten.native_layer_norm.default", loads="x")`.
    """
    whole = OPS[name]
    alone = whole.traits.first_alone

    @functools.wraps(whole.run)
    def run(*arguments: Any) -> Any:
        *given, out = arguments
        return whole.run(*given, (out,))

    parameters = (*whole.parameters[:-1], replace(whole.parameters[-1], many=False))
    declared = replace(whole.traits, first_alone="", fused_from=(name,), epilogues=True, **traits)
    OPS[alone] = replace(whole, name=alone, run=run, parameters=parameters, traits=declared)


def _reading(run: Callable[..., Any], places: Sequence[int]) -> Callable[..., Any]:
    """A generator of the arguments at these places."""

    @functools.wraps(run)
    def called(*arguments: Any) -> Any:
        return run(*[arguments[place] for place in places])

    return called


def _parameter(name: str, hint: Any) -> Parameter:
    members = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    optional = type(None) in members
    kinds: list[type] = []
    many = False
    for member in members:
        if typing.get_origin(member) is tuple:
            many = True
            inner = typing.get_args(member)[0]
            found = typing.get_args(inner) if isinstance(inner, types.UnionType) else (inner,)
            kinds.extend(_OF_GRAPH.get(kind, kind) for kind in found)
        elif isinstance(member, type) and member not in (type(None), Any):
            kinds.append(_OF_GRAPH.get(member, member))
    return Parameter(name, tuple(kinds), optional, many)


def _read(label: str, parameter: Parameter, argument: Any) -> Any:
    if not parameter.kinds:  # annotated Any: the operator ignores it
        return argument
    if argument is None:
        if parameter.optional:
            return None
        raise FormatError(f"{label}: {parameter.name} is missing")
    if isinstance(argument, tuple):
        if not parameter.many:
            raise FormatError(f"{label}: {parameter.name} is a list, one value is expected")
        return tuple(_scalar(label, parameter, item) for item in argument)
    if parameter.many and not any(kind in (int, float, bool) for kind in parameter.kinds):
        raise FormatError(f"{label}: {parameter.name} must be a list, {argument!r} was given")
    value = _scalar(label, parameter, argument)
    return (value,) if parameter.many else value


def _scalar(label: str, parameter: Parameter, argument: Any) -> Any:
    kinds = parameter.kinds
    if isinstance(argument, SymInt):
        if Tensor in kinds and len(kinds) == 1:
            raise FormatError(f"{label}: {parameter.name} must be a tensor, a scalar was given")
        return argument
    if isinstance(argument, kinds) and not (isinstance(argument, bool) and bool not in kinds):
        return argument
    if argument is None and Tensor in kinds:
        return None
    if isinstance(argument, (int, float)):
        # Infinity and NaN are numbers of their own; no integer equals them.
        for kind in kinds if math.isfinite(argument) else ():
            if kind in (int, float, bool) and kind(argument) == argument:
                return kind(argument)
    names = " or ".join(kind.__name__ for kind in kinds)
    raise FormatError(f"{label}: {parameter.name} must be {names}, {argument!r} was given")


def _check_output(label: str, parameter: Parameter, argument: Any) -> None:
    if not parameter.kinds:
        return
    items = argument if isinstance(argument, tuple) else (argument,)
    if isinstance(argument, tuple) != parameter.many or not all(isinstance(item, parameter.kinds) for item in items):
        names = " or ".join(kind.__name__ for kind in parameter.kinds)
        raise FormatError(f"{label}: the output must be {'a list of ' if parameter.many else ''}{names}")


def is_live(argument: Any) -> bool:
    """Whether an argument is a live scalar, or a list with one."""
    if isinstance(argument, tuple):
        return any(isinstance(item, SymInt) for item in argument)
    return isinstance(argument, SymInt)
