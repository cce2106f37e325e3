"""Chains of convolutions as halves with their channels last, at live batches and sizes up and down, poisoned tails."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from liveshape.graph import Tensor
from liveshape.run.constant_norms import compile_measured
from liveshape.run.executor import Executor
from tests.matrices.opened import kernels_of, with_matrices
from tests.support.image_chains import Images

pytestmark = pytest.mark.slow

Build = Callable[[Images, Tensor], tuple[Tensor, ...]]


def residual(chain: Images, x: Tensor) -> tuple[Tensor, ...]:
    """The beginning of a residual network: a stem of three channels, a pool, two blocks, a mean."""
    y = chain.max_pool(chain.relu(chain.convolution(x, 32, 7, 2, 3)), 3, 2, 1)
    for stride, hidden in ((1, 16), (2, 24)):
        z = chain.relu(chain.convolution(y, hidden, 1))
        z = chain.relu(chain.convolution(z, hidden, 3, stride, 1))
        z = chain.convolution(z, 64, 1)
        y = chain.relu(chain.add(z, chain.convolution(y, 64, 1, stride)))
    return (chain.mean(y),)


def read_outside(chain: Images, x: Tensor) -> tuple[Tensor, ...]:
    """Results that others read as the file has them: of a convolution, of an activation, and at the end."""
    first = chain.convolution(x, 40, 3, 1, 1)
    second = chain.silu(first)
    third = chain.convolution(second, 33, (3, 1), 1, 1)
    softmax = chain.step("aten._softmax.default", lambda image: image.softmax(3), (second,), second, 3, False)
    return first, softmax, third


def by_channels(chain: Images, x: Tensor) -> tuple[Tensor, ...]:
    """Squeeze and excitation, a bias of its own, and a clamp."""
    y = chain.convolution(x, 48, 3, 1, 1, clamp=(0.0, 6.0))
    own = chain.step("aten.sigmoid.default", lambda image: image.sigmoid(), (m := chain.mean(y),), m)
    y = chain.mul(y, own)
    addend, constant = chain.numbers(48, 1, 1)
    y = chain.step("aten.add.Tensor", lambda image: image + addend.to(image.dtype), (y,), y, constant, 1)
    y = chain.average_pool(chain.convolution(y, 40, 3, 2, 2, 2), 2)
    return (chain.convolution(chain.enlarge(y), 3, 3, 1, 1, clamp=(None, 0.5)),)


def deep(chain: Images, x: Tensor) -> tuple[Tensor, ...]:
    """Split-K, without biases; a result of which only every fourth pixel is read."""
    y = chain.convolution(x, 256, 1, bias=False)
    y = chain.convolution(y, 66, 3, 1, 1, bias=False)
    return (chain.convolution(chain.relu(y), 72, 1, 2, bias=False),)


def normed(chain: Images, x: Tensor) -> tuple[Tensor, ...]:
    """Group norms with activations, of groups that are no whole vectors, and far from zero; images joined."""
    y = chain.convolution(x, 48, 3, 1, 1)
    shift, constant = chain.numbers(1, 48, 1, 1, scale=30.0)
    y = chain.step("aten.add.Tensor", lambda image: image + shift.to(image.dtype), (y,), y, constant, 1)
    z = chain.convolution(chain.silu(chain.group_norm(y, 8)), 24, 1)
    y = chain.cat(z, chain.convolution(x, 16, 1), y)
    return (chain.convolution(chain.silu(chain.group_norm(y, 2, affine=False)), 40, 3, 1, 1),)


def attended(chain: Images, x: Tensor) -> tuple[Tensor, ...]:
    """Pixels as rows, for a product alone and beside others, and images of rows."""
    y = chain.convolution(chain.convolution(x, 24, 1), 48, 3, 1, 1)
    rows = chain.linear(chain.rows(chain.group_norm(y, 4)), 48)
    z = chain.add(y, chain.image(rows, *x.max_shape[2:]))
    pixels = chain.rows(z)
    w = chain.image(chain.add(chain.linear(pixels, 48), pixels), *x.max_shape[2:])
    return (chain.convolution(w, 32, 1),)


def patches(chain: Images, x: Tensor) -> tuple[Tensor, ...]:
    """A single convolution, of which nobody reads the image."""
    return (chain.rows(chain.convolution(x, 48, 3, 3)),)


def few_channels(chain: Images, x: Tensor) -> tuple[Tensor, ...]:
    """Windows side by side over three channels, whose numbers are those of one pixel."""
    y = chain.convolution(x, 48, 8, 8, clamp=(-1.0, None))
    return chain.rows(y), chain.convolution(y, 24, 1)


CHAINS: dict[str, tuple[Build, tuple[int, int, int, int]]] = {
    "residual": (residual, (3, 3, 37, 29)),
    "read outside": (read_outside, (4, 21, 13, 17)),
    "by channels": (by_channels, (3, 40, 23, 16)),
    "normed": (normed, (3, 24, 23, 14)),
    "attended": (attended, (3, 24, 17, 14)),
    "patches": (patches, (5, 40, 27, 36)),
    "few channels": (few_channels, (5, 3, 36, 43)),
    "deep": (deep, (2, 200, 9, 13)),
}


@pytest.mark.parametrize("name", CHAINS)
def test_chains_of_convolutions(name: str) -> None:
    device, limits = with_matrices()
    build, bound = CHAINS[name]
    chain = Images()
    graph = chain.graph(*build(chain, chain.input(bound)))
    executor = Executor(compile_measured(graph, limits), device)
    most, channels, height, width = bound
    fixed = any(node.name == "aten.view_copy.default" for node in graph.nodes)
    for batch, rows, columns in ((most, height, width), (1, height, width), (2, 9, width), (1, 8, 10), (most, 9, 15)):
        high, wide = (height, width) if fixed else (min(rows, height), min(columns, width))
        x = np.random.default_rng(batch * high).standard_normal((batch, channels, high, wide)).astype(np.float32)
        executor.poison()
        for out, want in zip(executor.execute([x]), chain.golden(graph, x), strict=True):
            assert out.shape == want.shape
            assert np.abs(out - want).max() <= 4e-3 * np.abs(want).max(), f"{name} at {x.shape}"
    assert any(name.startswith("convolution/pixel_tiles") for name in kernels_of(device))


def test_what_halves_cannot_hold_is_nan_and_nothing_else_is() -> None:
    device, limits = with_matrices()
    chain = Images()
    y = chain.relu(chain.convolution(chain.input((2, 16, 24, 24)), 32, 3, 1, 1))
    graph = chain.graph(chain.convolution(y, 32, 1))
    executor = Executor(compile_measured(graph, limits), device)
    x = np.random.default_rng(0).standard_normal((2, 16, 24, 24)).astype(np.float32)
    x[0, 3, 5, 5] = -1e5
    (out,) = executor.execute([x])
    (want,) = chain.golden(graph, x)
    touched = np.zeros(out.shape, bool)
    touched[0, :, 4:7, 4:7] = True
    assert np.isnan(out[touched]).all()
    assert np.abs(out - want)[~touched].max() <= 4e-3


def test_convolutions_along_one_dimension() -> None:
    """The front of a speech encoder: two of them, each with an activation, and what they give as rows of channels."""
    device, limits = with_matrices()
    chain = Images()
    bands = chain.input((3, 24, 200))
    y = chain.gelu(chain.convolution_along(bands, 48, 3, 1, 1))
    y = chain.gelu(chain.convolution_along(y, 40, 3, 2, 1))
    rows = chain.step("aten.permute_copy.default", lambda each: each.transpose(1, 2), (y,), y, (0, 2, 1))
    graph = chain.graph(rows)
    plan = compile_measured(graph, limits)
    executor = Executor(plan, device)
    for batch, length in ((3, 200), (1, 31), (2, 200), (3, 7)):
        x = np.random.default_rng(length).standard_normal((batch, 24, length)).astype(np.float32)
        executor.poison()
        (out,) = executor.execute([x])
        (want,) = chain.golden(graph, x)
        assert out.shape == want.shape
        assert np.abs(out - want).max() <= 4e-3 * np.abs(want).max(), f"at {x.shape}"
    named = {variant.kernel.name for route in plan.routes for variant, _ in route.dispatched}
    assert any(name.startswith("convolution/pixel_tiles") for name in named)
    assert "convolution/half_image" not in named
