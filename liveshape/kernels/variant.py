"""A specialized kernel: every choice made, the WGSL that a device compiles."""

from __future__ import annotations

import threading
import weakref
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from liveshape.errors import PlanError, UnsupportedError
from liveshape.graph import Limits
from liveshape.graph.elements import by_itself, is_rounded, storage_type
from liveshape.graph.limits import segment_bytes
from liveshape.kernels.kernel import CONCRETE, Dispatch, Kernel
from liveshape.kernels.preprocessor import SUBGROUP, resolve
from liveshape.kernels.split_bindings import segment_functions, use_segment_functions

_SIZES = {"f32": 4, "i32": 4, "u32": 4, "f16": 2}
# Sums and products of halves are taken in f32; integers and booleans in their own type.
_MATH = {"f16": "f32", "f32": "f32", "i32": "i32", "u32": "u32"}

_GROUP_INDEX = """
fn group_index(group: vec3<u32>, grid: vec3<u32>) -> u32 {
    return group.x + grid.x * (group.y + grid.y * group.z);
}
"""


_MAKING = threading.RLock()
_RUN = 16  # of a thread where threads are few: common/each_in_runs.wgsl


@dataclass(eq=False)
class Variant:
    """A kernel with every choice made: the WGSL to compile. Devices cache their pipelines by it."""

    kernel: Kernel
    types: tuple[tuple[str, str], ...]
    constants: tuple[tuple[str, Any], ...]
    segments: tuple[int, ...]
    segment_bytes: int
    group_size: int
    unit_threads: int = 1  # that cooperate on a unit
    run: int = 1  # of what is to be done for each, that a thread does
    subgroup: int = 0  # its size, where the kernel has a text with shuffles
    rounds: tuple[bool, ...] = ()  # per binding, whether stores round to bfloat16; none if empty
    siblings: tuple[Variant, ...] = ()  # what other live segments and positions would choose

    @property
    def label(self) -> str:
        choices = [kind for _, kind in self.types] + [f"{name}={value}" for name, value in self.constants]
        choices += [f"{SUBGROUP}={self.subgroup}"] if self.subgroup else []
        choices += ["bfloat16"] if self.rounds else []
        return f"{self.kernel.name}<{', '.join(choices)}>"

    @cached_property
    def writes(self) -> tuple[bool, ...]:
        """Per bound buffer, segments counted one by one: whether the kernel writes it."""
        bindings = zip(self.kernel.bindings, self.segments, strict=True)
        return tuple(binding.writes for binding, count in bindings for _ in range(count))

    @property
    def source(self) -> str:
        """The complete WGSL, assembled when it is asked for: a device does so once, and it is long."""
        types, constants = dict(self.types), dict(self.constants)
        width = constants.pop("VEC", 1)
        lines = ["enable f16;"] if "f16" in types.values() or self.kernel.needs_half else []
        for name, kind in types.items():
            lines += [f"alias {name} = {kind};", f"alias {name}_math = {_MATH[kind]};"]
        if self.kernel.vectored:
            lines.append(_vector_prologue(width, _MATH[types["T"]]))
        lines += [f"const {name}: {kind} = {constants[name]};" for name, (kind, _) in self.kernel.constants.items()]
        if self.subgroup:
            lines.append(f"const {SUBGROUP}: u32 = {self.subgroup}u;")
        text = resolve(self.kernel.text, constants | {SUBGROUP: self.subgroup})
        for each in self.kernel.composed:  # in the order of their fields in Params
            lanes = width if each.binding.vector == "V" else int(each.binding.vector[3:] or 1)
            text = each.applied(text, lanes)
        declarations, slot = [], 0
        rounded = self.rounds or (False,) * len(self.segments)
        for binding, count, rounds in zip(self.kernel.bindings, self.segments, rounded, strict=True):
            access = "read_write" if binding.writes else "read"
            vector = (f"vec{width}" if width > 1 else "") if binding.vector == "V" else binding.vector
            element = f"{vector}<{binding.element}>" if vector else binding.element
            composed = slot == 0 and self.kernel.stores_composed
            by_function = count > 1 or rounds or composed
            names = [f"{binding.name}_{part}" for part in range(count)] if by_function else [binding.name]
            for name in names:
                declarations.append(f"@group(0) @binding({slot}) var<storage, {access}> {name}: array<{element}>;")
                slot += 1
            if by_function and not composed:
                scalar = types.get(binding.element, binding.element)
                per_segment = self.segment_bytes // (_SIZES[scalar] * (int(vector[3:]) if vector else 1))
                declarations.append(
                    segment_functions(binding.name, binding.writes, element, count, per_segment, rounds)
                )
                text = use_segment_functions(text, binding.name)
        if self.kernel.fields:
            declarations.append(f"@group(0) @binding({slot}) var<uniform> params: Params;")
        return "\n".join([*lines, *declarations]) + _GROUP_INDEX + text


