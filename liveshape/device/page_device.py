"""The device of a web page: Python plans in Pyodide, and a JavaScript object, `page_gpu.js`, makes the WebGPU calls.

A step is one call with numbers alone. Where the browser can suspend WebAssembly (JSPI), Python waits for the device as
elsewhere; where it cannot, the async forms work alone.
"""

from __future__ import annotations

import importlib
import json
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

from liveshape.device.buffers import Allocation, Register, allocate, bindings, copied_ranges, only_part, ranges
from liveshape.device.page_steps import PageHandle, Steps
from liveshape.device.pipelines import Pipeline, Pipelines
from liveshape.device.protocol import Adapter, Buffer, Clock, Command, Copy, Counters, InputCopy, Watched
from liveshape.device.required import granted_limits
from liveshape.device.subgroups import LANES, LEAST_LANES, LEAST_SUBGROUP, neighbours
from liveshape.device.tint import matrix_shapes, with_extensions
from liveshape.errors import DeviceError
from liveshape.formats.source import FileRange
from liveshape.graph.constants import Constant, ConstantSource, Interleaved, Paired, RoundedConstant, ScaledConstant
from liveshape.graph.limits import Limits
from liveshape.kernels import Variant
from liveshape.plan.params import Slot

Upload = Callable[[str, str], Any]

# Of a GPU: Chromium looks for maps that are done every few milliseconds, and tells its workers by messages.
_STEPS_AHEAD, _LATENCY = 8, 0.007
_LIMITS = {
    "max-compute-workgroups-per-dimension": "maxComputeWorkgroupsPerDimension",
    "max-compute-invocations-per-workgroup": "maxComputeInvocationsPerWorkgroup",
    "max-storage-buffer-binding-size": "maxStorageBufferBindingSize",
    "max-buffer-size": "maxBufferSize",
    "max-storage-buffers-per-shader-stage": "maxStorageBuffersPerShaderStage",
    "max-compute-workgroup-storage-size": "maxComputeWorkgroupStorageSize",
    "min-uniform-buffer-offset-alignment": "minUniformBufferOffsetAlignment",
}


class Granted:
    """What a page's device granted, by the names of `required.py`."""

    def __init__(self, info: dict[str, Any]) -> None:
        self.features = info["features"]
        self.limits = {ours: int(info["limits"][theirs]) for ours, theirs in _LIMITS.items()}


class PageBound:
    """A bind group of a page with its pipeline; the page forgets it with the last reference."""

    __slots__ = ("__weakref__", "bind_group", "has_params", "kept")

    def __init__(self, kept: PageHandle, pipeline: Pipeline, has_params: bool) -> None:
        self.kept = (kept, pipeline)
        self.bind_group: int | None = kept.id
        self.has_params = has_params

    def forget(self) -> None:
        """Drop the bind group once a buffer of it is freed."""
        self.bind_group = None


