"""A mock device, on paper: the whole device protocol without wgpu, for tests of planning and of host time per step.

It counts everything and computes nothing; readback returns zeros.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from liveshape.device.protocol import Adapter, Buffer, Clock, Command, Copy, Counters, InputCopy, Watched
from liveshape.errors import DeviceError
from liveshape.graph.limits import Limits
from liveshape.kernels import Variant


class PaperDevice:
    """Implements the device protocol.

    Example: `Executor(compile(graph, Limits()), PaperDevice()).execute([x])`.
    """

    def __init__(self, limits: Limits | None = None) -> None:
        self.limits = limits or Limits()
        sizes = self.limits.max_buffer_bytes, self.limits.max_binding_bytes
        self.adapter = Adapter(0, "paper", "Paper", "none", "none", False, self.limits.half, *sizes)
        self.name = self.adapter.name
        self.has_clock = False
        self.steps_ahead, self.latency = 1, 0.0
        self._note: Callable[[Sequence[Command]], None] | None = None
        self.writes: dict[str, int] = {}  # by the label of the buffer
        self.kernels: set[Variant] = set()
        self._counters = Counters()
        self._there: dict[int, tuple[Buffer, str]] = {}

    @property
    def counters(self) -> Counters:
        self._counters.live_bytes = sum(buffer.nbytes for buffer, _ in self._there.values())
        return self._counters

    @property
    def lost(self) -> bool:
        return False

    def buffer(self, nbytes: int, label: str) -> Buffer:
        self._counters.buffers += 1
        buffer = Buffer(((self._counters.buffers, nbytes),), nbytes)
        self._there[_key(buffer)] = buffer, label
        return buffer

    def uniforms(self, nbytes: int) -> Buffer:
        return self.buffer(nbytes, "params")

    def staging(self, nbytes: int) -> Buffer:
        return self.buffer(nbytes, "staging")

    def free(self, buffers: Iterable[Buffer]) -> None:
        for buffer in buffers:
            self._there.pop(_key(buffer), None)

    def write(self, buffer: Buffer, offset: int, data: Any) -> None:
        nbytes, label = memoryview(data).nbytes, self._check(buffer)
        if nbytes % 4 or offset < 0 or offset + nbytes > buffer.nbytes:
            raise DeviceError(f"{nbytes} bytes at {offset} cannot be written to a buffer of {buffer.nbytes}")
        self.writes[label] = self.writes.get(label, 0) + 1

    def flush(self) -> None:
        """Nothing is in flight."""

    def bind(self, variant: Variant, buffers: Sequence[tuple[Buffer, int]], uniforms: Buffer) -> Any:
        for buffer in (*(each for each, _ in buffers), uniforms):
            self._check(buffer)
        self.kernels.add(variant)
        self._counters.bind_groups += 1
        return variant

    def submit(
        self,
        commands: Sequence[Command],
        copies: Sequence[Copy] = (),
        what: str = "step",
        input_copies: Sequence[InputCopy] = (),
        stateless: bool = False,
    ) -> None:
        for buffer in (*(each for row in copies for each in (row[0], row[3])), *(row[0] for row in input_copies)):
            self._check(buffer)
        self._counters.submits += 1
        if self._note is not None and commands:
            self._note(commands)

    def read(self, staging: Buffer, nbytes: int) -> bytearray:
        self._check(staging)
        return bytearray(nbytes)

    async def read_async(self, staging: Buffer, nbytes: int) -> bytearray:
        return self.read(staging, nbytes)

    @contextmanager
    def watched(
        self, clock: Clock = Clock.NOTHING, note: Callable[[Sequence[Command]], None] | None = None
    ) -> Iterator[Watched]:
        self._note = note
        yield Watched()
        self._note = None

    def _check(self, buffer: Buffer) -> str:
        if _key(buffer) not in self._there:
            raise DeviceError("the buffer was freed")
        return self._there[_key(buffer)][1]


def _key(buffer: Buffer) -> int:
    return int(buffer.parts[0][0])


__all__ = ["PaperDevice"]
