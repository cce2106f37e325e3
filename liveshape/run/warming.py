"""Warm-up for devices whose driver finishes a kernel at its first dispatch, as software adapters do: the kernels of
the calls to come are dispatched over nothing, by two devices at once, since the driver keeps for one what it compiled
for the other. So a load ends when the next call is quick, and says what it waits for.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from liveshape.device.protocol import Command, CompilesAtDispatch, Device
from liveshape.errors import LiveshapeError
from liveshape.graph import Value
from liveshape.kernels import Variant
from liveshape.kernels.requests import Read
from liveshape.plan.params import Slot
from liveshape.plan.plan import Plan
from liveshape.plan.plan_state import PlanState
from liveshape.progress import Progress

Call = Mapping[Value, Any]  # live shapes of inputs, and values of live scalars

_BYTES = 1024  # of a buffer that nothing is read from
_CACHED = 0.25  # seconds that kernels take together which the driver has on disk
_POLL = 0.05  # seconds
# With any of these Mesa keeps nothing, and what another device compiled would be lost.
_NO_CACHE = ("MESA_SHADER_CACHE_DISABLE", "MESA_GLSL_CACHE_DISABLE")


def warm_up(plan: Plan, device: Device, calls: Iterable[Call], progress: Progress | None = None) -> None:
    """Finish the kernels of these calls, where the device's driver would do so in the first of them; tells how many of
    how many are done.

    Example: `warm_up(executor.plan, executor.device, [{executor.graph.inputs[0]: (1, 16)}])`.
    """
    if not isinstance(device, CompilesAtDispatch) or not device.compiles_at_dispatch:
        return
    finish(device, kernels_of(plan, calls), progress or (lambda done, total: None))


def kernels_of(plan: Plan, calls: Iterable[Call]) -> list[Variant]:
    """The kernels that these calls take, in the order of their first use; what cannot be planned has none.

    Example: `kernels_of(plan, [{tokens: (1, 16)}, {tokens: (1, 1)}])`.
    """
    live = PlanState(plan)
    found: dict[Variant, None] = {}
    for call in calls:
        for value, to in call.items():
            live.set(value, to)
        live.begin()
        with suppress(LiveshapeError):
            live.walk(0, len(live.nodes), lambda node, request: 0 if isinstance(request, Read) else None)
        for node in live.nodes:
            found |= dict.fromkeys(variant for variant, _ in node.group.route.dispatched)
    return list(found)


def finish(device: CompilesAtDispatch, variants: Sequence[Variant], progress: Progress) -> None:
    """Dispatch each of these kernels over nothing; those of tensors in several bindings are left for their first call.

    Example: `finish(device, plan.kernels, lambda done, total: print(done, "of", total))`.
    """
    waiting = deque(variant for variant in variants if all(count == 1 for count in variant.segments))
    total, began = len(waiting), time.perf_counter()
    own, helper = _EmptyDispatches(device), _Helper(device, waiting)
    done = 0
    try:
        while waiting or helper.finished or helper.is_alive():
            progress(min(done + len(helper.finished), total), total)
            if waiting and (variant := _taken(waiting.popleft)) is not None:
                own.run(variant)
                done += 1
            elif helper.finished:
                own.run(helper.finished.popleft())
                done += 1
            else:
                helper.join(_POLL)
            if waiting and not helper.started and time.perf_counter() - began > _CACHED and _driver_has_cache():
                helper.start()
        progress(total, total)
    finally:
        waiting.clear()
        if helper.started:
            helper.join()
        own.close()


def _driver_has_cache() -> bool:
    return not any(os.environ.get(name, "").lower() in ("1", "true", "yes", "y") for name in _NO_CACHE)


def _taken(take: Any) -> Variant | None:
    """The next one, unless the other thread was faster."""
    with suppress(IndexError):
        variant: Variant = take()
        return variant
    return None


class _EmptyDispatches:
    """Buffers that kernels are bound to which do nothing with them."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._buffers: list[Any] = []
        self._uniforms = device.uniforms(_BYTES)

    def run(self, variant: Variant) -> None:
        device, count = self._device, len(variant.segments)
        while len(self._buffers) < count:  # one each, since none may be bound for reading and for writing
            self._buffers.append(device.buffer(_BYTES, "empty dispatches"))
        bound = device.bind(variant, [(buffer, _BYTES) for buffer in self._buffers[:count]], self._uniforms)
        slot = Slot(0)
        slot.grid = (0, 1, 1)
        device.submit([Command(bound, slot, f"kernel {variant.kernel.name}")], what="warm-up")
        device.flush()

    def close(self) -> None:
        self._device.free([self._uniforms, *self._buffers])


class _Helper(threading.Thread):
    """Takes kernels from the end, on a device of its own; what it did not finish it leaves to the other thread."""

    def __init__(self, device: CompilesAtDispatch, waiting: deque[Variant]) -> None:
        super().__init__(name="liveshape warm-up", daemon=True)
        self._open, self._waiting = device.another, waiting
        self.finished: deque[Variant] = deque()
        self.started = False

    def start(self) -> None:
        """Start, once."""
        self.started = True
        super().start()

    def run(self) -> None:
        """Until nothing is waiting, or the device cannot be had."""
        variant: Variant | None = None
        try:
            dispatches = _EmptyDispatches(self._open())
            while (variant := _taken(self._waiting.pop)) is not None:
                dispatches.run(variant)
                self.finished.append(variant)
            dispatches.close()
        except LiveshapeError:
            if variant is not None:
                self._waiting.append(variant)
