"""A .wgsl file as a callable: the file alone declares its bindings, its Params and its constants.

Buffers are given by position, Params by name, constants by NAME in capitals. Element types such as `T` are filled in
from the tensors that are bound, so one source serves every dtype; `V` is `T` or a vector of it, as `VEC` says. Where
neighbouring threads can hand each other values, SUBGROUP of them, `// include this, by lanes that` takes that file;
`// by lanes up to 128 parts` says where a kernel does not gain by it.
"""

from __future__ import annotations

import re
import struct
import threading
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from importlib import resources
from typing import Any

from liveshape.errors import PlanError, UnsupportedError
from liveshape.graph import Limits
from liveshape.graph.elements import is_complex, is_packed, is_rounded, storage_type
from liveshape.graph.limits import segment_bytes
from liveshape.graph.live import LiveTensor
from liveshape.kernels.split_bindings import segment_functions, use_segment_functions

_BINDING = re.compile(
    r"@group\(0\)\s*@binding\((\d+)\)\s*var<\s*(storage\s*,\s*read_write|storage\s*,\s*read|storage|uniform)\s*>"
    r"\s*(\w+)\s*:\s*([^;]+);"
)
_PARAMS = re.compile(r"struct\s+Params\s*\{([^}]*)\}\s*;?")
_FIELD = re.compile(r"(\w+)\s*:\s*(array<\s*vec4<\w+>\s*,\s*\d+\s*>|vec[234]<\w+>|\w+)")
_OVERRIDE = re.compile(r"^override\s+(\w+)\s*:\s*(\w+)\s*=\s*([^;]+);[^\n]*$", re.MULTILINE)
_ALLOWED = re.compile(r"^//\s*(\w+):((?:\s*,?\s*(?:f32|f16|i32|u32))+)\s*$", re.MULTILINE)
_LIVE = re.compile(r"^// live (\w+): (\d+(?:, \d+)*)$", re.MULTILINE)
_UNCHECKED = re.compile(r"^// unchecked: \S", re.MULTILINE)
_INCLUDE = re.compile(r"^// include (\w+)(?:, by lanes (\w+))?$", re.MULTILINE)
_BY_LANES = re.compile(r"^// by lanes up to (\d+) parts", re.MULTILINE)
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_ELEMENT = re.compile(r"array<\s*(?:(vec[24])<\s*(\w+)\s*>|(\w+))\s*>")
_CONCRETE = frozenset({"f32", "f16", "i32", "u32"})
_FORMATS = {"u32": "I", "i32": "i", "f32": "f"}
_SIZES = {"f32": 4, "i32": 4, "u32": 4, "f16": 2}
# Sums and products of halves are taken in f32; integers and booleans in their own type.
_MATH = {"f16": "f32", "f32": "f32", "i32": "i32", "u32": "u32"}

_GROUP_INDEX = """
fn group_index(group: vec3<u32>, grid: vec3<u32>) -> u32 {
    return group.x + grid.x * (group.y + grid.y * group.z);
}
"""


_MAKING = threading.RLock()


@dataclass(frozen=True)
class Binding:
    """One storage binding of a kernel; `element` is a WGSL type or an alias such as T, `vector` its width."""

    name: str
    writes: bool
    element: str
    vector: str  # "", "vec2", "vec4", or "V" where VEC decides


class Dispatch:
    """What an operator yields: a kernel, its tensors, its values by name, and how much of it there is.

    That is a number of workgroups, of threads, or of units that PARTS threads share.
    """

    __slots__ = ("groups", "kernel", "shared", "tensors", "threads", "values")

    def __init__(
        self,
        kernel: Kernel,
        tensors: tuple[LiveTensor, ...],
        values: dict[str, Any],
        groups: int | None,
        threads: int | None,
        shared: int | None = None,
    ) -> None:
        self.kernel = kernel
        self.tensors = tensors
        self.values = values
        self.groups = groups
        self.threads = threads
        self.shared = shared


