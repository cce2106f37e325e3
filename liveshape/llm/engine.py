"""One graph with its weights and its cache on a device, shared by a model and its forks: one of them is at home in the
cache, the others wait in copies on the device and change places with it when they are used."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from liveshape.device.protocol import Device
from liveshape.llm.cache import Cache
from liveshape.llm.program import LOGITS, SETTINGS, TOKEN, TokenGraph
from liveshape.llm.sampling import Sampling
from liveshape.run.executor import Executor, Pending
from liveshape.run.results import DeviceTensor
from liveshape.runtime import Progress

# Between them these take every road through the sampling operator.
_ROADS = (
    Sampling(),
    Sampling(repetition_penalty=1.1),
    Sampling(temperature=1.0),
    Sampling(temperature=1.0, top_k=2, top_p=0.9, min_p=0.1),
)


class Session(Protocol):
    """Whose tokens a cache holds."""

    def _enter(self) -> None: ...

    def _leave(self) -> None: ...


class Engine:
    """Runs tokens at a position and chooses the token after them. It does not count: sessions do."""

    def __init__(self, made: TokenGraph, device: Device, progress: Progress | None = None) -> None:
        self.description = made.description
        self.executor = Executor(made.graph, device, ready=(TOKEN,), resident=(TOKEN,), progress=progress)
        self.cache = Cache(self.executor, made.states, made.description.max_context)
        self._made = made
        self._home: weakref.ref[Session] | None = None
        self._positions = np.arange(made.description.max_context, dtype=made.position.dtype)
        self._one_position = made.position.max_shape[0] == 1
        self._warm()

    def _warm(self) -> None:
        """Make the pipelines and bind groups of every way to choose a token."""
        executor, nodes = self.executor, self._made.graph.nodes
        for sampling in _ROADS:
            self._choose_by(sampling)
            executor.planner.walk(self._made.tail, len(nodes), lambda node, request: 0)
            for node in nodes[self._made.tail :]:
                for step in node.steps:
                    executor.encoder.resolve(step)
        self._choose_by(None)
        executor.graph.invalidate()

    def enter(self, session: Session) -> None:
        """Let a session be at home; the one before it takes a copy along."""
        before = self._home() if self._home is not None else None
        if before is session:
            return
        if before is not None:
            before._leave()
        self._home = weakref.ref(session)
        session._enter()

    def is_home(self, session: Session) -> bool:
        """Whether the cache holds a session's tokens."""
        return self._home is not None and self._home() is session

    def run(
        self, tokens: Sequence[int] | DeviceTensor, position: int, sampling: Sampling | None, wanted: Sequence[int]
    ) -> Pending:
        """Put tokens into the cache at a position and, with a sampling, choose the token after them."""
        made = self._made
        given: Any = tokens
        if not isinstance(tokens, DeviceTensor):
            given = np.array([tokens], dtype=made.tokens.dtype)
        self._choose_by(sampling)
        count = 1 if self._one_position else given.shape[1]
        places = self._positions[position : position + count]
        inputs = [given if value is made.tokens else places for value in made.graph.inputs]
        return self.executor.start(inputs, wanted)

    def choose(self, sampling: Sampling) -> Pending:
        """Choose a token from the logits of the last run, otherwise than it did."""
        self._choose_by(sampling)
        return self.executor.resume(self._made.tail, [TOKEN])

    def last_logits(self) -> Any:
        """The logits of the last token of the last run, [V]."""
        logits = self._made.logits
        return self.executor.fetch(logits, logits.numel - logits.shape[-1], logits.shape[-1:])

    def rows_of(self, pending: Pending) -> Any:
        """The logits of a run that wanted them, [rows, V]."""
        return pending.result()[0].reshape(-1, self._made.logits.max_shape[-1])

    def _choose_by(self, sampling: Sampling | None) -> None:
        settings = self._made.settings
        settings["active"].value = sampling is not None
        if sampling is not None:
            for name in SETTINGS[1:]:
                settings[name].value = getattr(sampling, name)


def token_of(pending: Pending) -> int:
    """The token that a run chose, once the device is done."""
    return int(pending.result()[0].item())


__all__ = ["LOGITS", "TOKEN", "Engine", "Session", "token_of"]
