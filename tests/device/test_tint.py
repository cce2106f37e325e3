"""Tint takes every kernel, and clamps keep the indices of those that need checks in their arrays. No GPU."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial

import pytest

from bench.plans import DEVICES, ROOT, Planned, of_case, of_program, of_programs
from liveshape.device.tint import tint_source, with_extensions
from liveshape.errors import LiveshapeError
from liveshape.graph import Limits
from liveshape.kernels import Kernel, Variant
from liveshape.kernels.preprocessor import texts
from tests.ops.cases import CASES
from tests.ops.test_sweep import QUICK
from tests.support.kernels import KERNELS, default_variants
from tests.support.tint import refusals

slow = pytest.mark.slow

SOURCE = """
override WG: u32 = 64;
struct Params { out: array<vec4<u32>, 2> }
@group(0) @binding(0) var<storage, read_write> out: array<f32>;
@group(0) @binding(1) var<storage, read> x: array<f32>;
@group(0) @binding(2) var<storage, read> ids: array<i32>;
@group(0) @binding(3) var<uniform> params: Params;
var<workgroup> held: array<atomic<u32>, max(WG, 2u) * 2>;
var<private> kept: array<vec4<f32>, 4>;
@compute @workgroup_size(WG)
fn main(@builtin(local_invocation_index) i: u32) {
    atomicAdd(&held[i - 1u], 1u);
    kept[i >> 4u][i & 3u] = x[ids[i]];
    var local = array<u32, 2>(1u, 2u);
    out[params.out[1][i & 3u]] += kept[0].x + f32(local[i & 1u]);
}
"""
# As kernels are written whose bindings may be split: accessors take a u32, setters are plain assignments.
SPLITTABLE = SOURCE.replace("+=", "=").replace("x[ids[i]]", "x[u32(ids[i])]")


def variant(source: str = SOURCE, segments: tuple[int, ...] = (1, 1, 1)) -> Variant:
    return Variant(Kernel.parse("sample", source), (), (("WG", "64u"),), segments, 1 << 10, 64)


def lines_of(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines()]


def test_arrays_at_module_scope_are_clamped_and_nothing_else() -> None:
    assert lines_of(tint_source(variant()))[-6:] == [
        "fn main(@builtin(local_invocation_index) i: u32) {",
        "atomicAdd(&held[min(u32(i - 1u), u32(max(WG, 2u) * 2) - 1u)], 1u);",
        "kept[min(u32(i >> 4u), u32(4) - 1u)][i & 3u] = "
        "x[min(u32(ids[min(u32(i), arrayLength(&ids) - 1u)]), arrayLength(&x) - 1u)];",
        "var local = array<u32, 2>(1u, 2u);",
        "out[min(u32(params.out[1][i & 3u]), arrayLength(&out) - 1u)] += "
        "kept[min(u32(0), u32(4) - 1u)].x + f32(local[i & 1u]);",
        "}",
    ]


def test_each_segment_of_a_split_binding_is_clamped() -> None:
    text = tint_source(variant(SPLITTABLE, (2, 2, 1)))
    assert "case 0u: { return x_0[min(u32(i & 255u), arrayLength(&x_0) - 1u)]; }" in text
    assert "default: { out_1[min(u32(i & 255u), arrayLength(&out_1) - 1u)] = v; }" in text
    assert "x_at(u32(ids[min(u32(i), arrayLength(&ids) - 1u)]))" in text


def test_no_index_is_clamped_where_none_needs_a_check(monkeypatch: pytest.MonkeyPatch) -> None:
    trusted = variant("// unchecked: it is a sample.\n" + SOURCE)
    assert tint_source(trusted) == trusted.source
    assert tint_source(variant()) != variant().source
    monkeypatch.setenv("LIVESHAPE_UNCHECKED", "1")
    assert tint_source(variant()) == variant().source


@pytest.mark.parametrize(
    ("statement", "enabled"),
    [
        ("let a = subgroupShuffleXor(i, 1u);", True),
        ("let a = subgroupAdd (i);", True),
        ("let subgroup = SUBGROUP;", False),
        ("let subgroups = max(i, 1u);", False),
    ],
)
def test_subgroups_are_enabled_where_they_are_used(statement: str, enabled: bool) -> None:
    text = f"enable f16;\nfn f(i: u32) {{ {statement} }}"
    assert with_extensions(text) == ("enable subgroups;\n" + text if enabled else text)
    builtin = "fn main(@builtin(subgroup_size) size: u32) {}"
    assert with_extensions(builtin) == "enable subgroups;\n" + builtin


def test_tint_takes_the_clamped_sample_in_any_split() -> None:
    split = {tint_source(variant(SPLITTABLE, (count, 2, 1))): str(count) for count in (1, 2, 3)}
    assert refusals({tint_source(variant()): "whole", **split}) == []


# What naga lets pass, or browsers do not, each in place of the line that stores.
REFUSED = {
    "a barrier under a private variable": "if (kept[0].x > 0.0) { workgroupBarrier(); }",
    "a shift and an AND without parentheses": "out[0] = f32(i >> 2u & 3u);",
    "a comparison and an AND without parentheses": "out[0] = f32(any(vec2(i) > vec2(2u) & vec2(i) < vec2(3u)));",
    "a name that nothing declares": "out[0] = nothing;",
    "a shuffle under a condition that is not uniform": "if (i > 3u) { out[0] = subgroupAdd(1.0); }",
}


def test_what_tint_refuses_is_noticed() -> None:
    line = next(line for line in SOURCE.splitlines() if "+=" in line)
    labels = {tint_source(variant(SOURCE.replace(line, other))): what for what, other in REFUSED.items()}
    said = refusals({tint_source(variant()): "right", **labels})
    assert [each.split(": Error while parsing WGSL")[0] for each in said] == list(REFUSED)


def test_no_local_that_is_indexed_has_the_name_of_an_array_at_module_scope() -> None:
    """It would be clamped by the length of the other one."""
    for kernel in KERNELS.values():
        before, *functions = re.split(r"\bfn\b", "\n".join(texts(kernel.text)))
        arrays = {binding.name for binding in kernel.bindings}
        arrays |= {name for text in (before, *functions) for name in re.findall(r"\bvar<\w+>\s*(\w+)", text)}
        for function in functions:
            pairs = re.findall(r"\b(?:let|const|var)\s+(\w+)|[(,]\s*(\w+)\s*:", function)
            indexed = set(re.findall(r"(?<![.\w])(\w+)\[", function))
            assert not arrays & indexed & {name for pair in pairs for name in pair}, f"{kernel.name}: fn {function}"


def takes(variants: Iterable[Variant]) -> int:
    """Check that Tint takes them all; returns how many texts they have."""
    labels = {tint_source(each): each.label for first in variants for each in (first, *first.siblings)}
    refused = refusals(labels)
    assert not refused, f"{len(refused)} of {len(labels)} texts\n" + "\n".join(refused[:20])
    return len(labels)


@pytest.mark.parametrize("every", [False, pytest.param(True, marks=slow)], ids=["first", "all"])
def test_tint_takes_every_kernel(every: bool) -> None:
    """With the constants of its file: as it is split and rounded first, or in all ways."""
    found = [list(default_variants(kernel, subgroup=32)) for kernel in KERNELS.values()]
    assert takes(each for row in found for each in (row if every else row[-2:])) >= len(KERNELS)


LIMITS = DEVICES | {"gpu without halves": replace(DEVICES["gpu"], half=False)}


def kernels(plans: Iterable[Callable[[], Planned]]) -> Iterator[Variant]:
    """Those of plans; what a device of such limits refuses is tested elsewhere."""
    for planned in plans:
        try:
            yield from planned()[1]
        except LiveshapeError:
            continue


@pytest.mark.parametrize("quick", [True, pytest.param(False, marks=slow)], ids=["quick", "others"])
@pytest.mark.parametrize(
    "limits", [pytest.param(LIMITS[name], id=name, marks=() if name == "gpu" else slow) for name in LIMITS]
)
def test_tint_takes_every_variant_of_every_operator_case(limits: Limits, quick: bool) -> None:
    cases = [case for case in CASES if (case.name in QUICK) is quick]
    assert takes(kernels(partial(of_case, case, limits) for case in cases)) > 300


@pytest.mark.parametrize("activations", ["float32", "int8"])
@pytest.mark.parametrize("limits", [DEVICES["gpu"], DEVICES["software"]], ids=["gpu", "software"])
def test_tint_takes_every_variant_of_the_shipped_language_model(limits: Limits, activations: str) -> None:
    path = ROOT / "liveshape" / "demo" / "story" / "model.pte"
    assert takes(of_program(path, limits, activations)[1]) > 20


@pytest.mark.slow
@pytest.mark.parametrize("limits", LIMITS.values(), ids=LIMITS)
def test_tint_takes_every_variant_of_the_exported_programs(limits: Limits) -> None:
    assert takes(kernels(made for _, made in of_programs(limits))) > 300
