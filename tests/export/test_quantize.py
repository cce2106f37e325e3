"""4-bit groups: exact where they can be, close to the best where they cannot, never a shape the exporter trips over."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from liveshape.errors import UnsupportedError
from liveshape.export.config import Quantization
from liveshape.export.quantize import GroupedWeight, Weights, quantize_groups
from liveshape.export.recipe import group_of


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
    generator = torch.Generator().manual_seed(0)
    values = torch.randint(-8, 8, (40, 4, 32), generator=generator)
    values[:, :, 5] = -8
    scales = torch.randn(40, 4, 1, generator=generator).half().float()
    weight = (values * scales).reshape(40, 128)
    found, found_scales = quantize_groups(weight, 32)
    torch.testing.assert_close(GroupedWeight(found, found_scales)(), weight, rtol=1e-6, atol=0)
    assert torch.equal(found.reshape(40, 4, 32), values.to(torch.int8))


def test_better_than_rounding_to_the_largest() -> None:
    weight = torch.randn(256, 128, generator=torch.Generator().manual_seed(1))
    found = GroupedWeight(*quantize_groups(weight, 32))()
    groups = weight.reshape(-1, 32)
    scale = groups.abs().amax(1, keepdim=True) / 7.5
    plain = ((groups / scale).round().clamp(-8, 7) * scale).reshape(weight.shape)
    assert (found - weight).square().mean() < 0.95 * (plain - weight).square().mean()


def test_zeros_and_huge_and_tiny_groups() -> None:
    weight = torch.zeros(8, 64)
    weight[1] = 1e30
    weight[2] = 1e-30
    weight[3, 40] = -3.0
    values, scales = quantize_groups(weight, 32)
    assert torch.isfinite(scales).all()
    torch.testing.assert_close(GroupedWeight(values, scales)(), weight, rtol=1e-5, atol=1e-25)


def weights(quantization: Quantization, **tensors: np.ndarray) -> Weights:  # type: ignore[type-arg]
    return Weights(tensors.__getitem__, frozenset(tensors), quantization)


@pytest.mark.parametrize("rows", [4, 5, 6, 7])
@pytest.mark.parametrize("mode", ["4w", "8da4w", "none"])
def test_linears_of_any_height(rows: int, mode: str) -> None:
    generator = np.random.default_rng(rows)
    weight, bias = generator.standard_normal((rows, 64)).astype(np.float32), np.arange(rows, dtype=np.float32)
    found = weights(Quantization(mode), **{"x.weight": weight, "x.bias": bias}).linear("x")  # type: ignore[arg-type]
    x = torch.randn(1, 3, 64, generator=torch.Generator().manual_seed(0))
    out = found(x)
    assert out.shape == (1, 3, rows)
    if mode != "none":
        assert found.weight.values.shape[0] % 4 == 0
        weight = found.weight()[:rows].numpy()
    tolerance = 0.1 if mode == "8da4w" else 1e-5
    expected = torch.nn.functional.linear(x, torch.from_numpy(weight), torch.from_numpy(bias))
    torch.testing.assert_close(out, expected, rtol=tolerance, atol=tolerance)


def test_a_tied_table_is_two_equal_copies() -> None:
    table = np.random.default_rng(0).standard_normal((12, 64)).astype(np.float32)
    found = weights(Quantization("4w"), **{"model.embed_tokens.weight": table})
    embedding, head = found.embedding("model.embed_tokens", 64), found.linear("model.embed_tokens")
    assert torch.equal(embedding.weight.values, head.weight.values)
    assert embedding.weight.values.data_ptr() != head.weight.values.data_ptr()


def test_rows_that_cannot_be_grouped_are_refused() -> None:
    with pytest.raises(UnsupportedError, match="rows of 6 weights"):
        weights(Quantization("4w"), **{"x.weight": np.zeros((4, 6), np.float32)}).linear("x")
