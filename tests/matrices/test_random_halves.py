"""Random programs by matrix units, with float16 activations and split float32: chains of image operators, and blocks of
linears, norms, activations, attention and writes in place, at live batches, lengths and image sizes up and down, beside
float64.

What torch refuses at some live sizes must be refused here, too: sizes that are equal at the bound need not be below.
LIVESHAPE_FUZZ sets the number of programs.
"""

from __future__ import annotations

import math
import os
import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from liveshape.device.protocol import Device
from liveshape.errors import LiveshapeError
from liveshape.graph import Graph, Limits, Tensor
from liveshape.lower.lowering import simplified
from liveshape.ops import matrix_heuristics, split_factors
from liveshape.run.constant_norms import compile_measured
from liveshape.run.executor import Executor
from tests.matrices.opened import with_matrices
from tests.support.blocks import Blocks
from tests.support.image_chains import Images

pytestmark = pytest.mark.slow
COUNT = int(os.environ.get("LIVESHAPE_FUZZ", "12"))
ALLOWED = 1.5e-2  # of the largest number of a result, behind up to eight products of rounded numbers
ALLOWED_SPLIT = 2e-5  # behind products of float32, and attention, norms and functions in it


def image_program(seed: int) -> tuple[Images, Graph]:
    """Convolutions and what lies between them."""
    chance = random.Random(seed)
    chain = Images(seed)
    channels = chance.choice((3, 16, 24, 40))
    x = chain.input((chance.choice((1, 3, 4)), channels, chance.choice((17, 24, 29)), chance.choice((16, 23, 30))))
    pool = [chain.convolution(x, chance.choice((16, 24, 32, 40)), chance.choice((1, 3)), 1, 1)]

    def convolved(y: Tensor) -> Tensor:
        kernel = chance.choice((1, 3, (3, 1), (1, 3), 5))
        clamp = chance.choice((None, None, (0.0, None), (-1.0, 2.0)))
        stride, padding, dilation = chance.choice((1, 1, 2)), chance.choice((0, 1, 1)), chance.choice((1, 1, 2))
        rows = chance.choice((8, 16, 24, 33, 48, 64))
        return chain.convolution(y, rows, kernel, stride, padding, dilation, chance.random() < 0.7, clamp)

    def joined(y: Tensor) -> Tensor:
        alike = [each for each in pool if each.max_shape == y.max_shape]
        other = chance.choice(alike)
        return chance.choice((chain.add, chain.mul))(y, other)

    def beside(y: Tensor) -> Tensor:
        alike = [each for each in pool if each.max_shape[2:] == y.max_shape[2:] and each.max_shape[0] == y.max_shape[0]]
        return chain.cat(y, chance.choice(alike))

    def gated(y: Tensor) -> Tensor:
        mean = chain.mean(y)
        return chain.mul(y, chain.step("aten.sigmoid.default", torch.sigmoid, (mean,), mean))

    def shifted(y: Tensor) -> Tensor:
        count = y.max_shape[1]
        shape = chance.choice(((count, 1, 1), (1, count, 1, 1), (1, 1, 1, 1), (1,)))
        held, constant = chain.numbers(*shape)
        return chain.step("aten.add.Tensor", lambda image: image + held.to(image.dtype), (y,), y, constant, 1)

    def normed(y: Tensor) -> Tensor:
        count = y.max_shape[1]
        return chain.group_norm(y, chance.choice([each for each in (1, 2, 4, 8) if count % each == 0]))

    def pooled(y: Tensor) -> Tensor:
        if chance.random() < 0.6:
            return chain.max_pool(y, chance.choice((2, 3)), chance.choice((1, 2)), chance.choice((0, 1)))
        return chain.average_pool(y, 2, chance.choice((0, 1)), chance.random() < 0.5)

    def outside(y: Tensor) -> Tensor:
        return chain.step("aten._softmax.default", lambda image: image.softmax(3), (y,), y, 3, False)

    steps = (convolved,) * 5 + (chain.relu, chain.silu, joined, joined, beside, gated, shifted, normed, pooled, outside)
    for _ in range(chance.randint(2, 9)):
        late = [each for each in pool[-3:] if min(each.max_shape[2:]) >= 5 and math.prod(each.max_shape) < 200_000]
        if late:
            pool.append(chance.choice((*steps, chain.enlarge))(chance.choice(late)))
    others = chance.sample(pool, chance.randint(0, min(2, len(pool))))
    return chain, chain.graph(*dict.fromkeys((pool[-1], *others)))


