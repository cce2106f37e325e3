"""Matrix units in plain WGSL, for adapters that have none: every lane of a subgroup computes some of a matrix.

Where the halves of a tile lie, what is loaded and where sums go is as on a device that has them, and so are the values,
but for the order of a sum. A factor is where it lies in the tile, which nothing writes before its products.
"""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from liveshape.graph import Limits
from liveshape.graph.limits import MatrixShape
from liveshape.kernels import Variant

MATRIX = MatrixShape("float16", "float32", 16, 16, 16)
_ALIASES = re.compile(r"^alias (Left|Right|Sum) = subgroup_matrix_\w+<[^;]*>;$", re.MULTILINE)
_CALLS = (
    (re.compile(r"subgroupMatrixLoad<Left, row_major>\(\s*&row_tile,"), "Left("),
    (re.compile(r"subgroupMatrixLoad<Right, col_major>\(\s*&column_tile,"), "Right("),
    (re.compile(r"subgroupMatrixMultiplyAccumulate\("), "multiplied("),
    (re.compile(r"subgroupMatrixStore<row_major>\(&sums,"), "stored("),
    (re.compile(r"subgroupBroadcastFirst\("), "("),
    (re.compile(r"let lane = thread % LANES;"), "let lane = thread % LANES; own_lane = lane;"),
)
_FUNCTIONS = """
struct Left { offset: u32, pitch: u32 }
struct Right { offset: u32, pitch: u32 }
struct Sum { own: array<f32, MATRIX_SIZE / LANES> }
var<private> own_lane: u32;

// Compilers do not know that it is its argument, and unroll nothing.
fn count_of(count: u32) -> u32 {
    return count + (params.rows >> 31u);
}

fn half_of(eight: vec4<u32>, k: u32) -> f32 {
    return unpack2x16float(eight[k % 8u / 2u])[k % 2u];
}

fn multiplied(left: Left, right: Right, before: Sum) -> Sum {
    var found = before;
    for (var i = 0u; i < count_of(MATRIX_SIZE / LANES); i++) {
        let row = left.offset + (i * LANES + own_lane) / MATRIX_COLUMNS * left.pitch;
        let column = right.offset + (i * LANES + own_lane) % MATRIX_COLUMNS * right.pitch;
        for (var k = 0u; k < count_of(MATRIX_DEPTH); k++) {
            found.own[i] += half_of(row_tile[row + k / 8u], k) * half_of(column_tile[column + k / 8u], k);
        }
    }
    return found;
}

fn stored(offset: u32, given: Sum, pitch: u32) {
    var found = given;
    for (var i = 0u; i < count_of(MATRIX_SIZE / LANES); i++) {
        let at = i * LANES + own_lane;
        sums[offset + at / MATRIX_COLUMNS * pitch + at % MATRIX_COLUMNS] = found.own[i];
    }
}
"""


def emulated(text: str) -> str:
    """The text with its matrices as arrays, if it has such."""
    if not _ALIASES.search(text):
        return text
    text = _ALIASES.sub("", text) + _FUNCTIONS
    for call, function in _CALLS:
        text = call.sub(function, text)
    return text


def emulate(monkeypatch: pytest.MonkeyPatch, limits: Limits) -> Limits:
    """Compile emulated texts from now on; returns the limits with such matrices, and halves permitted."""
    source = Variant.source.fget  # type: ignore[attr-defined]
    monkeypatch.setattr(Variant, "source", property(lambda variant: emulated(source(variant))))
    return replace(limits, matrices=(MATRIX,), half_inputs=True)
