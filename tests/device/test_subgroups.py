"""How many neighbouring threads of a device are one subgroup, and how that is told from what they say."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from liveshape.device import subgroups
from liveshape.device.backends import open_device
from tests.device.library import LIBRARY


def test_a_device_tells_where_threads_lie() -> None:
    device = open_device(limits=replace(open_device().limits, subgroup=4))
    size = subgroups.subgroup_size(LIBRARY, device._device, {}, least=1)
    assert size in ((4, 8, 16) if open_device().adapter.software else (8, 16, 32, 64)), "lanes of a vector, or of a GPU"
    assert subgroups.subgroup_size(LIBRARY, device._device, {}, least=2 * size) == 0
    limits = open_device().limits
    given = (0, size) if open_device().adapter.software else (size, 0)
    assert (limits.subgroup, limits.lanes) == given, "a software adapter reduces as ever, and has lanes for the rest"


@pytest.mark.parametrize(
    ("lanes", "reaches", "size"),
    [
        (range(64), [64] * 64, 64),
        ([*range(32)] * 2, [32] * 64, 32),
        ([*range(16), *range(16), *range(32)], [16] * 32 + [32] * 32, 16),
        ([*range(32)] * 2, [32] * 40 + [1] * 24, 1),
        ([*range(0, 32, 2), *range(1, 32, 2)] * 2, [32] * 64, 0),
    ],
)
def test_neighbours_are_found(lanes: Sequence[int], reaches: Sequence[int], size: int) -> None:
    assert subgroups.neighbours(lanes, reaches) == size
