"""A .wgsl file as a callable: the file alone declares its bindings, its Params and its constants.

Buffers are given by position, Params by name, constants by NAME in capitals. `params` is bound behind the buffers,
whether the file says so or not; numbers of bindings rise, and where a #choice leaves some out there are gaps. Element
types such as `T` are filled in from the tensors that are bound, so one source serves every dtype; `V` is `T` or a
vector of it, as `VEC` says; halves that only move are bound as `// words x`, eight to a load; with `// parts: why` `T`
is a word of packed bytes and a part of a complex number, too. A kernel that declares
`override SUBGROUP: u32 = 0` gets the size of the device's subgroups, and has a text with shuffles under `#if SUBGROUP`;
`// subgroups up to 128 threads: why` says where it does not gain by it. One that says `// composable: why` stores each
element of `out`, its first binding, once, and never reads it: see `composition.py`; `// composable with light
expressions: why` should not get others, which would take registers from its loops. Of a tensor that is loaded, `//
composable NAME: why` says the same.
"""

from __future__ import annotations

import re
import struct
import weakref
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from liveshape.errors import PlanError
from liveshape.graph import Limits
from liveshape.graph.live import LiveTensor
from liveshape.kernels.preprocessor import (
    SUBGROUP,
    Conditional,
    File,
    Pieces,
    Unrolled,
    choose,
    cleaned,
    conditions,
    expand,
    parse,
    read,
    texts,
)

_BINDING = re.compile(
    r"@group\(0\)\s*@binding\((\d+)\)\s*var<\s*(storage\s*,\s*read_write|storage\s*,\s*read|storage|uniform)\s*>"
    r"\s*(\w+)\s*:\s*([^;]+);"
)
_PARAMS = re.compile(r"struct\s+Params\s*\{([^}]*)\}\s*;?")
_FIELD = re.compile(r"(\w+)\s*:\s*(array<\s*vec4<\w+>\s*,\s*\d+\s*>|vec[234]<\w+>|\w+)")
_OVERRIDE = re.compile(r"^override\s+(\w+)\s*:\s*(\w+)\s*=\s*([^;]+);[^\n]*$", re.MULTILINE)
_ALLOWED = re.compile(r"^//\s*(\w+):((?:\s*,?\s*(?:f32|f16|i32|u32))+)\s*$", re.MULTILINE)
_LIVE = re.compile(r"^// live (\w+): (\d+(?:, \d+)*)$", re.MULTILINE)
_SCRATCH = re.compile(r"^// scratch (\w+(?:, \w+)*)$", re.MULTILINE)
_WORDS = re.compile(r"^// words (\w+(?:, \w+)*)$", re.MULTILINE)
_PARTS = re.compile(r"^// parts: \S", re.MULTILINE)
_UNCHECKED = re.compile(r"^// unchecked: \S", re.MULTILINE)
_COMPOSABLE = re.compile(r"^// composable( with light expressions)?: \S", re.MULTILINE)
_LOADS = re.compile(r"^// composable (\w+): \S", re.MULTILINE)
_SUBGROUPS = re.compile(r"^// subgroups up to (\d+) threads: \S", re.MULTILINE)
_ACCESSOR = re.compile(r"\bfn\s+((\w+)_(?:at|put|rounded))\b")  # as split_bindings.py names them
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_MARGIN = re.compile(r"\s*\n\s*")
_ELEMENT = re.compile(r"array<\s*(?:(vec[24])<\s*(\w+)\s*>|(\w+))\s*>")
CONCRETE = frozenset({"f32", "f16", "i32", "u32"})
_FORMATS = {"u32": "I", "i32": "i", "f32": "f"}


@dataclass(frozen=True)
class Binding:
    """One storage binding of a kernel; `element` is a WGSL type or an alias such as T, `vector` its width."""

    name: str
    writes: bool
    element: str
    vector: str  # "", "vec2", "vec4", or "V" where VEC decides


