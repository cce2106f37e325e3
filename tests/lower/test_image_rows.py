"""Pixels of images as rows between convolutions by matrix units: planned, on a device of paper, at live sizes."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from liveshape.errors import ShapeError
from liveshape.graph import Tensor
from liveshape.run.constant_norms import compile_measured
from liveshape.run.executor import Executor
from tests.plan.test_matrices import MATRICES
from tests.support.image_chains import Images
from tests.support.paper import PaperDevice

LIMITS = replace(MATRICES, half=True)
BATCH, CHANNELS, SIDE = 4, 64, 32


class Block(Images):
    """Two convolutions with a term of each image between them, the pixels as rows, and an image of these."""

    def __init__(self) -> None:
        super().__init__()
        self.x, self.term = self.input((BATCH, CHANNELS, SIDE, SIDE)), self.input((BATCH, CHANNELS, 1, 1))
        self.batch = self.node("sym_size.int", self.x, 0, self.scalar())

    def pixels(self, image: Tensor) -> Tensor:
        flat = self.node(
            "aten.view_copy.default", image, (self.batch, CHANNELS, SIDE**2), self.tensor((BATCH, CHANNELS, SIDE**2))
        )
        return self.node("aten.permute_copy.default", flat, (0, 2, 1), self.tensor((BATCH, SIDE**2, CHANNELS)))

    def convolved(self) -> Tensor:
        y = self.add(self.convolution(self.x, CHANNELS, 3, 1, 1), self.term)
        return self.convolution(self.silu(self.group_norm(y, 8)), CHANNELS, 1)

    def executor(self, *outs: Tensor) -> Executor:
        return Executor(compile_measured(self.graph(*outs), LIMITS), PaperDevice(LIMITS))


def kernels_of(executor: Executor, *shapes: tuple[int, ...]) -> Counter[str]:
    executor.execute([np.zeros(shape, np.float32) for shape in shapes])
    commands = executor.encoder.commands(executor.live, 0, len(executor.graph.nodes))
    return Counter(command.label.rpartition(" ")[2] for command in commands)


def shapes_at(batch: int, side: int = SIDE, terms: int | None = None) -> Any:
    return (batch, CHANNELS, side, side), (terms or batch, CHANNELS, 1, 1)


def test_rows_beside_another_live_batch_move_nothing() -> None:
    """The term of a time step has a batch of its own, of which nothing says that it is that of the images."""
    block = Block()
    rows = block.pixels(block.convolved())
    out = block.add(block.linear(rows, CHANNELS), rows)
    executor = block.executor(block.convolution(block.image(out, SIDE, SIDE), CHANNELS, 3, 1, 1))
    for batch in (4, 1, 3, 4):
        counts = kernels_of(executor, *shapes_at(batch))
        moved = {name: count for name, count in counts.items() if name.startswith(("movement/", "pointwise/copy"))}
        # The result as the file has it, and nothing else.
        assert sum(moved.values()) == 1, counts


def test_rows_of_products_alone_are_halves() -> None:
    block = Block()
    rows = block.pixels(block.convolved())
    viewed = block.node("aten.view_copy.default", rows, (-1, CHANNELS), block.tensor((BATCH * SIDE**2, CHANNELS)))
    weight = block.constant(np.ones((CHANNELS, CHANNELS), np.float32))
    executor = block.executor(block.node("aten.linear.default", viewed, weight, None, block.tensor(viewed.max_shape)))
    for batch in (4, 2):
        counts = kernels_of(executor, *shapes_at(batch))
        assert not any(name.startswith(("matmul/half_lines", "pointwise/copy")) for name in counts), counts


def test_a_view_that_mixes_images_is_refused() -> None:
    """Four images of a quarter of the pixels are as many elements as one image."""
    block = Block()
    rows = block.pixels(block.convolved())
    executor = block.executor(block.add(block.linear(rows, CHANNELS), rows))
    kernels_of(executor, *shapes_at(1))
    with pytest.raises(ShapeError, match="16"):
        kernels_of(executor, *shapes_at(1, side=SIDE // 2, terms=4))
    kernels_of(executor, *shapes_at(3))


def test_rows_of_convolutions_along_one_dimension_move_nothing() -> None:
    chain = Images()
    bands = chain.input((8, 80, 600))
    y = chain.gelu(chain.convolution_along(chain.gelu(chain.convolution_along(bands, 64, 3, 1, 1)), 64, 3, 2, 1))
    rows = chain.step("aten.permute_copy.default", lambda each: each.transpose(1, 2), (y,), y, (0, 2, 1))
    out = chain.add(rows, chain.constant(np.ones((1, 1, 64), np.float32)))
    executor = Executor(compile_measured(chain.graph(out), LIMITS), PaperDevice(LIMITS))
    for batch, length in ((8, 600), (1, 600), (3, 77)):
        counts = kernels_of(executor, (batch, 80, length))
        assert "image/channels_last" in counts, counts
        assert not any(name.startswith(("movement/", "convolution/half")) for name in counts), counts


def test_a_convolution_along_one_dimension_that_gains_nothing_stays() -> None:
    chain = Images()
    bands = chain.input((2, 8, 20))
    executor = Executor(
        compile_measured(chain.graph(chain.convolution_along(bands, 8, 3, 1, 1)), LIMITS), PaperDevice(LIMITS)
    )
    assert all(
        tensor.rank == 3 for node in executor.graph.nodes for tensor in node.outputs if isinstance(tensor, Tensor)
    )
