"""Readback: results in flight, a ring of staging buffers, and tensors that stay on the device."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from liveshape.device.protocol import Buffer, Command, Device, InputCopy
from liveshape.errors import DeviceError, InputError
from liveshape.graph import Shape, Tensor
from liveshape.graph.elements import padded, prod, storage_bytes
from liveshape.run.arrays import restored


class DeviceTensor:
    """A tensor on a device, of `model.on_device(x)` or `model.upload(array)`: an input of calls there, or an array on
    request (`.numpy()`, `np.asarray`).

    Its memory comes back when nothing refers to it. Of another device it is refused.

    Example: `y = second(first.on_device(x))`, which brings nothing to the host in between.
    """

    def __init__(self, tensor: Tensor, shape: Shape, buffer: Buffer, device: Device, half: bool) -> None:
        self.tensor = tensor
        self.dtype = tensor.dtype
        self.shape = shape
        self.buffer = buffer
        self.device = device
        self._half = half

    @property
    def ndim(self) -> int:
        """How many dimensions it has."""
        return len(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes on the device."""
        return storage_bytes(self.dtype, prod(self.shape), self._half)

    def check(self) -> None:
        """Raise if it is not valid any more; what has memory of its own always is."""

    def numpy(self) -> Any:
        """Read back as a numpy array."""
        self.check()
        staging = Staging(self.device, self._half)
        try:
            return staging.start((), [(self.tensor, self.shape, self.buffer)], "copy").wait()[0]
        finally:
            staging.free()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        array = self.numpy()
        return array if dtype is None else array.astype(dtype)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.dtype}, {self.shape})"


class ResidentOutput(DeviceTensor):
    """An output in the memory of its graph, valid until that runs again: it costs no copy."""

    def __init__(
        self, tensor: Tensor, shape: Shape, buffer: Buffer, device: Device, half: bool, is_fresh: Callable[[], bool]
    ) -> None:
        super().__init__(tensor, shape, buffer, device, half)
        self._is_fresh = is_fresh

    def check(self) -> None:
        """Raise if the graph has run again since."""
        if not self._is_fresh():
            raise InputError(
                f"{self.tensor.name} was overwritten: its graph has run again; use it before, or .numpy() it"
            )


class _StagingSlot:
    """One staging buffer of the ring. A reader registers before a read and unregisters after one that succeeded: a
    buffer with readers may be mapped, and is never submitted again."""

    __slots__ = ("buffer", "readers", "transfer")

    def __init__(self, buffer: Buffer) -> None:
        self.buffer = buffer
        self.readers: set[object] = set()
        self.transfer: Transfer | None = None


class Transfer:
    """A readback in flight; `wait` returns the arrays and caches them, and may be called again after an interrupt."""

    def __init__(
        self, device: Device, slot: _StagingSlot | None, nbytes: int, rows: list[tuple[int, Tensor, Shape]], half: bool
    ) -> None:
        self._device, self._nbytes, self._rows, self._half = device, nbytes, rows, half
        self._source = None if slot is None else (slot.buffer, slot.readers)
        self._arrays: list[Any] | None = None if nbytes else self._restored(b"")

    def wait(self) -> list[Any]:
        """Wait for the arrays."""
        mark = object()
        buffer = self._register(mark)
        if buffer is not None:
            try:
                data = self._device.read(buffer, self._nbytes)
            except DeviceError:
                if self._arrays is None:
                    raise
                return self._arrays  # another thread read them, and the buffer was freed
            self._unregister(mark, data)
        assert self._arrays is not None
        return self._arrays

    async def wait_async(self) -> list[Any]:
        """Async `wait`."""
        mark = object()
        buffer = self._register(mark)
        if buffer is not None:
            try:
                data = await self._device.read_async(buffer, self._nbytes)
            except DeviceError:
                if self._arrays is None:
                    raise
                return self._arrays  # another thread read them, and the buffer was freed
            self._unregister(mark, data)
        assert self._arrays is not None
        return self._arrays

    def _register(self, mark: object) -> Buffer | None:
        """The buffer to read, which no call reuses until `_unregister`; None if the arrays are there."""
        if self._arrays is not None:
            return None
        assert self._source is not None
        buffer, readers = self._source
        readers.add(mark)
        # Looked at once more: a call that found no reader has read the arrays itself, then submitted into the buffer.
        if self._arrays is None:
            return buffer
        readers.discard(mark)
        return None

    def _unregister(self, mark: object, data: Any) -> None:
        assert self._source is not None
        if self._arrays is None:
            self._arrays = self._restored(data)
        self._source[1].discard(mark)

    def _restored(self, data: Any) -> list[Any]:
        return [restored(data, place, tensor, shape, self._half) for place, tensor, shape in self._rows]


