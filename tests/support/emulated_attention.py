"""Attention by matrix units in plain WGSL, for adapters that have none: each lane has eight numbers of every matrix.

Its control flow, its tiles and their values are as on a device with matrices, but for the order of a sum. A factor is
where it lies in memory; queries, which the kernel loads once, and weights have tiles of their own.
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
    (re.compile(r"\bscores\[row \* PITCH \+ eight\] ="), "query_tile[row * PITCH + eight] ="),
    (re.compile(r"(let weight_\w+ = )subgroupMatrixLoad<Left, row_major>\(\s*&scores,"), r"\1held("),
    (re.compile(r"subgroupMatrixLoad<Left, row_major>\(\s*&scores,"), "Factor(0u,"),
    (re.compile(r"subgroupMatrixLoad<Right, col_major>\(\s*&tile,"), "Factor(1u,"),
    (re.compile(r"subgroupMatrixLoad<Right, row_major>\(\s*&tile,"), "Factor(3u,"),
    (re.compile(r"subgroupMatrixLoad<Sum, row_major>\(\s*&scores,"), "loaded("),
    (re.compile(r"subgroupMatrixStore<row_major>\(\s*&scores,"), "stored("),
    (re.compile(r"subgroupMatrixMultiplyAccumulate\("), "multiplied("),
    (re.compile(r"subgroupBroadcastFirst\("), "("),
    (re.compile(r"let lane = thread % LANES;"), "let lane = thread % LANES; own_lane = lane;"),
)
_FUNCTIONS = """
struct Factor { kind: u32, offset: u32, pitch: u32 } // of queries, keys, weights, values
struct Sum { own: array<f32, 8> }
var<private> own_lane: u32;
var<workgroup> query_tile: array<vec4<u32>, TILE_ROWS * PITCH>;
var<workgroup> weights: array<vec4<u32>, TILE_ROWS * SCORE_PITCH>;

// Weights are loaded before sums take their place.
fn held(offset: u32, pitch: u32) -> Factor {
    let at = offset + own_lane / 2u * pitch + own_lane % 2u;
    weights[at] = scores[at];
    workgroupBarrier();
    return Factor(2u, offset, pitch);
}

fn row_of(i: u32) -> u32 {
    return (i * LANES + own_lane) / MATRIX;
}

fn column_of(i: u32) -> u32 {
    return (i * LANES + own_lane) % MATRIX;
}

fn half_of(eight: vec4<u32>, i: u32) -> f32 {
    return unpack2x16float(eight[i / 2u])[i % 2u];
}

fn element(factor: Factor, line: u32, k: u32) -> f32 {
    let at = factor.offset + line * factor.pitch;
    switch factor.kind {
        case 0u: { return half_of(query_tile[at + k / 8u], k % 8u); }
        case 1u: { return half_of(tile[at + k / 8u], k % 8u); }
        case 2u: { return half_of(weights[at + k / 8u], k % 8u); }
        default: { return half_of(tile[factor.offset + k * factor.pitch + line / 8u], line % 8u); }
    }
}

fn multiplied(left: Factor, right: Factor, before: Sum) -> Sum {
    var found = before;
    for (var i = 0u; i < 8u; i++) {
        for (var k = 0u; k < MATRIX; k++) {
            found.own[i] += element(left, row_of(i), k) * element(right, column_of(i), k);
        }
    }
    return found;
}

fn stored(offset: u32, given: Sum, pitch: u32) {
    var found = given;
    for (var i = 0u; i < 8u; i++) {
        scores[offset + row_of(i) * pitch + column_of(i) / 4u][column_of(i) % 4u] = bitcast<u32>(found.own[i]);
    }
}

fn loaded(offset: u32, pitch: u32) -> Sum {
    var found: Sum;
    for (var i = 0u; i < 8u; i++) {
        found.own[i] = bitcast<f32>(scores[offset + row_of(i) * pitch + column_of(i) / 4u][column_of(i) % 4u]);
    }
    return found;
}
"""


def _emulated(variant: Variant, text: str) -> str:
    if variant.kernel.name.split("+")[0].strip() == "attention/matrix_tiles":
        for call, made in _CALLS:
            text = call.sub(made, text)
        text += _FUNCTIONS
    return with_bits(text)


def emulate(monkeypatch: pytest.MonkeyPatch, limits: Limits) -> Limits:
    """Compile emulated texts from now on; returns the limits with matrices of half precision for 32 lanes."""
    compile_as(monkeypatch, _emulated)
    threads = {"max_invocations": 256, "max_cooperating_threads": 256, "subgroup": 32, "lanes": 0}
    return replace(limits, matrices=HALF_MATRICES, half_inputs=True, **threads)
