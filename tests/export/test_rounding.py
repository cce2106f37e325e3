"""Float weights in 4 and 8 bits: how close, what comes through unchanged, and what a recipe makes of which matrix."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from liveshape.errors import FormatError, InputError, UnsupportedError
from liveshape.export.model.config import Quantization
from liveshape.export.model.layout import Grouped, Layout, restored
from liveshape.export.weights.quantize import rounded
from liveshape.export.weights.recipe import layout_of, rounded_again, rounded_layout
from liveshape.export.weights.storage import RoundedStorage
from tests.export.tiny import LLAMA, checkpoint_of

LAYER = "model.layers.0.self_attn.q_proj.weight"
VALUE = "model.layers.0.self_attn.v_proj.weight"
TABLE = "model.embed_tokens.weight"
KINDS = [(4, False), (4, True), (8, False)]


def normal(rows: int, width: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal((rows, width)).astype(np.float32)


def error(weight: Any, found: Grouped) -> float:
    return float(np.square(restored(found) - weight).mean() / np.square(weight).mean())


@pytest.mark.parametrize(("bits", "minima"), KINDS)
@pytest.mark.parametrize(
    ("rows", "width", "group"), [(1, 8, 4), (7, 96, 32), (113, 576, 32), (41, 288, 96), (3, 40, 40)]
)
def test_no_weight_is_off_by_more_than_a_step(bits: int, minima: bool, rows: int, width: int, group: int) -> None:
    weight = normal(rows, width)
    found = rounded(weight, Layout(bits, group, minima))
    assert found.layout == Layout(bits, group, minima)
    assert (found.codes.dtype, found.scales.dtype) == (np.int8, np.float32)
    assert np.abs(found.codes.astype(int)).max() <= 1 << (bits - 1)
    off = np.abs(restored(found) - weight).reshape(rows, -1, group)
    # Fitting to all weights moves the ends of a group; a symmetric one has no code for the other end.
    assert (off <= 1.1 * np.abs(found.scales)[..., None]).all()
    if bits == 8:
        assert (off <= 0.501 * np.abs(found.scales)[..., None]).all()


def test_a_minimum_is_worth_its_place() -> None:
    weight = normal(256, 512)
    plain, between, eight = (error(weight, rounded(weight, Layout(bits, 32, minima))) for bits, minima in KINDS)
    assert between < 0.85 * plain
    assert eight < 0.01 * between
    ends = weight.reshape(-1, 32).min(1, keepdims=True), weight.reshape(-1, 32).max(1, keepdims=True)
    step = (ends[1] - ends[0]) / 15
    unfitted = (np.rint((weight.reshape(-1, 32) - ends[0]) / step) * step + ends[0]).reshape(weight.shape)
    assert between < 0.99 * np.square(unfitted - weight).mean() / np.square(weight).mean()


@pytest.mark.parametrize(("bits", "minima"), KINDS)
def test_whole_numbers_come_through_unchanged(bits: int, minima: bool) -> None:
    generator = np.random.default_rng(bits)
    codes = generator.integers(-8 if bits == 4 else -127, 8 if bits == 4 else 128, (40, 4, 32))
    codes[:, :, 5], codes[:, :, 9] = codes.min(), codes.max()
    scales = generator.standard_normal((40, 4, 1)).astype(np.float16).astype(np.float32)
    least = generator.standard_normal((40, 4, 1)).astype(np.float32) if minima else np.float32(0)
    if minima or bits == 8:
        scales = np.abs(scales)
    weight = (codes * scales + least).astype(np.float32).reshape(40, 128)
    found = rounded(weight, Layout(bits, 32, minima))
    np.testing.assert_array_equal(found.codes, codes.reshape(40, 128))
    np.testing.assert_allclose(restored(found), weight, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("bits", "minima"), KINDS)
def test_zeros_and_huge_and_tiny_groups(bits: int, minima: bool) -> None:
    weight = np.zeros((8, 64), np.float32)
    weight[1] = 1e30
    weight[2] = 1e-30
    weight[3, 40] = -3.0
    weight[4] = 1e-42
    weight[5, ::2], weight[5, 1::2] = 1e37, -1e37
    found = rounded(weight, Layout(bits, 32, minima))
    assert np.isfinite(found.scales).all()
    assert (restored(found)[0] == 0).all()
    step = np.repeat(np.abs(found.scales), 32, axis=1)
    assert (np.abs(restored(found) - weight) <= 1.1 * step + 1e-35).all()
    np.testing.assert_allclose(restored(found)[:4], weight[:4], rtol=1e-5, atol=1e-25)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize(("bits", "minima"), KINDS)
def test_what_is_no_number_is_refused(bits: int, minima: bool, value: float) -> None:
    weight = checkpoint_of(LLAMA).read(LAYER).copy()
    weight[17, 3] = value
    checkpoint = dataclasses.replace(checkpoint_of(LLAMA), read=lambda _: weight)
    with pytest.raises(FormatError, match=r"q_proj\.weight: rows 16 to 32 have weights that are no finite numbers"):
        RoundedStorage(checkpoint, Quantization()).grouped(LAYER, Layout(bits, 32, minima), slice(16, 32))


def test_slices_of_rows_make_no_difference() -> None:
    weight, layout = normal(5000, 64), Layout(4, 32, minima=True)
    found = restored(rounded(weight, layout))
    for row in (0, 2047, 2048, 4999):
        np.testing.assert_array_equal(found[row], restored(rounded(weight[row : row + 1], layout))[0])


@pytest.mark.parametrize(
    ("quantization", "name", "layout"),
    [
        (Quantization(), LAYER, Layout(4, 32, True)),
        (Quantization("auto", 64), LAYER, Layout(4, 64, True)),
        (Quantization(), VALUE, Layout(8, 64)),
        (Quantization(), TABLE, Layout(8, 64)),
        (Quantization("auto", 32), TABLE, Layout(8, 32)),
        (Quantization("4w"), LAYER, Layout(4, 32)),
        (Quantization("4w"), TABLE, Layout(4, 32)),
        (Quantization("8da4w", 16), VALUE, Layout(4, 16)),
        (Quantization("8w"), LAYER, Layout(8, 64)),
        (Quantization("none"), LAYER, None),
    ],
)
def test_what_a_recipe_makes_of_floats(quantization: Quantization, name: str, layout: Layout | None) -> None:
    checkpoint = checkpoint_of(LLAMA)
    assert layout_of(checkpoint, name, quantization) == layout
    if layout is not None:
        made = RoundedStorage(checkpoint, quantization).grouped(name, layout, slice(3, 9))
        assert made.layout == layout
        assert error(checkpoint.read(name)[3:9], made) < 0.02


def test_small_models_have_more_in_8_bits() -> None:
    name = "model.layers.0.mlp.up_proj.weight"
    assert rounded_layout(name, 2048, Quantization(), 1_000_000_000) == Layout(4, 32, True)
    assert rounded_layout(name, 2048, Quantization(), 100_000_000) == Layout(8, 128)


@pytest.mark.parametrize(
    ("mode", "bits", "kept"),
    [
        ("auto", 4, True),
        ("auto", 8, True),
        ("4w", 4, True),
        ("4w", 8, False),
        ("8da4w", 4, True),
        ("8da4w", 8, False),
        ("8w", 4, True),
        ("8w", 8, True),
        ("none", 4, False),
    ],
)
def test_what_a_recipe_keeps(mode: Any, bits: int, kept: bool) -> None:
    checkpoint, layout = checkpoint_of(LLAMA), Layout(bits, 16)
    source = rounded(checkpoint.read(LAYER), layout)
    stored = dataclasses.replace(
        checkpoint,
        stored=lambda name: layout if name == LAYER else None,
        grouped=lambda name, rows: Grouped(bits, source.codes[rows], source.scales[rows]),
    )
    storage = RoundedStorage(stored, Quantization(mode))
    found = storage.layout(LAYER, lookup=False)
    assert (found == layout) == kept
    if found is not None:
        made = storage.grouped(LAYER, found, slice(8, 24))
        assert np.array_equal(restored(made), restored(source)[8:24]) == kept
    assert rounded_again(stored, Quantization(mode)) == ([] if kept or mode == "none" else [LAYER])


def test_group_sizes_that_cannot_be_kept_are_refused() -> None:
    with pytest.raises(
        UnsupportedError, match=r"--group-size 32 .*q_proj.*rows of 48 weights.*one of 4, 8, 12, 16, 24, 48"
    ):
        rounded_layout(LAYER, 48, Quantization("4w", 32), 1000)
    with pytest.raises(UnsupportedError, match=r"q_proj.*rows of 6 weights.*--quant none"):
        rounded_layout(LAYER, 6, Quantization("4w"), 1000)
    stored = dataclasses.replace(checkpoint_of(LLAMA), stored=lambda name: Layout(4, 32, True))
    with pytest.raises(
        UnsupportedError, match=r"--group-size 64 .*q_proj.* 4 bits in groups of 32.*leave --group-size out"
    ):
        layout_of(stored, LAYER, Quantization("auto", 64))
    with pytest.raises(InputError, match="--group-size 6"):
        Quantization("4w", 6)
    with pytest.raises(InputError, match="auto, 4w, 8da4w, 8w, none"):
        Quantization("3w")  # type: ignore[arg-type]
