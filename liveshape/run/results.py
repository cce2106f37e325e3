"""What a call gives before anybody waits for it: results on their way, and tensors that stay on the device."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from liveshape.device.webgpu import Buffer, Command, Device
from liveshape.errors import InputError
from liveshape.graph import Shape, Tensor
from liveshape.graph.elements import padded, prod, storage_bytes
from liveshape.run.arrays import restored

_SLOTS = 2  # one call runs while the results of the one before it are read


class DeviceTensor:
    """A result that stayed on the device: an input of the next call, or an array when asked.

    It lies in memory of the graph that made it, so it is good until that graph has run again.
    """

    def __init__(
        self, tensor: Tensor, shape: Shape, buffer: Buffer, device: Device, half: bool, is_fresh: Callable[[], bool]
    ) -> None:
        self.tensor = tensor
        self.dtype = tensor.dtype
        self.shape = shape
        self.buffer = buffer
        self.device = device
        self._half = half
        self._is_fresh = is_fresh

    @property
    def nbytes(self) -> int:
        """Bytes on the device."""
        return storage_bytes(self.dtype, prod(self.shape), self._half)

    def check(self) -> None:
        """Raise if the graph has run again since."""
        if not self._is_fresh():
            raise InputError(
                f"{self.tensor.name} was overwritten: its graph has run again; use it before, or .numpy() it"
            )

    def numpy(self) -> Any:
        """A copy on the host."""
        self.check()
        return Staging(self.device, self._half).start((), [(self.tensor, self.shape, self.buffer)], "copy").wait()[0]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        array = self.numpy()
        return array if dtype is None else array.astype(dtype)

    def __repr__(self) -> str:
        return f"DeviceTensor({self.dtype}, {self.shape})"


class Transfer:
    """Results under way; `wait` gives the arrays, and keeps them."""

    def __init__(
        self,
        device: Device,
        staging: Any,
        nbytes: int,
        rows: list[tuple[int, Tensor, Shape]],
        half: bool,
        submission: int | None,
    ) -> None:
        self._device, self._staging, self._nbytes, self._rows, self._half = device, staging, nbytes, rows, half
        self._submission = submission
        self._arrays: list[Any] | None = None

    def wait(self) -> list[Any]:
        """The arrays, once the device is done."""
        if self._arrays is None:
            data = self._device.read(self._staging, self._nbytes, self._submission) if self._nbytes else b""
            self._arrays = [restored(data, place, tensor, shape, self._half) for place, tensor, shape in self._rows]
        return self._arrays


class Staging:
    """A ring of buffers that results are copied to; each is read before it is written again."""

    def __init__(self, device: Device, half: bool, nbytes: int = 0) -> None:
        self._device, self._half = device, half
        self._buffers = [device.staging(nbytes) for _ in range(_SLOTS if nbytes else 0)]
        self._under_way: list[Transfer | None] = [None] * _SLOTS
        self._turn = 0

    @property
    def nbytes(self) -> int:
        """Bytes of all buffers."""
        return sum(int(buffer.size) for buffer in self._buffers)

    def start(
        self,
        commands: Sequence[Command],
        wanted: Sequence[tuple[Tensor, Shape, Buffer]],
        what: str,
        arrivals: Sequence[tuple[Buffer, int, Buffer]] = (),
    ) -> Transfer:
        """Submit: copy what arrives on the device, run the commands, copy what is wanted to staging."""
        rows: list[tuple[int, Tensor, Shape]] = []
        copies: list[tuple[Buffer, int, int, int]] = []
        offset = 0
        for tensor, shape, buffer in wanted:
            nbytes = (storage_bytes(tensor.dtype, prod(shape), self._half) + 3) & ~3
            if nbytes:
                copies.append((buffer, 0, nbytes, offset))
            rows.append((offset, tensor, shape))
            offset += padded(nbytes) if nbytes else 0
        return self.submit(commands, copies, offset, rows, what, arrivals)

    def submit(
        self,
        commands: Sequence[Command],
        copies: Sequence[tuple[Buffer, int, int, int]],
        nbytes: int,
        rows: list[tuple[int, Tensor, Shape]],
        what: str,
        arrivals: Sequence[tuple[Buffer, int, Buffer]] = (),
    ) -> Transfer:
        """The same with the (buffer, start, bytes, place) copies laid out by the caller."""
        slot = self._slot(nbytes) if copies else None
        submission = None
        if commands or copies or arrivals:
            staged = [(buffer, start, size, slot, place) for buffer, start, size, place in copies]
            submission = self._device.submit(commands, staged, what, arrivals)
        transfer = Transfer(self._device, slot, nbytes if copies else 0, rows, self._half, submission)
        if slot is not None:
            self._under_way[self._turn] = transfer
        return transfer

    def _slot(self, nbytes: int) -> Any:
        self._turn = (self._turn + 1) % _SLOTS
        earlier = self._under_way[self._turn]
        if earlier is not None:
            earlier.wait()
        while len(self._buffers) <= self._turn:
            self._buffers.append(self._device.staging(max(nbytes, 16)))
        if int(self._buffers[self._turn].size) < nbytes:
            self._buffers[self._turn] = self._device.staging(nbytes)
        return self._buffers[self._turn]
