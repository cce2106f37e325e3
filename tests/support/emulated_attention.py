"""Attention by matrix units in plain WGSL, for adapters that have none: each lane has eight numbers of every matrix.

Its control flow, its tiles and their values are as on a device with matrices, but for the order of a sum, and for the
threads of a subgroup, which do not run in step here: barriers keep them in order, so that all subgroups do the same. A
right factor is where it lies in memory; left ones, whose scratch is used again, have places of their own.
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
    (
        re.compile(r"(let query_(\d+)_(\d+) = )subgroupMatrixLoad<Left, row_major>\(&scores,"),
        r"\1held(\2u * HEAD_BLOCKS + \3u, ",
    ),
    (
        re.compile(r"(let weight_(\d+)_(\d+) = )subgroupMatrixLoad<Left, row_major>\(&scores,"),
        r"\1held(ROW_BLOCKS * HEAD_BLOCKS + \2u * KEY_BLOCKS + \3u, ",
    ),
    (re.compile(r"subgroupMatrixLoad<Right, col_major>\(\s*&tile,"), "Right(0u,"),
    (re.compile(r"subgroupMatrixLoad<Right, row_major>\(\s*&tile,"), "Right(1u,"),
    (re.compile(r"subgroupMatrixLoad<Sum, row_major>\(\s*&scores,"), "loaded("),
    (re.compile(r"subgroupMatrixStore<row_major>\(\s*&scores,"), "stored("),
    (re.compile(r"subgroupMatrixMultiplyAccumulate\("), "multiplied("),
    (re.compile(r"subgroupBroadcastFirst\("), "("),
    (re.compile(r"\bsubgroupAny\("), "any_of("),
    (re.compile(r"let lane = thread % LANES;"), "let lane = thread % LANES; own_thread = thread;"),
    (re.compile(r"\bin_order\(\);"), "workgroupBarrier();"),
    (re.compile(r"let is_active = [^;]*;"), "const is_active = true;"),
)
_FUNCTIONS = """
struct Left { at: u32 }
struct Right { kind: u32, offset: u32, pitch: u32 } // of keys, of values
struct Sum { own: array<f32, 8> }
const LEFTS: u32 = ROW_BLOCKS * (HEAD_BLOCKS + KEY_BLOCKS); // of a subgroup
var<private> own_thread: u32;
var<workgroup> lefts: array<vec4<u32>, WG * LEFTS>; // two eights of a row after the other
var<workgroup> flags: array<u32, WG>;

fn any_of(own: bool) -> bool {
    flags[own_thread] = u32(own);
    workgroupBarrier();
    var found = false;
    for (var i = 0u; i < WG; i++) {
        found = found || flags[i] != 0u;
    }
    workgroupBarrier();
    return found;
}

fn held(index: u32, offset: u32, pitch: u32) -> Left {
    let lane = own_thread % LANES;
    let at = (own_thread / LANES * LEFTS + index) * LANES;
    lefts[at + lane] = scores[offset + lane / 2u * pitch + lane % 2u];
    return Left(at);
}

fn row_of(i: u32) -> u32 {
    return (i * LANES + own_thread % LANES) / MATRIX;
}

fn column_of(i: u32) -> u32 {
    return (i * LANES + own_thread % LANES) % MATRIX;
}

fn half_of(eight: vec4<u32>, i: u32) -> f32 {
    return unpack2x16float(eight[i / 2u])[i % 2u];
}

fn right_element(right: Right, line: u32, k: u32) -> f32 {
    if (right.kind == 0u) {
        return half_of(tile[right.offset + line * right.pitch + k / 8u], k % 8u);
    }
    return half_of(tile[right.offset + k * right.pitch + line / 8u], line % 8u);
}

fn multiplied(left: Left, right: Right, before: Sum) -> Sum {
    var found = before;
    for (var i = 0u; i < 8u; i++) {
        for (var k = 0u; k < MATRIX; k++) {
            let own = half_of(lefts[left.at + row_of(i) * 2u + k / 8u], k % 8u);
            found.own[i] += own * right_element(right, column_of(i), k);
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
