"""Attention by matrix units in plain WGSL, for adapters that have none: each lane has eight numbers of every matrix.

Its control flow, its tiles and their values are as on a device with matrices, but for the order of a sum. A factor is
where it lies in memory; queries, which the kernel loads once, have a tile of their own. What subgroups ask all of their
lanes is asked of the workgroup.
"""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from liveshape.graph import Limits
from liveshape.kernels import Variant
from tests.support.emulated_matrices import HALF_MATRICES, compile_as, with_bits

_CALLS = (
    (re.compile(r"^alias (Left|Right|Sum) = subgroup_matrix[^;]*;$", re.MULTILINE), ""),
    (re.compile(r"\bkey_tile\[tile_row \* PITCH \+ eight\] ="), "query_tile[tile_row * PITCH + eight] ="),
    (re.compile(r"subgroupMatrixLoad<(Left|Right), \w+>\(\s*&\w+,"), "Factor("),
    (re.compile(r"subgroupMatrixLoad<Sum, row_major>\(\s*&scores,"), "loaded("),
    (re.compile(r"subgroupMatrixStore<row_major>\(\s*&scores,"), "stored("),
    (re.compile(r"subgroupMatrixMultiplyAccumulate\(\s*query"), "times_keys(query"),
    (re.compile(r"subgroupMatrixMultiplyAccumulate\(\s*weight"), "times_values(weight"),
    (re.compile(r"subgroupBroadcastFirst\("), "("),
    (re.compile(r"let lane = thread % LANES;"), "let lane = thread % LANES; own_lane = lane;"),
    (re.compile(r"subgroupAny\("), "("),
    (re.compile(r"rescales: array<u32, SUBGROUPS>"), "rescales: array<u32, WG>"),
    (
        re.compile(r"if \(lane == 0u\) \{\s*rescales\[place\] = u32\(rescaled\);\s*\}"),
        "rescales[thread] = u32(rescaled);",
    ),
    (re.compile(r"for \(var i = 0u; i < SUBGROUPS; i\+\+\) \{\s*any"), "for (var i = 0u; i < WG; i++) {\n any"),
)
_FUNCTIONS = """
struct Factor { offset: u32, pitch: u32 }
struct Sum { own: array<f32, 8> }
var<private> own_lane: u32;
var<workgroup> query_tile: array<vec4<u32>, TILE_ROWS * PITCH>;

fn row_of(i: u32) -> u32 {
    return (i * LANES + own_lane) / MATRIX;
}

fn column_of(i: u32) -> u32 {
    return (i * LANES + own_lane) % MATRIX;
}

fn half_of(eight: vec4<u32>, i: u32) -> f32 {
    return unpack2x16float(eight[i / 2u])[i % 2u];
}

fn times_keys(queries: Factor, keys: Factor, before: Sum) -> Sum {
    var found = before;
    for (var i = 0u; i < 8u; i++) {
        let query = queries.offset + row_of(i) * queries.pitch;
        let key = keys.offset + column_of(i) * keys.pitch;
        for (var k = 0u; k < MATRIX; k++) {
            found.own[i] += half_of(query_tile[query + k / 8u], k % 8u) * half_of(key_tile[key + k / 8u], k % 8u);
        }
    }
    return found;
}

fn times_values(rows: Factor, columns: Factor, before: Sum) -> Sum {
    var found = before;
    for (var i = 0u; i < 8u; i++) {
        for (var k = 0u; k < MATRIX; k++) {
            let four = weights[rows.offset + row_of(i) * rows.pitch + k / 4u];
            let weight = unpack2x16float(four[k % 4u / 2u])[k % 2u];
            let eight = value_tile[columns.offset + k * columns.pitch + column_of(i) / 8u];
            found.own[i] += weight * half_of(eight, column_of(i) % 8u);
        }
    }
    return found;
}

fn stored(offset: u32, given: Sum, pitch: u32) {
    var found = given;
    for (var i = 0u; i < 8u; i++) {
        scores[offset + row_of(i) * pitch + column_of(i) / 4u][column_of(i) % 4u] = found.own[i];
    }
}

fn loaded(offset: u32, pitch: u32) -> Sum {
    var found: Sum;
    for (var i = 0u; i < 8u; i++) {
        found.own[i] = scores[offset + row_of(i) * pitch + column_of(i) / 4u][column_of(i) % 4u];
    }
    return found;
}
"""


def _emulated(variant: Variant, text: str) -> str:
    if variant.kernel.name.split(" + ")[0] == "attention/matrix_tiles":
        for call, made in _CALLS:
            text = call.sub(made, text)
        text += _FUNCTIONS
    return with_bits(text)


def emulate(monkeypatch: pytest.MonkeyPatch, limits: Limits) -> Limits:
    """Compile emulated texts from now on; returns the limits with matrices of half precision for 32 lanes."""
    compile_as(monkeypatch, _emulated)
    threads = {"max_invocations": 256, "max_cooperating_threads": 256, "subgroup": 32, "lanes": 0}
    return replace(limits, matrices=HALF_MATRICES, half_inputs=True, **threads)
