"""A test program: a torch module that packs a family of operators, the inputs it takes, and the dims that may vary.

One export covers a family, because every operator under test is one output. The expected values always come from
running the module eagerly at the live shape, in float64 where that means the same.
"""

from __future__ import annotations

import copy
import functools
import hashlib
import inspect
import types
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from tests.support.exporting import MethodSource, cached, lower_methods, source_text

MAX = 43
LIVE_SIZES = (1, 2, 3, 5, 7, 11, 29, 37, 41, MAX - 1, MAX)

Sizes = Mapping[str, int]
Fill = Callable[[tuple[int, ...], torch.Generator, Sizes], torch.Tensor]


@dataclass(frozen=True)
class Input:
    """One argument of a program: ints in `shape` are fixed, strings are expressions over the program's dims."""

    shape: tuple[int | str, ...]
    dtype: torch.dtype = torch.float32
    fill: Fill | None = None

    def at(self, sizes: Sizes, generator: torch.Generator) -> torch.Tensor:
        shape = tuple(size_of(size, sizes) for size in self.shape)
        return (self.fill or default_fill(self.dtype))(shape, generator, sizes).to(self.dtype)

    def dynamic_axes(self, dims: Mapping[str, Any]) -> dict[int, Any]:
        return {axis: size_of(size, dims) for axis, size in enumerate(self.shape) if isinstance(size, str)}


def size_of(size: int | str, values: Mapping[str, Any]) -> Any:
    """`"2*S"` at S=3 is 6; the same expression over torch.export.Dim objects is a derived Dim."""
    return eval(size, {}, dict(values)) if isinstance(size, str) else size


def normal(shape: tuple[int, ...], generator: torch.Generator, sizes: Sizes) -> torch.Tensor:
    return torch.randn(shape, generator=generator)


def positive(shape: tuple[int, ...], generator: torch.Generator, sizes: Sizes) -> torch.Tensor:
    return torch.rand(shape, generator=generator) * 3 + 0.25


def away_from_zero(shape: tuple[int, ...], generator: torch.Generator, sizes: Sizes) -> torch.Tensor:
    values = torch.randn(shape, generator=generator)
    return values + torch.where(values < 0, -0.5, 0.5)


def integers(low: int, high: int) -> Fill:
    def fill(shape: tuple[int, ...], generator: torch.Generator, sizes: Sizes) -> torch.Tensor:
        return torch.randint(low, high, shape, generator=generator)

    return fill


def booleans(shape: tuple[int, ...], generator: torch.Generator, sizes: Sizes) -> torch.Tensor:
    return torch.rand(shape, generator=generator) < 0.5


def value_of(expression: str) -> Fill:
    """Fill with a number computed from the live sizes: a position that leaves room for them."""

    def fill(shape: tuple[int, ...], generator: torch.Generator, sizes: Sizes) -> torch.Tensor:
        return torch.full(shape, size_of(expression, sizes))

    return fill


def default_fill(dtype: torch.dtype) -> Fill:
    if dtype is torch.bool:
        return booleans
    return normal if dtype.is_floating_point else integers(-50, 50)