@dataclass(eq=False)
class Variant:
    """A kernel with every choice made: the text to compile. Devices cache their pipelines by it."""

    kernel: Kernel
    types: tuple[tuple[str, str], ...]
    constants: tuple[tuple[str, Any], ...]
    segments: tuple[int, ...]
    segment_bytes: int
    group_size: int
    parts: int = 1  # threads that share a unit
    lanes: int = 0  # neighbouring threads that hand each other values, where its kernel has another text for that
    rounds: tuple[bool, ...] = ()  # per binding, whether what is written becomes bfloat16; none if empty
    siblings: tuple[Variant, ...] = ()  # what other live sizes and positions would choose

    @property
    def label(self) -> str:
        choices = [kind for _, kind in self.types] + [f"{name}={value}" for name, value in self.constants]
        choices += [f"lanes={self.lanes}"] if self.lanes else []
        choices += ["bfloat16"] if self.rounds else []
        return f"{self.kernel.name}<{', '.join(choices)}>"

    @cached_property
    def writes(self) -> tuple[bool, ...]:
        """Per bound buffer, segments counted one by one: whether the kernel writes it."""
        bindings = zip(self.kernel.bindings, self.segments, strict=True)
        return tuple(binding.writes for binding, count in bindings for _ in range(count))

    @property
    def source(self) -> str:
        """The complete WGSL text, put together when it is asked for: a device does so once, and it is long."""
        types, constants = dict(self.types), dict(self.constants)
        width = constants.pop("VEC", 1)
        lines = ["enable f16;"] if "f16" in types.values() or self.kernel.needs_half else []
        for name, kind in types.items():
            lines += [f"alias {name} = {kind};", f"alias {name}_math = {_MATH[kind]};"]
        if self.kernel.vectored:
            lines.append(_vector_prologue(width, _MATH[types["T"]]))
        lines += [f"const {name}: {kind} = {constants[name]};" for name, (kind, _) in self.kernel.constants.items()]
        text = self.kernel.text
        if self.lanes:
            lines.append(f"const SUBGROUP: u32 = {self.lanes}u;")
            text = self.kernel.by_lanes
        declarations, slot = [], 0
        rounded = self.rounds or (False,) * len(self.segments)
        for binding, count, rounds in zip(self.kernel.bindings, self.segments, rounded, strict=True):
            access = "read_write" if binding.writes else "read"
            vector = (f"vec{width}" if width > 1 else "") if binding.vector == "V" else binding.vector
            element = f"{vector}<{binding.element}>" if vector else binding.element
            by_function = count > 1 or rounds
            names = [f"{binding.name}_{part}" for part in range(count)] if by_function else [binding.name]
            for name in names:
                declarations.append(f"@group(0) @binding({slot}) var<storage, {access}> {name}: array<{element}>;")
                slot += 1
            if by_function:
                scalar = types.get(binding.element, binding.element)
                per_segment = self.segment_bytes // (_SIZES[scalar] * (int(vector[3:]) if vector else 1))
                declarations.append(
                    segment_functions(binding.name, binding.writes, element, count, per_segment, rounds)
                )
                text = use_segment_functions(text, binding.name)
        if self.kernel.fields:
            declarations.append(f"@group(0) @binding({slot}) var<uniform> params: Params;")
        return "\n".join([*lines, *declarations]) + _GROUP_INDEX + text


