"""Upper bounds that no live size has: rows that are padded to a multiple, up and down on one graph."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from liveshape.device.backends import open_device
from liveshape.errors import ShapeError
from liveshape.graph import Graph
from liveshape.lower.lowering import simplified
from liveshape.plan.compiling import compile
from tests.support.chains import Chain, executor_of

BOUND, CHUNK, WIDTH = 32, 8, 16
PADDED = BOUND + CHUNK - 1  # as exporters bound n + (-n % 8): 39 rows make no chunks of eight
SIZES = (32, 1, 31, 8, 9, 2, 17, 32, 25, 7)
WEIGHT = np.random.default_rng(0).standard_normal((WIDTH, WIDTH)).astype(np.float32)


def chunked(operator: str = "softmax", view_by_sizes: bool = False, lost: int = 0) -> Graph:
    """Pads rows to chunks, works in each of them, and joins them again; the end of the padding is cut off."""
    chain = Chain()
    x = chain.input((1, BOUND, WIDTH))
    rows, less, pad, padded, chunks, whole = (chain.scalar() for _ in range(6))
    chain.node("sym_size.int", x, 1, rows)
    chain.node("neg", rows, less)
    chain.node("mod", less, CHUNK, pad)
    chain.node("add", rows, pad, padded)
    chain.node("floordiv", padded, CHUNK, chunks)
    chain.node("mul", chunks, CHUNK, whole)
    y = chain.node("aten.constant_pad_nd.default", x, (0, 0, 0, pad), 0.0, chain.tensor((1, PADDED, WIDTH)))
    split = (1, chunks if view_by_sizes else -1, CHUNK, WIDTH)
    y = chain.node("aten.view_copy.default", y, split, chain.tensor((1, PADDED // CHUNK, CHUNK, WIDTH)))
    y = work(chain, operator, y)
    y = chain.node("aten.view_copy.default", y, (1, -1, WIDTH), chain.tensor((1, PADDED - lost, WIDTH)))
    # 39 rows of the one and 32 of the other are the same rows at every live size.
    other = chain.node("aten.constant_pad_nd.default", x, (0, 0, 0, pad), 1.0, chain.tensor((1, PADDED, WIDTH)))
    wide = chain.node("aten.view_copy.default", other, (1, whole, WIDTH), chain.tensor((1, BOUND, WIDTH)))
    y = chain.node("aten.mul.Tensor", y, wide, chain.tensor((1, PADDED, WIDTH)))
    turned = chain.node("aten.permute_copy.default", y, (0, 2, 1), chain.tensor((1, WIDTH, PADDED)))
    square = chain.node("aten.bmm.default", turned, wide, chain.tensor((1, WIDTH, WIDTH)))
    y = chain.node("aten.slice_copy.Tensor", y, 1, 0, rows, 1, chain.tensor((1, BOUND, WIDTH)))
    return chain.graph(chain.node("aten.add.Tensor", y, x, 1, chain.tensor((1, BOUND, WIDTH))), square)


def work(chain: Chain, operator: str, y: Any) -> Any:
    """Something in each chunk: by rows, with prepacked weights, and with scratch memory."""
    if operator == "linear":
        return chain.node("aten.linear.default", y, chain.constant(WEIGHT), None, chain.tensor(y.max_shape))
    if operator == "cumsum":
        return chain.node("aten.cumsum.default", y, 2, None, chain.tensor(y.max_shape))
    return chain.node("aten._softmax.default", y, 2, False, chain.tensor(y.max_shape))


def in_torch(x: np.ndarray, operator: str) -> list[np.ndarray]:
    given = torch.from_numpy(x).double()
    rows = given.shape[1]
    pad = -rows % CHUNK
    y = torch.nn.functional.pad(given, (0, 0, 0, pad)).reshape(1, -1, CHUNK, WIDTH)
    if operator == "linear":
        y = y @ torch.from_numpy(WEIGHT).double().T
    else:
        y = y.cumsum(2) if operator == "cumsum" else y.softmax(2)
    wide = torch.nn.functional.pad(given, (0, 0, 0, pad), value=1.0)
    y = y.reshape(1, -1, WIDTH) * wide
    return [(y[:, :rows] + given).numpy(), (y.transpose(1, 2) @ wide).numpy()]


@pytest.mark.parametrize(
    ("operator", "by_sizes", "aliasing", "fusion"),
    [("softmax", True, True, False), ("linear", False, True, True), ("cumsum", False, False, False)],
)
def test_rows_that_are_padded_to_a_multiple(operator: str, by_sizes: bool, aliasing: bool, fusion: bool) -> None:
    device, graph = open_device(), chunked(operator, by_sizes)
    executor = executor_of(simplified(graph, device.limits) if fusion else graph, device, aliasing=aliasing)
    random = np.random.default_rng(1)
    for size in SIZES:
        x = random.standard_normal((1, size, WIDTH)).astype(np.float32)
        executor.poison()
        for got, want in zip(executor.execute([x]), in_torch(x, operator), strict=True):
            np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-5 * np.abs(want).max())
    executor.close()


def test_what_does_not_fit_its_allocation_is_refused_at_the_call() -> None:
    """A file that bounds the joined rows at 31: 32 do not fit, 24 do; nothing is written beyond it."""
    graph = chunked(lost=8)
    executor = executor_of(graph, open_device())
    for size in (24, 25, 32, 7):
        x = np.ones((1, size, WIDTH), np.float32)
        if size <= 24:
            np.testing.assert_allclose(executor.execute([x])[0], in_torch(x, "softmax")[0], rtol=2e-5)
        else:
            with pytest.raises(ShapeError, match=r"does not fit the allocated \(1, 31, 16\)"):
                executor.execute([x])
    executor.close()


def test_a_view_that_no_size_fits_is_still_refused_at_load() -> None:
    chain = Chain()
    x = chain.input((5, 3))
    chain.node("aten.view_copy.default", x, (7, 7), y := chain.tensor((7, 7)))
    with pytest.raises(ShapeError, match=r"sizes \(7, 7\) hold 49 elements, the live tensor has 15"):
        compile(chain.graph(y))