class Dispatch:
    """What an operator yields: a kernel, its tensors, its values by name, and its grid.

    That is a number of workgroups, of threads, or of units that UNIT_THREADS threads cooperate on. Where the turns of a
    thread's loops grow with its tensors, and nothing bounds them, it says how many they may be.
    """

    __slots__ = ("cooperative_units", "groups", "kernel", "tensors", "threads", "turns", "values")

    def __init__(
        self,
        kernel: Kernel,
        tensors: tuple[LiveTensor, ...],
        values: dict[str, Any],
        groups: int | None,
        threads: int | None,
        cooperative_units: int | None = None,
        turns: int = 0,
    ) -> None:
        self.kernel = kernel
        self.tensors = tensors
        self.values = values
        self.groups = groups
        self.threads = threads
        self.cooperative_units = cooperative_units
        self.turns = turns


class Kernel:
    """One file of `liveshape/kernels/wgsl`, read and checked at its first use: a program uses few of them.

    >>> RMS_NORM = Kernel.load("normalization/rms_norm")
    >>> RMS_NORM(out, x, weight, rows=7, width=64, eps=1e-6, groups=7)  # doctest: +SKIP
    """

    file: str
    others: tuple[str, ...]  # the values of its choices that are not the first ones
    text: Pieces  # without what it declares; conditions are on its constants
    has_subgroup_text: bool
    max_shuffled: int  # threads of a unit, up to which that text is taken
    bindings: tuple[Binding, ...]
    fields: dict[str, tuple[str, int]]  # name -> (kind, count)
    constants: dict[str, tuple[str, Any]]  # NAME -> (type, default)
    allowed: dict[str, tuple[str, ...]]
    live: dict[str, tuple[int, ...]]  # constants that live values choose, of these (`// live VEC: 1, 2, 4`)
    scratch: frozenset[str]  # bindings that never hold a tensor of a program (`// scratch halves, factors`)
    words: frozenset[str]  # bindings of u32 that read halves, two to a word (`// words x`)
    by_parts: bool  # whether it moves packed bytes by words, and complex numbers by their parts (`// parts: why`)
    group_size: int
    dispatch_constants: tuple[str, ...]  # those that a dispatch may choose
    vectored: bool
    needs_half: bool
    unchecked: bool  # whether its file says why no index of it needs a check (`// unchecked: why`)
    composable: bool  # whether an expression of what it computes may be stored instead
    wants_light: bool  # whether such an expression should call no function of the library
    loads: str  # the binding in the place of whose elements an expression may be computed, if there is one
    layout: struct.Struct
    flatten: Callable[[dict[str, Any]], list[Any]]  # the values of a dispatch in the order of Params
    # Its specializations, for as long as a plan or a device has them; no callbacks, which swallow signals.
    variants: dict[Any, weakref.ref[Any]]

    def __init__(self, file: str, choices: dict[str, str]) -> None:
        self.file, self._choices, self.variants = file, choices, {}
        self.composed: tuple[Any, ...] = ()  # what is in the place of its stores or loads: `composition.py`

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            if name not in _DECLARED:
                raise AttributeError(f"a kernel has no {name}")
            vars(self).update(_declared(self.file, read(self.file), self._choices))
            return vars(self)[name]

    @cached_property
    def name(self) -> str:
        """Its file and what was chosen: `q4/gemv+gated`."""
        return "+".join([self.file, *self.others])

    @property
    def stores_composed(self) -> bool:
        """Whether it stores an expression of what it computes."""
        return any(each.binding.writes for each in self.composed)

    @property
    def param_bytes(self) -> int:
        """The size of Params."""
        return self.layout.size

    def pack(self, values: dict[str, Any]) -> bytes:
        """The bytes of Params."""
        return self.layout.pack(*self.flatten(values))

    @classmethod
    def load(cls, name: str, **choices: str) -> Kernel:
        """The kernel of `liveshape/kernels/wgsl/<name>.wgsl`, with what is said for its `#choice` lines.

        Example: `Kernel.load("q4/few_rows", EPILOGUE="qkv")`.
        """
        return cls(name, choices)

    @classmethod
    def parse(cls, name: str, source: str, **choices: str) -> Kernel:
        """A kernel from its text, checked now."""
        kernel = cls(name, choices)
        vars(kernel).update(_declared(name, parse(name, source), choices))
        return kernel

    def derived(self, name: str, fields: Iterable[tuple[str, str]] = (), **attributes: Any) -> Kernel:
        """This kernel under another name, with more fields of Params, by name and type, and other attributes."""
        made, same = Kernel(name, {}), {each: getattr(self, each) for each in _DECLARED}
        vars(made).update(same | _with_fields(self, fields) | attributes, name=name)
        return made

    @property
    def but_pairs(self) -> dict[str, tuple[int, ...]]:
        """Its live constants, without vectors of two, for which there is no function that stores or loads one."""
        return {word: tuple(each for each in values if each != 2) for word, values in self.live.items()}

    def __call__(
        self,
        *tensors: LiveTensor,
        groups: int | None = None,
        threads: int | None = None,
        cooperative_units: int | None = None,
        turns: int = 0,
        **values: Any,
    ) -> Dispatch:
        return Dispatch(self, tensors, values, groups, threads, cooperative_units, turns)


