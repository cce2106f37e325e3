"""Matrix units in plain WGSL, for adapters that have none: every lane of a subgroup computes some of a matrix.

Where the halves of a tile lie, what is loaded and where sums go is as on a device that has them, and so are the values,
but for the order of a sum. A factor is where it lies in the tile, which nothing writes before its products.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

import pytest

from liveshape.graph import Limits
from liveshape.graph.limits import MatrixShape
from liveshape.kernels import Variant

HALF_MATRICES = (MatrixShape("float16", "float32", 16, 16, 16),)
MATRICES = (*HALF_MATRICES, MatrixShape("int8", "int32", 16, 16, 32))
_ENABLE = "enable f16;\n"
_ALIASES = re.compile(r"^alias (Left|Right|Sum) = subgroup_matrix_\w+<[^;]*>;$", re.MULTILINE)
_CALLS = (
    (re.compile(r"subgroupMatrixLoad<Left, row_major>\(\s*&tile,"), "Left("),
    (re.compile(r"subgroupMatrixLoad<Right, col_major>\(\s*&tile,"), "Right("),
    (re.compile(r"subgroupMatrixMultiplyAccumulate\("), "multiplied("),
    (re.compile(r"subgroupMatrixStore<row_major>\(\s*&tile,"), "stored("),
    (re.compile(r"subgroupBroadcastFirst\("), "("),
    (re.compile(r"let lane = thread % LANES;"), "let lane = thread % LANES; own_lane = lane;"),
)
_FUNCTIONS = """
struct Left { offset: u32, pitch: u32 }
struct Right { offset: u32, pitch: u32 }
struct Sum { own: array<vec4<Total>, MATRIX_ROWS * MATRIX_COLUMNS / 4 / LANES> }
var<private> own_lane: u32;

// Compilers do not know that it is its argument, and unroll nothing.
fn count_of(count: u32) -> u32 {
    return count + (params.rows >> 31u);
}

// Four neighbouring columns at a time: those of a vector are stored at once.
fn multiplied(left: Left, right: Right, before: Sum) -> Sum {
    var found = before;
    for (var i = 0u; i < count_of(MATRIX_ROWS * MATRIX_COLUMNS / 4u / LANES); i++) {
        let four = i * LANES + own_lane;
        let row = left.offset + four / (MATRIX_COLUMNS / 4u) * left.pitch;
        let column = right.offset + four % (MATRIX_COLUMNS / 4u) * 4u * right.pitch;
        // A vector at a time: old software drivers end loops after 65,535 turns.
        for (var k = 0u; k < count_of(MATRIX_DEPTH / PER_VECTOR); k++) {
            let own = tile[row + k];
            found.own[i] += vec4<Total>(
                vector_product(own, tile[column + k]),
                vector_product(own, tile[column + right.pitch + k]),
                vector_product(own, tile[column + 2u * right.pitch + k]),
                vector_product(own, tile[column + 3u * right.pitch + k]),
            );
        }
    }
    return found;
}

fn stored(offset: u32, given: Sum, pitch: u32) {
    var found = given;
    for (var i = 0u; i < count_of(MATRIX_ROWS * MATRIX_COLUMNS / 4u / LANES); i++) {
        let four = i * LANES + own_lane;
        let at = offset + four / (MATRIX_COLUMNS / 4u) * pitch + four % (MATRIX_COLUMNS / 4u);
        tile[at] = bitcast<vec4<u32>>(found.own[i]);
    }
}
"""

_HALF_PRODUCT = """
fn pair_product(left: u32, right: u32) -> f32 {
    return dot(unpack2x16float(left), unpack2x16float(right));
}

fn vector_product(left: vec4<u32>, right: vec4<u32>) -> f32 {
    return pair_product(left.x, right.x) + pair_product(left.y, right.y) + pair_product(left.z, right.z)
        + pair_product(left.w, right.w);
}
"""
_BYTE_PRODUCT = """
fn vector_product(left: vec4<u32>, right: vec4<u32>) -> i32 {
    return dot4I8Packed(left.x, right.x) + dot4I8Packed(left.y, right.y)
        + dot4I8Packed(left.z, right.z) + dot4I8Packed(left.w, right.w);
}
"""

# Not every adapter packs halves, which no GPU with matrix units lacks.
_HALVES = (
    (re.compile(r"\bpack2x16float\("), "packed_halves("),
    (re.compile(r"\bunpack2x16float\("), "unpacked_halves("),
)
_HALF_FUNCTIONS = """
fn half_bits(x: f32) -> u32 {
    let bits = bitcast<u32>(x);
    let sign = (bits >> 16u) & 0x8000u;
    let magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u) {
        return sign | 0x7e00u;
    }
    if (magnitude >= 0x477ff000u) { // what rounds to more than the largest
        return sign | 0x7c00u;
    }
    if (magnitude < 0x38800000u) { // subnormal
        return sign | u32(round(abs(x) * 16777216.0));
    }
    return sign | ((magnitude - 0x37fff001u + ((magnitude >> 13u) & 1u)) >> 13u);
}

fn half_value(bits: u32) -> f32 {
    let sign = (bits & 0x8000u) << 16u;
    let exponent = (bits >> 10u) & 31u;
    let mantissa = bits & 1023u;
    if (exponent == 0u) {
        return bitcast<f32>(sign | bitcast<u32>(f32(mantissa) / 16777216.0));
    }
    return bitcast<f32>(sign | (select(exponent + 112u, 255u, exponent == 31u) << 23u) | (mantissa << 13u));
}

fn packed_halves(pair: vec2<f32>) -> u32 {
    return half_bits(pair.x) | (half_bits(pair.y) << 16u);
}

fn unpacked_halves(bits: u32) -> vec2<f32> {
    return vec2<f32>(half_value(bits & 0xffffu), half_value(bits >> 16u));
}
"""


def emulated(text: str) -> str:
    """The text with its matrices as arrays and its halves as bits, if it has such."""
    return with_bits(_with_arrays(text))


def with_bits(text: str) -> str:
    """The text with its halves as bits, if it has such."""
    found = text
    for call, function in _HALVES:
        found = call.sub(function, found)
    return text if found == text else found + _HALF_FUNCTIONS


def _with_arrays(text: str) -> str:
    if not _ALIASES.search(text):
        return text
    product = _BYTE_PRODUCT if "alias Total = i32;" in text else _HALF_PRODUCT
    text = _ALIASES.sub("", text.removeprefix(_ENABLE)) + _FUNCTIONS + product
    if re.search(r"\bf16\b", text):  # not only of the matrices that were
        text = _ENABLE + text
    for call, function in _CALLS:
        text = call.sub(function, text)
    return text


def emulate(monkeypatch: pytest.MonkeyPatch, limits: Limits) -> Limits:
    """Compile emulated texts from now on; returns the limits with such matrices, and halves permitted."""
    compile_as(monkeypatch, lambda _, text: emulated(text))
    return replace(limits, matrices=MATRICES, half_inputs=True)


def compile_as(monkeypatch: pytest.MonkeyPatch, rewrite: Callable[[Variant, str], str]) -> None:
    """Compile from now on what a function makes of a kernel's text."""
    source = Variant.source.fget  # type: ignore[attr-defined]
    monkeypatch.setattr(Variant, "source", property(lambda variant: rewrite(variant, source(variant))))