class PageDevice:
    """An open device of a page.

    Example: `PageDevice(gpu)`, where `gpu` is an open `PageGpu`.
    """

    has_clock = False

    def __init__(self, gpu: Any, limits: Limits | None = None, upload: Upload | None = None) -> None:
        self._gpu, self._upload = gpu, upload
        info = json.loads(gpu.info)
        self._info, granted = info, Granted(info)
        self.name, software = info["name"], info["software"]
        sizes = int(info["subgroupMinSize"]), int(info["subgroupMaxSize"])
        self.adapter = Adapter(
            index=0,
            name=self.name,
            kind="CPU" if software else "GPU",
            backend="WebGPU",
            driver=info["driver"],
            software=software,
            half="shader-f16" in granted.features,
            max_buffer_bytes=granted.limits["max-buffer-size"],
            max_binding_bytes=granted.limits["max-storage-buffer-binding-size"],
            library="page",
            matrices=matrix_shapes(info["matrices"], sizes),
        )
        self._counters, self._memories = Counters(), Register()
        self._pipelines, self._steps = Pipelines(self._compile), Steps(gpu)
        # Bound once: a method of a JavaScript object is made anew whenever it is asked for.
        self._submit, self._write, self._read = gpu.submit, gpu.write, gpu.read
        self.steps_ahead, self.latency = (1, 0.0) if software else (_STEPS_AHEAD, _LATENCY)
        self.limits = limits or granted_limits(granted, software, 0)
        if limits is None and "subgroups" in granted.features and can_wait():
            self.limits = granted_limits(granted, software, self._subgroup_size(software), self.adapter.matrices)

    def __repr__(self) -> str:
        return f"Device({self.name})"

    def limited(self, limits: Limits) -> PageDevice:
        """The same GPU with other limits."""
        return PageDevice(self._gpu, limits, self._upload)

    @property
    def counters(self) -> Counters:
        """The device's counters, up to date."""
        self._counters.live_bytes = self._memories.nbytes
        return self._counters

    @property
    def lost(self) -> bool:
        """Whether the device is lost."""
        return bool(self._gpu.lost)

    def _check(self) -> None:
        if not self._gpu.attention:
            return
        if reason := self._gpu.lost:
            raise DeviceError(
                f"the device was lost: {self.name} stopped, or was taken away ({reason}); load the model again"
            )
        if problem := self._gpu.error:
            self._gpu.error = ""
            raise DeviceError(f"{self.name}: {problem}")

    def _subgroup_size(self, software: bool) -> int:
        """Minimum subgroup size, 0 where shuffles do not reach enough neighbours."""
        threads = LANES.group_size
        nbytes = 8 * threads
        found, staging, uniforms = self.buffer(nbytes, "probe"), self.staging(nbytes), self.uniforms(16)
        variant = Variant(LANES, (), (("WG", f"{threads}u"),), (1,), nbytes, threads)
        slot = Slot(-1)
        slot.grid = (1, 1, 1)
        try:
            bound = self.bind(variant, [(found, nbytes)], uniforms)
            self.submit([Command(bound, slot, "probe")], [(found, 0, nbytes, staging, 0)])
            numbers = array("I", bytes(self.read(staging, nbytes)))
        except DeviceError:
            return 0  # a driver that fails here would fail in kernels
        finally:
            self.free([found, staging, uniforms])
        size = neighbours(numbers[::2], numbers[1::2])
        reported = int(self._info["subgroupMinSize"])
        size = min(size, reported) if reported else size
        return size if size >= (LEAST_LANES if software else LEAST_SUBGROUP) else 0

    # Memory

    def buffer(self, nbytes: int, label: str) -> Buffer:
        """Allocate a zeroed storage buffer; above the buffer size limit it is split into segments."""
        return allocate(nbytes, self.limits, lambda part: self._create(part, "storage", label), self.free)

    def uniforms(self, nbytes: int) -> Buffer:
        """Allocate the uniform buffer for the params of every step."""
        return Buffer(((self._create(nbytes, "uniform", "params"), nbytes),), nbytes)

    def staging(self, nbytes: int) -> Buffer:
        """Allocate a staging buffer for readback."""
        return Buffer(((self._create(nbytes, "staging", "staging"), nbytes),), nbytes)

    def _create(self, nbytes: int, kind: str, label: str) -> Allocation:
        self._check()
        memory = Allocation(self._gpu.buffer(nbytes, kind, label), nbytes, label)
        self._counters.buffers += 1
        self._memories.add(memory)
        return memory

    def free(self, buffers: Iterable[Buffer]) -> None:
        """Destroy buffers at once; submits in flight still complete."""
        self._steps.clear()
        for memory in [memory for buffer in buffers for memory, _ in buffer.parts]:
            if not memory.freed:
                memory.freed = True
                for bound in memory.bounds:
                    bound.forget()
                self._gpu.free(memory.handle)

    def write(self, buffer: Buffer, offset: int, data: Any) -> None:
        """Upload host bytes, a multiple of four, to a buffer at `offset`."""
        self._check()
        view = memoryview(data).cast("B")
        for memory, begin, size in ranges(buffer, offset, len(view)):
            piece, view = view[:size], view[size:]
            self._write(memory.handle, begin, piece)

    def upload(self, buffer: Buffer, constant: Constant) -> bool:
        """Upload a constant from its file by JavaScript, where the page has given a function for that."""
        tree = described(constant) if self._upload is not None else None
        if tree is None or self._upload is None:
            return False
        self._check()
        parts = [number for memory, nbytes in buffer.parts for number in (memory.handle, nbytes)]
        self._upload(json.dumps(parts), json.dumps(tree))
        return True

    def flush(self) -> None:
        """Wait until all kernels are compiled, and all writes and submits so far done, where Python can wait."""
        if can_wait():
            self._wait(self._gpu.ready())
            self._wait(self._gpu.idle())
        self._check()

    # Kernels

    def _compile(self, variant: Variant) -> Pipeline:
        """Start to compile; `submit` waits until all is done. Where Python cannot wait, the driver does."""
        writes = "".join("w" if each else "r" for each in variant.writes)
        code = with_extensions(variant.source)
        made = self._gpu.pipeline(variant.label, code, writes, variant.kernel.param_bytes)
        self._counters.pipelines += 1
        return Pipeline(variant, PageHandle(self._gpu.drop, "pipeline", made), None)

    def bind(self, variant: Variant, buffers: Sequence[tuple[Buffer, int]], uniforms: Buffer) -> PageBound:
        """Create a bind group: the first bytes of each buffer, then the uniforms."""
        self._check()
        pipeline = self._pipelines.get(variant)
        windows = bindings(variant, buffers, uniforms, self.limits)
        flat = array("d", [number for memory, begin, size in windows for number in (memory.handle, begin, size)])
        made = PageHandle(self._gpu.drop, "group", self._gpu.bind(pipeline.handle.id, flat))
        bound = PageBound(made, pipeline, bool(variant.kernel.param_bytes))
        for memory, _, _ in windows:
            memory.check()
            memory.bounds.add(bound)  # type: ignore[arg-type]
        self._counters.bind_groups += 1
        return bound

    # Work

    async def ready(self, tell: Callable[[int, int], Any] | None = None) -> None:
        """Wait until every kernel is compiled; `tell` gets how many are, and of how many."""
        await self._gpu.ready(tell)
        self._check()

    def submit(
        self,
        commands: Sequence[Command],
        copies: Sequence[Copy] = (),
        what: str = "step",
        input_copies: Sequence[InputCopy] = (),
        stateless: bool = False,
    ) -> None:
        """Submit one step: input copies, the commands in one compute pass, copies to staging."""
        if self._gpu.attention:
            self._check()
            if can_wait():  # else the browser waits for the compiler
                self._wait(self._gpu.ready())
                self._check()
        before = [copied_ranges(buffer, 0, to, 0, nbytes) for buffer, nbytes, to in input_copies]
        after = [copied_ranges(buffer, start, to, at, nbytes) for buffer, start, nbytes, to, at in copies]
        first, then = _numbers(before), _numbers(after)
        if commands:
            step, moved = self._steps.moved(commands)
            self._submit(what, step.handle.id, len(moved), len(first), *moved, *first, *then)
            step.told()
        else:
            self._submit(what, 0, 0, len(first), *first, *then)
        self._counters.submits += 1

    def read(self, staging: Buffer, nbytes: int) -> bytearray:
        """Read back the first bytes of a staging buffer."""
        memory = only_part(staging)
        memory.check()
        found = self._wait(self._read(memory.handle, nbytes))
        self._check()
        return bytearray(found.to_bytes())

    async def read_async(self, staging: Buffer, nbytes: int) -> bytearray:
        """Async `read`."""
        memory = only_part(staging)
        memory.check()
        try:
            found = await self._read(memory.handle, nbytes)
        except Exception as error:
            raise self._failed(error) from error
        self._check()
        return bytearray(found.to_bytes())

    def _failed(self, error: Exception) -> DeviceError:
        self._check()
        return DeviceError(f"{self.name}: {error}")

    def _wait(self, promise: Any) -> Any:
        if not can_wait():
            raise DeviceError(
                "this browser cannot wait for its GPU inside of a call (JSPI): use the async forms, or a browser that "
                "has it: Chromium 137, Firefox 153, Safari 27"
            )
        try:
            return _ffi().run_sync(promise)
        except Exception as error:
            raise self._failed(error) from error

    @contextmanager
    def watched(
        self, clock: Clock = Clock.NOTHING, note: Callable[[Sequence[Command]], None] | None = None
    ) -> Iterator[Watched]:
        """Nothing is recorded in a page."""
        yield Watched()


