"""The graph in the making: what a node writes in place it does not read from the same memory."""

from __future__ import annotations

from typing import Any, cast

import numpy as np

from liveshape import ops
from liveshape.device.backends import open_device
from liveshape.graph import Graph, Tensor
from liveshape.lower.building import Builder
from tests.support.chains import executor_of


def test_a_tensor_that_is_scattered_into_itself_is_read_as_it_was() -> None:
    builder = Builder(cast(Any, None), {})
    x, index = (builder.keep(Tensor(name, dtype, (5,))) for name, dtype in (("x", "float32"), ("i", "int64")))
    builder.node(ops.OPS["aten.index_put_.default"], "put", (x, (index,), x, False, x))
    graph = Graph("itself", tuple(builder.nodes), tuple(builder.values), (x, index), (x,))
    assert [node.name for node in graph.nodes] == ["liveshape.move", "aten.index_put_.default"]
    assert [node.index for node in graph.nodes] == [0, 1]
    executor = executor_of(graph, open_device())
    for size in (5, 1, 3, 5):
        given = np.arange(size, dtype=np.float32)
        np.testing.assert_array_equal(executor.execute([given, np.arange(size)[::-1].copy()])[0], given[::-1])
