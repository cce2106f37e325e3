"""Kernels compiled by several threads at once, ahead of the one that binds them: a driver compiles a kernel a call, and
Python runs meanwhile.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from liveshape.device.protocol import DEVICE_THREADS
from liveshape.kernels import Variant

MOST = 16  # threads
_EACH = 2  # kernels that are worth another thread


class CompileThreads:
    """Threads that take one kernel after another, and hold what they compiled until `close`, when none begins any more.
    What does not compile is left to who needs it, who can name it.

    Example: `CompileThreads(pipelines.get, plan.kernels, most=8).start()`.
    """

    def __init__(
        self,
        compile: Callable[[Variant], Any],
        variants: Collection[Variant],
        most: int = MOST,
        first: Collection[Variant] = (),
    ) -> None:
        count = min(most, len(variants) // _EACH)
        self._compile, self._made = compile, list[Any]()
        # Those that run at load, then the longest texts: they take longest, as a rule, and at the end all would wait.
        order = sorted(variants, key=lambda each: (each not in first, -len(each.source))) if count else ()
        self._waiting = deque(order)
        self._threads = [
            threading.Thread(target=self._run, name="liveshape compiles", daemon=True) for _ in range(count)
        ]

    def start(self) -> None:
        """Start; an interrupt in between leaves fewer."""
        for thread in self._threads:
            thread.start()

    def _run(self) -> None:
        ident = threading.get_ident()
        DEVICE_THREADS.add(ident)
        try:
            with suppress(IndexError):
                while True:
                    variant = self._waiting.popleft()
                    with suppress(Exception):
                        self._made.append(self._compile(variant))
        finally:
            DEVICE_THREADS.discard(ident)  # idents are reused

    def close(self) -> None:
        """Let go of what was compiled; waits for what is being compiled."""
        self._waiting.clear()
        for thread in self._threads:
            if thread.ident is not None:
                thread.join()
        self._made.clear()


@contextmanager
def compiling_ahead(
    compile: Callable[[Variant], Any], variants: Collection[Variant], first: Collection[Variant]
) -> Iterator[None]:
    """Kernels are compiled in threads within the context, in which all should be bound.

    Example: `with compiling_ahead(pipelines.get, plan.kernels, ()): encoder.warm()`.
    """
    threads = CompileThreads(compile, variants, min(MOST, os.cpu_count() or 1), first)
    try:
        threads.start()
        yield
    finally:
        threads.close()
