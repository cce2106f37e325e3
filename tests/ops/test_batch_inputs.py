"""The tables of a step from one array: each where it belongs, at sizes that go up and down on one graph."""

from __future__ import annotations

import numpy as np
import pytest

from liveshape.device.backends import open_device
from liveshape.errors import ShapeError
from liveshape.ops.batch_inputs import packed_size
from liveshape.ops.sampling import SETTING_COLUMNS
from tests.support.chains import Chain, executor_of

ROWS, WANTED, SEQUENCES, PAGES, SAMPLED = 9, 5, 5, 7, 5
COLUMNS = len(SETTING_COLUMNS)


def test_each_table_gets_its_numbers_and_rows_take_tokens_of_the_step_before() -> None:
    chain = Chain()
    most = packed_size(ROWS, WANTED, ROWS, SEQUENCES, PAGES)
    packed, previous = chain.input((most,), "int32"), chain.input((1, SAMPLED), "int32")
    sizes = [chain.scalar(value=1) for _ in range(5)]
    shapes = ((1, ROWS), (ROWS, 2), (WANTED,), (ROWS, 4), (WANTED, COLUMNS), (SEQUENCES, PAGES))
    out = tuple(chain.tensor(shape, "int64" if place == 0 else "int32") for place, shape in enumerate(shapes))
    chain.node("liveshape.unpack_tables", packed, previous, *sizes, out)
    executor = executor_of(chain.graph(*out), open_device())
    draw = np.random.default_rng(0)
    before = draw.integers(100, 200, (1, SAMPLED)).astype(np.int32)
    for rows, wanted, lines, sequences, pages in (
        (ROWS, WANTED, ROWS, SEQUENCES, PAGES), (1, 1, 1, 1, 1), (4, 2, 3, 2, 7), (7, 1, 9, 1, 3), (ROWS, 5, 1, 5, 1),
    ):  # fmt: skip
        for scalar, value in zip(sizes, (rows, wanted, lines, sequences, pages), strict=True):
            executor.set_scalar(scalar, value)
        given = draw.integers(0, 99, packed_size(rows, wanted, lines, sequences, pages)).astype(np.int32)
        sources = draw.integers(-2, SAMPLED + 2, rows)
        given[rows : 2 * rows] = sources
        executor.poison()
        tokens, *tables = executor.execute([given, before])
        taken = before[0, np.clip(sources, 0, SAMPLED - 1)]
        np.testing.assert_array_equal(tokens, np.where(sources < 0, given[:rows], taken)[None])
        live = ((rows, 2), (wanted,), (lines, 4), (wanted, COLUMNS), (sequences, pages))
        places = 2 * rows + np.cumsum([0, *(int(np.prod(shape)) for shape in live)])
        for table, shape, start, stop in zip(tables, live, places, places[1:], strict=False):
            np.testing.assert_array_equal(table, given[start:stop].reshape(shape))


def test_tables_that_do_not_fit_are_refused() -> None:
    chain = Chain()
    packed, previous = chain.input((10,), "int32"), chain.input((1, 1), "int32")
    sizes = [chain.scalar(value=1) for _ in range(5)]
    out = tuple(chain.tensor(shape, "int32") for shape in ((1, 4), (4, 2), (1,), (1, 4), (1, COLUMNS), (1, 1)))
    chain.node("liveshape.unpack_tables", packed, previous, *sizes, out)
    executor = executor_of(chain.graph(*out), open_device())
    executor.set_scalar(sizes[0], 4)
    with pytest.raises(ShapeError, match="in an array of 10"):
        executor.execute([np.zeros(10, np.int32), np.zeros((1, 1), np.int32)])
