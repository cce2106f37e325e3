"""Pipeline cache: compiled kernels live as long as a bind group uses them, the most recent (LRU) longer.

No reference counts of our own: bind groups hold their pipeline and the device holds it weakly, so a pipeline is freed
with the last plan that uses it, closed or garbage-collected, wherever an interrupt came.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any

from liveshape.kernels import Variant

# LRU size, so that a file that is closed and loaded again compiles nothing: the language model of the demo
# has 42. A pipeline takes 0.3 to 2 MB with llvmpipe, so these take at most a quarter of a gigabyte there.
RECENT = 128


class Pipeline:
    """A compute pipeline and its bind group layout; the handle keeps shader module and pipeline layout alive."""

    __slots__ = ("__weakref__", "handle", "layout", "variant")

    def __init__(self, variant: Variant, handle: Any, layout: Any) -> None:
        self.variant, self.handle, self.layout = variant, handle, layout


class Pipelines:
    """Pipeline cache of one device.

    Example: `Pipelines(device._compile).get(variant).handle`.
    """

    def __init__(self, compile: Callable[[Variant], Pipeline], most: int | None = None) -> None:
        self._compile, self._most = compile, RECENT if most is None else most
        self._lock = threading.RLock()
        # Held while compiling, by id of the variant: a second thread waits for the same pipeline, and for no other.
        self._turns: dict[int, threading.RLock] = {}
        # Weak, by id of the variant, valid while its pipeline holds it; no weakref callbacks, which swallow signals.
        self._known: dict[int, weakref.ref[Pipeline]] = {}
        self._recent: dict[int, Pipeline] = {}  # least recently used first
        self._room = 2 * self._most

    def get(self, variant: Variant) -> Pipeline:
        """The pipeline of a kernel variant, compiled on a cache miss."""
        found = self._found(variant)
        if found is not None:
            return found
        key = id(variant)
        with self._lock:
            turn = self._turns.setdefault(key, threading.RLock())
        with turn:
            found = self._found(variant)
            if found is None:
                found = self._compile(variant)
                self._keep(found)
        # Who waits for this turn finds the pipeline; after an interrupt here the next turn is the same.
        self._turns.pop(key, None)
        return found

    def _found(self, variant: Variant) -> Pipeline | None:
        key = id(variant)
        with self._lock:
            known = self._known.get(key)
            found = known() if known is not None else None
            if found is None or found.variant is not variant:
                return None
            self._note(found)
        return found

    def _keep(self, pipeline: Pipeline) -> None:
        with self._lock:
            self._known[id(pipeline.variant)] = weakref.ref(pipeline)
            self._note(pipeline)
            if len(self._known) > self._room:
                self._known = {id(each.variant): weakref.ref(each) for each in self._living()}
                self._room = 2 * (self._most + len(self._known))

    def _note(self, pipeline: Pipeline) -> None:
        """It is the most recent one."""
        key = id(pipeline.variant)
        self._recent.pop(key, None)
        self._recent[key] = pipeline
        while len(self._recent) > self._most:
            del self._recent[next(iter(self._recent))]

    def clear(self) -> None:
        """Clear the cache."""
        with self._lock:
            self._known.clear()
            self._recent.clear()

    def __iter__(self) -> Iterator[Variant]:
        """Kernel variants with a live pipeline."""
        with self._lock:
            return iter([each.variant for each in self._living()])

    def _living(self) -> list[Pipeline]:
        return [pipeline for known in self._known.values() if (pipeline := known()) is not None]
