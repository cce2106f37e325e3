"""The state of a model between calls, as the graph describes it: on the device, in copies beside it, and on the host.

Where every state is rows at positions, nothing behind the present position is ever read: fewer tokens are a prefix of
more, and going back needs no work. Other state is one whole: it can be copied and begun anew, not cut.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from liveshape.device.protocol import Buffer, Device
from liveshape.graph import Shape, Tensor
from liveshape.graph.elements import padded, prod, storage_bytes
from liveshape.graph.state import State
from liveshape.llm.engine.cache_file import Layout
from liveshape.run.arrays import stored, stored_pieces
from liveshape.run.executor import Executor
from liveshape.run.results import Staging
from liveshape.run.upload import stream

_PIECE = 4 << 20  # bytes of zeros that are written at a time


class Contents:
    """What a cache may hold: tokens, copies of their state while another's is in it, and what is known of both."""

    __slots__ = ("__weakref__", "copies", "known", "logits_at", "tokens")

    def __init__(self, tokens: Sequence[int] = (), copies: Sequence[Buffer] = ()) -> None:
        self.tokens = list(tokens)
        self.copies = list(copies)
        self.known = True  # False while, and after, something may have changed the state without being in the tokens
        self.logits_at = -1  # the number of tokens whose logits lie on the device

    def free(self, device: Device) -> None:
        """Give the memory of the copies back at once."""
        copies, self.copies = self.copies, []
        device.free(copies)


class Cache:
    """The states of one executor."""

    def __init__(self, executor: Executor, states: Sequence[State]) -> None:
        self._executor = executor
        self._states = tuple(state for state in states if state.tensor in executor.plan.memory.storages)
        self.positional = all(state.axis is not None for state in self._states)

    def clear(self) -> None:
        """What the program began with, for states that are more than rows at positions."""
        for state in self._states:
            if state.axis is None:
                stream(self._executor.device, self._executor.buffer_of(state.tensor), self._beginning(state.tensor))
        self._executor.device.flush()

    def _beginning(self, tensor: Tensor) -> Iterator[Any]:
        if tensor.constant is not None:
            yield from stored_pieces(tensor, self._executor.plan.limits.half)
            return
        nbytes = (self._bytes(tensor, tensor.max_shape) + 3) & ~3
        for start in range(0, nbytes, _PIECE):
            yield bytes(min(_PIECE, nbytes - start))

    # On the device

    def copy(self, length: int, into: Sequence[Buffer] = ()) -> list[Buffer]:
        """Copies of the states as far as they hold `length` tokens; buffers that are large enough serve again."""
        rows, copies, made = [], list(into), list[Buffer]()
        room = self._prefixes(self._roomy(length))
        try:
            for place, (tensor, shape) in enumerate(self._prefixes(length)):
                nbytes = self._words(tensor, shape)
                if place >= len(copies) or copies[place].nbytes < nbytes:
                    made.append(self._buffer(*room[place]))
                    copies[place : place + 1] = made[-1:]
                rows.append((self._executor.buffer_of(tensor), nbytes, copies[place]))
            self._executor.device.submit((), (), "copy of the cache", rows)
        except BaseException:
            self._executor.device.free(made)
            raise
        return copies

    def swap_in(self, copies: Sequence[Buffer], length: int) -> None:
        """The other way: the states from copies of them."""
        rows = [
            (copy, self._words(tensor, shape), self._executor.buffer_of(tensor))
            for copy, (tensor, shape) in zip(copies, self._prefixes(length), strict=True)
        ]
        self._executor.device.submit((), (), "cache", rows)

    def _buffer(self, tensor: Tensor, shape: Shape) -> Buffer:
        return self._executor.device.buffer(padded(self._bytes(tensor, shape)), f"copy of {tensor.name}")

    def _roomy(self, length: int) -> int:
        """Twice as long: a text will grow."""
        sizes = [state.tensor.max_shape[state.axis] for state in self._states if state.axis is not None]
        return min(2 * length, *sizes) if sizes else length

    def _prefixes(self, length: int) -> list[tuple[Tensor, Shape]]:
        """What of each state holds `length` tokens, as the shape of its beginning in memory."""
        if length == 0:
            return []
        rows = [
            (state.tensor, _cut(state, length) if _leads(state) else state.tensor.max_shape) for state in self._states
        ]
        return [(tensor, shape) for tensor, shape in rows if prod(shape)]

    def _bytes(self, tensor: Tensor, shape: Sequence[int]) -> int:
        return storage_bytes(tensor.dtype, prod(shape), self._executor.plan.limits.half)

    def _words(self, tensor: Tensor, shape: Sequence[int]) -> int:
        return (self._bytes(tensor, shape) + 3) & ~3

    # On the host

    def layout(self, length: int) -> Layout:
        """The dtype and the shape of each state, cut to `length` positions."""
        return tuple((state.tensor.dtype, _cut(state, length)) for state in self._states)

    def read(self, length: int) -> tuple[Any, ...]:
        """The contents of each state, cut to `length` positions."""
        executor = self._executor
        # Through memory of its own: what the executor keeps for results is much smaller and stays.
        staging = Staging(executor.device, executor.plan.limits.half)
        found = []
        try:
            for state in self._states:
                shape = _cut(state, length) if _leads(state) else state.tensor.max_shape
                (array,) = staging.start((), [(state.tensor, shape, executor.buffer_of(state.tensor))], "cache").wait()
                found.append(array if state.axis is None else array.take(range(length), state.axis))
        finally:
            staging.free()
        return tuple(found)

    def upload(self, arrays: Sequence[Any], length: int) -> list[Buffer]:
        """New copies on the device of what `read` gave for `length` tokens."""
        half, copies = self._executor.plan.limits.half, list[Buffer]()
        try:
            for state, array in zip(self._states, arrays, strict=True):
                tensor, shape = state.tensor, _cut(state, length) if _leads(state) else state.tensor.max_shape
                if length and prod(shape):
                    missing = [(0, size - given) for size, given in zip(shape, array.shape, strict=True)]
                    copies.append(self._buffer(tensor, shape))
                    data = stored(np.ascontiguousarray(np.pad(array, missing)), tensor, half)
                    self._executor.device.write(copies[-1], 0, data)
                    self._executor.device.flush()
        except BaseException:
            self._executor.device.free(copies)
            raise
        return copies


def _cut(state: State, length: int) -> Shape:
    """The shape of a state with `length` rows, where it has rows."""
    shape = state.tensor.max_shape
    return shape if state.axis is None else (*shape[: state.axis], length, *shape[state.axis + 1 :])


def _leads(state: State) -> bool:
    """Whether the first rows of a state are the first bytes of its memory."""
    return state.axis is not None and prod(state.tensor.max_shape[: state.axis]) == 1
