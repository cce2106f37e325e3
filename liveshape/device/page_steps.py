"""Steps as the GPU of a page keeps them: commands cross to JavaScript once, from then on only grids that moved."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from typing import Any

from liveshape.device.protocol import Command
from liveshape.errors import DeviceError
from liveshape.plan.params import Slot

_NO_PARAMS = 0xFFFFFFFF
_MOST_KEPT = 16  # steps; those of a plan alternate between a few live shapes
_MOST_MOVED = 64  # grids of a step that are told one by one


class PageHandle:
    """An object of the page by its number, dropped there when it is collected here."""

    __slots__ = ("_drop", "_kind", "id")

    def __init__(self, drop: Callable[[str, int], Any], kind: str, id: int) -> None:
        self._drop, self._kind, self.id = drop, kind, id

    def __del__(self) -> None:
        self._drop(self._kind, self.id)


class KeptStep:
    """Commands that the page has, with the grids that it has for each slot: None while it is not known to have them."""

    __slots__ = ("commands", "grids", "handle", "now", "places", "slots")

    def __init__(self, commands: Sequence[Command], gpu: Any) -> None:
        places: dict[Slot, list[int]] = {}
        rows = array("I")
        for place, command in enumerate(commands):
            bound, slot = command.bound, command.slot
            if bound.bind_group is None:
                raise DeviceError(f"{command.label}: its memory was freed: load the program again")
            rows.extend((bound.bind_group, slot.offset if bound.has_params else _NO_PARAMS, *slot.grid))
            places.setdefault(slot, []).append(place)
        self.commands = commands
        self.slots, self.places = list(places), list(places.values())
        self.now = [slot.grid for slot in self.slots]
        self.grids: list[tuple[int, int, int]] | None = self.now
        self.handle = PageHandle(gpu.drop, "step", gpu.step(rows))

    def moved(self) -> list[int] | None:
        """The place and grid of every row whose grid is another by now; None if there are too many, or none is known.

        What is not `told` afterwards, since a submit was interrupted or refused, the page may have or not.
        """
        now, known = [slot.grid for slot in self.slots], self.grids
        if now == known:
            return []
        self.now, self.grids = now, None
        if known is None:
            return None
        found: list[int] = []
        for grid, before, places in zip(now, known, self.places, strict=True):
            if grid != before:
                for place in places:
                    found += (place, *grid)
        return found if len(found) <= 4 * _MOST_MOVED else None

    def told(self) -> None:
        """The page has what has moved."""
        self.grids = self.now


class Steps:
    """The steps that a page keeps, by the list of their commands."""

    def __init__(self, gpu: Any) -> None:
        self._gpu = gpu
        self._kept: dict[int, KeptStep] = {}

    def moved(self, commands: Sequence[Command]) -> tuple[KeptStep, list[int]]:
        """A step that the page has, and what has moved since it was there; `told` once it is submitted."""
        found = self._kept.get(id(commands))
        if found is not None and found.commands is commands:
            moved = found.moved()
            if moved is not None:
                return found, moved
        made = self._kept[id(commands)] = KeptStep(commands, self._gpu)
        if len(self._kept) > _MOST_KEPT:
            del self._kept[next(iter(self._kept))]
        return made, []

    def clear(self) -> None:
        """Forget all: a buffer was freed, and what was bound to it cannot run."""
        self._kept.clear()
