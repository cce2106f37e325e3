"""Kernels without matrix units that read a weight which is halves from load on, as those with them do."""

from __future__ import annotations

from dataclasses import replace

import pytest

from liveshape.device.backends import open_device
from liveshape.graph.limits import MatrixShape
from tests.matrices.opened import kernels_of
from tests.matrices.products import linear
from tests.support.graphs import sweep

MATRICES = (MatrixShape("float16", "float32", 16, 16, 16),)
# Large enough for matrix units at its bound, and so halves alone; by the powers of two below its sizes it is not.
SIZES = (127, 1, 3, 40, 127)


@pytest.mark.parametrize(
    ("threads", "lanes", "kernel"),
    [(256, 0, "matmul/register_tiles"), (16, 0, "matmul/tiled"), (16, 8, "matmul/lane_tiles")],
    ids=["many threads", "few threads", "few threads with lanes"],
)
@pytest.mark.parametrize("rows", ["float32", "float16"])
def test_a_weight_of_halves(rows: str, threads: int, lanes: int, kernel: str) -> None:
    device = open_device()
    limits = replace(
        device.limits, matrices=MATRICES, half_inputs=True, max_cooperating_threads=threads, lanes=lanes,
        subgroup=device.limits.subgroup or device.limits.lanes,
        max_invocations=256, max_workgroup_bytes=32768,
    )  # fmt: skip
    sweep(linear(120, 126, rows=rows, sizes=SIZES), limits, device)
    names = {name for name in kernels_of(device) if name.endswith("+halves")}
    assert kernel in {name.partition("+")[0] for name in names}
    assert lanes or "matmul/few_rows" in {name.partition("+")[0] for name in names}
