"""4-bit groups: exact where they can be, close to the best where they cannot, and those of torch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from liveshape.errors import FormatError, UnsupportedError
from liveshape.export.model.checkpoint import Checkpoint
from liveshape.export.model.config import Quantization
from liveshape.export.model.layout import Grouped, Layout
from liveshape.export.sources.huggingface_config import from_hugging_face
from liveshape.export.weights.quantize import group_of, rounded
from liveshape.export.weights.storage import RoundedStorage
from tests.export import torch_weights
from tests.export.tiny import LLAMA

Array = np.ndarray[Any, Any]


def dequantized(found: Grouped) -> Array:
    return found.codes * found.scales.repeat(found.group, axis=1)


def random(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


@pytest.mark.parametrize(
    ("width", "asked", "group"),
    [
        (576, 32, 32),
        (288, 128, 96),
        (100, 32, 20),
        (64, 128, 64),
        (12, 32, 12),
        (8, 32, 8),
        (6, 32, None),
        (64, 3, None),
    ],
)
def test_group_sizes(width: int, asked: int, group: int | None) -> None:
    assert group_of(width, asked) == group


def test_symmetric_blocks_come_through_unchanged() -> None:
    """What Q4_0 stores: the largest weight of a block sits at -8."""
    generator = np.random.default_rng(0)
    codes = generator.integers(-8, 8, (40, 4, 32))
    codes[:, :, 5] = -8
    scales = generator.standard_normal((40, 4, 1)).astype(np.float16).astype(np.float32)
    weight = (codes * scales).reshape(40, 128).astype(np.float32)
    found = rounded(weight, Layout(4, 32))
    np.testing.assert_allclose(dequantized(found), weight, rtol=1e-6)
    assert np.array_equal(found.codes.reshape(40, 4, 32), codes)


def test_better_than_rounding_to_the_largest() -> None:
    weight = random(256, 128)
    groups = weight.reshape(-1, 32)
    scale = np.abs(groups).max(1, keepdims=True) / 7.5
    plain = (np.clip(np.rint(groups / scale), -8, 7) * scale).reshape(weight.shape)
    error = np.square(dequantized(rounded(weight, Layout(4, 32))) - weight).mean()
    assert error < 0.95 * np.square(plain - weight).mean()


def test_zeros_and_huge_and_tiny_groups() -> None:
    weight = np.zeros((8, 64), np.float32)
    weight[1] = 1e30
    weight[2] = 1e-30
    weight[3, 40] = -3.0
    found = rounded(weight, Layout(4, 32))
    assert np.isfinite(found.scales).all()
    np.testing.assert_allclose(dequantized(found), weight, rtol=1e-5, atol=1e-25)


@pytest.mark.parametrize(("width", "group"), [(128, 32), (100, 20), (96, 96)])
def test_those_of_torch(width: int, group: int) -> None:
    weight = random(64, width)
    weight[3, :group] = 0
    found = rounded(weight, Layout(4, group))
    codes, scales = torch_weights.quantize_groups(torch.from_numpy(weight), group)
    assert np.array_equal(found.codes, codes.numpy())
    np.testing.assert_allclose(found.scales, scales.numpy(), rtol=5e-7)


def storage(quantization: Quantization, **tensors: Array) -> RoundedStorage:
    shapes = {name: tensor.shape for name, tensor in tensors.items()}
    return RoundedStorage(Checkpoint(from_hugging_face(LLAMA), shapes, tensors.__getitem__), quantization)


def test_layouts() -> None:
    found = storage(Quantization("4w"), **{"x.weight": random(5, 64), "narrow.weight": random(5, 100)})
    assert found.layout("x.weight", lookup=True) == found.layout("x.weight", lookup=False) == Layout(4, 32)
    assert found.layout("narrow.weight", lookup=True) is None  # no multiple of 32
    assert found.layout("narrow.weight", lookup=False) == Layout(4, 20)
    plain = storage(Quantization("none"), **{"x.weight": random(5, 64)})
    assert plain.layout("x.weight", lookup=False) is None


def test_rows_in_pieces_are_the_rows_at_once() -> None:
    weight = random(50, 64)
    found = storage(Quantization("4w"), **{"x.weight": weight})
    pieces = [found.grouped("x.weight", Layout(4, 32), slice(start, start + 16)) for start in range(0, 50, 16)]
    whole = rounded(weight, Layout(4, 32))
    assert np.array_equal(np.concatenate([piece.codes for piece in pieces]), whole.codes)
    assert np.array_equal(np.concatenate([piece.scales for piece in pieces]), whole.scales)


def test_rows_that_cannot_be_grouped_are_refused() -> None:
    with pytest.raises(UnsupportedError, match=r"x\.weight: rows of 6 weights"):
        storage(Quantization("4w"), **{"x.weight": np.zeros((4, 6), np.float32)}).layout("x.weight", lookup=False)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf])
def test_what_is_no_number_is_refused(wrong: float) -> None:
    weight = random(40, 64)
    weight[17, 40] = wrong
    found = storage(Quantization("4w"), **{"x.weight": weight})
    found.grouped("x.weight", Layout(4, 32), slice(20, 40))
    with pytest.raises(FormatError, match=r"x\.weight: rows 0 to 20 have weights that are no finite numbers"):
        found.grouped("x.weight", Layout(4, 32), slice(0, 20))
