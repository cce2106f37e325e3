"""A device that fails at one call, once: everything above it must be right again from the next call on.

It wraps another device and implements the same protocol. `fail_at(n, error)` raises at the n-th call from then on, of
any method, before the call is done or after it: both happen to those who press Ctrl-C.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Any

from liveshape.device.protocol import Buffer, Clock, Command, Copy, Counters, Device, InputCopy, Watched
from liveshape.kernels import Variant


class FaultyDevice:
    """Counts its calls.

    Example: `device = FaultyDevice(open_device()); device.fail_at(3, RuntimeError("injected"))`.
    """

    def __init__(self, device: Device) -> None:
        self.inner = device
        self.name = f"faulty {device.name}"
        self.adapter, self.limits = device.adapter, device.limits
        self.has_clock, self.steps_ahead, self.latency = device.has_clock, device.steps_ahead, device.latency
        self.calls = 0
        self._place = 0
        self._error: BaseException | None = None
        self._after = False

    @property
    def counters(self) -> Counters:
        return self.inner.counters

    @property
    def lost(self) -> bool:
        return self.inner.lost

    def fail_at(self, call: int, error: BaseException, after: bool = False) -> None:
        """Raise `error` at this call, counted from now on; `after` the call is done or, if not, before."""
        self.calls, self._place, self._error, self._after = 0, call, error, after

    def count(self) -> int:
        """How many calls there were since the last count; nothing fails from now on."""
        calls, self.calls, self._error = self.calls, 0, None
        return calls

    @property
    def has_failed(self) -> bool:
        return self._error is None

    def _through(self, call: Any, *args: Any) -> Any:
        self.calls += 1
        error = self._error if self.calls == self._place else None
        if error is None:
            return call(*args)
        self._error = None
        if self._after:
            call(*args)
        raise error

    def buffer(self, nbytes: int, label: str) -> Buffer:
        return self._through(self.inner.buffer, nbytes, label)  # type: ignore[no-any-return]

    def uniforms(self, nbytes: int) -> Buffer:
        return self._through(self.inner.uniforms, nbytes)  # type: ignore[no-any-return]

    def staging(self, nbytes: int) -> Buffer:
        return self._through(self.inner.staging, nbytes)  # type: ignore[no-any-return]

    def free(self, buffers: Iterable[Buffer]) -> None:
        self._through(self.inner.free, list(buffers))

    def write(self, buffer: Buffer, offset: int, data: Any) -> None:
        self._through(self.inner.write, buffer, offset, data)

    def flush(self) -> None:
        self._through(self.inner.flush)

    def bind(self, variant: Variant, buffers: Sequence[tuple[Buffer, int]], uniforms: Buffer) -> Any:
        return self._through(self.inner.bind, variant, buffers, uniforms)

    def submit(
        self,
        commands: Sequence[Command],
        copies: Sequence[Copy] = (),
        what: str = "step",
        input_copies: Sequence[InputCopy] = (),
        stateless: bool = False,
    ) -> None:
        self._through(self.inner.submit, commands, copies, what, input_copies, stateless)

    def read(self, staging: Buffer, nbytes: int) -> bytearray:
        return self._through(self.inner.read, staging, nbytes)  # type: ignore[no-any-return]

    async def read_async(self, staging: Buffer, nbytes: int) -> bytearray:
        self._through(lambda: None)
        return await self.inner.read_async(staging, nbytes)

    def watched(
        self, clock: Clock = Clock.NOTHING, note: Callable[[Sequence[Command]], None] | None = None
    ) -> AbstractContextManager[Watched]:
        return self.inner.watched(clock, note)


__all__ = ["FaultyDevice"]
