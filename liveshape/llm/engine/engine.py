"""One graph with its weights and its cache on a device, shared by a model and its forks: the contents of one of them
are resident in the cache, those of the others are swapped out to copies on the device until they are used."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np

from liveshape.device.protocol import Device
from liveshape.errors import InputError
from liveshape.graph import SymInt
from liveshape.graph.elements import prod
from liveshape.llm.engine.fair_lock import FairLock
from liveshape.llm.engine.kv_cache import Cache, Contents
from liveshape.llm.program.token_graph import LOGITS, SETTINGS, TOKEN, TokenGraph
from liveshape.llm.sampling_settings import Sampling
from liveshape.plan.compiling import compile
from liveshape.plan.plan import Choices
from liveshape.program.memory_use import Memory, memory_of
from liveshape.run.executor import Executor, Pending
from liveshape.run.results import DeviceTensor
from liveshape.run.weights import Progress

# Between them these take every route through the sampling operator.
_ROUTES = (
    Sampling(),
    Sampling(repetition_penalty=1.1),
    Sampling(temperature=1.0),
    Sampling(temperature=1.0, top_k=2, top_p=0.9, min_p=0.1),
)


class Engine:
    """Runs tokens at a position and chooses the token after them. It does not count: sessions do.

    Its methods are for whoever has the turn.
    """

    def __init__(self, made: TokenGraph, device: Device, progress: Progress | None = None) -> None:
        self.description = made.description
        self.device = device
        self.turn = FairLock()
        # The most rows last: smaller calls are planned behind them, and so are the rows of each.
        most = made.description.chosen_rows
        ways = [*((sampling, 1) for sampling in _ROUTES), *((sampling, most) for sampling in _ROUTES if most > 1)]
        settings = tuple(tuple(_values(made, sampling, rows).items()) for sampling, rows in ways)
        choices = Choices(
            resident=(TOKEN,),
            ready=(TOKEN,),
            transfers=1 + device.steps_ahead,
            resume=(made.choice,),
            settings=settings,
        )
        plan = compile(made.graph, device.limits, choices)
        self._executor: Executor | None = Executor(plan, device, progress=progress)
        self.cache = Cache(self._executor, made.states)
        self._made = made
        self._resident_ref: weakref.ref[Contents] | None = None
        self._latest: Pending | None = None  # the step after which nothing, neither a step nor a swap, wrote memory
        self._registered: weakref.WeakSet[Contents] = weakref.WeakSet()
        positions = np.arange(made.description.max_context, dtype=made.position.dtype)
        self._positions = self._executor.prepared(made.position, positions)
        self._chosen_by: tuple[Any, ...] = ()
        self._one_position = made.position.max_shape[0] == 1

    @property
    def executor(self) -> Executor:
        """What runs the graph; an InputError once the model is closed."""
        if self._executor is None:
            raise InputError("the model was closed, and its memory is free for others; load it again")
        return self._executor

    @property
    def memory(self) -> Memory:
        """What the graph and its cache take on the device."""
        return Memory(0, 0, 0, 0, 0, 0, 0) if self._executor is None else memory_of(self._executor.plan)

    # Who is resident in the cache

    def register(self, contents: Contents) -> Contents:
        """Make contents known, so that closing the engine frees their copies, too."""
        self._registered.add(contents)
        return contents

    def swap_in(self, contents: Contents) -> None:
        """Make contents the resident ones of the cache; those that were are swapped out.

        An interrupt leaves the cache to the old ones, to nobody or to the new ones, and each of them can come back.
        """
        resident = self._resident
        if resident is contents:
            return
        # First: rows that steps ahead wrote are behind the text, so no copy has them, and they do not come back.
        self._latest = None
        if resident is not None:
            self._swap_out(resident)
        self._resident_ref = None
        contents.logits_at = -1
        if contents.tokens:
            self.cache.swap_in(contents.copies, len(contents.tokens))
        else:
            self.cache.clear()
        self._resident_ref = weakref.ref(contents)

    def _swap_out(self, contents: Contents) -> None:
        """Copy the cache to buffers of contents, those that they have where these are large enough."""
        held = contents.copies
        contents.copies = self.cache.copy(len(contents.tokens), held)
        # Last: an interrupt must not leave a buffer in use that is freed.
        self.device.free([buffer for buffer in held if buffer not in contents.copies])

    @property
    def _resident(self) -> Contents | None:
        """The contents in the cache; None if nobody's are, or those of a text that is gone."""
        return self._resident_ref() if self._resident_ref is not None else None

    def holds(self, contents: Contents, pending: Pending) -> bool:
        """Whether all that a step wrote for contents is in memory: neither a step nor a swap has come after it."""
        return self._resident is contents and pending is self._latest and pending.is_latest

    # Steps

    def run(
        self,
        tokens: Sequence[int] | DeviceTensor,
        position: int,
        sampling: Sampling | None,
        wanted: Sequence[int],
        rows: int = 1,
    ) -> Pending:
        """Put tokens into the cache at a position; with a sampling, choose a token after each of the last `rows`."""
        made = self._made
        given: Any = tokens
        if not isinstance(tokens, DeviceTensor):
            given = np.array([tokens], dtype=made.tokens.dtype)
        self._choose_by(sampling, rows)
        count = 1 if self._one_position else given.shape[1]
        places = self._positions.rows(position, position + count)
        inputs = [given if value is made.tokens else places for value in made.graph.inputs]
        self._latest = None
        pending = self._latest = self.executor.start(inputs, wanted)
        return pending

    def choose(self, sampling: Sampling) -> Pending:
        """Choose a token from the logits of the last run, otherwise than it did."""
        self._choose_by(sampling, 1)
        self._latest = None
        pending = self._latest = self.executor.resume(self._made.choice, [TOKEN])
        return pending

    @property
    def has_logits(self) -> bool:
        """Whether the logits of the last run are there: after an interrupt nobody knows at which shapes."""
        return self.executor.holds_results

    def last_logits(self) -> Any:
        """The logits of the last token of the last run, [V]."""
        logits = self._made.logits
        shape = self.executor.live.tensor(logits).shape
        return self.executor.fetch(logits, prod(shape[:-1]) * shape[-1] - shape[-1], shape[-1:])

    def rows_of(self, pending: Pending) -> Any:
        """The logits of a run that wanted them, [rows, V]."""
        return pending.result()[0].reshape(-1, self._made.logits.max_shape[-1])

    def close(self) -> None:
        """Give the memory of the graph, the cache and all copies back at once."""
        executor, self._executor = self._executor, None
        self._resident_ref = self._latest = None
        for contents in list(self._registered):
            contents.free(self.device)
        if executor is not None:
            executor.close()

    def _choose_by(self, sampling: Sampling | None, rows: int) -> None:
        executor = self.executor
        executor.ready()
        chosen = (sampling, rows, executor.live)
        if chosen == self._chosen_by:  # mostly they are those of the step before
            return
        self._chosen_by = ()
        for symint, value in _values(self._made, sampling, rows).items():
            executor.set_scalar(symint, value)
        self._chosen_by = chosen


def _values(made: TokenGraph, sampling: Sampling | None, rows: int) -> dict[SymInt, Any]:
    """The live numbers of the sampling operator."""
    settings = made.settings
    if sampling is None:
        return {made.rows: rows, settings["active"]: False}
    chosen = {settings[name]: getattr(sampling, name) for name in SETTINGS[1:]}
    return {made.rows: rows, settings["active"]: True} | chosen


def token_of(pending: Pending) -> int:
    """The token that a run chose, once the device is done."""
    return int(pending.result()[0].item())


def logits_of(pending: Pending, rows: int) -> Any:
    """The logits that a run brought along for each token that it chose, [rows, V]; None if it brought none."""
    _, *brought = pending.result()
    return brought[0].reshape(-1, brought[0].shape[-1])[-rows:] if brought else None


def tokens_of(pending: Pending) -> list[int]:
    """The tokens that a run chose, one after each of its last rows."""
    chosen: list[int] = pending.result()[0].reshape(-1).tolist()
    return chosen


__all__ = ["LOGITS", "TOKEN", "Engine", "logits_of", "token_of", "tokens_of"]
