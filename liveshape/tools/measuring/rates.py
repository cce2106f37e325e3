"""Peak rates of an adapter: copy bandwidth, and throughput in float32, float16 and packed int8 (dot4I8Packed).

Measured with timestamp queries where the device has them, cached per adapter and driver; the roofline of a profile.
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
_OPERATIONS = 128  # per loop iteration of the compute kernels
_VECTORS = 8  # vec4s copied per thread
_COPIED_BYTES, _COPIED_BY_SOFTWARE = 512 << 20, 16 << 20  # larger than the caches
_THREADS, _THREADS_OF_SOFTWARE = 1 << 18, 1 << 8  # enough for full occupancy
_ENOUGH = 0.005  # seconds that a clock resolves well
_TRIES = 5
_MAX_ITERATIONS = 1 << 20


@dataclass(frozen=True)
class Rates:
    """Peak rates per second; None where the adapter lacks the feature."""

    copy: float  # bytes, read and written
    f32: float  # operations; an FMA counts as two
    f16: float | None
    int8: float | None  # by dot4I8Packed
    date: str


MEASURED = ("copy", "f32", "f16", "int8")


def rates_of(device: Device, again: bool = False, begin: Callable[[str], None] = lambda what: None) -> Rates:
    """Peak rates of a device, cached or measured now. `begin` is called with the name of each measurement.

    Example: `rates_of(open_device()).copy / 1e9`.
    """
    known = None if again else recall(device.adapter, _FILE)
    if isinstance(known, dict) and set(known) == {field.name for field in fields(Rates)}:
        return Rates(**known)
    found = measure(device, begin)
    remember(device.adapter, _FILE, asdict(found))
    return found


def measure(device: Device, begin: Callable[[str], None] = lambda what: None) -> Rates:
    """Measure the peak rates; takes a second or less on a GPU.

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
    with _Work(device, "measure/copy", ("float32", "float32"), nbytes // 4, threads, THREAD_VECTORS=_VECTORS) as work:
        return 2 * nbytes / work.best()


def _computing(kernel: str, dtype: str) -> Callable[[Device], float]:
    def measured(device: Device) -> float:
        threads, iterations = _THREADS_OF_SOFTWARE if device.adapter.software else _THREADS, 8
        with _Work(device, kernel, (dtype,), 4 * threads, threads, iterations=iterations) as work:
            while work.once() < _ENOUGH and iterations < _MAX_ITERATIONS:
                iterations *= 4
                work.put(iterations=iterations)
            return _OPERATIONS * threads * iterations / work.best()

    return measured


def _halves(device: Device) -> float | None:
    return _computing("measure/floats", "float16")(device) if device.limits.half else None


def _dots(device: Device) -> float | None:
    try:
        return _computing("measure/dots", "int32")(device)
    except LiveshapeError:
        return None  # no such builtin in its WGSL


_MEASURES: dict[str, Callable[[Device], float | None]] = {
    "copy": _copy,
    "f32": _computing("measure/floats", "float32"),
    "f16": _halves,
    "int8": _dots,
}


class _Work:
    """A microbenchmark kernel with its buffers, as a context manager."""

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
        """Update the kernel's params."""
        self._values |= values
        self._device.write(self._uniforms, 0, self._kernel.pack(self._values))

    def best(self) -> float:
        """Fastest of several runs, in seconds."""
        return min(self.once() for _ in range(_TRIES))

    def once(self) -> float:
        """Seconds of one run."""
        return seconds_of(self._device, [self._command])


def seconds_of(device: Device, commands: Sequence[Command]) -> float:
    """Seconds of one submit of the commands, by timestamp queries where the device has them, else wall-clock.

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