def specialize(dispatch: Dispatch, limits: Limits) -> Variant:
    """The variant for these tensors and constants, shared by all graphs that have it and made if none has.

    Example: `specialize(RMS_NORM(out, x, weight, rows=7, width=64, eps=1e-6, groups=7), limits).source`.
    """
    kernel = dispatch.kernel
    chosen = {name: dispatch.values[name] for name in kernel.dispatch_constants if name in dispatch.values}
    segments = tuple(tensor.bindings for tensor in dispatch.tensors)
    key = (tuple(tensor.dtype for tensor in dispatch.tensors), tuple(chosen.items()), segments, limits)
    # Of two threads that make one at once both must get the same, with its siblings: pipelines are found by it.
    with _MAKING:
        known = kernel.variants.get(key)
        found = known() if known is not None else None
        if found is None:
            found = _made(dispatch, chosen, segments, limits)
            count = len(kernel.variants)
            if count & (count - 1) == 0:  # at each power of two: as many as are living, and at most once again
                kernel.variants = {each: ref for each, ref in kernel.variants.items() if ref() is not None}
            kernel.variants[key] = weakref.ref(found)
            found.siblings = tuple(
                specialize(Dispatch(kernel, dispatch.tensors, dispatch.values | {name: value}, 0, None), limits)
                for name, values in kernel.live.items()
                for value in values
            )
    return found


def _made(dispatch: Dispatch, chosen: dict[str, Any], segments: tuple[int, ...], limits: Limits) -> Variant:
    kernel = dispatch.kernel
    _check_names(dispatch)
    types: dict[str, str] = {}
    for each in kernel.composed:
        kind = storage_type(each.dtype, limits.half)
        if each.binding.element not in CONCRETE and types.setdefault(each.binding.element, kind) != kind:
            raise UnsupportedError(f"kernel {kernel.name} stores {types} and loads {kind}; cast before export")
    for binding, tensor in zip(kernel.bindings, dispatch.tensors, strict=True):
        kind = storage_type(tensor.dtype, limits.half)
        if kind == "f16" and binding.name in kernel.words:
            kind = "u32"
        expected = binding.element if binding.element in CONCRETE else types.setdefault(binding.element, kind)
        allowed = kernel.allowed.get(binding.element, (expected,))
        apart = not kernel.by_parts and binding.element not in CONCRETE
        if kind != expected or kind not in allowed or (apart and not by_itself(tensor.dtype)):
            raise UnsupportedError(
                f"kernel {kernel.name} takes {' or '.join(allowed)} for {binding.name}, not {tensor.dtype} "
                f"({tensor.name}); cast the tensor before export"
            )
    bindings = sum(segments)
    if bindings > limits.max_bindings:
        raise UnsupportedError(
            f"kernel {kernel.name} would bind {bindings} buffers to reach tensors above the device's binding limit "
            f"of {limits.max_binding_bytes:,} bytes; the device allows {limits.max_bindings}"
        )
    group_size = 1 << (min(chosen.get("WG", kernel.group_size), limits.max_invocations).bit_length() - 1)
    unit_threads = 1
    if dispatch.cooperative_units is not None:
        # Partial results combine in halves, so a limit between two powers of two is the lower one.
        most = 1 << (max(limits.max_cooperating_threads, 1).bit_length() - 1)
        unit_threads = chosen["UNIT_THREADS"] = min(chosen["UNIT_THREADS"], group_size, most)
    run = 1 if limits.has_many_threads or "THREAD_RUN" not in kernel.constants else _RUN
    if run > 1:
        chosen = chosen | {"THREAD_RUN": run}
    constants = {name: default for name, (_, default) in kernel.constants.items()} | chosen | {"WG": group_size}
    literals = {
        name: value if name == "VEC" else _literal(kernel.constants[name][0], value)
        for name, value in constants.items()
    }
    bound = zip(kernel.bindings, dispatch.tensors, strict=True)
    rounds = tuple(
        binding.writes and is_rounded(tensor.dtype) and not kernel.stores_composed  # which rounds what it stores
        for binding, tensor in bound
    )
    return Variant(
        kernel,
        tuple(types.items()),
        tuple(literals.items()),
        segments,
        segment_bytes(limits),
        group_size,
        unit_threads,
        run,
        limits.subgroup if kernel.has_subgroup_text and unit_threads <= kernel.max_shuffled else 0,
        rounds if any(rounds) else (),
    )


def _check_names(dispatch: Dispatch) -> None:
    kernel = dispatch.kernel
    if len(dispatch.tensors) != len(kernel.bindings):
        names = ", ".join(binding.name for binding in kernel.bindings)
        raise PlanError(f"kernel {kernel.name} binds ({names}), {len(dispatch.tensors)} tensors were given")
    known = set(kernel.fields) | set(kernel.constants) | ({"VEC"} if kernel.vectored else set())
    given = set(dispatch.values)
    if unknown := given - known:
        raise PlanError(f"kernel {kernel.name} has no parameter {', '.join(sorted(unknown))}")
    if missing := set(kernel.fields) - given:
        raise PlanError(f"kernel {kernel.name} needs {', '.join(sorted(missing))}")
    if [dispatch.groups, dispatch.threads, dispatch.cooperative_units].count(None) != 2:
        raise PlanError(f"kernel {kernel.name} needs either groups=, threads= or cooperative_units=")
    if dispatch.cooperative_units is not None and "UNIT_THREADS" not in given:
        raise PlanError(f"kernel {kernel.name} needs UNIT_THREADS= with cooperative_units=")


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
