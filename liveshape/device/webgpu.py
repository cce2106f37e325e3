"""The only file that knows wgpu: adapters, buffers, pipelines, one compute pass per submit, and reading back.

Dispatches are encoded through the raw C calls where they can be reached, a third of the cost of the methods of
wgpu-py; those methods are the fallback, and a test holds both to the same bytes.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import wgpu

from liveshape.device.readback import Readback
from liveshape.device.shaders import create_module
from liveshape.errors import DeviceError, NoAdapterError
from liveshape.graph import Limits
from liveshape.kernels import Variant

try:
    from wgpu.backends.wgpu_native import ffi as _ffi
    from wgpu.backends.wgpu_native import lib as _lib
    from wgpu.backends.wgpu_native._api import GPUShaderModule as _GPUShaderModule
    from wgpu.backends.wgpu_native._api import libf as _checked_lib
    from wgpu.backends.wgpu_native.extras import set_instance_extras as _set_instance_extras
except ImportError:  # another backend of wgpu-py: its public calls do everything
    _ffi = _lib = _checked_lib = _set_instance_extras = _GPUShaderModule = None

_LOG = logging.getLogger("liveshape")
_SOFTWARE_PARTS = 8  # as many as a vector of the CPU has lanes
_MOST_WAITING = 32 << 20  # bytes on their way to the device, which holds a copy of each until they have arrived
_LIMIT_NAMES = {
    "max_groups": "max-compute-workgroups-per-dimension",
    "max_invocations": "max-compute-invocations-per-workgroup",
    "max_binding_bytes": "max-storage-buffer-binding-size",
    "max_buffer_bytes": "max-buffer-size",
    "max_bindings": "max-storage-buffers-per-shader-stage",
    "uniform_alignment": "min-uniform-buffer-offset-alignment",
}
_MORE_LIMITS = ("max-compute-workgroup-size-x", "max-compute-workgroup-storage-size")
_NO_ADAPTER = (
    "no WebGPU adapter was found; install a Vulkan driver for your GPU, or a software one "
    "(Debian and Ubuntu: apt-get install mesa-vulkan-drivers)"
)


@dataclass(frozen=True)
class Adapter:
    """One GPU that this machine offers, as `liveshape devices` lists it."""

    index: int
    name: str
    kind: str  # "DiscreteGPU", "IntegratedGPU", "CPU", ...
    backend: str
    driver: str
    software: bool
    half: bool
    max_buffer_bytes: int
    max_binding_bytes: int


@functools.cache
def _leave_opengl_alone() -> None:
    """OpenGL is a second road to the same hardware, with fewer features and complaints of its own on stderr."""
    if _set_instance_extras is not None:
        with contextlib.suppress(RuntimeError):  # the program around us uses wgpu already
            _set_instance_extras(backends=["Primary"])


@contextlib.contextmanager
def _no_display() -> Iterator[None]:
    """Mesa's driver looks for a display and complains on stderr where the session has none; any folder quiets it."""
    name = "XDG_RUNTIME_DIR"
    if name in os.environ:
        yield
        return
    os.environ[name] = os.sep
    try:
        yield
    finally:
        os.environ.pop(name, None)


def _adapters() -> list[Any]:
    _leave_opengl_alone()
    with _no_display():
        adapters = wgpu.gpu.enumerate_adapters_sync()
    found = [adapter for adapter in adapters if adapter.info["backend_type"] != "OpenGL"]
    return sorted(found, key=lambda adapter: adapter.info["adapter_type"] == "CPU")


def list_adapters() -> list[Adapter]:
    """Every usable adapter, GPUs first.

    >>> [adapter.name for adapter in list_adapters()]  # doctest: +SKIP
    ['NVIDIA H200', 'llvmpipe (LLVM 15.0.6, 256 bits)']
    """
    return [_describe(index, adapter) for index, adapter in enumerate(_adapters())]


