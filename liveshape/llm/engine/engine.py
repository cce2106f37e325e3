"""The engine: one compiled graph with its weights and KV cache on a device, shared by a model and its forks. One
sequence is resident in the KV cache; the others are swapped out to copies on the device."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np

from liveshape.device.protocol import Device
from liveshape.errors import InputError
from liveshape.graph import Limits, SymInt, Value
from liveshape.graph.elements import prod
from liveshape.llm.engine.fair_lock import FairLock
from liveshape.llm.engine.kv_cache import Cache, Contents
from liveshape.llm.program.token_graph import LOGITS, SETTINGS, TOKEN, TokenGraph
from liveshape.llm.sampling_settings import Sampling
from liveshape.plan.compiling import compile
from liveshape.plan.plan import Choices
from liveshape.program.memory_use import Memory, memory_of
from liveshape.progress import Progress
from liveshape.run.executor import Executor
from liveshape.run.pending import Pending
from liveshape.run.results import DeviceTensor
from liveshape.run.warming import warm_up

# Together these take every branch of the sampling operator, so that load compiles all its pipelines.
_ROUTES = (
    Sampling(),
    Sampling(repetition_penalty=1.1),
    Sampling(frequency_penalty=1.0),
    Sampling(temperature=1.0),
    Sampling(temperature=1.0, top_k=2, top_p=0.9, min_p=0.1),
)
_SHORT = (16, 2, 4)  # tokens of short prompts: each takes kernels of its own


class Engine:
    """Runs the forward pass at a position and samples the next token. Sessions keep track of tokens and positions.

    Callers hold the lock (`lock`). `limits` are those of the device, or these with what the user chose.
    """

    def __init__(
        self,
        token_graph: TokenGraph,
        device: Device,
        progress: Progress | None = None,
        limits: Limits | None = None,
    ) -> None:
        self.description = token_graph.description
        self.device = device
        self.lock = FairLock()
        # The largest number of rows last: smaller shapes are planned with the last setting (plan/routes.py).
        most = token_graph.description.sampled_rows
        ways = [*((sampling, 1) for sampling in _ROUTES), *((sampling, most) for sampling in _ROUTES if most > 1)]
        settings = tuple(tuple(_values(token_graph, sampling, rows).items()) for sampling, rows in ways)
        choices = Choices(
            resident=(TOKEN,),
            ready=(TOKEN,),
            transfers=1 + device.steps_ahead,
            resume=(token_graph.sample_node,),
            settings=settings,
        )
        plan = compile(token_graph.graph, limits or device.limits, choices)
        self._executor: Executor | None = Executor(plan, device, progress=progress)
        self.cache = Cache(self._executor, token_graph.states)
        self._token_graph = token_graph
        self._resident_ref: weakref.ref[Contents] | None = None
        self._latest: Pending | None = None  # the last step, if no swap has written the cache since
        self._registered: weakref.WeakSet[Contents] = weakref.WeakSet()
        positions = np.arange(token_graph.description.max_context, dtype=token_graph.position.dtype)
        self._positions = self._executor.prepared(token_graph.position, positions)
        self._current_sampling: tuple[Any, ...] = ()
        self._one_position = token_graph.position.max_shape[0] == 1

    def warm_up(self, samplings: Sequence[Sampling], progress: Progress | None = None) -> None:
        """Finish the kernels of a long prompt, short ones and decode, where the driver would in the first of them.

        Example: `engine.warm_up([Sampling()])`.
        """
        bound = self.description.max_seq_len
        first, *others = (min(rows, bound) for rows in _SHORT)
        calls = [self._call(bound, None), *(self._call(rows, each) for rows in (first, 1) for each in samplings)]
        calls += [self._call(rows, None) for rows in others]
        warm_up(self.executor.plan, self.device, calls, progress)

    def _call(self, rows: int, sampling: Sampling | None) -> dict[Value, Any]:
        token_graph = self._token_graph
        positions = 1 if self._one_position else rows
        call: dict[Value, Any] = {token_graph.tokens: (1, rows), token_graph.position: (positions,)}
        call.update(_values(token_graph, sampling, 1).items())
        return call

    @property
    def executor(self) -> Executor:
        """The executor of the graph; an InputError once the model is closed."""
        if self._executor is None:
            raise InputError("the model was closed, and its memory is free for others; load it again")
        return self._executor

    @property
    def memory(self) -> Memory:
        """Device memory of the graph and its KV cache."""
        return Memory(0, 0, 0, 0, 0, 0, 0) if self._executor is None else memory_of(self._executor.plan)

    # Swapping sequences

    def register(self, contents: Contents) -> Contents:
        """Register contents, so that closing the engine frees their swapped-out copies, too."""
        self._registered.add(contents)
        return contents

    def swap_in(self, contents: Contents) -> None:
        """Swap contents into the KV cache, and swap the resident ones out.

        After an interrupt the old, none or the new ones are resident; either can be swapped in again.
        """
        resident = self._resident
        if resident is contents:
            return
        # First: rows written by steps ahead are past the end of the sequence, so they are not copied and are lost.
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
        """Copy the KV cache to buffers of its contents; buffers that are large enough are reused."""
        held = contents.copies
        contents.copies = self.cache.copy(len(contents.tokens), held)
        # Last: an interrupt must not leave a buffer in use that is freed.
        self.device.free([buffer for buffer in held if buffer not in contents.copies])

    @property
    def _resident(self) -> Contents | None:
        """The contents resident in the KV cache; None if there are none, or if they were garbage collected."""
        return self._resident_ref() if self._resident_ref is not None else None

    def holds(self, contents: Contents, pending: Pending) -> bool:
        """Whether what a step wrote for contents is still on the device: no other step and no swap came after it."""
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
        """Run tokens at a position (prefill or decode); with `sampling`, sample after each of the last `rows`."""
        token_graph = self._token_graph
        given: Any = tokens
        if not isinstance(tokens, DeviceTensor):
            given = np.array([tokens], dtype=token_graph.tokens.dtype)
        self._set_sampling(sampling, rows)
        count = 1 if self._one_position else given.shape[1]
        places = self._positions.rows(position, position + count)
        inputs = [given if value is token_graph.tokens else places for value in token_graph.graph.inputs]
        self._latest = None
        pending = self._latest = self.executor.start(inputs, wanted)
        return pending

    def sample(self, sampling: Sampling) -> Pending:
        """Sample again from the logits of the last run, with other settings."""
        self._set_sampling(sampling, 1)
        self._latest = None
        pending = self._latest = self.executor.resume(self._token_graph.sample_node, [TOKEN])
        return pending

    @property
    def has_logits(self) -> bool:
        """Whether the logits of the last run can be read: after an interrupt their live shape is unknown."""
        return self.executor.has_results

    def last_logits(self) -> Any:
        """The logits of the last token of the last run, [V]."""
        logits = self._token_graph.logits
        shape = self.executor.live.tensor(logits).shape
        return self.executor.fetch(logits, prod(shape[:-1]) * shape[-1] - shape[-1], shape[-1:])

    def rows_of(self, pending: Pending) -> Any:
        """The logits of a run that asked for them as an output, [rows, V]."""
        return pending.result()[0].reshape(-1, self._token_graph.logits.max_shape[-1])

    def close(self) -> None:
        """Free the device memory of the graph, the KV cache and all swapped-out copies."""
        executor, self._executor = self._executor, None
        self._resident_ref = self._latest = None
        for contents in list(self._registered):
            contents.free(self.device)
        if executor is not None:
            executor.close()

    def _set_sampling(self, sampling: Sampling | None, rows: int) -> None:
        executor = self.executor
        executor.ready()
        chosen = (sampling, rows, executor.live)
        if chosen == self._current_sampling:  # the usual case: unchanged since the step before
            return
        self._current_sampling = ()
        for symint, value in _values(self._token_graph, sampling, rows).items():
            executor.set_scalar(symint, value)
        self._current_sampling = chosen


def _values(token_graph: TokenGraph, sampling: Sampling | None, rows: int) -> dict[SymInt, Any]:
    """The live scalars of the sampling operator and their values."""
    settings = token_graph.settings
    if sampling is None:
        return {token_graph.rows: rows, settings["active"]: False}
    chosen = {settings[name]: getattr(sampling, name) for name in SETTINGS[1:]}
    return {token_graph.rows: rows, settings["active"]: True} | chosen


def token_of(pending: Pending) -> int:
    """The sampled token of a run; waits for the device."""
    return int(pending.result()[0].item())


def logits_of(pending: Pending, rows: int) -> Any:
    """The logits of each sampled token of a run, [rows, V]; None if the run did not ask for them."""
    _, *brought = pending.result()
    return brought[0].reshape(-1, brought[0].shape[-1])[-rows:] if brought else None


def tokens_of(pending: Pending) -> list[int]:
    """The sampled tokens of a run, one per row."""
    chosen: list[int] = pending.result()[0].reshape(-1).tolist()
    return chosen


__all__ = ["LOGITS", "TOKEN", "Engine", "logits_of", "token_of", "tokens_of"]
