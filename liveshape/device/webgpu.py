"""The WebGPU device: buffers, pipelines, one compute pass per submit, readback."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from liveshape.debug_log import DEVICE, SHADERS
from liveshape.device.adapters import describe, no_display, usable_adapters
from liveshape.device.buffers import Allocation, Bound, Register, allocate, bindings, copied_ranges, only_part, ranges
from liveshape.device.compile_threads import compiling_ahead
from liveshape.device.failure import Failure
from liveshape.device.host_memory import LARGE, LARGEST
from liveshape.device.host_staging import KEPT, HostStaging
from liveshape.device.library import Library
from liveshape.device.passes import PublicRecorder, RawRecorder, Recorder
from liveshape.device.pipelines import Pipeline, Pipelines
from liveshape.device.probes import max_turns
from liveshape.device.protocol import Buffer, Clock, Command, Copy, Counters, InputCopy, Watched
from liveshape.device.readback import PublicReader, RawReader, Reader
from liveshape.device.required import granted_limits, required_features, required_limits
from liveshape.device.subgroups import LEAST_LANES, LEAST_SUBGROUP, subgroup_size
from liveshape.device.submitting import Submitter
from liveshape.device.waiting import Pace
from liveshape.device.watching import Opened, WatchedReader, WatchedRecorder
from liveshape.errors import DeviceError
from liveshape.graph.limits import Limits
from liveshape.kernels import Variant

_MOST_WAITING = 32 << 20  # bytes of writes in flight, of which wgpu holds a staging copy
_STEPS_AHEAD = 4  # of a GPU: with fewer in flight it idles whenever the host is late


class WebGpuDevice:
    """An open WebGPU device with its pipeline cache."""

    def __init__(
        self, library: Library, adapter: Any, index: int, limits: Limits | None = None, raw: bool | None = None
    ) -> None:
        self.adapter = describe(library, index, adapter)
        self.name, software = self.adapter.name, self.adapter.software
        self._counters, self._memories = Counters(), Register()
        self._failure = Failure(self.name, library, lambda: self.counters.live_bytes)
        features = required_features(library, adapter, limits is None or limits.subgroup > 0 or limits.lanes > 0)
        try:
            with no_display():
                self._device = adapter.request_device_sync(
                    required_features=features, required_limits=required_limits(adapter)
                )
        except Exception as error:
            raise DeviceError(f"{self.name} could not be opened: {error}") from error
        self._queue = self._device.queue
        if limits is None:
            least = LEAST_LANES if software else LEAST_SUBGROUP
            lanes = subgroup_size(library, self._device, adapter.info, least) if library.subgroups in features else 0
            cuts_loops = software and max_turns(library, self._device) is not None
            limits = granted_limits(
                self._device, software, lanes, self.adapter.matrices, cuts_loops, self.adapter.fast_matrices
            )
        self.limits = limits
        if raw is None:
            raw = os.environ.get("LIVESHAPE_RAW", "1") != "0"
        self._library, self._native = library, library.native if raw else None
        self._usage = library.wgpu.BufferUsage
        # Between the check of a buffer and its submit nobody may free or map it: wgpu-native would abort.
        self._lock = threading.RLock()
        self.has_clock = library.clocks[0] in features
        # llvmpipe; Dawn leaves out a dispatch of nothing, by which kernels could be finished ahead.
        self.compiles_at_dispatch = software and library.name == "wgpu"
        self.steps_ahead, self.latency = 1 if software else _STEPS_AHEAD, 0.0
        pace = Pace(software)
        recorder: Recorder
        self._reader: Reader
        if self._native is not None:
            recorder = RawRecorder(self._native, self._device, self._queue)
            self._reader = RawReader(self._native, self._device, self._queue, self._lock, pace)
        else:
            recorder = PublicRecorder(self._device, self._queue)
            self._reader = PublicReader(library, self._device, self._queue, self._lock)
        self._submitter = Submitter(recorder, pace, self._failure.error, self._failure.check)
        self._waiting = 0
        self._done = 0  # submits known to be complete
        self._pipelines = Pipelines(self._compile)
        DEVICE.debug("%s (%s) through %s: %s", self.name, self.adapter.driver, library.name, limits)

    @property
    def raw(self) -> bool:
        """Whether the raw C calls are used."""
        return self._native is not None

    def __repr__(self) -> str:
        return f"Device({self.name})"

    def another(self) -> WebGpuDevice:
        """Open one more device of the same adapter, with the same limits."""
        adapter = usable_adapters(self._library)[self.adapter.index]
        return WebGpuDevice(self._library, adapter, self.adapter.index, self.limits)

    @property
    def counters(self) -> Counters:
        """The device's counters, up to date."""
        self._counters.live_bytes = self._memories.nbytes
        return self._counters

    @property
    def lost(self) -> bool:
        """Whether the device is lost, or belongs to the parent of this forked process."""
        return bool(self._failure.dead)

    def _check(self) -> None:
        self._failure.check()
        if reason := self._library.lost(self._device):
            raise self._failure.error("the device", DeviceError(reason))
        self._submitter.check()

    # Memory

    def buffer(self, nbytes: int, label: str) -> Buffer:
        """Allocate a zeroed storage buffer; above the buffer size limit it is split into segments."""
        usage = self._usage.STORAGE | self._usage.COPY_DST | self._usage.COPY_SRC
        return allocate(nbytes, self.limits, lambda part: self._create(part, usage, label), self.free)

    def uniforms(self, nbytes: int) -> Buffer:
        """Allocate the uniform buffer for the params of every step."""
        usage = self._usage.UNIFORM | self._usage.COPY_DST
        return Buffer(((self._create(nbytes, usage, "params"), nbytes),), nbytes)

    def staging(self, nbytes: int) -> Buffer:
        """Allocate a staging buffer for readback."""
        host = self._host_staging(nbytes)
        if host is None:
            memory = self._create(nbytes, self._usage.MAP_READ | self._usage.COPY_DST, "staging")
        else:
            memory = self._added(Allocation(host.handle, nbytes, "staging", host))
        return Buffer(((memory, nbytes),), nbytes)

    def _place(self, memory: Allocation) -> None:
        """Memory for results whose last ones somebody holds."""
        assert memory.host is not None
        memory.spares.append(memory.host)
        host = next((each for each in memory.spares if not each.held), None)
        if host is None and len(memory.spares) < KEPT:
            host = self._host_staging(memory.nbytes)
        elif host is not None:
            memory.spares.remove(host)
        if host is not None:
            memory.place(host.handle, host)
            return
        usage = self._usage.MAP_READ | self._usage.COPY_DST
        memory.place(self._device.create_buffer(size=memory.nbytes, usage=usage, label=memory.label), None)
        while memory.spares:
            memory.spares.pop().handle.destroy()

    def _host_staging(self, nbytes: int) -> HostStaging | None:
        if self._native is None or not LARGE <= nbytes <= LARGEST:
            return None
        self._check()
        made = self._library.host_buffer(self._device, nbytes)
        return None if made is None else HostStaging(*made)

    def _create(self, nbytes: int, usage: int, label: str) -> Allocation:
        self._check()
        try:
            handle = self._device.create_buffer(size=nbytes, usage=usage, label=label)
        except Exception as error:
            raise self._failure.error(
                f"{self.name} could not allocate {nbytes:,} bytes for {label} "
                f"(largest buffer {self.limits.max_buffer_bytes:,})",
                error,
            ) from error
        return self._added(Allocation(handle, nbytes, label))

    def _added(self, memory: Allocation) -> Allocation:
        with self._lock:
            self._counters.buffers += 1
            self._memories.add(memory)
        return memory

    def free(self, buffers: Iterable[Buffer]) -> None:
        """Destroy buffers at once; submits in flight still complete."""
        if self._failure.forked:
            self._failure.check()
        for memory in [memory for buffer in buffers for memory, _ in buffer.parts]:
            with memory.lock, self._lock:
                if memory.freed:
                    continue
                self._submitter.drain()
                memory.freed = True
                for bound in memory.bounds:
                    bound.forget()
                try:
                    memory.handle.destroy()
                    for spare in memory.spares:
                        spare.handle.destroy()
                except Exception as error:
                    raise self._failure.error(f"freeing {memory.nbytes:,} bytes of {memory.label}", error) from error

    def write(self, buffer: Buffer, offset: int, data: Any) -> None:
        """Upload host bytes, a multiple of four, to a buffer at `offset`; waits if too many are in flight."""
        self._check()
        view = memoryview(data).cast("B")
        nbytes = len(view)
        try:
            for memory, begin, size in ranges(buffer, offset, nbytes):
                piece, view = view[:size], view[size:]
                self._submitter.write(memory, begin, piece)
        except DeviceError:
            raise
        except Exception as error:
            raise self._failure.error(f"writing {nbytes:,} bytes", error) from error
        with self._lock:
            self._waiting += nbytes
        if self._waiting >= _MOST_WAITING:
            self.flush()

    def flush(self) -> None:
        """Wait until all writes and submits so far are done."""
        self.submit((), what="flush")
        self._settle()

    def _settle(self) -> None:
        submitted = self._counters.submits
        if self._done >= submitted:
            return
        self._submitter.drain()
        try:
            self._reader.finish()
        except DeviceError:
            raise
        except Exception as error:
            raise self._failure.error("waiting for the device", error) from error
        self._done = submitted

    # Pipelines

    def pipeline(self, variant: Variant) -> Pipeline:
        """The pipeline of a kernel variant, compiled on a cache miss."""
        self._check()
        return self._pipelines.get(variant)

    def compiling_ahead(
        self, variants: Collection[Variant], first: Collection[Variant] = ()
    ) -> AbstractContextManager[None]:
        """Compile these kernels in threads within the context, in which all should be bound; some of them `first`."""
        # Not by `pipeline`, which raises errors of submits: they are for others.
        return compiling_ahead(self._pipelines.get, variants, first)

    def _compile(self, variant: Variant) -> Pipeline:
        compute = self._library.wgpu.ShaderStage.COMPUTE
        entries: list[dict[str, Any]] = [
            {"binding": slot, "visibility": compute, "buffer": {"type": "storage" if writes else "read-only-storage"}}
            for slot, writes in enumerate(variant.writes)
        ]
        if variant.kernel.param_bytes:
            layout = {"type": "uniform", "has_dynamic_offset": True, "min_binding_size": variant.kernel.param_bytes}
            entries.append({"binding": len(entries), "visibility": compute, "buffer": layout})
        if SHADERS.isEnabledFor(logging.DEBUG):
            SHADERS.debug("%s\n%s", variant.label, variant.source)
        try:
            module = self._library.compile(self._device, variant, self._native)
            groups = self._device.create_bind_group_layout(entries=entries)
            pipeline = self._device.create_compute_pipeline(
                layout=self._device.create_pipeline_layout(bind_group_layouts=[groups]),
                compute={"module": module, "entry_point": "main"},
                label=variant.label,
            )
        except Exception as error:
            raise self._failure.error(f"kernel {variant.label} does not compile on {self.name}", error) from error
        with self._lock:
            self._counters.pipelines += 1
        return Pipeline(variant, pipeline, groups)

    def bind(self, variant: Variant, buffers: Sequence[tuple[Buffer, int]], uniforms: Buffer) -> Bound:
        """Create a bind group: the first bytes of each buffer, then the uniforms."""
        pipeline = self.pipeline(variant)
        windows = bindings(variant, buffers, uniforms, self.limits)
        with self._lock:
            for memory, _, _ in windows:
                memory.check()
            entries = [
                {"binding": place, "resource": {"buffer": memory.handle, "offset": begin, "size": size}}
                for place, (memory, begin, size) in enumerate(windows)
            ]
            try:
                group = self._device.create_bind_group(layout=pipeline.layout, entries=entries)
            except Exception as error:
                raise self._failure.error(f"kernel {variant.label} does not take its buffers", error) from error
            bound = Bound(pipeline, group, bool(variant.kernel.param_bytes))
            for memory, _, _ in windows:
                memory.bounds.add(bound)
            self._counters.bind_groups += 1
        return bound

    # Work

    def submit(
        self,
        commands: Sequence[Command],
        copies: Sequence[Copy] = (),
        what: str = "step",
        input_copies: Sequence[InputCopy] = (),
        stateless: bool = False,
    ) -> None:
        """Submit one step: input copies, the commands in one compute pass, copies to staging.

        A device error is raised here and names the command. While the device is busy, `finish()` and the submit are
        deferred to a worker thread; their errors are raised by `read`, or by the next submit. While it is idle, pieces
        are submitted as they are encoded: by the worker, which no interrupt cuts short, unless they are `stateless`.
        """
        self._check()
        if self.adapter.software:
            # wgpu would wait for the previous submit inside this one, deaf to signals.
            self._settle()
        with self._lock:
            for _, _, _, staging, _ in copies:
                if only_part(staging).mapped:
                    raise DeviceError(
                        f"{what}: results are being read from this staging memory; free it or read it out"
                    )
                if (memory := only_part(staging)).host is not None and memory.host.held:
                    self._place(memory)
            handed = self._submitter.submit(
                [piece for buffer, nbytes, to in input_copies for piece in copied_ranges(buffer, 0, to, 0, nbytes)],
                commands,
                [
                    piece
                    for buffer, start, nbytes, to, at in copies
                    for piece in copied_ranges(buffer, start, to, at, nbytes)
                ],
                what,
                busy=self._done < self._counters.submits,
                software=self.adapter.software,
                stateless=stateless,
            )
            self._waiting = 0
            self._counters.submits += 1
            for _, _, _, staging, _ in copies:
                memory = only_part(staging)
                memory.submission, memory.job, memory.submitted = handed.submission, handed.job, self._counters.submits
        if handed.commands_in_use:
            self._submitter.wait(handed.job)  # it reads the commands, which the caller may change once this returns

    def read(self, staging: Buffer, nbytes: int) -> bytearray | memoryview:
        """Read back the first bytes of a staging buffer, after the submits that write to it."""
        self._check()
        memory = only_part(staging)
        self._submitter.wait(memory.job)
        try:
            data = self._reader.read(memory, nbytes)
        except DeviceError:
            raise
        except Exception as error:
            raise self._failure.error(f"reading {nbytes:,} bytes back failed", error) from error
        self._done = max(self._done, memory.submitted)
        return data

    async def read_async(self, staging: Buffer, nbytes: int) -> bytearray | memoryview:
        """Async `read`."""
        self._check()
        memory = only_part(staging)
        self._submitter.wait(memory.job)
        try:
            return await self._reader.read_async(memory, nbytes)
        except DeviceError:
            raise
        except Exception as error:
            raise self._failure.error(f"reading {nbytes:,} bytes back failed", error) from error

    @contextmanager
    def watched(
        self, clock: Clock = Clock.NOTHING, note: Callable[[Sequence[Command]], None] | None = None
    ) -> Iterator[Watched]:
        """Profile: recorder and reader are replaced by watching ones within the context."""
        self._check()
        self._submitter.drain()
        found = Watched()
        recorder, reader = self._submitter.recorder, self._reader
        opened = Opened(self, self._library, self._device, self._queue)
        watching = WatchedRecorder(opened, recorder, clock if self.has_clock else Clock.NOTHING, note, found)
        self._submitter.recorder, self._reader = watching, WatchedReader(reader, found)
        try:
            yield found
            self.flush()
        finally:
            self._submitter.recorder, self._reader = recorder, reader
        watching.collect()
