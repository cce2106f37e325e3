"""One graph on one device: upload, plan, encode, submit, read back. Everything is allocated here, once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any

import numpy as np

from liveshape.device.protocol import Buffer, Device
from liveshape.device.upload import stream
from liveshape.errors import InputError, PlanError
from liveshape.graph import Graph, Node, Shape, SymInt, Tensor
from liveshape.graph.constants import whole
from liveshape.graph.elements import padded, prod, storage_bytes, stored_alike
from liveshape.kernels.requests import Read
from liveshape.plan.memory import MemoryPlan, alias_views, bound_ids, plan_memory, share_constants
from liveshape.plan.planning import Planner
from liveshape.plan.routes import small_routes
from liveshape.run.arrays import check_shape, checked, stored, stored_pieces
from liveshape.run.encoding import Encoder
from liveshape.run.results import DeviceTensor, Staging, Transfer

Progress = Callable[[int, int], None]


class Executor:
    """Holds a graph's buffers and runs it at any live shape within its bound."""

    def __init__(
        self,
        graph: Graph,
        device: Device,
        *,
        aliasing: bool = True,
        ready: Sequence[int] | None = None,  # outputs that every call brings to the host; memory for others comes later
        resident: Sequence[int] = (),  # outputs that `on_device` may give
        progress: Progress | None = None,
    ) -> None:
        self.graph = graph
        self.device = device
        share_constants(graph)
        apart = {tensor: tensor.storage for tensor in graph.tensors}
        self.aliased = alias_views(graph) if aliasing else 0
        bound_ids(graph)
        self.planner = Planner(graph)
        self.resident = frozenset(resident)
        kept = [graph.outputs[place] for place in resident]
        self.memory: MemoryPlan = plan_memory(graph, kept)
        if self.aliased and 0 < graph.file_bytes < self.memory.activation_bytes:
            # Views that share live longer than copies; where that costs more than the file planned, they are copies.
            for tensor, storage in apart.items():
                tensor.storage = storage
            self.aliased, self.planner = 0, Planner(graph)
            self.memory = plan_memory(graph, kept)
        self._blocks = [device.buffer(size, f"{graph.name} block {i}") for i, size in enumerate(self.memory.blocks)]
        self.encoder = Encoder(self.planner, device, self.buffer_of)
        read = self._output_tensors() if ready is None else [graph.outputs[place] for place in ready]
        outputs = sum(padded(self._bytes(value, value.max_shape)) for value in read)
        self._staging = Staging(device, graph.limits.half, max(outputs, 16))
        self._arrivals: list[tuple[Buffer, int, Buffer]] = []
        self.calls = 0
        self._cursor = 0
        self._upload_constants(progress)
        self._warm()

    def _output_tensors(self) -> list[Tensor]:
        return [value for value in self.graph.outputs if isinstance(value, Tensor)]

    def _bytes(self, tensor: Tensor, shape: Shape) -> int:
        return storage_bytes(tensor.dtype, prod(shape), self.graph.limits.half)

    @property
    def arena_bytes(self) -> int:
        """The size of the buffer that holds params."""
        return self.encoder.arena.nbytes

    @property
    def staging_bytes(self) -> int:
        """The size of the buffers that results are read through."""
        return self._staging.nbytes

    def buffer_of(self, tensor: Tensor) -> Buffer:
        """The memory that a tensor lives in."""
        if tensor.storage.block < 0:
            raise PlanError(f"{tensor.name} has no memory: nothing in {self.graph.name} uses it")
        return self._blocks[tensor.storage.block]

    # Build

    def _upload_constants(self, progress: Progress | None) -> None:
        """Stream every constant from the file into its buffer, converting what WGSL cannot hold."""
        read = (value for node in self.graph.nodes for value in node.inputs if isinstance(value, Tensor))
        used = dict.fromkeys([*read, *self._output_tensors()])
        constants = {tensor.storage: tensor for tensor in used if tensor.constant is not None}
        total = sum(len(tensor.constant or b"") for tensor in constants.values())
        done = 0
        for storage, tensor in constants.items():
            assert tensor.constant is not None
            pieces = stored_pieces(tensor, self.graph.limits.half)
            stream(self.device, self._blocks[storage.block], pieces, fresh=True)
            done += len(tensor.constant)
            if progress is not None:
                progress(done, total)
        self.device.flush()

    def _warm(self) -> None:
        """Compile every pipeline and make every bind group that a call may ask for, so that none waits for one."""
        planned = (step for node in self.graph.nodes for step in node.steps)
        for step in chain(planned, small_routes(self.planner)):
            self.encoder.resolve(step)
            for variant in step.variant.siblings:
                self.encoder.bound(variant, step.tensors)

    # One call

    def execute(self, inputs: Sequence[Any]) -> list[Any]:
        """Run once; arrays in, arrays out, both at their live shapes."""
        return self.start(inputs).result()

    def start(self, inputs: Sequence[Any], wanted: Sequence[int] | None = None) -> Pending:
        """Run once without waiting. `wanted` are the outputs to bring to the host, all by default."""
        self._set_inputs(inputs)
        self.planner.begin()
        index = self._cursor = 0
        end = len(self.graph.nodes)
        try:
            while index < end:
                stop = next((control for control in self.graph.controls if control >= index), end)
                self.planner.walk(index, stop, self._read)
                index = stop if stop == end else self._jump(self.graph.nodes[stop])
            return self._finish(end, wanted)
        finally:
            for value in self.graph.inputs:
                if isinstance(value, Tensor):
                    value.host = None

    def resume(self, start: int, wanted: Sequence[int] | None = None) -> Pending:
        """Run the nodes from `start` on once more, on what the call before left in memory."""
        self._cursor = start
        self.planner.walk(start, len(self.graph.nodes), self._read)
        return self._finish(len(self.graph.nodes), wanted)

    def _set_inputs(self, inputs: Sequence[Any]) -> None:
        graph = self.graph
        if len(inputs) != len(graph.inputs):
            raise InputError(f"{graph.name} takes {len(graph.inputs)} inputs, {len(inputs)} were given")
        # Validate all, then commit: a refused call leaves nothing half done.
        ready: list[tuple[Any, Any, Any]] = []
        self._arrivals = []
        for value, given in zip(graph.inputs, inputs, strict=True):
            if isinstance(given, DeviceTensor) and isinstance(value, Tensor):
                self._arrivals.append(self._arrival(value, given))
                continue
            host = checked(value, given)
            ready.append((value, host, stored(host, value, graph.limits.half) if isinstance(value, Tensor) else None))
        for value, given in zip(graph.inputs, inputs, strict=True):
            if isinstance(given, DeviceTensor):
                value.shape = given.shape
        for value, host, data in ready:
            if isinstance(value, SymInt):
                value.value = host
            elif isinstance(value, Tensor):
                value.shape = host.shape
                value.host = host
                if host.size and value.storage.block >= 0:  # an input that nothing uses has no memory
                    self.device.write(self.buffer_of(value), 0, data)

    def _read(self, node: Node, request: Read) -> Any:
        """One element, from the host's copy where there is one, else after running the graph up to the node."""
        tensor, element = request.tensor, request.element
        if element >= tensor.numel:
            raise PlanError(f"element {element} is outside the live shape {tensor.shape}")
        if tensor.host is not None and not tensor.mutable:
            return tensor.host.reshape(-1)[element].item()
        if tensor.constant is not None and not tensor.mutable:
            return np.frombuffer(whole(tensor.constant), tensor.dtype)[element].item()
        self._run(self._cursor, node.index)
        self._cursor = node.index
        return self.fetch(tensor, element, (1,))[0].item()

    def fetch(self, tensor: Tensor, start: int = 0, shape: Shape | None = None) -> Any:
        """What a tensor holds now: its live elements, or those of `shape` from element `start` on."""
        shape = tensor.shape if shape is None else shape
        begin = self._bytes(tensor, (start,))
        place = begin & ~3  # only whole words travel
        nbytes = (begin + self._bytes(tensor, shape) - place + 3) & ~3
        copies = [(self.buffer_of(tensor), place, nbytes, 0)] if nbytes else []
        rows = [(begin - place, tensor, shape)]
        return self._staging.submit((), copies, nbytes, rows, self.graph.name, self._take_arrivals()).wait()[0]

    def _arrival(self, value: Tensor, given: DeviceTensor) -> tuple[Buffer, int, Buffer]:
        """The copy that brings a tensor of the device to an input."""
        given.check()
        if given.device is not self.device:
            raise InputError(f"{value.name} lies on {given.device}, {self.graph.name} runs on {self.device}")
        if not stored_alike(given.dtype, value.dtype, self.graph.limits.half):
            raise InputError(f"{value.name} is {value.dtype}, {given.dtype} was given")
        check_shape(value, given.shape)
        return given.buffer, (given.nbytes + 3) & ~3, self.buffer_of(value)

    def _take_arrivals(self) -> list[tuple[Buffer, int, Buffer]]:
        arrivals, self._arrivals = self._arrivals, []
        return arrivals

    def _jump(self, node: Node) -> int:
        """Take a conditional jump: the condition is a live scalar or one element on the device."""
        condition, target, _ = node.args
        if isinstance(condition, Tensor):
            condition = self._read(node, Read(condition, 0))
        elif isinstance(condition, SymInt):
            condition = condition.value
        self._run(self._cursor, node.index)
        self._cursor = node.index + 1 if condition else target
        return int(self._cursor)

    def _run(self, start: int, stop: int) -> None:
        commands = self.encoder.commands(start, stop)
        if commands:
            self.device.submit(commands, (), self.graph.name, self._take_arrivals())

    def _finish(self, end: int, wanted: Sequence[int] | None) -> Pending:
        commands = self.encoder.commands(self._cursor, end)
        outputs = self.graph.outputs
        chosen = range(len(outputs)) if wanted is None else wanted
        tensors = [outputs[place] for place in chosen if isinstance(outputs[place], Tensor)]
        rows = [(tensor, tensor.shape, self.buffer_of(tensor)) for tensor in tensors]
        transfer = self._staging.start(commands, rows, self.graph.name, self._take_arrivals())
        self.calls += 1
        scalars = {place: value.value for place, value in enumerate(outputs) if isinstance(value, SymInt)}
        return Pending(self, transfer, list(chosen), scalars)

    # Tests and state

    def poison(self) -> None:
        """Fill every shared buffer with NaN (-1 for integers), so that a read past a live range shows."""
        persistent = {tensor.storage.block for tensor in self.graph.tensors if tensor.storage.persistent}
        for index, block in enumerate(self._blocks):
            if index not in persistent:
                self.device.write(block, 0, b"\xff" * block.nbytes)

    def state(self, tensor: Tensor) -> Any:
        """The present contents of a tensor that outlives calls, such as a cache."""
        return self.fetch(tensor, 0, tensor.max_shape)


