"""What an adapter does at its best: bytes that a copy moves, and operations of floats and of packed 8-bit integers.

Measured by the device's clock where it has one, remembered per adapter and driver, and what a profile compares with.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

from liveshape.device.protocol import Buffer, Clock, Command, Device
from liveshape.errors import LiveshapeError
from liveshape.graph import Tensor
from liveshape.graph.elements import storage_bytes
from liveshape.graph.live import LiveTensor
from liveshape.kernels import Kernel, specialize
from liveshape.plan.params import Slot
from liveshape.plan.plan_state import fold
from liveshape.tools.measuring.remembered import recall, remember

_FILE = "rates"
_OPERATIONS = 128  # of a turn of the kernels that compute
_VECTORS = 8  # that a thread copies
_COPIED_BYTES, _COPIED_BY_SOFTWARE = 512 << 20, 16 << 20  # more than a cache holds
_THREADS, _THREADS_OF_SOFTWARE = 1 << 18, 1 << 8  # enough to fill it
_ENOUGH = 0.005  # seconds that a clock measures well
_TRIES = 5
_MOST_TURNS = 1 << 20


@dataclass(frozen=True)
class Rates:
    """Per second; None for what the adapter does not have."""

    copy: float  # bytes, read and written
    f32: float  # operations, of which a multiplication with an addition is two
    f16: float | None
    int8: float | None  # by dot4I8Packed
    date: str


MEASURED = ("copy", "f32", "f16", "int8")


def rates_of(device: Device, again: bool = False, begin: Callable[[str], None] = lambda what: None) -> Rates:
    """The rates of a device: remembered, or measured now. `begin` is told what is measured.

    Example: `rates_of(open_device()).copy / 1e9`.
    """
    known = None if again else recall(device.adapter, _FILE)
    if isinstance(known, dict) and set(known) == {field.name for field in fields(Rates)}:
        return Rates(**known)
    found = measure(device, begin)
    remember(device.adapter, _FILE, asdict(found))
    return found


def measure(device: Device, begin: Callable[[str], None] = lambda what: None) -> Rates:
    """Measure them, which takes a second or less on a GPU.

    Example: `measure(open_device()).f32 / 1e12`.
    """
    found: dict[str, float | None] = {}
    for what in MEASURED:
        begin(what)
        found[what] = _MEASURES[what](device)
    copy, f32 = found["copy"], found["f32"]
    assert copy is not None
    assert f32 is not None
    return Rates(copy, f32, found["f16"], found["int8"], time.strftime("%Y-%m-%d"))


def _copy(device: Device) -> float:
    limits = device.limits
    most = _COPIED_BY_SOFTWARE if device.adapter.software else _COPIED_BYTES
    threads = min(most, limits.max_binding_bytes, limits.max_buffer_bytes) // (16 * _VECTORS)
    nbytes = 16 * _VECTORS * threads
    with _Work(device, "measure/copy", ("float32", "float32"), nbytes // 4, threads, EACH=_VECTORS) as work:
        return 2 * nbytes / work.best()


def _computing(kernel: str, dtype: str) -> Callable[[Device], float]:
    def measured(device: Device) -> float:
        threads, turns = _THREADS_OF_SOFTWARE if device.adapter.software else _THREADS, 8
        with _Work(device, kernel, (dtype,), 4 * threads, threads, turns=turns) as work:
            while work.once() < _ENOUGH and turns < _MOST_TURNS:
                turns *= 4
                work.put(turns=turns)
            return _OPERATIONS * threads * turns / work.best()

    return measured


def _halves(device: Device) -> float | None:
    return _computing("measure/floats", "float16")(device) if device.limits.half else None


def _dots(device: Device) -> float | None:
    try:
        return _computing("measure/dots", "int32")(device)
    except LiveshapeError:
        return None  # its WGSL has no such function


_MEASURES: dict[str, Callable[[Device], float | None]] = {
    "copy": _copy,
    "f32": _computing("measure/floats", "float32"),
    "f16": _halves,
    "int8": _dots,
}


class _Work:
    """One kernel on memory of its own, while the context lasts."""

    def __init__(
        self, device: Device, name: str, dtypes: tuple[str, ...], numel: int, threads: int, **values: Any
    ) -> None:
        kernel, limits = Kernel.load(name), device.limits
        tensors = [LiveTensor(Tensor(dtype, dtype, (numel,)), bytearray()) for dtype in dtypes]
        dispatch = kernel(*tensors, count=threads, threads=threads, **values)
        variant = specialize(dispatch, limits)
        nbytes = storage_bytes(dtypes[0], numel, limits.half)
        self._device, self._kernel, self._values = device, kernel, dispatch.values
        self._buffers: list[Buffer] = []
        try:
            for dtype in dtypes:
                self._buffers.append(device.buffer(nbytes, f"{name} {dtype}"))
            self._uniforms = device.uniforms(limits.uniform_alignment)
            bound = device.bind(variant, [(buffer, nbytes) for buffer in self._buffers], self._uniforms)
            self._buffers.append(self._uniforms)
            self.put()
        except BaseException:
            device.free(self._buffers)
            raise
        slot = Slot(0)
        slot.grid = fold(-(-threads // variant.group_size), limits.max_groups)
        self._command = Command(bound, slot, name)

    def __enter__(self) -> _Work:
        return self

    def __exit__(self, *error: object) -> None:
        self._device.free(self._buffers)

    def put(self, **values: Any) -> None:
        """Change params."""
        self._values |= values
        self._device.write(self._uniforms, 0, self._kernel.pack(self._values))

    def best(self) -> float:
        """The least seconds of several runs."""
        return min(self.once() for _ in range(_TRIES))

    def once(self) -> float:
        """The seconds of one run."""
        return seconds_of(self._device, [self._command])


def seconds_of(device: Device, commands: Sequence[Command]) -> float:
    """The seconds that one submit of the commands takes, by the device's clock where it has one.

    Example: `seconds_of(device, executor.encoder.commands(live, 0, 1))`.
    """
    if device.has_clock:
        with device.watched(Clock.SUBMITS) as watched:
            device.submit(commands)
        ((_, ((begin, end),)),) = watched.submits
        return end - begin
    device.flush()
    start = time.perf_counter()
    device.submit(commands)
    device.flush()
    return time.perf_counter() - start