def _describe(index: int, adapter: Any) -> Adapter:
    info, limits = adapter.info, adapter.limits
    return Adapter(
        index=index,
        name=info["device"] or info["description"] or "unknown",
        kind=info["adapter_type"],
        backend=info["backend_type"],
        driver=info["description"],
        software=info["adapter_type"] == "CPU",
        half="shader-f16" in adapter.features,
        max_buffer_bytes=limits[_LIMIT_NAMES["max_buffer_bytes"]],
        max_binding_bytes=limits[_LIMIT_NAMES["max_binding_bytes"]],
    )


_open: dict[int, Device] = {}


def open_device(choice: str | int | None = None) -> Device:
    """The device for an index, a part of a name, or `LIVESHAPE_DEVICE`; without any of them the first GPU.

    >>> open_device("nvidia")  # doctest: +SKIP
    """
    adapters = _adapters()
    asked = asked_device(choice)
    index = choose_adapter(asked, [_describe(position, adapter) for position, adapter in enumerate(adapters)])
    if index not in _open:
        device = _open[index] = Device(adapters[index], index)
        if device.adapter.software and not asked:
            _LOG.warning("no GPU was found: running on the software adapter %s", device.adapter.name)
    return _open[index]


def asked_device(choice: str | int | None = None) -> str | int | None:
    """What the caller asks for: the choice itself, else the environment variable LIVESHAPE_DEVICE.

    >>> asked_device("nvidia")
    'nvidia'
    """
    return os.environ.get("LIVESHAPE_DEVICE") if choice is None else choice


def choose_adapter(asked: str | int | None, adapters: list[Adapter]) -> int:
    """The index of the adapter that is asked for by index or by a part of its name; the first without a wish.

    >>> choose_adapter("llvmpipe", list_adapters())  # doctest: +SKIP
    1
    """
    if not adapters:
        raise NoAdapterError(_NO_ADAPTER)
    if asked is None or asked == "":
        return 0
    text = str(asked)
    listing = "; ".join(f"{adapter.index}: {adapter.name}" for adapter in adapters)
    if text.isdigit():
        if int(text) < len(adapters):
            return int(text)
        raise NoAdapterError(f"there is no adapter {text}; there are {listing}")
    for adapter in adapters:
        if text.lower() in f"{adapter.name} {adapter.driver} {adapter.kind}".lower():
            return adapter.index
    raise NoAdapterError(f"no adapter is called {text!r}; there are {listing}")


@dataclass(frozen=True)
class Buffer:
    """GPU memory in one or several parts, each at most what one binding may cover."""

    parts: tuple[tuple[Any, int, int], ...]  # (handle, offset in it, bytes)
    nbytes: int


class Bound:
    """A compiled kernel and the buffers that it works on, also as the handles of the C calls where these are there."""

    __slots__ = ("bind_group", "pipeline", "raw_bind_group", "raw_pipeline")

    def __init__(self, pipeline: Any, bind_group: Any) -> None:
        self.pipeline, self.bind_group = pipeline, bind_group
        self.raw_pipeline, self.raw_bind_group = pipeline._internal, bind_group._internal


class Command:
    """One dispatch: a kernel with its buffers, the slot that holds its params and grid, and its name in messages."""

    __slots__ = ("bound", "label", "slot")

    def __init__(self, bound: Bound, slot: Any, label: str) -> None:
        self.bound, self.slot, self.label = bound, slot, label


@dataclass
class Counters:
    """What the device made and did since it was opened; steady state means that only `submits` grows."""

    buffers: int = 0
    pipelines: int = 0
    bind_groups: int = 0
    submits: int = 0


