"""Attention of prompts by matrix units, against float64: heads, windows of a causal mask, values of any size."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest

from liveshape.ops.attention_heuristics import matrix_keys
from liveshape.plan.compiling import compile
from liveshape.run.executor import Executor
from tests.matrices.masks import HIDDEN, check_masks
from tests.matrices.opened import kernels_of, with_matrices
from tests.support.chains import Chain

pytestmark = pytest.mark.slow
CAPACITY, ROWS = 700, 200
LIVE = ((200, 500), (200, 0), (17, 5), (64, 100), (129, 3), (200, 301))


class Form(NamedTuple):
    """Heads of queries and of keys, their size, and what their numbers are multiplied by."""

    heads: tuple[int, int]
    size: int
    queries: float = 1.0
    keys: float = 1.0
    values: float = 1.0
    spread: bool = False  # whether the values of keys differ by many powers of ten


FORMS = [
    Form((8, 2), 64),
    Form((4, 4), 128),
    Form((6, 2), 48),
    Form((2, 1), 16),
    Form((4, 2), 32),
    Form((4, 1), 96),
    Form((8, 2), 64, queries=1e5, keys=1e-5),
    Form((8, 2), 64, queries=1e-5, keys=1e5, values=1e5),
    Form((8, 2), 64, values=1e-6),
    Form((8, 2), 64, spread=True),
]


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_attention(form: Form) -> None:
    device, limits = with_matrices()
    (heads, key_heads), size = form.heads, form.size
    chain, draw = Chain(), np.random.default_rng(1)
    q = chain.input((1, ROWS, heads, size))
    caches = [chain.input((1, CAPACITY, key_heads, size), static=True) for _ in "kv"]
    position, out = chain.scalar(given=True), chain.tensor((1, ROWS, heads, size))
    graph = chain.graph(chain.node("custom_sdpa.default", q, *caches, position, None, 0.0, True, None, out))
    executor = Executor(compile(graph, limits), device)
    for rows, start in LIVE:
        queries = form.queries * draw.standard_normal((1, rows, heads, size))
        keys, values = (draw.standard_normal((1, CAPACITY, key_heads, size)) for _ in "kv")
        values *= 10.0 ** draw.integers(-3, 8, (1, CAPACITY, 1, 1)) if form.spread else form.values
        given = [each.astype(np.float32) for each in (queries, form.keys * keys, values)]
        executor.poison()
        (got,) = executor.execute([*given, start])
        for head in range(heads):
            want = attended(*(each[0].astype(np.float64) for each in given), head, heads // key_heads, start)
            error = np.abs(got[0, :, head] - want).max() / np.abs(want).max()
            assert error < 2e-3, f"head {head}, {rows} rows at {start}: {error}"
    # Matrices of some sizes are not taken: there it is as right without.
    assert ("attention/matrix_tiles" in kernels_of(device)) is (matrix_keys(size, limits) > 0)


@pytest.mark.parametrize("hidden", HIDDEN.values(), ids=HIDDEN)
def test_masks(hidden: float) -> None:
    check_masks(*with_matrices(), hidden)


def attended(
    queries: np.ndarray, keys: np.ndarray, values: np.ndarray, head: int, group: int, start: int
) -> np.ndarray:
    """Causal attention of one head."""
    scores = queries[:, head] @ keys[:, head // group].T / np.sqrt(queries.shape[-1])
    scores[np.arange(scores.shape[1]) > start + np.arange(scores.shape[0])[:, None]] = -np.inf
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    found: np.ndarray = weights / weights.sum(axis=1, keepdims=True) @ values[:, head // group]
    return found
