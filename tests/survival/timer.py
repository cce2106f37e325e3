"""Ctrl-C from a real timer at a random moment, and what became of it."""

from __future__ import annotations

import gc
import math
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


class Timer:
    """Interrupts actions, and counts what happened.

    `interrupted` came out of the action as a KeyboardInterrupt. `swallowed` came inside of a destructor or a callback,
    where Python can only print it. `missed` came when the action was over: these do not count, nor do those that were
    on their way then and came later, as they do where another thread of the process took the signal.
    """

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self.seen = Counter[str]()
        self.latest = 0.0  # seconds between a signal and its exception
        self._usual: dict[str, float] = {}
        self._fired, self._armed = False, False
        signal.signal(signal.SIGALRM, self._interrupt)
        sys.unraisablehook = self._unraisable

    def _interrupt(self, *_: object) -> None:
        if not self._armed:
            return
        self._fired = True
        raise KeyboardInterrupt

    def _unraisable(self, event: Any) -> None:
        if isinstance(event.exc_value, KeyboardInterrupt):
            self.seen[f"swallowed in {getattr(event.object, '__qualname__', event.object)!s:.60}"] += 1
        else:
            sys.__unraisablehook__(event)

    @property
    def count(self) -> int:
        return self.seen["interrupted"] + self.seen["swallowed"]

    @contextmanager
    def armed(self, delay: float) -> Iterator[None]:
        """Interrupts what is inside after so many seconds."""
        try:
            self._armed = True
            signal.setitimer(signal.ITIMER_REAL, delay)
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            self._armed = False

    def over(self, name: str, action: Callable[[], object]) -> None:
        """Do an action with an interrupt somewhere inside of it, or a little behind it."""
        soon, late = 1e-5, 1.2 * self._usual.get(name, 0.05)
        # Half of them early: what the host does is short beside what it then waits for, and has more to break.
        if self.draw.random() < 0.5:
            delay = self.draw.uniform(soon, late)
        else:
            delay = math.exp(self.draw.uniform(math.log(soon), math.log(late)))
        self._fired, raised = False, False
        gc.collect()
        begin = time.perf_counter()
        try:
            with self.armed(delay):
                action()
        except KeyboardInterrupt:
            raised = True
        took = time.perf_counter() - begin
        if raised:
            self.latest = max(self.latest, took - delay)
        else:
            self._usual[name] = took
        self.seen["interrupted" if raised else "swallowed" if self._fired else "missed"] += 1
        if self._fired:
            self.seen[f"in {name}"] += 1
