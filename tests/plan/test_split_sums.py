"""Partial sums of split-K fit their scratch at every size: kernels of matrix units do not check where they write."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import pytest

from liveshape.errors import PlanError
from liveshape.graph import Limits
from liveshape.graph.limits import MatrixShape
from liveshape.ops.matrix_heuristics import (
    MAX_MATRIX_SUMS,
    check_sums,
    float_matrix_tiles,
    pixel_matrix_tiles,
    product_matrix_tiles,
)
from liveshape.ops.split_factors import MAX_SPLIT_SUMS, split_tiles

LIMITS = Limits(
    max_invocations=1024, max_workgroup_bytes=49152, subgroup=32, half_inputs=True, fast_matrices=True,
    matrices=(MatrixShape("float16", "float32", 16, 16, 16),),
)  # fmt: skip
ROWS = (1, 3, 16, 17, 32, 33, 64, 65, 100, 128, 197, 256, 300, 512, 513, 640, 777, 1024, 1500, 2048)
COLUMNS = (64, 96, 128, 512, 768, 1000, 1024, 2304, 3072, 4096, 8192)
DEPTHS = (192, 768, 1536, 3072, 4096, 16384)
TILES: dict[str, tuple[Callable[..., tuple[dict[str, Any], int]], int]] = {
    "floats": (product_matrix_tiles, MAX_MATRIX_SUMS),
    "split floats": (split_tiles, MAX_SPLIT_SUMS),
    "convolution": (float_matrix_tiles, MAX_MATRIX_SUMS),
    "pixels": (lambda _, *sizes: pixel_matrix_tiles(*sizes), MAX_MATRIX_SUMS),
}


@pytest.mark.parametrize("kind", TILES)
def test_they_fit(kind: str) -> None:
    tiles, room = TILES[kind]
    several = 0
    for sizes in product(ROWS, COLUMNS, DEPTHS):
        _, splits = tiles(1, *sizes, LIMITS)
        if splits > 1:
            several += 1
            check_sums(splits, sizes[0] * sizes[1], room)
    assert several > 100


def test_what_does_not_fit_is_refused() -> None:
    """512 x 768 in four parts were written beyond the scratch of tiles of 64 by 64."""
    with pytest.raises(PlanError, match="4 parts of 393216 sums do not fit the 1081344"):
        check_sums(4, 512 * 768, MAX_MATRIX_SUMS)