@dataclass(eq=False)
class Kernel:
    """One file of `liveshape/kernels/wgsl`, read and checked at import.

    >>> RMS_NORM = Kernel.load("rms_norm")
    >>> RMS_NORM(out, x, weight, rows=7, width=64, eps=1e-6, groups=7)  # doctest: +SKIP
    """

    name: str
    text: str
    by_lanes: str  # the text where neighbouring threads hand each other values; none if it is the same
    lane_parts: int  # of a unit, up to which it is taken
    bindings: tuple[Binding, ...]
    fields: dict[str, tuple[str, int]]  # name -> (kind, count)
    constants: dict[str, tuple[str, Any]]  # NAME -> (type, default)
    allowed: dict[str, tuple[str, ...]]
    live: dict[str, tuple[int, ...]]  # constants that live values choose, of these (`// live VEC: 1, 2, 4`)
    group_size: int
    choices: tuple[str, ...]  # the constants that a dispatch may choose
    vectored: bool
    needs_half: bool
    unchecked: bool  # whether its file says why no index of it needs a check (`// unchecked: why`)
    layout: struct.Struct
    flatten: Callable[[dict[str, Any]], list[Any]]  # the values of a dispatch in the order of Params
    # For as long as a plan or a device has them; no callbacks, which swallow signals.
    variants: dict[Any, weakref.ref[Variant]] = field(default_factory=dict, repr=False)

    @property
    def param_bytes(self) -> int:
        """The size of Params."""
        return self.layout.size

    def pack(self, values: dict[str, Any]) -> bytes:
        """The bytes of Params."""
        return self.layout.pack(*self.flatten(values))

    @classmethod
    def load(cls, name: str, **instead: str) -> Kernel:
        """Read `liveshape/kernels/wgsl/<name>.wgsl` and the files that its `// include name` lines ask for.

        `Kernel.load("q4_rows", q4_put="q4_put_three")` includes the one file instead of the other.
        """
        taken: set[str] = set()
        text = _text_of(name, instead, taken)
        replaced = [value for key, value in instead.items() if value != key and value in taken]
        return cls.parse("+".join([name, *replaced]), text, _text_of(name, instead, set(), by_lanes=True))

    @classmethod
    def parse(cls, name: str, source: str, by_lanes: str = "") -> Kernel:
        """Read a kernel from its text, and from that by lanes, which declares the same."""
        declared = _BINDING.findall(source)
        if [int(number) for number, *_ in declared] != list(range(len(declared))):
            raise PlanError(f"kernel {name}: bindings must be numbered 0, 1, 2, ... in order")
        storage = [row for row in declared if row[1].startswith("storage")]
        if any(row[1] == "uniform" for row in declared[: len(storage)]):
            raise PlanError(f"kernel {name}: the uniform Params must be the last binding")
        bindings = tuple(_binding(name, row) for row in storage)
        layout = _PARAMS.search(source)
        fields = _fields(name, layout.group(1)) if layout else {}
        overrides = {word: (kind, value.strip()) for word, kind, value in _OVERRIDE.findall(source)}
        group_size = int(overrides.pop("WG", ("u32", "64"))[1].rstrip("u"))
        constants: dict[str, tuple[str, Any]] = {"WG": ("u32", group_size)}
        constants.update(overrides)
        allowed = {word: tuple(re.findall(r"\w+", kinds)) for word, kinds in _ALLOWED.findall(source)}
        vectored = bool(re.search(r"\bV\b", source))
        return cls(
            name=name,
            text=_code_of(source),
            by_lanes=_code_of(by_lanes) if by_lanes != source else "",
            lane_parts=int(bound.group(1)) if (bound := _BY_LANES.search(source)) else Limits.max_parts,
            bindings=bindings,
            fields=fields,
            constants=constants,
            allowed=allowed,
            live={word: tuple(map(int, values.split(","))) for word, values in _LIVE.findall(source)},
            group_size=group_size,
            choices=("WG", *overrides, "VEC") if vectored else ("WG", *overrides),
            vectored=vectored,
            needs_half=bool(re.search(r"\bf16\b", _COMMENT.sub("", source))),
            unchecked=bool(_UNCHECKED.search(source)),
            layout=_layout(fields),
            flatten=_flattening(name, fields),
        )

    def __call__(
        self,
        *tensors: LiveTensor,
        groups: int | None = None,
        threads: int | None = None,
        shared: int | None = None,
        **values: Any,
    ) -> Dispatch:
        return Dispatch(self, tensors, values, groups, threads, shared)

    def variant(self, dispatch: Dispatch, limits: Limits) -> Variant:
        """The variant for these tensors and constants, shared by all graphs that have it and made if none has."""
        chosen = {name: dispatch.values[name] for name in self.choices if name in dispatch.values}
        sizes = tuple(tensor.parts for tensor in dispatch.tensors)
        key = (tuple(tensor.dtype for tensor in dispatch.tensors), tuple(chosen.items()), sizes, limits)
        # Of two threads that make one at once both must get the same, with its siblings: pipelines are found by it.
        with _MAKING:
            known = self.variants.get(key)
            found = known() if known is not None else None
            if found is None:
                found = self._specialize(dispatch, chosen, sizes, limits)
                count = len(self.variants)
                if count & (count - 1) == 0:  # at each power of two: as many as are living, and at most once again
                    self.variants = {each: ref for each, ref in self.variants.items() if ref() is not None}
                self.variants[key] = weakref.ref(found)
                found.siblings = tuple(
                    self.variant(Dispatch(self, dispatch.tensors, dispatch.values | {name: value}, 0, None), limits)
                    for name, values in self.live.items()
                    for value in values
                )
        return found

    def _specialize(
        self, dispatch: Dispatch, chosen: dict[str, Any], sizes: tuple[int, ...], limits: Limits
    ) -> Variant:
        self._check_names(dispatch)
        types: dict[str, str] = {}
        for binding, tensor in zip(self.bindings, dispatch.tensors, strict=True):
            kind = storage_type(tensor.dtype, limits.half)
            expected = binding.element if binding.element in _CONCRETE else types.setdefault(binding.element, kind)
            allowed = self.allowed.get(binding.element, (expected,))
            by_element = binding.element not in _CONCRETE and (is_packed(tensor.dtype) or is_complex(tensor.dtype))
            if kind != expected or kind not in allowed or by_element:
                raise UnsupportedError(
                    f"kernel {self.name} takes {' or '.join(allowed)} for {binding.name}, not {tensor.dtype} "
                    f"({tensor.name}); cast the tensor before export"
                )
        if sum(sizes) > limits.max_bindings:
            raise UnsupportedError(
                f"kernel {self.name} would bind {sum(sizes)} buffers to reach tensors above the device's binding limit "
                f"of {limits.max_binding_bytes:,} bytes; the device allows {limits.max_bindings}"
            )
        group_size = 1 << (min(chosen.get("WG", self.group_size), limits.max_invocations).bit_length() - 1)
        parts = 1
        if dispatch.shared is not None:
            # Parts combine in halves, so a limit between two powers of two is the lower one.
            most = 1 << (max(limits.max_parts, 1).bit_length() - 1)
            parts = chosen["PARTS"] = min(chosen["PARTS"], group_size, most)
        constants = {name: default for name, (_, default) in self.constants.items()} | chosen | {"WG": group_size}
        literals = {
            name: value if name == "VEC" else _literal(self.constants[name][0], value)
            for name, value in constants.items()
        }
        bound = zip(self.bindings, dispatch.tensors, strict=True)
        rounds = tuple(binding.writes and is_rounded(tensor.dtype) for binding, tensor in bound)
        return Variant(
            self,
            tuple(types.items()),
            tuple(literals.items()),
            sizes,
            segment_bytes(limits),
            group_size,
            parts,
            limits.subgroup if self.by_lanes and parts <= self.lane_parts else 0,
            rounds if any(rounds) else (),
        )

    def _check_names(self, dispatch: Dispatch) -> None:
        if len(dispatch.tensors) != len(self.bindings):
            names = ", ".join(binding.name for binding in self.bindings)
            raise PlanError(f"kernel {self.name} binds ({names}), {len(dispatch.tensors)} tensors were given")
        known = set(self.fields) | set(self.constants) | ({"VEC"} if self.vectored else set())
        given = set(dispatch.values)
        if unknown := given - known:
            raise PlanError(f"kernel {self.name} has no parameter {', '.join(sorted(unknown))}")
        if missing := set(self.fields) - given:
            raise PlanError(f"kernel {self.name} needs {', '.join(sorted(missing))}")
        if [dispatch.groups, dispatch.threads, dispatch.shared].count(None) != 2:
            raise PlanError(f"kernel {self.name} needs either groups=, threads= or shared=")
        if dispatch.shared is not None and "PARTS" not in given:
            raise PlanError(f"kernel {self.name} needs PARTS= with shared=")


