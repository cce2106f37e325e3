"""The rows of a sequence from its pages to the host and back: an array for each pool, as a saved KV cache has them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from liveshape.graph import Tensor
from liveshape.graph.elements import prod, storage_bytes
from liveshape.llm.batch.pages import PageTable
from liveshape.llm.batch.runner import BatchRunner
from liveshape.llm.engine.cache_file import Layout
from liveshape.run.arrays import stored
from liveshape.run.results import Staging


def layout_of(runner: BatchRunner, length: int) -> Layout:
    """The dtype and shape of each array for `length` tokens.

    Example: `layout_of(runner, 20)[0]`.
    """
    return tuple((tensor.dtype, (1, length, *tensor.max_shape[2:])) for tensor in runner.states)


def read_rows(runner: BatchRunner, table: PageTable, length: int) -> tuple[Any, ...]:
    """The rows of the first `length` tokens, of which none was given back.

    Example: `states = read_rows(runner, table, len(tokens))`.
    """
    executor = runner.executor
    # Its own staging buffer, freed afterwards: the executor's for results is much smaller.
    staging = Staging(executor.device, executor.plan.limits.half)
    found = []
    try:
        for tensor in runner.states:
            nbytes, buffer = _page_bytes(runner, tensor), executor.buffer_of(tensor)
            copies = [(buffer, page * nbytes, nbytes, place * nbytes) for place, page in enumerate(table.pages)]
            shape = (len(table.pages), runner.bounds.page_size, *tensor.max_shape[2:])
            (array,) = staging.submit((), copies, len(table.pages) * nbytes, [(0, tensor, shape)], "pages").wait()
            found.append(array.reshape(1, -1, *shape[2:])[:, :length])
    finally:
        staging.free()
    return tuple(found)


def write_rows(runner: BatchRunner, table: PageTable, states: Sequence[Any]) -> None:
    """Upload what `read_rows` returned to the pages of a table.

    Example: `write_rows(runner, table, states)`.
    """
    executor, size = runner.executor, runner.bounds.page_size
    for tensor, (array,) in zip(runner.states, states, strict=True):
        nbytes, buffer = _page_bytes(runner, tensor), executor.buffer_of(tensor)
        for place, page in enumerate(table.pages):
            rows = array[place * size : (place + 1) * size]
            missing = [(0, size - len(rows)), *((0, 0) for _ in rows.shape[1:])]
            data = stored(np.ascontiguousarray(np.pad(rows, missing)), tensor, executor.plan.limits.half)
            executor.device.write(buffer, page * nbytes, data)


def _page_bytes(runner: BatchRunner, tensor: Tensor) -> int:
    elements = runner.bounds.page_size * prod(tensor.max_shape[2:])
    return storage_bytes(tensor.dtype, elements, runner.executor.plan.limits.half)
