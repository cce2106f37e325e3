"""One graph on one device: upload, plan, encode, submit, read back. Everything is allocated here, once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from liveshape.arrays import checked, restored, stored, stored_pieces
from liveshape.device import Buffer, Command, Device
from liveshape.dtypes import padded, prod, storage_bytes
from liveshape.encoding import Encoder
from liveshape.errors import InputError, PlanError
from liveshape.graph import Graph, Node, Shape, SymInt, Tensor
from liveshape.memory import MemoryPlan, alias_views, plan_memory
from liveshape.planning import Planner, Read
from liveshape.warmup import small_routes

Progress = Callable[[int, int], None]


class Executor:
    """Holds a graph's buffers and runs it at any live shape within its bound."""

    def __init__(
        self, graph: Graph, device: Device, *, aliasing: bool = True, progress: Progress | None = None
    ) -> None:
        self.graph = graph
        self.device = device
        self.aliased = alias_views(graph) if aliasing else 0
        self.planner = Planner(graph)
        self.memory: MemoryPlan = plan_memory(graph)
        self._blocks = [device.buffer(size, f"{graph.name} block {i}") for i, size in enumerate(self.memory.blocks)]
        self.encoder = Encoder(self.planner, device, self.buffer_of)
        outputs = sum(padded(self._bytes(value, value.max_shape)) for value in self._output_tensors())
        self._staging = device.staging(max(outputs, 16))
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
        """The size of the buffer that results are read through."""
        return int(self._staging.size)

    def buffer_of(self, tensor: Tensor) -> Buffer:
        """The memory that a tensor lives in."""
        if tensor.storage.block < 0:
            raise PlanError(f"{tensor.name} has no memory: nothing in {self.graph.name} uses it")
        return self._blocks[tensor.storage.block]

    # Build

    def _upload_constants(self, progress: Progress | None) -> None:
        """Stream every constant from the file into its buffer, converting what WGSL cannot hold."""
        used = {value for node in self.graph.nodes for value in node.inputs if isinstance(value, Tensor)}
        used |= set(self._output_tensors())
        constants = {tensor.storage: tensor for tensor in used if tensor.constant is not None}
        total = sum(len(tensor.constant or b"") for tensor in constants.values())
        done = 0
        for storage, tensor in constants.items():
            assert tensor.constant is not None
            self.device.stream(self._blocks[storage.block], stored_pieces(tensor, self.graph.limits.half))
            done += len(tensor.constant)
            if progress is not None:
                progress(done, total)
        self.device.flush()

    def _warm(self) -> None:
        """Compile every pipeline and make every bind group that a call may ask for, so that none waits for one."""
        for node in self.graph.nodes:
            for step in node.steps:
                self.encoder.resolve(step)
        for step in small_routes(self.planner):
            self.encoder.resolve(step)

    # One call

    def execute(self, inputs: Sequence[Any]) -> list[Any]:
        """Run once; arrays in, arrays out, both at their live shapes."""
        self._set_inputs(inputs)
        self.planner.begin()
        index = self._cursor = 0
        end = len(self.graph.nodes)
        try:
            while index < end:
                stop = next((control for control in self.graph.controls if control >= index), end)
                self.planner.walk(index, stop, self._read)
                index = stop if stop == end else self._jump(self.graph.nodes[stop])
            return self._finish(end)
        finally:
            for value in self.graph.inputs:
                if isinstance(value, Tensor):
                    value.host = None

    def _set_inputs(self, inputs: Sequence[Any]) -> None:
        graph = self.graph
        if len(inputs) != len(graph.inputs):
            raise InputError(f"{graph.name} takes {len(graph.inputs)} inputs, {len(inputs)} were given")
        # Validate all, then commit: a refused call leaves nothing half done.
        ready: list[tuple[Any, Any, Any]] = []
        for value, given in zip(graph.inputs, inputs, strict=True):
            host = checked(value, given)
            ready.append((value, host, stored(host, value, graph.limits.half) if isinstance(value, Tensor) else None))
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
            return np.frombuffer(tensor.constant, tensor.dtype)[element].item()
        self._run(self._cursor, node.index)
        self._cursor = node.index
        return self._element(tensor, element)

    def _element(self, tensor: Tensor, element: int) -> Any:
        """One element from the device: only the word that holds it travels."""
        place = self._bytes(tensor, (element,))
        copies = [(self.buffer_of(tensor), place & ~3, 4, self._staging, 0)]
        self.device.submit((), copies, self.graph.name)
        return restored(self.device.read(self._staging, 4), place & 3, tensor, (1,), self.graph.limits.half)[0].item()

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
            self.device.submit(commands, what=self.graph.name)

    def _finish(self, end: int) -> list[Any]:
        commands = self.encoder.commands(self._cursor, end)
        results = iter(self._download([(value, value.shape) for value in self._output_tensors()], commands))
        return [
            next(results) if isinstance(value, Tensor) else value.value if isinstance(value, SymInt) else value
            for value in self.graph.outputs
        ]

    def _download(self, wanted: list[tuple[Tensor, Shape]], commands: Sequence[Command] = ()) -> list[Any]:
        copies, places, offset = [], [], 0
        for tensor, shape in wanted:
            nbytes = (self._bytes(tensor, shape) + 3) & ~3
            if nbytes:
                copies.append((self.buffer_of(tensor), 0, nbytes, self._staging, offset))
            places.append(offset)
            offset += padded(nbytes)
        if offset > self.staging_bytes:
            self._staging = self.device.staging(offset)
            copies = [(buffer, start, nbytes, self._staging, target) for buffer, start, nbytes, _, target in copies]
        if commands or copies:
            self.device.submit(commands, copies, self.graph.name)
        data = self.device.read(self._staging, offset) if copies else b""
        return [
            restored(data, place, tensor, shape, self.graph.limits.half)
            for place, (tensor, shape) in zip(places, wanted, strict=True)
        ]

    # Tests and state

    def poison(self) -> None:
        """Fill every shared buffer with NaN (-1 for integers), so that a read past a live range shows."""
        persistent = {tensor.storage.block for tensor in self.graph.tensors if tensor.storage.persistent}
        for index, block in enumerate(self._blocks):
            if index not in persistent:
                self.device.write(block, 0, b"\xff" * block.nbytes)

    def state(self, tensor: Tensor) -> Any:
        """The present contents of a tensor that outlives calls, such as a cache."""
        return self._download([(tensor, tensor.max_shape)])[0]
