"""Steps that a page keeps: sent once, then only what moved."""

from __future__ import annotations

import json
from array import array
from collections.abc import Sequence
from typing import Any

import pytest

from liveshape.device.page_device import _LIMITS, PageDevice
from liveshape.device.page_steps import Steps
from liveshape.device.protocol import Command
from liveshape.errors import DeviceError
from liveshape.graph.limits import Limits
from liveshape.plan.params import Slot

ROW = 5


class Gpu:
    """What page_gpu.js keeps of steps."""

    def __init__(self) -> None:
        self.steps: dict[int, list[int]] = {}
        self.sent = 0

    def step(self, rows: array[int]) -> int:
        self.sent += 1
        self.steps[self.sent] = list(rows)
        return self.sent

    def drop(self, kind: str, id: int) -> None:
        assert kind == "step"
        del self.steps[id]

    def grids(self, steps: Steps, commands: list[Command]) -> list[tuple[int, ...]]:
        """The grids that a submit would dispatch."""
        step, moved = steps.moved(commands)
        step.told()
        return self.dispatched(step.handle.id, moved)

    def dispatched(self, id: int, moved: Sequence[int]) -> list[tuple[int, ...]]:
        """The grids of a step, once it was told what has moved."""
        rows = self.steps[id]
        for at in range(0, len(moved), 4):
            rows[moved[at] * ROW + 2 : (moved[at] + 1) * ROW] = moved[at + 1 : at + 4]
        return [tuple(rows[at + 2 : at + ROW]) for at in range(0, len(rows), ROW)]


class Bound:
    def __init__(self, number: int, has_params: bool = True) -> None:
        self.bind_group: int | None = number
        self.has_params = has_params


def made(layers: int, kinds: int = 3) -> tuple[list[Command], list[Slot]]:
    """Commands of many layers that share the slots of one."""
    slots = [Slot(256 * kind) for kind in range(kinds)]
    for kind, slot in enumerate(slots):
        slot.grid = (kind + 1, 1, 1)
    return [Command(Bound(layer), slot, "kernel") for layer in range(layers) for slot in slots], slots


def test_a_step_is_sent_once_and_its_grids_are_those_of_now() -> None:
    gpu, (commands, slots) = Gpu(), made(4)
    steps = Steps(gpu)
    for grid in [(1, 1, 1), (1, 1, 1), (7, 2, 1), (7, 2, 3), (1, 1, 1)]:
        slots[1].grid = grid
        assert gpu.grids(steps, commands) == [command.slot.grid for command in commands]
    assert gpu.sent == 1
    assert steps.moved(commands)[1] == []


def test_many_grids_that_move_are_sent_as_a_step() -> None:
    gpu, (commands, slots) = Gpu(), made(100)
    steps = Steps(gpu)
    gpu.grids(steps, commands)
    slots[0].grid = (9, 9, 9)
    assert gpu.grids(steps, commands) == [command.slot.grid for command in commands]
    assert gpu.sent == 2
    assert len(gpu.steps) == 1, "the one before is dropped"


def test_another_list_is_another_step() -> None:
    gpu = Gpu()
    steps = Steps(gpu)
    lists: list[Any] = [made(1)[0] for _ in range(40)]
    for commands in lists * 2:
        assert gpu.grids(steps, commands) == [command.slot.grid for command in commands]
    assert len(gpu.steps) <= 16
    steps.clear()
    assert not gpu.steps


def test_memory_that_was_freed_is_told() -> None:
    gpu, (commands, _) = Gpu(), made(1)
    steps = Steps(gpu)
    gpu.grids(steps, commands)
    commands[1].bound.bind_group = None
    steps.clear()  # as `free` does
    with pytest.raises(DeviceError, match="its memory was freed"):
        steps.moved(commands)


class FailingGpu(Gpu):
    """A page whose submits fail: before or after it has the grids that moved."""

    attention = False
    info = json.dumps(
        {
            "name": "gpu",
            "software": True,
            "driver": "",
            "features": [],
            "subgroupMinSize": 0,
            "subgroupMaxSize": 0,
            "matrices": [],
            "limits": dict.fromkeys(_LIMITS.values(), 1 << 16),
        }
    )
    write = read = None

    def __init__(self) -> None:
        super().__init__()
        self.fails = ""
        self.ran: list[tuple[int, ...]] = []

    def submit(self, what: str, id: int, moved: int, before: int, *numbers: int) -> None:
        if self.fails == "before":
            raise KeyboardInterrupt
        self.ran = self.dispatched(id, numbers[:moved])
        if self.fails == "after":
            raise KeyboardInterrupt


@pytest.mark.parametrize("fails", ["before", "after"])
@pytest.mark.parametrize("then", [(1, 1, 1), (7, 2, 1), (8, 1, 1)])
def test_a_submit_that_fails_leaves_no_old_grids(fails: str, then: tuple[int, int, int]) -> None:
    gpu, (commands, slots) = FailingGpu(), made(2)
    device = PageDevice(gpu, Limits())
    slots[1].grid = (1, 1, 1)
    device.submit(commands)
    slots[1].grid = (7, 2, 1)
    gpu.fails = fails
    with pytest.raises(KeyboardInterrupt):
        device.submit(commands)
    gpu.fails, slots[1].grid = "", then
    for _ in range(2):
        device.submit(commands)
        assert gpu.ran == [command.slot.grid for command in commands]
    assert len(gpu.steps) == 1