class Pending:
    """A call under way."""

    def __init__(self, executor: Executor, transfer: Transfer, chosen: list[int], scalars: dict[int, Any]) -> None:
        self._executor, self._transfer, self._chosen, self._scalars = executor, transfer, chosen, scalars
        self._call = executor.calls

    def result(self) -> list[Any]:
        """The outputs that were wanted, as arrays and numbers, when the device is done."""
        outputs, arrays = self._executor.graph.outputs, iter(self._transfer.wait())
        return [
            next(arrays) if isinstance(outputs[place], Tensor) else self._scalars.get(place, outputs[place])
            for place in self._chosen
        ]

    @property
    def is_latest(self) -> bool:
        """Whether the graph has not run again, so that its outputs still lie on the device."""
        return self._executor.calls == self._call

    def on_device(self, position: int) -> DeviceTensor:
        """An output where it lies, without waiting: good as an input until the graph has run again."""
        executor, call = self._executor, self._call
        tensor = executor.graph.outputs[position]
        if not isinstance(tensor, Tensor):
            raise InputError(f"output {position} is a number, not a tensor")
        if position not in executor.resident:
            raise InputError(
                f"output {position} is not kept on the device: build the executor with resident=[{position}]"
            )
        half = executor.graph.limits.half
        return DeviceTensor(tensor, executor.buffer_of(tensor), executor.device, half, lambda: executor.calls == call)