@dataclass(frozen=True)
class TestProgram:
    """See the module. `dims` gives each live dim its least and greatest size."""

    __test__ = False  # the name is the team's; pytest must not collect it

    name: str
    build: Callable[[], torch.nn.Module]
    inputs: tuple[Input, ...]
    dims: Mapping[str, tuple[int, int]] = field(default_factory=lambda: {"S": (1, MAX)})
    atol: float = 1e-4
    rtol: float = 1e-4
    dtype: torch.dtype = torch.float32
    double: bool = True  # the golden is computed in float64
    one_delegate: bool = True  # nothing runs outside one delegate
    stateful: bool = False
    broken: bool = False  # the exporter wrote a file that leaves an output or a state in doubt; it must be refused
    options: Mapping[str, Any] = field(default_factory=dict)

    @functools.cached_property
    def module(self) -> torch.nn.Module:
        """The module of the file, with the same weights in every process; a stateful one must be copied before use."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            module = self.build().eval().requires_grad_(False)
        return module.to(self.dtype) if self.dtype.is_floating_point else module

    @property
    def bound(self) -> dict[str, int]:
        return {name: high for name, (_, high) in self.dims.items()}

    @property
    def dynamic_shapes(self) -> tuple[dict[int, Any], ...]:
        dims = {name: torch.export.Dim(name, min=low, max=high) for name, (low, high) in self.dims.items()}
        return tuple(each.dynamic_axes(dims) for each in self.inputs)

    def make_inputs(self, sizes: Sizes, generator: torch.Generator | None = None) -> tuple[torch.Tensor, ...]:
        generator = generator or torch.Generator().manual_seed(1)
        return tuple(each.at(sizes, generator) for each in self.inputs)

    def golden(self, inputs: tuple[torch.Tensor, ...], module: torch.nn.Module | None = None) -> list[torch.Tensor]:
        """What the outputs must be; pass your own copy of `module` to follow a stateful program from call to call."""
        module = module or (copy.deepcopy(self.module) if self.stateful else self.module)
        outputs = outputs_of(module, inputs)
        if not self.double or self.stateful:
            return outputs
        wide = outputs_of(
            copy.deepcopy(self.module).double(),
            tuple(each.double() if each.dtype.is_floating_point else each for each in inputs),
        )
        return [exact.to(eager.dtype) for eager, exact in zip(outputs, wide, strict=True)]

    def source(self) -> MethodSource:
        return MethodSource(copy.deepcopy(self.module), self.make_inputs(self.bound), self.dynamic_shapes)

    def pte(self) -> Path:
        """The exported file, from the cache when its source is unchanged."""
        return cached(self.name, self.source_key(), lambda: lower_methods({"forward": self.source()}, **self.options))

    def source_key(self) -> str:
        return "\n".join((module_text(self.module), repr(self.inputs_text()), repr(self.dims), repr(self.options)))

    def inputs_text(self) -> list[str]:
        return [f"{each.shape} {each.dtype}" for each in self.inputs]

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class MethodsProgram:
    """Several methods in one file, each a program of its own, and the values of its constant methods."""

    name: str
    methods: Mapping[str, TestProgram]
    constants: Mapping[str, Any] = field(default_factory=dict)

    def pte(self) -> Path:
        key = "\n".join(method.source_key() for method in self.methods.values()) + repr(dict(self.constants))
        sources = {name: method.source() for name, method in self.methods.items()}
        return cached(self.name, key, lambda: lower_methods(sources, dict(self.constants)))

    def __str__(self) -> str:
        return self.name


def outputs_of(module: torch.nn.Module, inputs: tuple[torch.Tensor, ...]) -> list[torch.Tensor]:
    """The outputs as the file returns them: flat, in order, each with storage of its own."""
    with torch.no_grad():
        flat, _ = torch.utils._pytree.tree_flatten(module(*(each.clone() for each in inputs)))
    return [torch.as_tensor(each).clone() for each in flat]


def module_text(module: torch.nn.Module) -> str:
    """What decides the export of a module: the source of its classes, the functions they name, and its weights."""
    classes = {type(each) for each in module.modules() if type(each).__module__.startswith("tests.")}
    texts = [text for kind in sorted(classes, key=lambda kind: kind.__name__) for text in class_texts(kind)]
    weights = hashlib.sha256()
    for name, tensor in module.state_dict().items():
        weights.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        weights.update(tensor.contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return "\n".join((*texts, str(module), weights.hexdigest()))


def class_texts(kind: type) -> Iterator[str]:
    yield source_text(kind)
    namespace = vars(inspect.getmodule(kind))
    for member in vars(kind).values():
        if isinstance(member, types.FunctionType):
            for name in member.__code__.co_names:
                if isinstance(used := namespace.get(name), types.FunctionType):
                    yield source_text(used)


@functools.cache
def programs() -> dict[str, TestProgram]:
    """Every program, by name."""
    from tests.support.families import (
        arithmetic,
        attention,
        convolution,
        matmul,
        mixed,
        movement,
        normalization,
        reductions,
        selection,
        symbolic,
        unary,
        views,
    )

    families = (normalization, arithmetic, unary, views, movement, matmul, reductions, selection, symbolic, mixed)
    families += (attention,)
    families += (convolution,)
    found = [program for family in families for program in family.PROGRAMS]
    by_name = {program.name: program for program in found}
    assert len(by_name) == len(found), "two programs share a name"
    return by_name


@functools.cache
def methods_programs() -> dict[str, MethodsProgram]:
    """Every program of several methods, by name."""
    from tests.support.families import mixed

    return {program.name: program for program in mixed.METHODS}
