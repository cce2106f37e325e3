"""One graph on one device: upload, plan, encode, submit, read back. Everything is allocated here, once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from liveshape.device import Buffer, Command, Device
from liveshape.dtypes import padded, storage_bytes, storage_type
from liveshape.errors import InputError, PlanError
from liveshape.graph import Graph, Node, SymInt, Tensor
from liveshape.memory import MemoryPlan, alias_views, plan_memory
from liveshape.planning import Arena, Planner, Read, Step

Progress = Callable[[int, int], None]
_CHUNK = 4 << 20
_STORED = {"f32": np.dtype("<f4"), "f16": np.dtype("<f2"), "i32": np.dtype("<i4"), "u32": np.dtype("<u4")}
_SLOTS_PER_NODE = 8


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
        self._arena_layout = Arena(graph.limits.uniform_alignment)
        self._blocks = [device.buffer(size, f"{graph.name} block {i}") for i, size in enumerate(self.memory.blocks)]
        slots = max(64, _SLOTS_PER_NODE * len(graph.nodes))
        self._arena_bytes = slots * max(graph.limits.uniform_alignment, 256)
        self._arena = device.arena(self._arena_bytes)
        self._arena_now = b""
        outputs = sum(padded(_bytes_of(value, value.max_shape, graph)) for value in self._output_tensors())
        self._staging = device.staging(max(outputs, 16))
        self._bind_groups: dict[Any, Any] = {}
        self._commands: dict[tuple[int, int], tuple[int, list[Command], bytes]] = {}
        self._cursor = 0
        self._upload_constants(progress)
        self._warm()

    def _output_tensors(self) -> list[Tensor]:
        return [value for value in self.graph.outputs if isinstance(value, Tensor)]

    def buffer_of(self, tensor: Tensor) -> Buffer:
        """The memory that a tensor lives in."""
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
            self.device.stream(self._blocks[storage.block], _stored_pieces(tensor, self.graph.limits.half))
            done += len(tensor.constant)
            if progress is not None:
                progress(done, total)
        self.device.flush()

    def _warm(self) -> None:
        """Compile every pipeline and bind group of the plan at the bound, so that no call waits for one."""
        for node in self.graph.nodes:
            for step in node.steps:
                self._resolve(step, 0)

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
        arrays = [_checked(position, value, given) for position, (value, given) in enumerate(zip(graph.inputs, inputs))]
        for value, array in zip(graph.inputs, arrays, strict=True):
            if isinstance(value, SymInt):
                value.value = array
            elif isinstance(value, Tensor):
                value.shape = array.shape
                value.host = array
                if array.size and (value.consumers or value in graph.outputs):
                    data = _stored(array, value, graph.limits.half)
                    self.device.write(self.buffer_of(value), 0, data)

    def _read(self, node: Node, request: Read) -> Any:
        """One element, from the host's copy where there is one, else after running the graph up to the node."""
        tensor, element = request.tensor, request.element
        if element >= tensor.numel:
            raise PlanError(f"element {element} is outside the live shape {tensor.shape}")
        if tensor.host is not None:
            return tensor.host.reshape(-1)[element].item()
        if tensor.constant is not None and not tensor.mutable:
            return np.frombuffer(tensor.constant, tensor.dtype)[element].item()
        self._run(self._cursor, node.index)
        self._cursor = node.index
        return self._download([(tensor, tensor.shape)])[0].reshape(-1)[element].item()

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
        commands = self._prepare(start, stop)
        if commands:
            self.device.submit(commands, what=self.graph.name)

    def _finish(self, end: int) -> list[Any]:
        commands = self._prepare(self._cursor, end)
        results = iter(self._download([(value, value.shape) for value in self._output_tensors()], commands))
        return [
            next(results) if isinstance(value, Tensor) else value.value if isinstance(value, SymInt) else value
            for value in self.graph.outputs
        ]

    def _download(self, wanted: list[tuple[Tensor, tuple[int, ...]]], commands: Sequence[Command] = ()) -> list[Any]:
        copies, places, offset = [], [], 0
        for tensor, shape in wanted:
            nbytes = (_bytes_of(tensor, shape, self.graph) + 3) & ~3
            if nbytes:
                copies.append((self.buffer_of(tensor), nbytes, self._staging, offset))
            places.append(offset)
            offset += padded(nbytes)
        if offset > self._staging.size:
            self._staging = self.device.staging(offset)
            copies = [(buffer, nbytes, self._staging, target) for buffer, nbytes, _, target in copies]
        if commands or copies:
            self.device.submit(commands, copies, self.graph.name)
        data = self.device.read(self._staging, offset) if copies else b""
        return [
            _restored(data, place, tensor, shape, self.graph.limits.half)
            for place, (tensor, shape) in zip(places, wanted, strict=True)
        ]

    # Encoding

    def _prepare(self, start: int, stop: int) -> list[Command]:
        """Commands of nodes start..stop, made again only when something was planned again, and their params written."""
        cached = self._commands.get((start, stop))
        if cached is None or cached[0] != self.planner.version:
            steps = [step for node in self.graph.nodes[start:stop] for step in node.steps]
            params, offsets = self._arena_layout.lay(steps)
            if len(params) > self._arena_bytes:
                raise PlanError(
                    f"{len(steps)} steps need {len(params):,} bytes of params, {self._arena_bytes:,} are there"
                )
            commands = [self._resolve(step, offset) for step, offset in zip(steps, offsets, strict=True)]
            cached = self._commands[start, stop] = (self.planner.version, commands, params)
        _, commands, params = cached
        if params and params != self._arena_now:
            self.device.write_arena(self._arena, params)
            self._arena_now = params
        return commands

    def _resolve(self, step: Step, offset: int) -> Command:
        variant, tensors = step.variant, step.tensors
        key = (variant, *[tensor.storage for tensor in tensors])
        bound = self._bind_groups.get(key)
        if bound is None:
            buffers = [(self.buffer_of(tensor), tensor.storage.nbytes) for tensor in tensors]
            bound = self._bind_groups[key] = self.device.bind(variant, buffers, self._arena)
        pipeline = self.device.pipeline(variant)[0]
        label = f"{step.node.label}, kernel {variant.kernel.name}"
        return Command(pipeline, bound, offset if variant.kernel.param_bytes else -1, step.grid, label)

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