def _text_of(name: str, instead: Mapping[str, str], taken: set[str], by_lanes: bool = False) -> str:
    """A file with those that it includes; one that was `taken` before is not taken again."""
    file = instead.get(name, name)
    if file in taken:
        return ""
    taken.add(file)
    text = resources.files("liveshape.kernels.wgsl").joinpath(f"{file}.wgsl").read_text("utf-8")

    def included(match: re.Match[str]) -> str:
        other = match.group(2) if by_lanes else None
        return _text_of(other or match.group(1), instead, taken, by_lanes)

    return _INCLUDE.sub(included, text)


def _code_of(source: str) -> str:
    """A text without what `Variant.source` declares anew."""
    return _COMMENT.sub("", _OVERRIDE.sub("", _BINDING.sub("", source)))


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
    """The function that puts the values of a dispatch into the order of Params."""
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


def _literal(kind: str, value: Any) -> Any:
    """A Python value as a WGSL literal of `kind`; text from the file stays as it stands."""
    if isinstance(value, bool):
        return str(value).lower() if kind == "bool" else f"{int(value)}{'u' if kind == 'u32' else ''}"
    return f"{value}u" if kind == "u32" and isinstance(value, int) else value


def _vector_prologue(width: int, math_type: str) -> str:
    if width == 1:
        return (
            f"alias V = T;\nalias V_math = {math_type};\nconst V_lanes: u32 = 1u;\n"
            f"fn V_sum(v: V_math) -> {math_type} {{ return v; }}\n"
            f"fn V_at(v: V_math, lane: u32) -> {math_type} {{ return v; }}"
        )
    terms = " + ".join(f"v[{lane}]" for lane in range(width))
    return (
        f"alias V = vec{width}<T>;\nalias V_math = vec{width}<{math_type}>;\nconst V_lanes: u32 = {width}u;\n"
        f"fn V_sum(v: V_math) -> {math_type} {{ return {terms}; }}\n"
        f"fn V_at(v: V_math, lane: u32) -> {math_type} {{ return v[lane]; }}"
    )
