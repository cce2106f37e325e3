"""Kernels with an epilogue: what a kernel computes goes through an expression before it is stored; other values of the
expression, what is computed among them, may be stored beside it.

Any kernel that says `// composable` takes any expression, of what it computes and of operands that broadcast to its
result: where its text assigns to an element of `out`, a function is called instead, as for bindings in segments.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

from liveshape.errors import PlanError
from liveshape.graph.expression import Expression, is_whole
from liveshape.kernels.function_library import definitions, needed
from liveshape.kernels.kernel import Binding, Kernel
from liveshape.kernels.pointwise_kernel import kept_bindings, named
from liveshape.kernels.pointwise_operands import Operands
from liveshape.kernels.pointwise_table import FUNCTIONS
from liveshape.kernels.pointwise_text import rounded, statements, vector_of
from liveshape.kernels.split_bindings import use_segment_functions

EPILOGUE = "epilogue_"
RESULT = "TResult"  # the element that is stored, which may be another one than what is computed
_EARLY = "EARLY"  # of common/matrix_blocks.wgsl
_SMALL = {"is_nan", "narrowed"}  # functions of the library
_AHEAD = re.compile(r"alias Ahead = u32;")  # of common/ahead.wgsl
_AHEAD_OF = re.compile(r"fn ahead_of\(place: u32\) -> Ahead \{[^}]*\}")
_PARAMS = re.compile(r"(struct Params\s*\{[^}]*?),?\s*\}")


@dataclass(frozen=True)
class Epilogue:
    """An expression whose first operand is what a kernel computes, of this dtype; `operands` are the others."""

    expression: Expression
    operands: Operands
    half: bool

    @property
    def computed(self) -> str:
        """The dtype of what the kernel computes."""
        return self.expression.operands[0]

    def applied(self, text: str, element: str, width: int) -> str:
        """The text of a kernel whose stores go through it; `element` is what the kernel stores, so many at a time."""
        early = width == 4 and _AHEAD.search(text) is not None and bool(self.operands.dtypes)
        setter = self._setter(element, width, early)
        text = use_segment_functions(with_params(text, self.operands.fields(self.expression)), "out")
        if early:
            text = _AHEAD_OF.sub(lambda _: "\n".join(self._ahead_of()), _AHEAD.sub("", text, count=1), count=1)
        return "\n".join([text, self.operands.functions(), own_library(setter, "library_")])

    def _ahead_of(self) -> list[str]:
        """The operands at a place, which a kernel with common/ahead.wgsl loads before it stores there."""
        loads, names = self.operands.loads("place")
        kinds = zip(names, self.operands.dtypes, strict=True)
        fields = [f"{name}: {vector_of(dtype)}," for name, dtype in kinds]
        made = f"return Ahead({', '.join(names)});"
        return ["struct Ahead {", *fields, "}", "fn ahead_of(place: u32) -> Ahead {", *loads, made, "}"]

    def _setter(self, element: str, width: int, early: bool) -> list[str]:
        kind = "vec4<i32>" if is_whole(self.computed) else "vec4<f32>"
        scalar = kind[5:8]
        value = f"{kind}(v)" if width == 4 else f"{kind}({scalar}(v))"
        if self.computed in ("float16", "bfloat16"):  # by hand: compilers may skip what lies between two conversions
            value = rounded(value, self.computed, self.half)
        if width == 4:
            loads, names = self.operands.loads("i")
        else:
            loads, names = self.operands.element_loads("i")
        if early:
            loads, names = [], [f"at_hand.{name}" for name in names]
        first = f"{EPILOGUE}computed"
        lines, (result, *kept) = statements(self.expression, [first, *names], self.operands.number, self.half)
        if self.expression.dtype == "bfloat16":
            result = rounded(result, self.expression.dtype, self.half)
        bindings = [("out_0", RESULT), *kept_bindings(self.expression)]
        stores = [
            f"{name}[i] = {f'vec4<{alias}>({each})' if width == 4 else f'{alias}(({each}).x)'};"
            for (name, alias), each in zip(bindings, [result, *kept], strict=True)
        ]
        body = [f"let {first} = {value};", *loads, *lines, *stores]
        return [f"fn out_put(i: u32, v: {element}) {{", *body, "}"]


def with_params(text: str, more: Sequence[tuple[str, str]]) -> str:
    """The text of a kernel whose Params have more fields, by name and type.

    >>> with_params("struct Params { a: u32, }", [("b", "u32")])
    'struct Params { a: u32,\\nb: u32,\\n}'
    """
    fields = "".join(f"{name}: {kind},\n" for name, kind in more)
    if not fields:
        return text
    text, found = _PARAMS.subn(lambda match: f"{match.group(1)},\n{fields}}}", text, count=1)
    return text if found else f"struct Params {{\n{fields}}}\n{text}"


def own_library(function: Sequence[str], prefix: str) -> str:
    """A function and what it calls of the library, under names of its own: a kernel may have some that are alike."""
    text = "\n".join([needed(function), *function])
    return _library_word().sub(lambda match: f"{prefix}{match.group()}", text)


@lru_cache(maxsize=4096)
def composed(kernel: Kernel, expression: Expression, operands: Operands, half: bool) -> Kernel:
    """A composable kernel that stores an expression of what it computes.

    Bound behind its own are what the expression keeps, and then its further operands.

    Example: `composed(TILED, expression, Operands(("float32",), ("same",), prefix=EPILOGUE), half=True)`.
    """
    out = kernel.bindings[0]
    if not kernel.composable or out.name != "out" or not out.writes:
        raise PlanError(f"kernel {kernel.name} takes no epilogue: it does not say that it is composable")
    epilogue = Epilogue(expression, operands, half)
    more = [Binding(name, True, alias, out.vector) for name, alias in kept_bindings(expression)]
    more += [Binding(name, False, alias, out.vector) for name, alias in operands.bindings()]
    attributes: dict[str, Any] = {}
    if _EARLY in kernel.constants and operands.dtypes and is_light(expression):
        attributes["constants"] = {**kernel.constants, _EARLY: ("bool", "true")}
    return kernel.derived(
        f"{kernel.name} + {named(expression)}", operands.fields(expression), live=kernel.but_pairs, epilogue=epilogue,
        prologue=kernel.prologue, computed=out.element,
        bindings=(Binding("out", True, RESULT, out.vector), *kernel.bindings[1:], *more), **attributes,
    )  # fmt: skip


@lru_cache(maxsize=1024)
def gated(kernel: Kernel, expression: Expression) -> Kernel:
    """A kernel of pairs that stores an expression of each, its `gate_of`; this has two operands and no numbers.

    Example: `gated(Kernel.load("q4/gemv", EPILOGUE="gated"), expression)`.
    """
    lines, (result,) = statements(expression, ["gate_first", "gate_second"], "gate_", half=True)
    own = "\n".join([needed(lines), "fn gate_of(gate_first: vec4<f32>, gate_second: vec4<f32>) -> vec4<f32> {", *lines])
    text = _library_word().sub(lambda match: f"library_{match.group()}", f"{own}\nreturn {result};\n}}")
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