def _checked(position: int, value: Any, given: Any) -> Any:
    """An input as what the graph expects, or an InputError that says what was given and what is allowed."""
    if isinstance(value, SymInt):
        scalar = given.item() if hasattr(given, "item") else given
        if not isinstance(scalar, (bool, int, float)):
            raise InputError(f"input {position} ({value.name}) is a number, {type(given).__name__} was given")
        return scalar
    if not isinstance(value, Tensor):
        return given
    array = _as_array(given)
    if array.dtype != np.dtype(value.dtype):
        exact = isinstance(given, (bool, int, float, list, tuple)) and np.can_cast(
            array.dtype, value.dtype, "same_kind"
        )
        if not exact:
            raise InputError(
                f"input {position} ({value.name}) is {value.dtype}, {array.dtype} was given; "
                f"convert it with .astype('{value.dtype}')"
            )
        array = array.astype(value.dtype)
    if value.static and array.shape != value.max_shape:
        raise InputError(
            f"input {position} ({value.name}) has the fixed shape {value.max_shape}, {array.shape} was given; "
            "export with a dynamic dimension to vary it"
        )
    value.check(array.shape)
    return np.ascontiguousarray(array).reshape(array.shape)


def _as_array(given: Any) -> Any:
    """Anything with DLPack, the buffer protocol or the array interface, without a copy where that can be."""
    if isinstance(given, np.ndarray):
        return given
    if hasattr(given, "detach"):
        given = given.detach()
    if hasattr(given, "__dlpack__"):
        try:
            return np.from_dlpack(given)
        except (BufferError, RuntimeError, TypeError, AttributeError):
            pass  # bool and read-only arrays have no DLPack form in NumPy
    return np.asarray(given)


def _bytes_of(tensor: Tensor, shape: tuple[int, ...], graph: Graph) -> int:
    numel = 1
    for size in shape:
        numel *= size
    return storage_bytes(tensor.dtype, numel, graph.limits.half)


def _stored(array: Any, tensor: Tensor, half: bool) -> Any:
    """Host data as the device holds it, padded to whole words."""
    flat = array.reshape(-1)
    if flat.dtype == np.int64 and flat.size and (flat.max() > 0x7FFFFFFF or flat.min() < -0x80000000):
        raise InputError(f"{tensor.name}: 64-bit values are kept in 32 bits on the device, {flat.max()} does not fit")
    if tensor.dtype not in ("int8", "uint8"):
        flat = flat.astype(_STORED[storage_type(tensor.dtype, half)], copy=False)
    data = flat.view(np.uint8)
    return data if data.size % 4 == 0 else np.pad(data, (0, -data.size % 4))


def _stored_pieces(tensor: Tensor, half: bool) -> Iterator[Any]:
    source = np.frombuffer(tensor.constant, tensor.dtype)  # type: ignore[call-overload]
    for start in range(0, source.size, _CHUNK):
        yield _stored(source[start : start + _CHUNK], tensor, half)


def _restored(data: Any, place: int, tensor: Tensor, shape: tuple[int, ...], half: bool) -> Any:
    numel = 1
    for size in shape:
        numel *= size
    packed = tensor.dtype in ("int8", "uint8")
    stored = np.dtype(tensor.dtype) if packed else _STORED[storage_type(tensor.dtype, half)]
    if numel == 0:
        return np.empty(shape, tensor.dtype)
    flat = np.frombuffer(data, stored, numel, place)
    return flat.astype(tensor.dtype, copy=False).reshape(shape)
