"""`liveshape ops`: the supported operators, with their dtypes and kernels, read from the registry and the WGSL.

`liveshape ops --markdown > docs/operators.md` generates the documentation page.
"""

from __future__ import annotations

import dataclasses
import inspect
import types
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cache, partial
from typing import Any

from liveshape.errors import InputError
from liveshape.graph import SymInt
from liveshape.kernels import Kernel
from liveshape.kernels.pointwise_kernel import pointwise_kernel
from liveshape.kernels.pointwise_table import FUNCTIONS
from liveshape.ops import OPS, Op, callable_by_files
from liveshape.run.host import find_on_host
from liveshape.tools.console import counted, print_json, print_table

_TITLE = """# Operators

Written by `liveshape ops --markdown`; do not edit. Names with a dot are those of Vulkan delegates, names with `::`
those of portable operators in the outer program; both run the same kernels on the GPU, at every live shape. Dtypes are
those that the kernels declare: what they read, and after an arrow what they write where that differs; an operator may
take fewer. Floats are float32, float64, float16 and bfloat16, ints are int32 and int64. A number is a scalar, computed
on the host without a dispatch; \\* marks data-dependent operators, which wait for a readback unless the host has the
data. An operator that is not listed falls back to numpy or torch on the host, with a warning; `strict` refuses that.
"""

# Dtypes by WGSL type; a literal u32, not a type parameter, holds packed bytes or bits.
_DTYPES = {
    "f32": ("float32", "float64", "bfloat16"),
    "f16": ("float16",),
    "i32": ("int32", "int64"),
    "u32": ("bool",),
}
_PACKED = ("int8", "uint8")
_ORDER = ("float32", "float64", "float16", "bfloat16", "int32", "int64", "bool", *_PACKED, "complex64")
_SCALAR = "number"


@dataclass(frozen=True)
class Operator:
    """A supported operator, by its exported name."""

    name: str
    kind: str  # delegate or portable
    family: str  # file in liveshape/ops, or the library of the host fallback
    takes: tuple[str, ...]
    gives: tuple[str, ...]
    kernels: tuple[str, ...]  # files of liveshape/kernels/wgsl; `pointwise` are generated
    dynamic: bool  # whether it supports dynamic shapes
    reads_data: bool  # whether planning reads tensor data
    host: bool  # whether it falls back to the host


def ops(names: Sequence[str] = (), *, as_json: bool = False, as_markdown: bool = False) -> int:
    """Print operators whose names contain one of `names`, all by default; exit code 0 if there is any.

    Example: `ops(["conv"], as_json=True)`.
    """
    if as_markdown:
        print(markdown(), end="")
        return 0
    found = listed(names)
    if as_json:
        print_json([asdict(each) for each in found])
    else:
        rows = [(each.name, each.kind, _dtypes(each), ", ".join(each.kernels), _note(each)) for each in found]
        print_table(counted(len(found), "operator"), ("name", "kind", "dtypes", "kernels", ""), rows)
    return 0


def listed(names: Sequence[str] = ()) -> list[Operator]:
    """Operators by name or substring; a whole name may be one with only a host fallback.

    Example: `[each.kernels for each in listed(["aten.mm.default"])] == [("matmul_rows", "matmul_tiled")]`.
    """
    known = [name for name in sorted(OPS) if callable_by_files(name)]
    if not names:
        return [described(OPS[name]) for name in known]
    found: dict[str, Operator] = {}
    for part in names:
        matching = {name: described(OPS[name]) for name in known if part in name}
        on_host = find_on_host(part) if not matching else ""
        if not isinstance(on_host, str):
            matching = {part: Operator(part, _kind(part), on_host.library, (), (), (), True, True, True)}
        if not matching:
            raise InputError(f"no operator has {part!r} in its name, and the host knows none of that name")
        found |= matching
    return list(found.values())


def described(entry: Op) -> Operator:
    """Dtypes, kernels and traits of a registered operator.

    Example: `described(OPS["aten::mm.out"]).gives`.
    """
    kernels = _kernels_of(entry.run)
    takes = [kind for kernel in kernels for kind in _types(kernel, writes=False)]
    gives = [kind for kernel in kernels for kind in _types(kernel, writes=True)]
    files = [kernel.file for kernel in kernels]
    if _generates(entry.run):
        kinds = [dtype for dtypes in _DTYPES.values() for dtype in dtypes] + list(_PACKED)
        rows = [FUNCTIONS[each] for each in _referenced(entry.run) if isinstance(each, str)]
        kinds += ["complex64"] * any(row.complexes is not None or row.pairs for row in rows)
        takes, gives, files = takes + kinds, gives + kinds, ["pointwise", *files]
    if SymInt in entry.parameters[-1].kinds:
        gives = [_SCALAR]
    return Operator(
        name=entry.name,
        kind=_kind(entry.name),
        family=entry.run.__module__.rsplit(".", 1)[-1],
        takes=_sorted(takes) or (_SCALAR,),
        gives=_sorted(gives) or (_SCALAR,),
        kernels=tuple(dict.fromkeys(files)),
        dynamic=True,
        reads_data=entry.reads_data,
        host=False,
    )


