"""No kernel declares more workgroup memory than the device has: Dawn and browsers refuse it, wgpu does not look."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from liveshape.graph import Graph, Limits, Tensor
from liveshape.graph.activation_kinds import INT8
from liveshape.kernels import Variant
from liveshape.lower.activations import with_activations
from liveshape.lower.fusion import fuse
from liveshape.plan.compiling import compile
from liveshape.plan.plan import Choices
from liveshape.plan.plan_state import PlanState
from liveshape.run.half_scales import fit_halves
from liveshape.tools.measuring.random_llamas import SHAPES, llama_graph
from tests.ops.cases import CASES
from tests.support.graphs import OpCase, build, flat_specs

ROWS = (1, 2, 5, 8, 9, 16, 17, 32, 33, 64, 65, 128)  # on both sides of every choice of a kernel by rows
LEAST = Limits(max_invocations=256)  # 16,384 bytes, as every device has them
DEVICES = {
    "least": LEAST,
    "subgroups": replace(LEAST, subgroup=32, max_invocations=1024),
    "odd": replace(LEAST, max_workgroup_bytes=20000),
    "large_tiles": replace(LEAST, max_workgroup_bytes=32768),
    "one_order": replace(LEAST, one_order=True),
    "few_threads": Limits(max_invocations=32, max_cooperating_threads=4, lanes=8),
}
EACH = [name if name == "least" else pytest.param(name, marks=pytest.mark.slow) for name in DEVICES]
_CONSTANT = re.compile(r"\bconst (\w+)(?:\s*:\s*\w+)?\s*=\s*([^;]+);")
_ARRAY = re.compile(r"\bvar<\s*workgroup\s*>\s*(\w+)\s*:\s*(?:array<\s*([\w<>]+)\s*,\s*([^;]+)>|([\w<>]+))\s*;")
_BYTES = {"f32": 4, "u32": 4, "i32": 4, "f16": 2, "bool": 4}


def workgroup_bytes(text: str) -> int:
    """The bytes of all workgroup variables of a WGSL text, each in whole 16 bytes, as WebGPU counts them.

    >>> workgroup_bytes("const WG: u32 = 8u; var<workgroup> a: array<vec4<f32>, WG * 2u>; var<workgroup> b: u32;")
    272
    """
    constants = dict(_CONSTANT.findall(text))
    aliases = dict(re.findall(r"\balias (\w+) = ([^;]+);", text))
    structs = dict(re.findall(r"\bstruct (\w+)\s*\{(.*?)\}", text, re.DOTALL))
    known: dict[str, Any] = {"min": min, "max": max, "clamp": _clamp, "select": _select, "true": True, "false": False}

    def value(expression: str) -> Any:
        for name in re.findall(r"\b[A-Za-z_]\w*\b", expression):
            if name not in known and name in constants:
                known[name] = value(constants[name])
        plain = re.sub(r"\b(\d+)[uif]\b", r"\1", re.sub(r"\bu32\(", "int(", expression)).replace("/", "//")
        plain = plain.replace("||", " or ").replace("&&", " and ")
        return eval(plain, {"__builtins__": {"int": int}}, known)

    def layout(kind: str) -> tuple[int, int]:
        """Size and alignment."""
        while kind in aliases:
            kind = aliases[kind]
        if found := re.fullmatch(r"vec([234])<(.+)>", kind):
            unit, count = layout(found[2])[0], int(found[1])
            return count * unit, (2 if count == 2 else 4) * unit
        if found := re.fullmatch(r"mat(\d)x(\d)<(.+)>", kind):
            aligned = (2 if found[2] == "2" else 4) * layout(found[3])[0]
            return int(found[1]) * aligned, aligned
        if found := re.fullmatch(r"atomic<(.+)>", kind):
            return layout(found[1])
        if found := re.fullmatch(r"array<(.+),([^,]+)>", kind):
            return value(found[2]) * stride(found[1]), layout(found[1])[1]
        if kind in structs:
            end, most = 0, 1
            for member in re.findall(r"\w+\s*:\s*([^,:]+(?:<[^:]*>)?)\s*,?", re.sub(r"//.*", "", structs[kind])):
                nbytes, aligned = layout(member.strip())
                end, most = -(-end // aligned) * aligned + nbytes, max(most, aligned)
            return -(-end // most) * most, most
        return _BYTES[kind], _BYTES[kind]

    def stride(kind: str) -> int:
        nbytes, aligned = layout(kind)
        return -(-nbytes // aligned) * aligned

    total = 0
    for _, element, count, single in _ARRAY.findall(text):
        nbytes = stride(element) * value(count) if element else stride(single)
        total += -(-nbytes // 16) * 16
    assert len(_ARRAY.findall(text)) == len(re.findall(r"\bvar<\s*workgroup\s*>", text))
    return total


def _clamp(number: Any, least: Any, most: Any) -> Any:
    return min(max(number, least), most)


def _select(otherwise: Any, chosen: Any, condition: Any) -> Any:
    return chosen if condition else otherwise


def variants_of(graph: Graph, limits: Limits, walks: Iterator[dict[Any, Any]]) -> set[Variant]:
    """The kernels at live sizes."""
    live = PlanState(compile(graph, limits, Choices(warm=False)))
    for sizes in walks:
        for value, size in sizes.items():
            live.set(value, size)
        live.begin()
        live.walk(0, len(live.nodes), lambda _, request: 0)
    return {variant for node in live.nodes for route in node.group.routes for variant, _ in route}


def check(variants: set[Variant], limits: Limits) -> None:
    assert variants
    found = {variant.label: workgroup_bytes(variant.source) for variant in variants}
    large = {label: nbytes for label, nbytes in found.items() if nbytes > limits.max_workgroup_bytes}
    assert not large


@pytest.mark.parametrize("device", EACH)
@pytest.mark.parametrize("activations", ["float32", INT8])
@pytest.mark.parametrize("bits", ["1b", "1b-q4_k_m", "1b-q8_0"])
def test_language_models(device: str, activations: str, bits: str) -> None:
    limits = DEVICES[device]
    shape = replace(SHAPES[bits], layers=3, max_seq_len=max(ROWS))
    graph = with_activations(llama_graph(shape, limits), activations, limits, fit_halves)
    tokens = graph.inputs[0]
    assert isinstance(tokens, Tensor)
    others = {value: (1,) for value in graph.inputs[1:] if isinstance(value, Tensor)}
    check(variants_of(graph, limits, ({tokens: (1, rows), **others} for rows in ROWS)), limits)


@pytest.mark.parametrize("device", EACH)
def test_operators(device: str) -> None:
    variants: set[Variant] = set()
    for case in CASES:
        variants |= _of_case(case, DEVICES[device])
    check(variants, DEVICES[device])


def _of_case(case: OpCase, limits: Limits) -> set[Variant]:
    graph = fuse(build(case, max(case.sizes)), limits)

    def walks() -> Iterator[dict[Any, Any]]:
        for size in case.sizes:
            specs = zip(graph.inputs, flat_specs(case.args_at(size)), strict=True)
            yield {
                value: tuple(spec.shape) if isinstance(value, Tensor) else spec.value
                for value, spec in specs
                if not isinstance(value, (list, tuple))
            }

    return variants_of(graph, limits, walks())
