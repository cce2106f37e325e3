"""WGSL as Tint takes it, the compiler of Dawn and of Chrome: `enable subgroups;` where a text needs it, which naga
refuses, and indices that are clamped in the text itself.

Dawn bounds-checks all modules of a device or none. Devices are opened without (toggle `disable_robustness`), and the
kernels whose file does not say why they need no checks get them here, as wgpu-native gives them. Every array at module
scope is clamped: storage bindings, whose lengths are those of a call, and the arrays of a workgroup or a thread. Left
alone are vectors, local arrays and the arrays of Params: kernels index these by constants, by counters of loops that
end at a constant, by the low bits of a number (`[i & 3u]`), or by a dimension below the rank that planning packs.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from liveshape.device.shaders import is_checked
from liveshape.graph.limits import MatrixShape
from liveshape.kernels import Variant
from liveshape.kernels.accesses import accesses

_SUBGROUPS = re.compile(r"\bsubgroup[A-Z]\w*\s*\(|@builtin\(\s*subgroup_")
_MATRICES = re.compile(r"\bsubgroup_matrix_\w+\s*<")
_RUNTIME_SIZED = re.compile(r"\bvar<\s*storage\b[^>]*>\s*(\w+)\s*:\s*array<")
_SIZED = re.compile(r"\bvar<\s*(?:workgroup|private)\s*>\s*(\w+)\s*:\s*array<\s*\w+(?:<[^;]*?>)?\s*,\s*([^;]+)>\s*[;=]")

MATRICES = "chromium-experimental-subgroup-matrix"  # the feature of an adapter that has them
# Of the elements of matrices, by their names in WGSL.
_DTYPES = {"f16": "float16", "f32": "float32", "i8": "int8", "i32": "int32", "u8": "uint8", "u32": "uint32"}


def matrix_shapes(configs: Iterable[Mapping[str, Any]], subgroup_sizes: tuple[Any, Any]) -> tuple[MatrixShape, ...]:
    """The products of matrix units that an adapter lists; none where subgroups have more than one size.

    Kernels are told how many threads have a matrix together: where the driver may choose, nobody knows.

    >>> config = {"component_type": "f16", "result_component_type": "f32", "m": 16, "n": 16, "k": 16}
    >>> matrix_shapes([config], (32, 32)) == (MatrixShape("float16", "float32", 16, 16, 16),)
    True
    """
    least, most = subgroup_sizes
    return tuple(
        MatrixShape(_DTYPES[kind], _DTYPES[sums], each["m"], each["n"], each["k"])
        for each in (configs if least == most else ())
        if (kind := each["component_type"]) in _DTYPES and (sums := each["result_component_type"]) in _DTYPES
    )


def tint_source(variant: Variant) -> str:
    """The WGSL of a kernel variant for Tint, with its indices clamped unless they need no checks.

    Example: `device.create_shader_module(code=tint_source(variant), label=variant.label)`.
    """
    text = with_extensions(variant.source)
    return clamped(text) if is_checked(variant) else text


def with_extensions(text: str) -> str:
    """The text with the directives of what it uses of subgroups.

    >>> with_extensions("fn f() -> u32 { return subgroupAdd(1u); }")
    'enable subgroups;\\nfn f() -> u32 { return subgroupAdd(1u); }'
    """
    lines = ["enable subgroups;"] if _SUBGROUPS.search(text) else []
    if _MATRICES.search(text):
        lines.append("enable chromium_experimental_subgroup_matrix;")
        # Subgroups load matrices at places, and do or leave what depends on their index, which Tint does not know to be
        # theirs.
        lines.append("diagnostic(off, chromium.subgroup_matrix_uniformity);")
        lines.append("diagnostic(off, subgroup_uniformity);")
    return "\n".join([*lines, text])


def clamped(text: str) -> str:
    """The text with every index into an array at module scope held below its length.

    An index below zero is a large u32. No binding is empty, so there always is a last element.

    >>> clamped("var<private> held: array<f32, 8>; fn f(i: i32) -> f32 { return held[i]; }")
    'var<private> held: array<f32, 8>; fn f(i: i32) -> f32 { return held[min(u32(i), u32(8) - 1u)]; }'
    """
    lengths = {name: f"arrayLength(&{name})" for name in _RUNTIME_SIZED.findall(text)}
    lengths |= {name: f"u32({length.strip()})" for name, length in _SIZED.findall(text)}
    return _clamped(text, lengths) if lengths else text


def _clamped(text: str, lengths: Mapping[str, str]) -> str:
    pieces, cursor = [], 0
    for name, index, start, end in accesses(text, lengths):
        pieces.append(f"{text[cursor:start]}{name}[min(u32({_clamped(index, lengths)}), {lengths[name]} - 1u)]")
        cursor = end
    pieces.append(text[cursor:])
    return "".join(pieces)