def _numbers(copies: Iterable[Iterable[tuple[Allocation, int, Allocation, int, int]]]) -> list[int]:
    """Copies as the page takes them."""
    numbers: list[int] = []
    for pieces in copies:
        for source, begin, target, at, size in pieces:
            numbers += (source.handle, begin, target.handle, at, size)
    return numbers


@cache
def _ffi() -> Any:
    return importlib.import_module("pyodide.ffi")


def can_wait() -> bool:
    """Whether Python can wait for a promise here (JSPI)."""
    return bool(_ffi().can_run_sync())


def described(constant: ConstantSource) -> list[Any] | None:
    """Where the bytes of a constant lie in files, for `web/src/constants.js`; None if some do not, or are rounded."""
    if isinstance(constant, FileRange):
        return ["range", constant.path, constant.start, constant.nbytes]
    if isinstance(constant, (memoryview, RoundedConstant, ScaledConstant)):
        return None
    if isinstance(constant, Interleaved):
        sources = [described(source) for source in constant.sources]
        return None if None in sources else ["interleaved", sources, list(constant.runs)]
    source = described(constant.source)
    if source is None:
        return None
    if isinstance(constant, Paired):
        return ["paired", source, constant.block, constant.run]
    return ["transposed", source, constant.rows, constant.size]
