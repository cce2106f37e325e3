"""The KV cache: state tensors that outlive a call, on the device, swapped out to copies, and saved to the host.

In a positional cache (one row per token) no row past the current position is ever read, so truncating it costs nothing.
Other state (recurrent, ring buffers) can be copied and reset, not truncated.
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

_CHUNK = 4 << 20  # bytes of zeros per write


class Contents:
    """One sequence of a KV cache: its tokens, its copies while it is swapped out, and whether both are valid."""

    __slots__ = ("__weakref__", "copies", "logits_at", "tokens", "valid")

    def __init__(self, tokens: Sequence[int] = (), copies: Sequence[Buffer] = ()) -> None:
        self.tokens = list(tokens)
        self.copies = list(copies)
        self.valid = True  # False while, and after, the state may have changed without the tokens
        self.logits_at = -1  # the number of tokens whose logits are on the device

    def free(self, device: Device) -> None:
        """Free the swapped-out copies."""
        copies, self.copies = self.copies, []
        device.free(copies)


class Cache:
    """The state tensors of one executor: copy, swap in, truncate, read and upload."""

    def __init__(self, executor: Executor, states: Sequence[State]) -> None:
        self._executor = executor
        self._states = tuple(state for state in states if state.tensor in executor.plan.memory.storages)
        self.positional = all(state.axis is not None for state in self._states)

    def clear(self) -> None:
        """Reset states that are not positional to their initial values."""
        for state in self._states:
            if state.axis is None:
                stream(self._executor.device, self._executor.buffer_of(state.tensor), self._initial_bytes(state.tensor))
        self._executor.device.flush()

    def _initial_bytes(self, tensor: Tensor) -> Iterator[Any]:
        if tensor.constant is not None:
            yield from stored_pieces(tensor, self._executor.plan.limits.half)
            return
        nbytes = (self._bytes(tensor, tensor.max_shape) + 3) & ~3
        for start in range(0, nbytes, _CHUNK):
            yield bytes(min(_CHUNK, nbytes - start))

    # On the device

    def copy(self, length: int, into: Sequence[Buffer] = ()) -> list[Buffer]:
        """Copy the first `length` tokens of the states to other buffers; those that are large enough are reused."""
        rows, copies, made = [], list(into), list[Buffer]()
        room = self._prefixes(self._capacity(length))
        try:
            for place, (tensor, shape) in enumerate(self._prefixes(length)):
                nbytes = self._aligned_bytes(tensor, shape)
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
        """Copy the states back from their copies."""
        rows = [
            (copy, self._aligned_bytes(tensor, shape), self._executor.buffer_of(tensor))
            for copy, (tensor, shape) in zip(copies, self._prefixes(length), strict=True)
        ]
        self._executor.device.submit((), (), "cache", rows)

    def _buffer(self, tensor: Tensor, shape: Shape) -> Buffer:
        return self._executor.device.buffer(padded(self._bytes(tensor, shape)), f"copy of {tensor.name}")

    def _capacity(self, length: int) -> int:
        """Twice the length, so that a growing sequence reuses its buffers."""
        sizes = [state.tensor.max_shape[state.axis] for state in self._states if state.axis is not None]
        return min(2 * length, *sizes) if sizes else length

    def _prefixes(self, length: int) -> list[tuple[Tensor, Shape]]:
        """The prefix of each state that holds `length` tokens, as the shape of the first bytes of its buffer."""
        if length == 0:
            return []
        rows = [(state.tensor, _prefix_shape(state, length)) for state in self._states]
        return [(tensor, shape) for tensor, shape in rows if prod(shape)]

    def _bytes(self, tensor: Tensor, shape: Sequence[int]) -> int:
        return storage_bytes(tensor.dtype, prod(shape), self._executor.plan.limits.half)

    def _aligned_bytes(self, tensor: Tensor, shape: Sequence[int]) -> int:
        return (self._bytes(tensor, shape) + 3) & ~3

    # On the host

    def layout(self, length: int) -> Layout:
        """The dtype and shape of each state, truncated to `length` positions."""
        return tuple((state.tensor.dtype, _truncated(state, length)) for state in self._states)

    def read(self, length: int) -> tuple[Any, ...]:
        """Read the states back to the host, truncated to `length` positions."""
        executor = self._executor
        # Its own staging buffer, freed afterwards: the executor's for results is much smaller.
        staging = Staging(executor.device, executor.plan.limits.half)
        found = []
        try:
            for state in self._states:
                shape = _prefix_shape(state, length)
                (array,) = staging.start((), [(state.tensor, shape, executor.buffer_of(state.tensor))], "cache").wait()
                found.append(array if state.axis is None else array.take(range(length), state.axis))
        finally:
            staging.free()
        return tuple(found)

    def upload(self, arrays: Sequence[Any], length: int) -> list[Buffer]:
        """Upload what `read` returned for `length` tokens, as swapped-out copies."""
        half, copies = self._executor.plan.limits.half, list[Buffer]()
        try:
            for state, array in zip(self._states, arrays, strict=True):
                tensor, shape = state.tensor, _prefix_shape(state, length)
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


def _truncated(state: State, length: int) -> Shape:
    """The shape of a state truncated to `length` rows, if it is positional."""
    shape = state.tensor.max_shape
    return shape if state.axis is None else (*shape[: state.axis], length, *shape[state.axis + 1 :])


def _prefix_shape(state: State, length: int) -> Shape:
    """The shape of the first bytes of a state's buffer that hold `length` rows."""
    return _truncated(state, length) if _is_contiguous(state) else state.tensor.max_shape


def _is_contiguous(state: State) -> bool:
    """Whether the first rows of a state are contiguous at the start of its buffer."""
    return state.axis is not None and prod(state.tensor.max_shape[: state.axis]) == 1