class Device:
    """An open adapter with its caches."""

    def __init__(self, adapter: Any, index: int, limits: Limits | None = None, raw: bool | None = None) -> None:
        self.adapter = _describe(index, adapter)
        required = {name: adapter.limits[name] for name in (*_LIMIT_NAMES.values(), *_MORE_LIMITS)}
        features = [name for name in ("shader-f16", "timestamp-query") if name in adapter.features]
        try:
            with _no_display():
                self._device = adapter.request_device_sync(required_features=features, required_limits=required)
        except Exception as error:
            raise DeviceError(f"{self.adapter.name} could not be opened: {error}") from error
        self._queue = self._device.queue
        granted = {ours: self._device.limits[theirs] for ours, theirs in _LIMIT_NAMES.items()}
        # A software adapter has few cores and pays for every barrier: its threads had better not wait for each other.
        parts = _SOFTWARE_PARTS if self.adapter.software else Limits.max_parts
        self.limits = limits or Limits(**granted, half="shader-f16" in features, max_parts=parts)
        if raw is None:
            raw = os.environ.get("LIVESHAPE_RAW", "1") != "0"
        self.raw = raw and _lib is not None
        self._readback = Readback(_lib, _checked_lib, _ffi, self._device, self._queue) if self.raw else None
        self.counters = Counters()
        self._waiting = 0
        self._pipelines: dict[Variant, tuple[Any, Any]] = {}
        self._offsets: dict[int, Any] = {}

    def __repr__(self) -> str:
        return f"Device({self.adapter.name})"

    # Memory

    def buffer(self, nbytes: int, label: str) -> Buffer:
        """Zeroed storage memory; above the limit of a binding it comes in parts of equal power-of-two size."""
        usage = wgpu.BufferUsage.STORAGE | wgpu.BufferUsage.COPY_DST | wgpu.BufferUsage.COPY_SRC
        limit = self.limits.max_binding_bytes
        if nbytes <= limit:
            return Buffer(((self._create(nbytes, usage, label), 0, nbytes),), nbytes)
        size = 1 << (limit.bit_length() - 1)
        starts = range(0, nbytes, size)
        if nbytes <= self.limits.max_buffer_bytes:
            handle = self._create(nbytes, usage, label)
            return Buffer(tuple((handle, start, min(size, nbytes - start)) for start in starts), nbytes)
        sizes = [min(size, nbytes - start) for start in starts]
        return Buffer(tuple((self._create(part, usage, label), 0, part) for part in sizes), nbytes)

    def arena(self, nbytes: int) -> Any:
        """The uniform buffer that holds the params of every step."""
        return self._create(nbytes, wgpu.BufferUsage.UNIFORM | wgpu.BufferUsage.COPY_DST, "params")

    def staging(self, nbytes: int) -> Any:
        """The buffer that results are copied to and read from."""
        return self._create(nbytes, wgpu.BufferUsage.MAP_READ | wgpu.BufferUsage.COPY_DST, "staging")

    def _create(self, nbytes: int, usage: int, label: str) -> Any:
        try:
            handle = self._device.create_buffer(size=nbytes, usage=usage, label=label)
        except Exception as error:
            raise DeviceError(
                f"{self.adapter.name} could not allocate {nbytes:,} bytes for {label} "
                f"(largest buffer {self.limits.max_buffer_bytes:,}): {error}"
            ) from error
        self.counters.buffers += 1
        return handle

    def write(self, buffer: Buffer, offset: int, data: Any) -> None:
        """Copy host bytes, a multiple of four, into a buffer from `offset` on."""
        view = memoryview(data).cast("B")
        for handle, begin, size in _ranges(buffer, offset, len(view)):
            piece, view = view[:size], view[size:]
            self._queue.write_buffer(handle, begin, piece)

    def free(self, buffers: Iterable[Buffer]) -> None:
        """Give memory back at once."""
        for buffer in buffers:
            for handle in {id(part[0]): part[0] for part in buffer.parts}.values():
                handle.destroy()

    def write_arena(self, arena: Any, offset: int, data: bytes | memoryview) -> None:
        """Put params into their place."""
        self._queue.write_buffer(arena, offset, data)

    def stream(self, buffer: Buffer, pieces: Iterable[Any]) -> None:
        """Fill a new buffer with a long row of pieces while only a few of them, of this buffer or another, wait."""
        offset = 0
        for piece in pieces:
            data = np.frombuffer(piece, np.uint8)
            if data.any():  # a new buffer is zero, as caches begin
                self.write(buffer, offset, data)
                self._waiting += data.size
            offset += data.size
            if self._waiting >= _MOST_WAITING:
                self.flush()

    def flush(self) -> None:
        """Wait until everything written so far has arrived."""
        self._waiting = 0
        self._queue.submit([])
        if _lib is not None:
            _lib.wgpuDevicePoll(self._device._internal, True, _ffi.NULL)

    # Pipelines

    def pipeline(self, variant: Variant) -> tuple[Any, Any]:
        """The compiled pipeline of a variant and its bind group layout, compiled at the first use."""
        found = self._pipelines.get(variant)
        if found is None:
            found = self._pipelines[variant] = self._compile(variant)
        return found

    def _compile(self, variant: Variant) -> tuple[Any, Any]:
        compute = wgpu.ShaderStage.COMPUTE
        entries: list[dict[str, Any]] = [
            {"binding": slot, "visibility": compute, "buffer": {"type": "storage" if writes else "read-only-storage"}}
            for slot, writes in enumerate(variant.writes)
        ]
        if variant.kernel.param_bytes:
            layout = {"type": "uniform", "has_dynamic_offset": True, "min_binding_size": variant.kernel.param_bytes}
            entries.append({"binding": len(entries), "visibility": compute, "buffer": layout})
        try:
            module = self._module(variant)
            groups = self._device.create_bind_group_layout(entries=entries)
            pipeline = self._device.create_compute_pipeline(
                layout=self._device.create_pipeline_layout(bind_group_layouts=[groups]),
                compute={"module": module, "entry_point": "main"},
                label=variant.label,
            )
        except Exception as error:
            raise DeviceError(f"kernel {variant.label} does not compile on {self.adapter.name}: {error}") from error
        self.counters.pipelines += 1
        return pipeline, groups

    def _module(self, variant: Variant) -> Any:
        if not self.raw or not hasattr(_lib, "wgpuDeviceCreateShaderModuleTrusted"):
            return self._device.create_shader_module(code=variant.source, label=variant.label)
        kind = _GPUShaderModule
        return create_module(_lib, _checked_lib, _ffi, kind, self._device, variant)

    def bind(self, variant: Variant, buffers: Sequence[tuple[Buffer, int]], arena: Any) -> Bound:
        """A kernel on the given bytes of each buffer, then the params."""
        resources: list[dict[str, Any]] = []
        for (buffer, nbytes), count in zip(buffers, variant.segments, strict=True):
            left = nbytes
            parts = ((buffer.parts[0][0], 0, nbytes),) if count == 1 else buffer.parts[:count]
            for handle, offset, size in parts:
                resources.append({"buffer": handle, "offset": offset, "size": min(size, left)})
                left -= min(size, left)
        if variant.kernel.param_bytes:
            resources.append({"buffer": arena, "offset": 0, "size": variant.kernel.param_bytes})
        entries = [{"binding": slot, "resource": resource} for slot, resource in enumerate(resources)]
        self.counters.bind_groups += 1
        pipeline, layout = self.pipeline(variant)
        return Bound(pipeline, self._device.create_bind_group(layout=layout, entries=entries))

    # Work

    def submit(
        self,
        commands: Sequence[Command],
        copies: Sequence[tuple[Buffer, int, int, Any, int]] = (),
        what: str = "step",
        arrivals: Sequence[tuple[Buffer, int, Buffer]] = (),
    ) -> int | None:
        """In one submit: copy (buffer, bytes, to) arrivals, run the commands in one pass, then copy
        (buffer, start, bytes, staging, place) rows. Its number comes back, where submissions have one.

        An error of the device is raised here and names the command that caused it.
        """
        try:
            encoder = self._device.create_command_encoder(label=what)
            for buffer, nbytes, to in arrivals:
                for (handle, begin, size), (into, at, _) in zip(
                    _ranges(buffer, 0, nbytes), _ranges(to, 0, nbytes), strict=True
                ):
                    encoder.copy_buffer_to_buffer(handle, begin, into, at, size)
            if commands:
                self._encode(encoder, commands)
            for buffer, start, nbytes, staging, target in copies:
                for handle, begin, size in _ranges(buffer, start, nbytes):
                    encoder.copy_buffer_to_buffer(handle, begin, staging, target, size)
                    target += size
            submission = None
            if self._readback is not None:
                submission = self._readback.submit(encoder.finish())
            else:
                self._queue.submit([encoder.finish()])
        except wgpu.GPUError as error:
            raise DeviceError(f"{self._culprit(commands)}: {error}") from error
        self.counters.submits += 1
        return submission

    def _encode(self, encoder: Any, commands: Sequence[Command]) -> None:
        compute = encoder.begin_compute_pass()
        current = None
        if self.raw:
            handle = compute._internal
            set_pipeline = _lib.wgpuComputePassEncoderSetPipeline
            set_bind_group = _lib.wgpuComputePassEncoderSetBindGroup
            dispatch = _lib.wgpuComputePassEncoderDispatchWorkgroups
            for command in commands:
                bound = command.bound
                pipeline = bound.raw_pipeline
                if pipeline is not current:
                    current = pipeline
                    set_pipeline(handle, pipeline)
                slot = command.slot
                if slot.pointer is None:
                    slot.pointer = _ffi.new("uint32_t[1]", [max(slot.offset, 0)])
                set_bind_group(handle, 0, bound.raw_bind_group, slot.offset >= 0, slot.pointer)
                dispatch(handle, *slot.grid)
        else:
            for command in commands:
                bound = command.bound
                if bound.pipeline is not current:
                    current = bound.pipeline
                    compute.set_pipeline(current)
                slot = command.slot
                compute.set_bind_group(0, bound.bind_group, [slot.offset] if slot.offset >= 0 else [])
                compute.dispatch_workgroups(*slot.grid)
        compute.end()

    def _culprit(self, commands: Sequence[Command]) -> str:
        """Encode the commands one at a time, without running them, to find the one that the device refuses."""
        for command in commands:
            try:
                encoder = self._device.create_command_encoder()
                self._encode(encoder, [command])
                encoder.finish()
            except wgpu.GPUError:
                return command.label
        return "the device refused the step"

    def read(self, staging: Any, nbytes: int, submission: int | None = None) -> bytearray:
        """The first bytes of the staging buffer, after this submission; after all of them if none is named."""
        try:
            if self._readback is not None and submission is not None:
                return self._readback.read(staging, nbytes, submission)
            staging.map_sync(wgpu.MapMode.READ, 0, nbytes)
            result = bytearray(staging.read_mapped(0, nbytes, copy=False))
            staging.unmap()
        except (wgpu.GPUError, RuntimeError) as error:
            raise DeviceError(f"reading {nbytes:,} bytes back failed: {error}") from error
        return result


def _ranges(buffer: Buffer, offset: int, nbytes: int) -> Iterable[tuple[Any, int, int]]:
    """The pieces of the parts that bytes `offset` to `offset + nbytes` of a buffer lie in."""
    start = 0
    for handle, begin, size in buffer.parts:
        low, high = max(offset, start), min(offset + nbytes, start + size)
        if low < high:
            yield handle, begin + low - start, high - low
        start += size


def limits_of(device: Device, **changes: Any) -> Limits:
    """The device's limits with some of them lowered, for tests of splitting, folding and clamping."""
    return Limits(**{item.name: changes.get(item.name, getattr(device.limits, item.name)) for item in fields(Limits)})
