"""Float weights in 4 and 8 bits: how close, what comes through unchanged, and what a recipe makes of which matrix."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from liveshape.errors import FormatError, InputError, UnsupportedError
from liveshape.export.recipe import Form, Recipe, prepared
from liveshape.export.rounding import restored, rounded, rounded_rows
from liveshape.export.weights import Grouped
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
    found = rounded(weight, bits, group, minima)
    assert (found.bits, found.group, found.minima is not None) == (bits, group, minima)
    assert (found.codes.dtype, found.scales.dtype) == (np.int8, np.float32)
    assert np.abs(found.codes.astype(int)).max() <= 1 << (bits - 1)
    off = np.abs(restored(found) - weight).reshape(rows, -1, group)
    # Fitting to all weights moves the ends of a group; a symmetric one has no code for the other end.
    assert (off <= 1.1 * np.abs(found.scales)[..., None]).all()
    if bits == 8:
        assert (off <= 0.501 * np.abs(found.scales)[..., None]).all()


def test_a_minimum_is_worth_its_place() -> None:
    weight = normal(256, 512)
    plain, between, eight = (error(weight, rounded(weight, bits, 32, minima)) for bits, minima in KINDS)
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
    found = rounded(weight, bits, 32, minima)
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
    found = rounded(weight, bits, 32, minima)
    assert np.isfinite(found.scales).all()
    assert (restored(found)[0] == 0).all()
    step = np.repeat(np.abs(found.scales), 32, axis=1)
    assert (np.abs(restored(found) - weight) <= 1.1 * step + 1e-35).all()
    np.testing.assert_allclose(restored(found)[:4], weight[:4], rtol=1e-5, atol=1e-25)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize(("bits", "minima"), KINDS)
def test_what_is_no_number_is_refused(bits: int, minima: bool, value: float) -> None:
    weight = normal(5000, 64)
    weight[4097, 3] = value
    with pytest.raises(FormatError, match="no numbers"):
        rounded(weight, bits, 32, minima)


def test_slices_of_rows_make_no_difference() -> None:
    weight = normal(5000, 64)
    asked: list[slice] = []

    def rows(part: slice) -> Any:
        asked.append(part)
        return weight[part]

    found = rounded_rows(rows, weight.shape, 4, 32, True)
    assert len(asked) > 1
    alone = [rounded(weight[row : row + 1], 4, 32, True) for row in (0, 2047, 2048, 4999)]
    for row, each in zip((0, 2047, 2048, 4999), alone, strict=True):
        np.testing.assert_array_equal(restored(found)[row], restored(each)[0])


@pytest.mark.parametrize(("bits", "group", "minima"), [(3, 32, False), (8, 32, True), (4, 24, False), (4, 0, False)])
def test_what_cannot_be_rounded(bits: int, group: int, minima: bool) -> None:
    with pytest.raises(InputError):
        rounded(normal(4, 64), bits, group, minima)


@pytest.mark.parametrize(
    ("recipe", "name", "form"),
    [
        (Recipe(), LAYER, Form(4, 32, True)),
        (Recipe("8da4w"), LAYER, Form(4, 32, True)),
        (Recipe("4w", 64), LAYER, Form(4, 64, True)),
        (Recipe("4w"), VALUE, Form(8, 64, False)),
        (Recipe("4w"), TABLE, Form(8, 64, False)),
        (Recipe("4w", 32), TABLE, Form(8, 32, False)),
        (Recipe("8w"), LAYER, Form(8, 64, False)),
        (Recipe("none"), LAYER, None),
    ],
)
def test_what_a_recipe_makes_of_floats(recipe: Recipe, name: str, form: Form | None) -> None:
    assert recipe.form(name, 64, 1000) == form
    made = prepared(checkpoint_of(LLAMA), name, recipe)
    if form is None:
        np.testing.assert_array_equal(made, checkpoint_of(LLAMA).read(name))
    else:
        assert isinstance(made, Grouped)
        assert (made.bits, made.group, made.minima is not None) == dataclasses.astuple(form)


def test_small_models_have_more_in_8_bits() -> None:
    name = "model.layers.0.mlp.up_proj.weight"
    assert Recipe().form(name, 2048, 1_000_000_000) == Form(4, 32, True)
    assert Recipe().form(name, 2048, 100_000_000) == Form(8, 128, False)


@pytest.mark.parametrize(
    ("mode", "name", "stored", "kept"),
    [
        ("auto", LAYER, 4, True),
        ("auto", LAYER, 8, True),
        ("4w", LAYER, 4, True),
        ("4w", LAYER, 8, False),
        ("4w", TABLE, 8, True),
        ("8da4w", LAYER, 8, False),
        ("8w", LAYER, 4, True),
        ("8w", LAYER, 8, True),
        ("none", LAYER, 4, False),
    ],
)
def test_what_a_recipe_keeps(mode: Any, name: str, stored: int, kept: bool) -> None:
    checkpoint = checkpoint_of(LLAMA)
    source = rounded(checkpoint.read(name), stored)
    made = prepared(dataclasses.replace(checkpoint, grouped=lambda _: source), name, Recipe(mode))
    assert (made is source) == kept


def test_group_sizes_that_cannot_be_kept_are_refused() -> None:
    with pytest.raises(
        UnsupportedError, match=r"q_proj.*rows of 48 weights.*groups of 32.*one of 4, 8, 12, 16, 24, 48"
    ):
        Recipe("4w", 32).form(LAYER, 48, 1000)
    with pytest.raises(UnsupportedError, match=r"q_proj.*rows of 6 weights.*--quant none"):
        Recipe("4w").form(LAYER, 6, 1000)
    with pytest.raises(UnsupportedError, match=r"q_proj.*4 bits in groups of 32.*groups of 64.*leave --group-size out"):
        Recipe("auto", 64).keeps(LAYER, rounded(normal(2, 64), 4, 32), 1000)
    with pytest.raises(InputError, match="--group-size 6"):
        Recipe("4w", 6)
    with pytest.raises(InputError, match="auto, 4w, 8da4w, 8w, none"):
        Recipe("3w")  # type: ignore[arg-type]
