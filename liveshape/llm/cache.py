"""The state of a model between calls: caches along positions, and copies of them on the device, the host and disk."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from liveshape.device.protocol import Buffer
from liveshape.device.upload import stream
from liveshape.errors import FormatError, InputError
from liveshape.graph import Tensor
from liveshape.graph.elements import padded, prod, storage_bytes
from liveshape.run.arrays import stored, stored_pieces
from liveshape.run.executor import Executor
from liveshape.run.results import Staging

_FORMAT = "liveshape cache 1"


@dataclass(frozen=True)
class Saved:
    """A cache on the host: the tokens in it, and the contents of each state up to their number."""

    program: str
    tokens: tuple[int, ...]
    states: tuple[Any, ...]


class Cache:
    """The states of one executor. Where each has an axis of positions, fewer tokens are a prefix of more."""

    def __init__(self, executor: Executor, states: Sequence[Tensor], context: int) -> None:
        self._executor = executor
        self._context = context
        self._states = tuple(state for state in states if state.storage.block >= 0)
        self._axes = [_axis_of_positions(state, context) for state in self._states]
        # Nothing of what is beyond the present length is ever read, so going back needs no work.
        self.positional = all(axis is not None for axis in self._axes)

    @property
    def nbytes(self) -> int:
        """Bytes of all states."""
        return sum(self._bytes(state, state.max_shape) for state in self._states)

    def clear(self) -> None:
        """What the program began with, for states that are more than positions."""
        device, half = self._executor.device, self._executor.graph.limits.half
        for state, axis in zip(self._states, self._axes, strict=True):
            if axis is None:
                buffer = self._executor.buffer_of(state)
                if state.constant is None:
                    device.write(buffer, 0, bytes(buffer.nbytes))
                else:
                    stream(device, buffer, stored_pieces(state, half))

    # On the device

    def copy(self, length: int, into: Sequence[Buffer] = ()) -> list[Buffer]:
        """Copies of the states as far as they hold `length` tokens; buffers that are large enough serve again."""
        device, rows, copies = self._executor.device, [], list(into)
        room = self._prefixes(min(2 * length, self._context))  # the text will grow
        for place, (state, nbytes) in enumerate(self._prefixes(length)):
            if place >= len(copies) or copies[place].nbytes < nbytes:
                copies[place : place + 1] = [device.buffer(padded(room[place][1]), f"copy of {state.name}")]
            rows.append((self._executor.buffer_of(state), nbytes, copies[place]))
        device.submit((), (), "copy of the cache", rows)
        return copies

    def bring(self, copies: Sequence[Buffer], length: int) -> None:
        """The other way."""
        rows = [
            (copy, nbytes, self._executor.buffer_of(state))
            for copy, (state, nbytes) in zip(copies, self._prefixes(length), strict=True)
        ]
        self._executor.device.submit((), (), "cache", rows)

    def _prefixes(self, length: int) -> list[tuple[Tensor, int]]:
        """How much of each state holds `length` tokens, counted from its start."""
        found = []
        for state, axis in zip(self._states, self._axes, strict=True):
            shape = state.max_shape
            if axis is not None and prod(shape[:axis]) == 1:
                shape = (*shape[:axis], length, *shape[axis + 1 :])
            found.append((state, (self._bytes(state, shape) + 3) & ~3))
        return [(state, nbytes) for state, nbytes in found if nbytes] if length else []

    def _bytes(self, state: Tensor, shape: Sequence[int]) -> int:
        return storage_bytes(state.dtype, prod(shape), self._executor.graph.limits.half)

    # On the host

    def read(self, length: int) -> tuple[Any, ...]:
        """The contents of each state, cut to `length` positions."""
        executor = self._executor
        # Through memory of its own: what the executor keeps for results is much smaller and stays.
        staging = Staging(executor.device, executor.graph.limits.half)
        rows = [(state, state.max_shape, executor.buffer_of(state)) for state in self._states]
        try:
            arrays = [staging.start((), [row], "cache").wait()[0] for row in rows]
        finally:
            staging.free()
        return tuple(
            array if axis is None else array.take(range(length), axis)
            for array, axis in zip(arrays, self._axes, strict=True)
        )

    def write(self, arrays: Sequence[Any]) -> None:
        """The other way; what lies beyond the given positions becomes zero."""
        executor = self._executor
        for state, axis, array in zip(self._states, self._axes, arrays, strict=True):
            whole = array
            if axis is not None:
                missing = [
                    (0, self._context - array.shape[axis] if place == axis else 0) for place in range(state.rank)
                ]
                whole = np.pad(array, missing)
            executor.device.write(
                executor.buffer_of(state), 0, stored(np.ascontiguousarray(whole), state, executor.graph.limits.half)
            )
        executor.device.flush()

    def check(self, saved: Saved, program: str) -> None:
        """Raise unless saved states are of this program."""
        if saved.program != program:
            raise InputError(f"the cache is of another program: {saved.program}, this one is {program}")
        shapes = [
            tuple(len(saved.tokens) if place == axis else size for place, size in enumerate(state.max_shape))
            for state, axis in zip(self._states, self._axes, strict=True)
        ]
        if len(saved.tokens) > self._context or [array.shape for array in saved.states] != shapes:
            raise FormatError(f"the cache of {len(saved.tokens)} tokens does not have the shapes {shapes}")


def _axis_of_positions(state: Tensor, context: int) -> int | None:
    """The axis along which tokens lie: the first but for the batch that is as long as the context."""
    return next(
        (axis for axis, size in enumerate(state.max_shape) if size == context and (axis or state.rank == 1)), None
    )


def save(path: str | os.PathLike[str], saved: Saved) -> None:
    """Write a cache, whole or not at all.

    Example: `save("prefix.cache", saved)`.
    """
    target = Path(path)
    temporary = target.with_name(f".{target.name}.part")
    try:
        with open(temporary, "wb") as file:
            arrays = {f"state {place}": array for place, array in enumerate(saved.states)}
            np.savez(file, format=_FORMAT, program=saved.program, tokens=np.array(saved.tokens, np.int64), **arrays)
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)


def load(path: str | os.PathLike[str]) -> Saved:
    """Read what `save` wrote.

    Example: `load("prefix.cache").tokens`.
    """
    try:
        with np.load(path, allow_pickle=False) as file:
            if str(file["format"]) != _FORMAT:
                raise FormatError(f"{path}: a cache of another version, {file['format']}; this is {_FORMAT}")
            count = sum(name.startswith("state ") for name in file.files)
            states = tuple(file[f"state {place}"] for place in range(count))
            return Saved(str(file["program"]), tuple(file["tokens"].tolist()), states)
    except (zipfile.BadZipFile, KeyError, ValueError, EOFError, AttributeError) as error:
        if isinstance(error, FormatError):
            raise
        raise FormatError(f"{os.fspath(path)} is not a saved cache: {error}") from error