def markdown() -> str:
    """The Markdown page: a table per family, a row per plan function.

    Example: `Path("docs/operators.md").write_text(markdown())`.
    """
    families: dict[str, dict[Any, list[Operator]]] = {}
    for each in listed():
        families.setdefault(each.family, {}).setdefault(OPS[each.name].run, []).append(each)
    sections = []
    for family in sorted(families):
        rows = sorted(families[family].values(), key=lambda row: row[0].name)
        lines = [f"## {family}", "", "| names | dtypes | kernels |", "| --- | --- | --- |"]
        for row in rows:
            names = ", ".join(f"`{each.name}`" for each in row)
            mark = " \\*" if row[0].reads_data else ""
            lines.append(f"| {names}{mark} | {_dtypes(row[0])} | {', '.join(row[0].kernels)} |")
        sections.append("\n".join(lines))
    return "\n".join([_TITLE, "\n\n".join(sections)]) + "\n"


def _kind(name: str) -> str:
    return "portable" if "::" in name else "delegate"


def _note(operator: Operator) -> str:
    if operator.host:
        return f"ON THE HOST, by {operator.family}: slow"
    return "reads data" if operator.reads_data else ""


def _dtypes(operator: Operator) -> str:
    takes, gives = _in_short(operator.takes), _in_short(operator.gives)
    return takes if takes == gives else f"{takes} → {gives}"


def _in_short(dtypes: Sequence[str]) -> str:
    text = ", ".join(dtypes)
    return text.replace("float32, float64, float16, bfloat16", "floats").replace("int32, int64", "ints")


def _sorted(dtypes: Iterable[str]) -> tuple[str, ...]:
    found = set(dtypes)
    return tuple(dtype for dtype in (*_ORDER, _SCALAR) if dtype in found)


def _types(kernel: Kernel, writes: bool) -> Iterator[str]:
    """The dtypes of the tensors that a kernel reads or writes."""
    for binding in kernel.bindings:
        if binding.writes is writes and binding.name not in kernel.scratch:
            if binding.name in kernel.words:
                yield "float16"
                continue
            if binding.element == "u32":
                yield from _PACKED
            # Complex numbers are a vec2, interleaved in an array of floats, or move by their parts.
            if (binding.vector, binding.element) == ("vec2", "f32") or "complex" in kernel.others or kernel.by_parts:
                yield "complex64"
            for kind in kernel.allowed.get(binding.element, (binding.element,)):
                names = [kind] if kind in _DTYPES else list(_DTYPES)  # a type parameter without a list takes every type
                yield from (dtype for name in names for dtype in _DTYPES[name] if binding.element != "u32")


@cache
def _kernels_of(function: Any) -> tuple[Kernel, ...]:
    """Kernels that a plan function references, directly or through its callees, sorted by name."""
    found = {value.name: value for value in _referenced(function) if isinstance(value, Kernel)}
    return tuple(found[name] for name in sorted(found))


def _generates(function: Any) -> bool:
    """Whether a plan function has kernels of expressions, whose texts are generated."""
    return pointwise_kernel in _referenced(function)


@cache
def _referenced(function: Any) -> tuple[Any, ...]:
    """Kernels that a plan function references, directly or through its callees, what generates others, and the names of
    the functions of expressions."""
    found: list[Any] = []
    seen: set[int] = set()
    waiting: list[Any] = [function]
    while waiting:
        value = waiting.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        if isinstance(value, Kernel) or value is pointwise_kernel or (isinstance(value, str) and value in FUNCTIONS):
            found.append(value)
        elif isinstance(value, types.FunctionType):
            if value.__module__.startswith("liveshape.ops"):
                waiting += _named_in(value)
        elif isinstance(value, type):
            if value.__module__.startswith("liveshape.ops"):
                waiting += vars(value).values()
        elif isinstance(value, partial):
            waiting.append(value.func)
        elif hasattr(value, "cache_info"):  # of a function whose results are kept
            waiting.append(value.__wrapped__)
        elif isinstance(value, dict):
            waiting += value.values()
        elif isinstance(value, (tuple, list)):
            waiting += value
        elif dataclasses.is_dataclass(value):
            waiting += vars(value).values()
    return tuple(found)


def _named_in(function: types.FunctionType) -> list[Any]:
    """Everything that a function references: globals, closure variables and defaults, and its words."""
    names: set[str] = set()
    words: list[str] = []
    codes = [function.__code__]
    while codes:
        code = codes.pop()
        names.update(code.co_names)
        codes += [each for each in code.co_consts if isinstance(each, types.CodeType)]
        words += [each for each in code.co_consts if isinstance(each, str)]
    values = [function.__globals__[name] for name in names if name in function.__globals__]
    modules = [value for value in values if isinstance(value, types.ModuleType)]
    values += [vars(module)[name] for module in modules for name in names if name in vars(module)]
    closed = inspect.getclosurevars(function).nonlocals.values()
    return [*values, *words, *closed, *(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]


__all__ = ["Operator", "described", "listed", "markdown", "ops"]
