"""The rows that are wanted of all: the last ones, or those of a table, of every kind of element."""

from __future__ import annotations

import numpy as np
import pytest

from liveshape.device.backends import open_device
from tests.support.chains import Chain, executor_of

ROWS, MOST = 9, 5


@pytest.mark.parametrize("dtype", ["float32", "float16", "int32", "uint8", "int8"])
@pytest.mark.parametrize("width", [4, 12, 36])
def test_rows_of_a_table(dtype: str, width: int) -> None:
    chain = Chain()
    x, table = chain.input((1, ROWS, width), dtype), chain.input((MOST,), "int32")
    executor = executor_of(
        chain.graph(chain.node("liveshape.last_rows", x, table, chain.tensor((1, MOST, width), dtype))), open_device()
    )
    draw = np.random.default_rng(width)
    for live, picks in ((9, [8, 0, 3, 3, 7]), (1, [0]), (5, [4, 1]), (9, [2, 6, 1])):
        given = draw.integers(0, 100, (1, live, width)).astype(dtype)
        executor.poison()
        (got,) = executor.execute([given, np.array(picks, np.int32)])
        np.testing.assert_array_equal(got, given[:, picks])
    executor.close()