_DECLARED = frozenset(Kernel.__annotations__) - {"file", "variants"}


def _declared(name: str, file: File, choices: dict[str, str]) -> dict[str, Any]:
    """What a file declares with these choices: the attributes of its kernel."""
    chosen = choose(name, file, choices)
    pieces = tuple(expand(file.pieces, chosen, set()))
    source = "".join(piece for piece in pieces if isinstance(piece, str))
    everything = _COMMENT.sub("", "".join(texts(pieces)))
    declared = _BINDING.findall(source)
    numbers = [int(number) for number, *_ in declared]
    if numbers != sorted(set(numbers)):
        raise PlanError(f"kernel {name}: bindings must be numbered 0, 1, 2, ... in order; a #choice may leave some out")
    storage = [row for row in declared if row[1].startswith("storage")]
    if any(row[1] == "uniform" for row in declared[: len(storage)]):
        raise PlanError(f"kernel {name}: the uniform Params must be the last binding")
    layout = _PARAMS.search(source)
    fields = _fields(name, layout.group(1)) if layout else {}
    overrides = {word: (kind, value.strip()) for word, kind, value in _OVERRIDE.findall(source)}
    _check_conditions(name, pieces, overrides)
    overrides.pop(SUBGROUP, None)
    group_size = int(overrides.pop("WG", ("u32", "64"))[1].rstrip("u"))
    constants: dict[str, tuple[str, Any]] = {"WG": ("u32", group_size)}
    constants.update(overrides)
    names = {row[2] for row in storage}
    for function, binding in _ACCESSOR.findall(everything):
        if binding in names:
            raise PlanError(f"kernel {name}: {function} is what a split binding {binding} is read through")
    vectored = bool(re.search(r"\bV\b", everything))
    return {
        "others": chosen.others,
        "text": cleaned(pieces, _code_of),
        "has_subgroup_text": any(condition.name == SUBGROUP for condition in conditions(pieces)),
        "max_shuffled": int(bound.group(1)) if (bound := _SUBGROUPS.search(source)) else Limits.max_cooperating_threads,
        "bindings": tuple(_binding(name, row) for row in storage),
        "fields": fields,
        "constants": constants,
        "allowed": {word: tuple(re.findall(r"\w+", kinds)) for word, kinds in _ALLOWED.findall(source)},
        "live": {word: tuple(map(int, values.split(","))) for word, values in _LIVE.findall(source)},
        "scratch": frozenset(word for words in _SCRATCH.findall(source) for word in words.split(", ")),
        "words": frozenset(word for words in _WORDS.findall(source) for word in words.split(", ")),
        "by_parts": bool(_PARTS.search(source)),
        "group_size": group_size,
        "dispatch_constants": ("WG", *overrides, "VEC") if vectored else ("WG", *overrides),
        "vectored": vectored,
        "needs_half": bool(re.search(r"\bf16\b", everything)),
        "unchecked": bool(_UNCHECKED.search(source)),
        "composable": bool(composable := _COMPOSABLE.search(source)),
        "wants_light": bool(composable and composable.group(1)),
        "loads": loads.group(1) if (loads := _LOADS.search(source)) else "",
        "layout": _layout(fields),
        "flatten": _flattening(name, fields),
    }


