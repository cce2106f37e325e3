"""A .wgsl file as a callable: the file alone declares its bindings, its Params and its constants.

Buffers are given by position, Params by name, constants by NAME in capitals. Element types such as `T` are filled in
from the tensors that are bound, so one source serves every dtype; `V` is `T` or a vector of it, as `VEC` says.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from importlib import resources
from typing import Any

from liveshape.errors import PlanError, UnsupportedError
from liveshape.graph import Limits, Tensor
from liveshape.graph.elements import is_packed, storage_type

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
_INCLUDE = re.compile(r"^// include (\w+)$", re.MULTILINE)
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
        tensors: tuple[Tensor, ...],
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
    siblings: tuple[Variant, ...] = ()  # what other live sizes and positions would choose

    @property
    def label(self) -> str:
        choices = [kind for _, kind in self.types] + [f"{name}={value}" for name, value in self.constants]
        return f"{self.kernel.name}<{', '.join(choices)}>"

    @cached_property
    def writes(self) -> tuple[bool, ...]:
        """Per bound buffer, segments counted one by one: whether the kernel writes it."""
        bindings = zip(self.kernel.bindings, self.segments, strict=True)
        return tuple(binding.writes for binding, count in bindings for _ in range(count))

    @cached_property
    def source(self) -> str:
        """The complete WGSL text."""
        types, constants = dict(self.types), dict(self.constants)
        width = constants.pop("VEC", 1)
        lines = ["enable f16;"] if "f16" in types.values() or self.kernel.needs_half else []
        for name, kind in types.items():
            lines += [f"alias {name} = {kind};", f"alias {name}_math = {_MATH[kind]};"]
        if self.kernel.vectored:
            lines.append(_vector_prologue(width, _MATH[types["T"]]))
        lines += [f"const {name}: {kind} = {constants[name]};" for name, (kind, _) in self.kernel.constants.items()]
        text = self.kernel.text
        declarations, slot = [], 0
        for binding, count in zip(self.kernel.bindings, self.segments, strict=True):
            access = "read_write" if binding.writes else "read"
            vector = (f"vec{width}" if width > 1 else "") if binding.vector == "V" else binding.vector
            element = f"{vector}<{binding.element}>" if vector else binding.element
            names = [binding.name] if count == 1 else [f"{binding.name}_{part}" for part in range(count)]
            for name in names:
                declarations.append(f"@group(0) @binding({slot}) var<storage, {access}> {name}: array<{element}>;")
                slot += 1
            if count > 1:
                scalar = types.get(binding.element, binding.element)
                per_segment = self.segment_bytes // (_SIZES[scalar] * (int(vector[3:]) if vector else 1))
                declarations.append(_segment_functions(binding, element, count, per_segment))
                text = _use_segment_functions(text, binding.name)
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
    param_bytes: int
    pack: Callable[[dict[str, Any]], bytes]
    variants: dict[Any, Variant] = field(default_factory=dict, repr=False)

    @classmethod
    def load(cls, name: str, **instead: str) -> Kernel:
        """Read `liveshape/kernels/wgsl/<name>.wgsl` and the files that its `// include name` lines ask for.

        `Kernel.load("q4_rows", q4_put="q4_put_three")` includes the one file instead of the other.
        """
        return cls.parse("+".join([name, *instead.values()]), _text_of(name, instead))

    @classmethod
    def parse(cls, name: str, source: str) -> Kernel:
        """Read a kernel from its text."""
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
        param_bytes, pack = _packer(name, fields)
        vectored = bool(re.search(r"\bV\b", source))
        return cls(
            name=name,
            text=_OVERRIDE.sub("", _BINDING.sub("", source)),
            bindings=bindings,
            fields=fields,
            constants=constants,
            allowed=allowed,
            live={word: tuple(map(int, values.split(","))) for word, values in _LIVE.findall(source)},
            group_size=group_size,
            choices=(*overrides, "VEC") if vectored else tuple(overrides),
            vectored=vectored,
            needs_half=bool(re.search(r"\bf16\b", re.sub(r"//[^\n]*", "", source))),
            unchecked=bool(_UNCHECKED.search(source)),
            param_bytes=param_bytes,
            pack=pack,
        )

    def __call__(
        self,
        *tensors: Tensor,
        groups: int | None = None,
        threads: int | None = None,
        shared: int | None = None,
        **values: Any,
    ) -> Dispatch:
        return Dispatch(self, tensors, values, groups, threads, shared)

    def variant(self, dispatch: Dispatch, limits: Limits) -> Variant:
        """The variant for these tensors and constants, made at the first use and shared by every graph."""
        chosen = {name: dispatch.values[name] for name in self.choices if name in dispatch.values}
        sizes = tuple(segments(tensor.storage.nbytes, limits) for tensor in dispatch.tensors)
        key = (tuple(tensor.dtype for tensor in dispatch.tensors), tuple(chosen.items()), sizes, limits)
        found = self.variants.get(key)
        if found is None:
            found = self.variants[key] = self._specialize(dispatch, chosen, sizes, limits)
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
            by_element = binding.element not in _CONCRETE and is_packed(tensor.dtype)
            if kind != expected or kind not in allowed or by_element:
                raise UnsupportedError(
                    f"kernel {self.name} takes {' or '.join(allowed)} for {binding.name}, not {tensor.dtype} "
                    f"({tensor.name}); cast the tensor before export, or leave the operator out of the delegate"
                )
        if sum(sizes) > limits.max_bindings:
            raise UnsupportedError(
                f"kernel {self.name} would bind {sum(sizes)} buffers to reach tensors above the device's binding limit "
                f"of {limits.max_binding_bytes:,} bytes; the device allows {limits.max_bindings}"
            )
        group_size = 1 << (min(self.group_size, limits.max_invocations).bit_length() - 1)
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
        segment_bytes = 1 << (limits.max_binding_bytes.bit_length() - 1)
        return Variant(self, tuple(types.items()), tuple(literals.items()), sizes, segment_bytes, group_size, parts)

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


def _text_of(name: str, instead: Mapping[str, str]) -> str:
    text = resources.files("liveshape.kernels.wgsl").joinpath(f"{instead.get(name, name)}.wgsl").read_text("utf-8")
    return _INCLUDE.sub(lambda match: _text_of(match.group(1), instead), text)


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
    for name, kind in _FIELD.findall(re.sub(r"//[^\n]*", "", body)):
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


def _packer(kernel: str, fields: dict[str, tuple[str, int]]) -> tuple[int, Callable[[dict[str, Any]], bytes]]:
    """The byte layout of Params under WGSL's uniform rules, and the function that fills it."""
    layout, offset = "<", 0
    for kind, count in fields.values():
        alignment = 16 if count >= 4 else 4 * count
        gap = -offset % alignment
        layout += f"{gap}x{count}{_FORMATS[kind]}" if gap else f"{count}{_FORMATS[kind]}"
        offset += gap + 4 * count
    layout += f"{-offset % 16}x"
    packer = struct.Struct(layout)
    names = tuple(fields)
    if all(count == 1 for _, count in fields.values()):

        def pack(values: dict[str, Any]) -> bytes:
            return packer.pack(*[values[name] for name in names])

    else:
        counts = tuple((name, count) for name, (_, count) in fields.items())

        def pack(values: dict[str, Any]) -> bytes:
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
            return packer.pack(*flat)

    return packer.size, pack


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


