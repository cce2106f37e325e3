"""The sweeps of the package on a device: which operators of this adapter and driver give what torch gives.

Calls go from the bound down and back up on one executor, in poisoned memory, so that each runs twice and a race shows.
What fails is recorded, whatever it raises, and the next sweep runs: on a new device where the old one was lost.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from liveshape.check.differences import Difference, difference
from liveshape.check.findings import REPEATED
from liveshape.check.single_node import SingleNode
from liveshape.check.sweeps import Sweep
from liveshape.device.protocol import Device
from liveshape.errors import DeviceError, UnsupportedError
from liveshape.graph import Tensor, Value

PASSED, FAILED, NOT_RUN = "passed", "failed", "not run"
NO_HALF = "the adapter has no f16: float16 programs run there, kept as float32"


@dataclass(frozen=True)
class SweepOutcome:
    """What became of one sweep. `error` is the largest, relative to the largest number that was expected."""

    sweep: str
    operator: str
    family: str
    status: str
    reason: str = ""
    value: str = ""  # what differs
    difference: Difference | None = None
    shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)  # of what it read then
    kernels: tuple[str, ...] = ()
    error: float = 0.0
    seconds: float = 0.0


@dataclass(frozen=True)
class Tally:
    """Outcomes of one family or one operator, counted."""

    name: str
    count: int
    passed: int
    failed: int
    not_run: int
    reasons: tuple[str, ...]  # why some were not run
    error: float
    kernels: tuple[str, ...]
    seconds: float


def selftest(
    sweeps: Iterable[Sweep], opened: Callable[[], Device], begin: Callable[[str], None] = lambda name: None
) -> list[SweepOutcome]:
    """Run sweeps one by one; `opened` gives the device, again if it was lost, `begin` is told each name before it runs.

    Example: `selftest(shipped_sweeps(), open_device)`.
    """
    device: Device | None = opened()
    found = []
    for sweep in sweeps:
        begin(sweep.name)
        try:
            if device is None or device.lost:
                device = opened()
        except DeviceError as error:
            device = None
            reason = f"the device was lost and could not be opened again: {error}"
            found.append(SweepOutcome(sweep.name, sweep.node.name, sweep.family, FAILED, reason))
            continue
        found.append(run_sweep(sweep, device))
    return found


def run_sweep(sweep: Sweep, device: Device) -> SweepOutcome:
    """Run one sweep.

    Example: `run_sweep(shipped_sweeps()[0], open_device()).status`.
    """
    began = time.perf_counter()
    run = _Run(sweep, device)
    status, reason = PASSED, ""
    if "float16" in sweep.dtypes and not device.limits.half:
        status, reason = NOT_RUN, NO_HALF
    else:
        try:
            reason = run.all_calls()
            status = FAILED if reason else PASSED
        except UnsupportedError as error:
            status, reason = NOT_RUN, str(error)
        except Exception as error:  # of a driver that refuses a shader, or of one that is gone
            status, reason = FAILED, f"{type(error).__name__}: {error}"
    return SweepOutcome(
        sweep.name,
        sweep.node.name,
        sweep.family,
        status,
        reason,
        run.value,
        run.difference,
        run.shapes,
        tuple(run.kernels),
        run.error,
        time.perf_counter() - began,
    )


class _Run:
    """One sweep while it runs: what is known of it when it ends, or when it breaks off."""

    def __init__(self, sweep: Sweep, device: Device) -> None:
        self.sweep, self.device = sweep, device
        self.kernels: dict[str, None] = {}
        self.shapes: dict[str, tuple[int, ...]] = {}
        self.difference: Difference | None = None
        self.value, self.error = "", 0.0

    def all_calls(self) -> str:
        """Run all calls; why it failed, empty if it did not."""
        single = SingleNode(self.sweep.graph, self.sweep.node, self.device, self.device.limits)
        before: dict[tuple[int, Value], bytes] = {}
        order = range(len(self.sweep.calls))
        try:
            for place in (*order, *reversed(order)):
                call = self.sweep.calls[place]
                self.shapes = {value.name: np.shape(given) for value, given in call.given.items()}
                got = single.run(call.given)
                self.kernels |= dict.fromkeys(single.kernels)
                for value, want in call.want.items():
                    dtype = value.dtype if isinstance(value, Tensor) else "int64"
                    self.value = value.name
                    self.difference = difference(got[value], want, dtype, self.sweep.tolerance)
                    self.error = max(self.error, _error(got[value], want, dtype))
                    if self.difference is not None:
                        return "its values differ from torch's"
                    if before.setdefault((place, value), _bytes(got[value])) != _bytes(got[value]):
                        return REPEATED
        finally:
            single.close()
        self.value, self.shapes = "", {}
        return ""


def _bytes(array: Any) -> bytes:
    return np.asarray(array).tobytes()


def _error(got: Any, want: Any, dtype: str) -> float:
    """The largest error of floats, even of those that agree."""
    if np.asarray(want).dtype.kind not in "fc":
        return 0.0
    found = difference(got, want, dtype, 0.0)
    return 0.0 if found is None else found.error


def tallied(outcomes: Sequence[SweepOutcome], key: Callable[[SweepOutcome], str]) -> list[Tally]:
    """Outcomes counted by a name, in order of these names.

    Example: `tallied(outcomes, lambda outcome: outcome.family)`.
    """
    names = sorted({key(outcome) for outcome in outcomes})
    found = []
    for name in names:
        own = [outcome for outcome in outcomes if key(outcome) == name]
        passed, failed, not_run = (sum(outcome.status == each for outcome in own) for each in (PASSED, FAILED, NOT_RUN))
        reasons = dict.fromkeys(outcome.reason for outcome in own if outcome.status == NOT_RUN)
        kernels = dict.fromkeys(kernel for outcome in own for kernel in outcome.kernels)
        worst = max(outcome.error for outcome in own)
        seconds = sum(outcome.seconds for outcome in own)
        found.append(Tally(name, len(own), passed, failed, not_run, tuple(reasons), worst, tuple(kernels), seconds))
    return found