def _check_conditions(kernel: str, pieces: Pieces, overrides: Mapping[str, Any]) -> None:
    """What is left to variants must be on constants, and hold nothing that a kernel declares."""
    for condition in conditions(pieces):
        if condition.name not in overrides:
            raise PlanError(f"{condition.place}: kernel {kernel} has no constant and no choice {condition.name}")
    for piece in pieces:
        for text in texts((piece,)) if isinstance(piece, (Conditional, Unrolled)) else ():
            if found := _BINDING.search(text) or _PARAMS.search(text) or _OVERRIDE.search(text):
                raise PlanError(f"kernel {kernel}: only a #choice may decide on {found.group().splitlines()[0]}")


def _code_of(source: str) -> str:
    """A text without what `Variant.source` declares anew, and without blank lines and indentation."""
    return _MARGIN.sub("\n", _COMMENT.sub("", _OVERRIDE.sub("", _BINDING.sub("", source))))


def _binding(kernel: str, row: tuple[str, ...]) -> Binding:
    _, access, name, kind = row
    match = _ELEMENT.fullmatch(kind.strip())
    if match is None:
        raise PlanError(f"kernel {kernel}: binding {name} must be array<T>, array<V>, array<vec4<T>> or the like")
    vector, inner, plain = match.groups()
    element, width = (inner, vector) if vector else ("T", "V") if plain == "V" else (plain, "")
    return Binding(name, "read_write" in access, element, width)


def _fields(kernel: str, body: str) -> dict[str, tuple[str, int]]:
    fields: dict[str, tuple[str, int]] = {}
    for name, kind in _FIELD.findall(_COMMENT.sub("", body)):
        words = re.fullmatch(r"array<\s*vec4<(\w+)>\s*,\s*(\d+)\s*>|vec([24])<(\w+)>|(\w+)", kind)
        if words is None:
            raise PlanError(
                f"kernel {kernel}: Params.{name} has type {kind}; use u32, i32, f32, vec2, vec4 or array<vec4>"
            )
        of_array, length, width, of_vector, scalar = words.groups()
        fields[name] = (of_array or of_vector or scalar, int(length) * 4 if length else int(width or 1))
        if fields[name][0] not in _FORMATS:
            raise PlanError(f"kernel {kernel}: Params.{name} must be made of u32, i32 or f32, not {fields[name][0]}")
    return fields


def _with_fields(kernel: Kernel, more: Iterable[tuple[str, str]]) -> dict[str, Any]:
    """The attributes of a kernel whose Params have more fields, by name and type."""
    body = "".join(f"{name}: {kind},\n" for name, kind in more)
    fields = kernel.fields | _fields(kernel.name, body)
    return {"fields": fields, "layout": _layout(fields), "flatten": _flattening(kernel.name, fields)}


def _layout(fields: dict[str, tuple[str, int]]) -> struct.Struct:
    """The bytes of Params under WGSL's uniform rules."""
    layout, offset = "<", 0
    for kind, count in fields.values():
        alignment = 16 if count >= 4 else 4 * count
        gap = -offset % alignment
        layout += f"{gap}x{count}{_FORMATS[kind]}" if gap else f"{count}{_FORMATS[kind]}"
        offset += gap + 4 * count
    return struct.Struct(layout + f"{-offset % 16}x")


def _flattening(kernel: str, fields: dict[str, tuple[str, int]]) -> Callable[[dict[str, Any]], list[Any]]:
    """The function that flattens the values of a dispatch in the order of Params."""
    names = tuple(fields)
    if all(count == 1 for _, count in fields.values()):
        return lambda values: [values[name] for name in names]
    counts = tuple((name, count) for name, (_, count) in fields.items())

    def flatten(values: dict[str, Any]) -> list[Any]:
        flat: list[Any] = []
        for name, count in counts:
            value = values[name]
            if count == 1:
                flat.append(value)
            else:
                if len(value) > count:
                    raise PlanError(f"kernel {kernel}: {name} holds {count} numbers, {len(value)} were given")
                flat.extend(value)
                flat.extend((0,) * (count - len(value)))
        return flat

    return flatten
