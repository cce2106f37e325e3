"""Kernels with an expression in their epilogue or their prologue: what a kernel computes goes through it before it is
stored, where other values of it may be stored beside it, or it is computed where a kernel loads an element.

Any kernel that says `// composable` takes any expression of what it computes, and one that says `// composable NAME` of
a tensor takes any in the place of its elements, of operands that broadcast to the shape there. Where its text assigns
to an element of `out`, or indexes the name, a function is called instead, as for bindings in segments.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, lru_cache

from liveshape.errors import PlanError
from liveshape.graph.expression import Expression
from liveshape.kernels.function_library import definitions, needed
from liveshape.kernels.kernel import Binding, Kernel
from liveshape.kernels.pointwise_kernel import kept_bindings, named
from liveshape.kernels.pointwise_operands import Operands
from liveshape.kernels.pointwise_table import FUNCTIONS
from liveshape.kernels.pointwise_text import COMPUTED, hidden, rounded, scalar_of, statements, vector_of
from liveshape.kernels.split_bindings import use_segment_functions

EPILOGUE, PROLOGUE = "epilogue_", "prologue_"
RESULT = "TResult"  # the element that is stored, which may be another one than what is computed
_EARLY = "EARLY"  # of common/matrix_blocks.wgsl
_SMALL = {"is_nan", "narrowed"}  # functions of the library
_AHEAD = re.compile(r"alias Ahead = u32;")  # of common/ahead.wgsl
_AHEAD_OF = re.compile(r"fn ahead_of\(place: u32\) -> Ahead \{[^}]*\}")
_PARAMS = re.compile(r"(struct Params\s*\{[^}]*?),?\s*\}")


@dataclass(frozen=True)
class Composed:
    """An expression in the place of what a kernel stores in a binding, or loads of it.

    Where it is stored, the first operand is held: it is what the kernel computes.
    """

    binding: Binding
    expression: Expression
    operands: Operands
    half: bool

    @property
    def dtype(self) -> str:
        """The dtype of what the kernel computes or loads itself."""
        return self.expression.operands[0] if self.binding.writes else self.expression.dtype

    def applied(self, text: str, width: int) -> str:
        """The text of a kernel whose stores or loads go through it, so many elements at a time."""
        early = (
            self.binding.writes and width == 4 and _AHEAD.search(text) is not None and bool(self.operands.bindings())
        )
        function = self._setter(width, early) if self.binding.writes else self._getter(width)
        text = _with_params(text, self.operands.fields(self.expression))
        text = use_segment_functions(text, self.binding.name)
        if early:
            text = _AHEAD_OF.sub(lambda _: "\n".join(self._ahead_of()), _AHEAD.sub("", text, count=1), count=1)
        return "\n".join([text, self.operands.functions(), _own_library(function, self.operands.prefix)])

    def _ahead_of(self) -> list[str]:
        """The operands at a place, which a kernel with common/ahead.wgsl loads before it stores there."""
        names, dtypes = self.operands.names[1:], self.operands.dtypes[1:]
        fields = [f"{name}: {vector_of(dtype)}," for name, dtype in zip(names, dtypes, strict=True)]
        loads = [*self.operands.loads("place"), f"return Ahead({', '.join(names)});"]
        return ["struct Ahead {", *fields, "}", "fn ahead_of(place: u32) -> Ahead {", *loads, "}"]

    def _setter(self, width: int, early: bool) -> list[str]:
        computed, *names = self.operands.names
        value = f"{vector_of(self.dtype)}({'v' if width == 4 else f'{scalar_of(self.dtype)}(v)'})"
        value = rounded(value, self.dtype, self.half)  # by hand: compilers may skip what lies between two conversions
        if COMPUTED in hidden(self.expression, True) and vector_of(self.dtype) == "vec4<f32>":
            value = f"hidden_from_algebra({value}, params.{self.operands.number}zero)"
        loads = [] if early else self.operands.loads("i", width)
        names = [f"at_hand.{name}" if early else name for name in names]
        lines, (result, *kept) = statements(self.expression, [computed, *names], self.operands.number, self.half)
        if self.expression.dtype == "bfloat16":
            result = rounded(result, self.expression.dtype, self.half)
        bindings = [("out_0", RESULT), *kept_bindings(self.expression)]
        stores = [
            f"{name}[i] = {f'vec4<{alias}>({each})' if width == 4 else f'{alias}(({each}).x)'};"
            for (name, alias), each in zip(bindings, [result, *kept], strict=True)
        ]
        head = f"fn out_put(i: u32, v: {self._element(width)}) {{"
        return [head, f"let {computed} = {value};", *loads, *lines, *stores, "}"]

    def _getter(self, width: int) -> list[str]:
        lines, results = statements(self.expression, self.operands.names, self.operands.number, self.half)
        # Rounded by hand: compilers may skip what lies between two conversions.
        value = rounded(results[0], self.expression.dtype, self.half)
        element = self._element(width)
        given = f"return {element}({value if width == 4 else f'({value}).x'});"
        head = f"fn {self.binding.name}_at(i: u32) -> {element} {{"
        return [head, *self.operands.loads("i", width), *lines, given, "}"]

    def _element(self, width: int) -> str:
        return f"vec4<{self.binding.element}>" if width == 4 else self.binding.element


def _with_params(text: str, more: Sequence[tuple[str, str]]) -> str:
    """The text of a kernel whose Params have more fields, by name and type."""
    fields = "".join(f"{name}: {kind},\n" for name, kind in more)
    if not fields:
        return text
    text, found = _PARAMS.subn(lambda match: f"{match.group(1)},\n{fields}}}", text, count=1)
    return text if found else f"struct Params {{\n{fields}}}\n{text}"


def _own_library(function: Sequence[str], prefix: str) -> str:
    """A function and what it calls of the library, under names of its own: a kernel may have some that are alike."""
    text = "\n".join([needed(function), *function])
    return _library_word().sub(lambda match: f"{prefix}{match.group()}", text)


@lru_cache(maxsize=4096)
def composed(kernel: Kernel, expression: Expression, operands: Operands, half: bool) -> Kernel:
    """A composable kernel that stores an expression of what it computes, or, with the prefix of a prologue, loads one.

    One that stores is bound as it was, and behind its own what the expression keeps and its further operands. One that
    loads has the first operand in the place of what it loads, and others behind its own bindings.

    Example: `composed(TILED, expression, Operands(("float32",), ("held",), prefix=EPILOGUE), half=True)`.
    """
    out = kernel.bindings[0]
    if operands.prefix == PROLOGUE:
        loaded = next((binding for binding in kernel.bindings if binding.name == kernel.loads), None)
        if loaded is None:
            raise PlanError(f"kernel {kernel.name} takes no prologue: it does not say of what it is composable")
        first, *more = [Binding(name, False, alias, loaded.vector) for name, alias in operands.bindings()]
        bindings = [*(first if each is loaded else each for each in kernel.bindings), *more]
        name, binding = f"{kernel.name} of {named(expression)}", loaded
    else:
        if not kernel.composable or out.name != "out" or not out.writes:
            raise PlanError(f"kernel {kernel.name} takes no epilogue: it does not say that it is composable")
        more = [Binding(name, True, alias, out.vector) for name, alias in kept_bindings(expression)]
        more += [Binding(name, False, alias, out.vector) for name, alias in operands.bindings()]
        bindings = [Binding("out", True, RESULT, out.vector), *kernel.bindings[1:], *more]
        name, binding = f"{kernel.name} + {named(expression)}", out
    constants = dict(kernel.constants)
    if operands.prefix == EPILOGUE and _EARLY in constants and operands.bindings() and is_light(expression):
        constants[_EARLY] = ("bool", "true")
    return kernel.derived(
        name, operands.fields(expression), live=kernel.but_pairs, constants=constants, bindings=tuple(bindings),
        composed=(*kernel.composed, Composed(binding, expression, operands, half)),
    )  # fmt: skip


@lru_cache(maxsize=1024)
def gated(kernel: Kernel, expression: Expression) -> Kernel:
    """A kernel of pairs that stores an expression of each, its `gate_of`; this has two operands and no numbers.

    Example: `gated(Kernel.load("q4/gemv", EPILOGUE="gated"), expression)`.
    """
    lines, (result,) = statements(expression, ["gate_first", "gate_second"], "gate_", half=True)
    head = "fn gate_of(gate_first: vec4<f32>, gate_second: vec4<f32>) -> vec4<f32> {"
    text = _own_library([head, *lines, f"return {result};", "}"], "gate_")
    return kernel.derived(f"{kernel.name} + {named(expression)}", text=(*kernel.text, f"\n{text}\n"))


@cache
def is_light(expression: Expression) -> bool:
    """Whether an expression is a few instructions: none of its functions calls one of the library, but small ones.

    >>> from liveshape.graph.expression import Applied
    >>> [is_light(Expression(("float32",), (), (Applied(name, (0,), "float32"),))) for name in ("abs", "gelu")]
    [True, False]
    """
    texts = (FUNCTIONS[name].floats or "" for name in expression.functions)
    return not any(set(_library_word().findall(text)) - _SMALL for text in texts)


@cache
def _library_word() -> re.Pattern[str]:
    return re.compile(rf"\b(?:{'|'.join(definitions())})\b")