def segments(nbytes: int, limits: Limits) -> int:
    """How many bindings a tensor of this size takes."""
    if nbytes <= limits.max_binding_bytes:
        return 1
    return -(-nbytes // (1 << (limits.max_binding_bytes.bit_length() - 1)))


def _segment_functions(binding: Binding, element: str, count: int, per_segment: int) -> str:
    """Accessors that find the segment of an index, for a tensor above the device's binding limit."""
    shift, mask, name = per_segment.bit_length() - 1, per_segment - 1, binding.name
    cases = [f"case {part}u: {{ return {name}_{part}[i & {mask}u]; }}" for part in range(count - 1)]
    cases.append(f"default: {{ return {name}_{count - 1}[i & {mask}u]; }}")
    text = f"fn {name}_at(i: u32) -> {element} {{ switch (i >> {shift}u) {{ {' '.join(cases)} }} }}"
    if binding.writes:
        cases = [f"case {part}u: {{ {name}_{part}[i & {mask}u] = v; }}" for part in range(count - 1)]
        cases.append(f"default: {{ {name}_{count - 1}[i & {mask}u] = v; }}")
        text += f"\nfn {name}_put(i: u32, v: {element}) {{ switch (i >> {shift}u) {{ {' '.join(cases)} }} }}"
    return text


def _use_segment_functions(text: str, name: str) -> str:
    """Rewrite `name[i]` to its accessor and `name[i] = v;` to its setter."""
    pieces, cursor = [], 0
    for match in re.finditer(rf"\b{name}\[", text):
        if match.start() < cursor:
            continue
        end = _closing(text, match.end() - 1)
        index = _use_segment_functions(text[match.end() : end], name)
        pieces.append(text[cursor : match.start()])
        assignment = re.match(r"\s*=(?!=)", text[end + 1 :])
        if assignment:
            start = end + 1 + assignment.end()
            stop = text.index(";", start)
            pieces.append(f"{name}_put({index}, {_use_segment_functions(text[start:stop], name).strip()})")
            cursor = stop
        else:
            pieces.append(f"{name}_at({index})")
            cursor = end + 1
    pieces.append(text[cursor:])
    return "".join(pieces)


def _closing(text: str, opening: int) -> int:
    depth = 0
    for position in range(opening, len(text)):
        depth += {"[": 1, "]": -1}.get(text[position], 0)
        if depth == 0:
            return position
    raise PlanError("unbalanced brackets in a kernel's text")