def _read_before_reuse(transfer: Transfer) -> None:
    """Read what lies in memory that is written next. Its own error, or a page's that it cannot wait, comes again to
    whoever waits for it; one of another submit comes once, and is for the caller."""
    try:
        transfer.wait()
    except DeviceError as error:
        try:
            transfer.wait()
        except DeviceError as again:
            if str(again) == str(error):
                return
        raise


class _StagingLayout(NamedTuple):
    """Offsets in a staging buffer of results that are read back together."""

    wanted: Sequence[tuple[Tensor, Shape, Buffer]]
    rows: list[tuple[int, Tensor, Shape]]
    copies: list[tuple[Buffer, int, int, int]]
    nbytes: int


def _staging_layout(wanted: Sequence[tuple[Tensor, Shape, Buffer]], half: bool) -> _StagingLayout:
    rows: list[tuple[int, Tensor, Shape]] = []
    copies: list[tuple[Buffer, int, int, int]] = []
    offset = 0
    for tensor, shape, buffer in wanted:
        nbytes = (storage_bytes(tensor.dtype, prod(shape), half) + 3) & ~3
        if nbytes:
            copies.append((buffer, 0, nbytes, offset))
        rows.append((offset, tensor, shape))
        offset += padded(nbytes) if nbytes else 0
    return _StagingLayout(wanted, rows, copies, offset)


class Staging:
    """Ring of staging buffers for readback; each is read before it is written again."""

    def __init__(self, device: Device, half: bool, nbytes: int = 0, count: int = 2) -> None:
        self._device, self._half = device, half
        self._slots = [_StagingSlot(device.staging(nbytes)) if nbytes else None for _ in range(count)]
        self._current = 0
        self._staging_layout: _StagingLayout | None = None  # cached: mostly the same outputs are wanted again
        self._lock = threading.RLock()

    @property
    def nbytes(self) -> int:
        """Bytes of all buffers."""
        return sum(slot.buffer.nbytes for slot in self._slots if slot is not None)

    def free(self) -> None:
        """Free the staging buffers; readbacks that nobody waited for are lost."""
        with self._lock:
            self._device.free([slot.buffer for slot in self._slots if slot is not None])
            self._slots = [None] * len(self._slots)

    def start(
        self,
        commands: Sequence[Command],
        wanted: Sequence[tuple[Tensor, Shape, Buffer]],
        what: str,
        input_copies: Sequence[InputCopy] = (),
        stateless: bool = False,
    ) -> Transfer:
        """Submit: input copies, the commands, copies of wanted outputs to staging."""
        laid_out = self._staging_layout
        if laid_out is None or laid_out.wanted != wanted:
            laid_out = self._staging_layout = _staging_layout(wanted, self._half)
        return self.submit(commands, laid_out.copies, laid_out.nbytes, laid_out.rows, what, input_copies, stateless)

    def submit(
        self,
        commands: Sequence[Command],
        copies: Sequence[tuple[Buffer, int, int, int]],
        nbytes: int,
        rows: list[tuple[int, Tensor, Shape]],
        what: str,
        input_copies: Sequence[InputCopy] = (),
        stateless: bool = False,
    ) -> Transfer:
        """`start` with the (buffer, start, bytes, offset) copies laid out by the caller."""
        if not copies:
            if commands or input_copies:
                self._device.submit(commands, (), what, input_copies, stateless)
            return Transfer(self._device, None, 0, rows, self._half)
        with self._lock:
            slot = self._next_slot(nbytes)
            staged = [(buffer, start, size, slot.buffer, at) for buffer, start, size, at in copies]
            self._device.submit(commands, staged, what, input_copies, stateless)
            slot.transfer = Transfer(self._device, slot, nbytes, rows, self._half)
            return slot.transfer

    def _next_slot(self, nbytes: int) -> _StagingSlot:
        self._current = (self._current + 1) % len(self._slots)
        slot = self._slots[self._current]
        if slot is not None and slot.transfer is not None:
            _read_before_reuse(slot.transfer)
            slot.transfer = None  # what it read lies in memory that is used again once nobody holds it
        if slot is None or slot.readers or slot.buffer.nbytes < nbytes:
            size = max(nbytes, 16, slot.buffer.nbytes if slot is not None else 0)
            fresh = self._slots[self._current] = _StagingSlot(self._device.staging(size))
            if slot is not None:
                self._device.free([slot.buffer])
            return fresh
        return slot