def block_program(seed: int, lengths: tuple[int, ...] = (64, 70, 129, 197)) -> tuple[Images, Graph]:
    """Linears, norms, activations, residuals, attention, and writes to what others read before and after."""
    chance = random.Random(seed)
    chain = Blocks(seed)
    width = chance.choice((64, 96, 128, 256))
    x = chain.input((chance.choice((1, 2, 3)), chance.choice(lengths), width))
    pool = [x]
    if chance.random() < 0.7:  # of a norm the range is known: what products read behind it may be stored as halves
        pool.append(chain.layer_norm(x))

    def projected(y: Tensor) -> Tensor:
        return chain.linear(y, chance.choice((width, width, 2 * width, 64)))

    def unary(y: Tensor) -> Tensor:
        name, function = chance.choice((("relu", torch.relu), ("tanh", torch.tanh), ("sigmoid", torch.sigmoid)))
        return chain.step(f"aten.{name}.default", function, (y,), y)

    def joined(y: Tensor) -> Tensor:
        return chance.choice((chain.add, chain.add, chain.mul))(y, chance.choice(alike_of(y)))

    def attended(y: Tensor) -> Tensor:
        values, queries = (chance.choice(alike_of(y)) if chance.random() < 0.3 else None for _ in range(2))
        return chain.attention(y, chance.choice((1, 2, 4)), values, queries, between)

    def between(rows: Tensor, projected: Tensor) -> None:
        """Writes to what the next projection may read, or attention will."""
        if chance.random() < writing:
            written(chance.choice((rows, projected)))

    def alike_of(y: Tensor) -> list[Tensor]:
        return [each for each in pool if each.max_shape == y.max_shape]

    def written(y: Tensor) -> Tensor:
        others = [each for each in alike_of(y) if each is not y]
        return chain.write(y, chance.choice(others) if others and chance.random() < 0.7 else None)

    writing = chance.choice((0.0, 0.1, 0.3))
    steps: tuple[Any, ...] = (projected,) * 4 + (chain.layer_norm, joined) * 2
    steps += (chain.gelu, chain.silu, unary, attended) + (written,) * round(15 * writing)
    for _ in range(chance.randint(3, 10)):
        y = chance.choice(pool[-3:])
        pool.append(chance.choice(steps)(y))
    others = chance.sample(pool[1:], chance.randint(0, min(2, len(pool) - 1)))
    return chain, chain.graph(*dict.fromkeys((pool[-1], *others)))


def shapes_of(bound: tuple[int, ...], chance: random.Random) -> list[tuple[int, ...]]:
    """The bound, smaller ones, and it again; of images all but the channels are live, of rows the first two."""
    live = (0, 2, 3) if len(bound) == 4 else (0, 1)
    least = 1 if len(bound) == 3 else 7
    found = [bound]
    for _ in range(3):
        found.append(
            tuple(
                size if axis not in live else chance.randint(min(size, 1 if axis == 0 else least), size)
                for axis, size in enumerate(bound)
            )
        )
    return [*found, bound]


@pytest.mark.parametrize("seed", range(COUNT))
@pytest.mark.parametrize("made", [image_program, block_program])
def test_random_programs_in_halves(made: Any, seed: int) -> None:
    device, limits = with_matrices()
    compare(*made(seed), device, limits, seed, ALLOWED)


@pytest.mark.parametrize("seed", range(COUNT))
def test_random_blocks_of_split_products(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(split_factors, "MIN_SPLIT_PRODUCTS", 1 << 18)
    monkeypatch.setattr(split_factors, "MIN_SPLIT_SIZE", 8)
    device, limits = with_matrices()
    exact = replace(limits, half_inputs=False, fast_matrices=True)
    compare(*block_program(seed), device, exact, seed, ALLOWED_SPLIT)


@pytest.mark.parametrize("seed", range(COUNT))
def test_random_blocks_in_high_tiles(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a device with few multiprocessors, that products of a few hundred rows fill: in tiles of 96 rows or of 128,
    whichever the live rows take less time in."""
    monkeypatch.setattr(matrix_heuristics, "LARGE_PRODUCT_TILES", 1)
    monkeypatch.setattr(matrix_heuristics, "MULTIPROCESSORS", 4)
    device, limits = with_matrices()
    if not limits.has_many_threads:  # a compiler for CPUs takes minutes for such tiles: as many matrices, of 8 by 8
        limits = replace(limits, max_cooperating_threads=64, subgroup=limits.lanes, lanes=0)
        halved = (each._replace(rows=each.rows // 2, columns=64) for each in matrix_heuristics.ROUND_TILES)
        monkeypatch.setattr(matrix_heuristics, "ROUND_TILES", tuple(halved))
    compare(*block_program(seed), device, limits, seed, ALLOWED)


def compare(chain: Images, graph: Graph, device: Device, limits: Limits, seed: int, allowed: float) -> None:
    """A program with float64 at live sizes up and down."""
    executor = Executor(compile_measured(simplified(graph, limits), limits), device)
    chance = random.Random(seed)
    for shape in shapes_of(graph.inputs[0].max_shape, chance):
        x = np.random.default_rng(seed).standard_normal(shape).astype(np.float32)
        try:
            golden = chain.golden(graph, x)
        except RuntimeError:  # sizes that were equal at the bound
            golden = None
        executor.poison()
        if golden is None:
            with pytest.raises(LiveshapeError):
                executor.execute([x])
            continue
        for place, (out, want) in enumerate(zip(executor.execute([x]), golden, strict=True)):
            assert out.shape == want.shape
            most = max(float(np.abs(want).max(initial=0.0)), 1.0)
            off = float(np.abs(out - want).max(initial=0.0))
            assert off <= allowed * most, f"seed {seed} at {shape}, output {place}: {off / most:.3g}"
    executor.close()
