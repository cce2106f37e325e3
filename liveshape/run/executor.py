"""The executor: runs one plan on one device (upload, plan, encode, submit, read back). All memory is allocated once.

A call that is interrupted, by an error or by Ctrl-C between any two lines, leaves no trace: the plan state is discarded
and rebuilt from the plan before the next call.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import replace
from typing import Any

from liveshape.device.protocol import Buffer, CompilesAhead, Device, InputCopy
from liveshape.errors import InputError, PlanError, counted
from liveshape.graph import Node, Shape, SymInt, Tensor
from liveshape.graph.elements import prod, storage_bytes, stored_alike
from liveshape.kernels.requests import CallCount, OnHost, Read, Request
from liveshape.plan.plan import Plan
from liveshape.plan.plan_state import PlanState
from liveshape.progress import Progress
from liveshape.run.arrays import Stored, as_array, check_shape, checked, stored, stored_pieces
from liveshape.run.encoding import Encoder
from liveshape.run.host import computed, tensors_in
from liveshape.run.legal import CallCheck
from liveshape.run.pending import Pending
from liveshape.run.results import DeviceTensor, ResidentOutput, Staging
from liveshape.run.step_log import log_kernels, log_memory, log_submitted
from liveshape.run.upload import stream
from liveshape.run.weights import Weights, upload


class Executor:
    """Runs a plan at any live shape within its bound.

    Example: `Executor(compile(graph, device.limits), device).execute([x])`.
    """

    def __init__(
        self,
        plan: Plan,
        device: Device,
        *,
        weights: Weights | None = None,  # shared with another executor of this plan on this device
        progress: Progress | None = None,
        check: CallCheck | None = None,  # validates inputs by the signature; None for trusted callers
    ) -> None:
        self.plan, self.graph, self.device = plan, plan.graph, device
        self._check = check
        self._names = [f"input {place}" for place in range(len(plan.graph.inputs))] if check is None else check.names
        self.calls = 0
        self._stateless = plan.state_bytes == 0
        self._closed = False
        self._own: dict[int, Buffer] = {}
        self._held = ExitStack()  # resources that `close` frees
        try:
            # While weights are uploaded, too, some of which kernels pack.
            with self._compiling_ahead():
                self._load(weights, progress)
        except BaseException:
            self.close()
            raise

    def _compiling_ahead(self) -> AbstractContextManager[None]:
        if not isinstance(self.device, CompilesAhead):
            return nullcontext()
        return self.device.compiling_ahead(self.plan.kernels, {step.variant for step in self.plan.prepack})

    def _load(self, weights: Weights | None, progress: Progress | None) -> None:
        plan, device = self.plan, self.device
        self._weights = weights or Weights(plan, device, progress)
        if weights is None:
            self._held.callback(self._weights.close)
        self._held.callback(self._free_blocks)
        self._allocate()
        self.encoder = Encoder(plan, device, self.buffer_of)
        self._held.callback(self.encoder.close)
        self._staging = Staging(device, plan.limits.half, plan.staging_bytes, plan.choices.transfers)
        self._held.callback(self._staging.free)
        self._reset()
        log_kernels(plan)
        self.encoder.warm()
        log_memory(plan, sum(plan.memory.blocks[block] for block in self._weights.blocks))

    def _allocate(self) -> None:
        graph, storages = self.graph, self.plan.memory.storages
        for block, nbytes in enumerate(self.plan.memory.blocks):
            if block not in self._weights.blocks:
                self._own[block] = self.device.buffer(nbytes, f"{graph.name} block {block}")
        for tensor in graph.tensors:
            if tensor.constant is not None and tensor in storages and storages[tensor].block in self._own:
                upload(self.device, self.buffer_of(tensor), tensor, self.plan.limits.half)
        self.device.flush()

    def _reset(self) -> None:
        """Reset all mutable state, as before the first call."""
        self.live = PlanState(self.plan)
        self.encoder.drop_commands()
        self._host_inputs: dict[Tensor, Any] = {}  # the caller's arrays, while a call runs
        self._input_copies: list[InputCopy] = []
        self._cursor = 0  # first node that is not submitted yet
        self._submitted = False  # whether this loop iteration submitted anything
        self._completed = False  # whether a call has completed since
        self._consistent = True  # whether no call was interrupted since

    def restart(self) -> None:
        """Set all state back to what it was before the first call: plans, and every tensor that calls change."""
        self.ready()
        self._reset()
        self.clear_state()

    def clear_state(self) -> None:
        """Set every tensor that calls change back to what it was before the first call; plans stay."""
        self.ready()
        for tensor in self.graph.persistent:
            if tensor in self.plan.memory.storages and self.plan.memory.storages[tensor].block in self._own:
                buffer = self.buffer_of(tensor)
                if tensor.constant is None:
                    self.device.write(buffer, 0, bytes(buffer.nbytes))
                else:
                    stream(self.device, buffer, stored_pieces(tensor, self.plan.limits.half))

    def _bytes(self, tensor: Tensor, shape: Shape) -> int:
        return storage_bytes(tensor.dtype, prod(shape), self.plan.limits.half)

    def buffer_of(self, tensor: Tensor) -> Buffer:
        """The device buffer of a tensor."""
        storage = self.plan.memory.storages.get(tensor)
        if storage is None:
            raise PlanError(f"{tensor.name} has no memory: nothing in {self.graph.name} uses it")
        own = self._own.get(storage.block)
        return self._weights.blocks[storage.block] if own is None else own

    # One call

    def execute(self, inputs: Sequence[Any]) -> list[Any]:
        """Run once and wait; arrays in, arrays out, at their live shapes."""
        return self.start(inputs).result()

    def start(self, inputs: Sequence[Any], wanted: Sequence[int] | None = None) -> Pending:
        """Submit a call without waiting. `wanted` are the outputs to read back, all by default."""
        self.ready()
        # Validate all, then commit: a refused call changes nothing.
        copies, given = self._validated(inputs)
        self._begin()
        self._set_inputs(copies, given)
        live, end = self.live, len(self.graph.nodes)
        live.begin()
        self._submitted = False
        index = self._cursor = 0
        iterations: dict[int, Any] = {}
        while index < end:
            stop = next((control for control in self.graph.controls if control >= index), end)
            live.walk(index, stop, self._handle_request)
            index = stop if stop == end else self._jump(self.graph.nodes[stop], iterations)
        if self._check is not None:
            self._check.results(live)
        return self._finish(end, wanted)

    def resume(self, start: int, wanted: Sequence[int] | None = None) -> Pending:
        """Run the nodes from `start` on again, on the tensors of the previous call."""
        if start not in self.plan.choices.resume:
            raise PlanError(f"node {start} is no point to resume at; the plan has {list(self.plan.choices.resume)}")
        self.ready()
        if not self.has_results:
            raise PlanError(f"{self.graph.name} cannot be resumed: the call before did not end; run it again")
        self._begin()
        self._cursor = start
        self.live.walk(start, len(self.graph.nodes), self._handle_request)
        return self._finish(len(self.graph.nodes), wanted)

    def set_scalar(self, symint: SymInt, value: Any) -> None:
        """Set a live scalar that is no input, such as a sampling parameter."""
        self.ready()
        # An interrupt in between may leave a new scalar and nodes planned for the old one.
        self._consistent = False
        self.live.set(symint, value)
        self._consistent = True

    @property
    def has_results(self) -> bool:
        """Whether the last call completed, so that its results are in device memory at the live shapes."""
        return self._consistent and self._completed

    def _begin(self) -> None:
        self._consistent = False
        self.began = time.perf_counter()
        # Before anything is submitted: from then on the previous call's results may be overwritten.
        self.calls += 1

    def ready(self) -> None:
        """Discard the state of an interrupted call; InputError if closed."""
        if self._closed:
            raise InputError(f"{self.graph.name} was closed: its memory was given back; load it again")
        if not self._consistent:
            self._reset()

    def _validated(self, inputs: Sequence[Any]) -> tuple[list[tuple[Tensor, DeviceTensor]], list[tuple[Any, Any, Any]]]:
        graph = self.graph
        if isinstance(inputs, (str, bytes, Mapping)) or not isinstance(inputs, Sequence):
            kind = type(inputs).__name__
            raise InputError(
                f"{graph.name} takes a list of {counted(len(graph.inputs), 'input')}, {kind} was given; put them in []"
            )
        if len(inputs) != len(graph.inputs):
            raise InputError(f"{graph.name} takes {counted(len(graph.inputs), 'input')}, {len(inputs)} given")
        storages = self.plan.memory.storages
        copies: list[tuple[Tensor, DeviceTensor]] = []
        given: list[tuple[Any, Any, Any]] = []
        for place, (value, array) in enumerate(zip(graph.inputs, inputs, strict=True)):
            if type(array) is Stored:
                check_shape(value, array.host.shape)
                given.append((value, *array))
            elif isinstance(array, DeviceTensor) and isinstance(value, Tensor):
                self._check_device_tensor(value, array)
                if value in self.plan.index_limits and not isinstance(array, ResidentOutput):
                    # Rows of a table are checked, and only the host can: those that a graph of ours sampled are legal.
                    host = checked(value, array.numpy(), self.plan.index_limits[value], self._names[place])
                    given.append((value, host, stored(host, value, self.plan.limits.half)))
                elif value in storages or not graph.consumers[value]:
                    copies.append((value, array))
                else:  # only the host reads it
                    given.append((value, array.numpy(), None))
            else:
                host = checked(value, array, self.plan.index_limits.get(value), self._names[place])
                data = stored(host, value, self.plan.limits.half) if isinstance(value, Tensor) else None
                given.append((value, host, data))
        if self._check is not None:
            found = [host.shape if isinstance(value, Tensor) else host for value, host, _ in given]
            if copies:
                others, resident = iter(found), dict(copies)
                found = [resident[value].shape if value in resident else next(others) for value in graph.inputs]
            self._check.inputs(found)
        return copies, given

    def prepared(self, value: Tensor, elements: Any) -> Stored:
        """Validate and convert a 1-d input once; slices of the result are inputs whose values are not checked again.

        Example: `executor.start([tokens, executor.prepared(position, np.arange(2048)).rows(7, 8)])`.
        """
        host = checked(replace(value, max_shape=elements.shape), elements, self.plan.index_limits.get(value))
        return Stored(host, stored(host, value, self.plan.limits.half).reshape(len(host), -1))

    def _set_inputs(self, copies: list[tuple[Tensor, DeviceTensor]], given: list[tuple[Any, Any, Any]]) -> None:
        live, storages = self.live, self.plan.memory.storages
        self._host_inputs = {}
        self._input_copies = [
            (array.buffer, (array.nbytes + 3) & ~3, self.buffer_of(value))
            for value, array in copies
            if value in storages and array.nbytes
        ]
        for value, array in copies:
            live.set(value, array.shape)
        for value, host, data in given:
            if isinstance(value, Tensor):
                live.set(value, host.shape)
                self._host_inputs[value] = host
                if host.size and value in storages:  # an input that no kernel reads has no buffer
                    self.device.write(self.buffer_of(value), 0, data)
            elif isinstance(value, SymInt):
                live.set(value, host)

    def _check_device_tensor(self, value: Tensor, given: DeviceTensor) -> None:
        given.check()
        if given.device is not self.device:
            raise InputError(
                f"{value.name} lies on another device, {_device_text(given.device)}, and {self.graph.name} runs on "
                f"{_device_text(self.device)}; give its .numpy(), or load both models on one device"
            )
        if not stored_alike(given.dtype, value.dtype, self.plan.limits.half):
            raise InputError(f"{value.name} is {value.dtype}, {given.dtype} was given")
        check_shape(value, given.shape)

    def _handle_request(self, node: Node, request: Request) -> Any:
        if isinstance(request, CallCount):
            return self.calls
        return self._read(node, request) if isinstance(request, Read) else self._on_host(node, request)

    def _read(self, node: Node, request: Read) -> Any:
        """Data-dependent read of one element: from the host's copy if there is one, else after running up to the node.

        A tensor that no node writes and no input provides is scratch memory of the node, filled by its steps so far.
        """
        tensor, element, shape = request.tensor.tensor, request.element, request.tensor.shape
        if element >= prod(shape):
            raise PlanError(f"element {element} is outside the live shape {shape}")
        own = tensor not in self.graph.writers
        known = None if own else self._host_copy(tensor)
        if known is not None:
            return known.reshape(-1)[element].item()
        self._run(self._cursor, node.index + own)
        self._cursor = node.index
        return self._fetch(tensor, element, (1,))[0].item()

    def _host_copy(self, tensor: Tensor) -> Any:
        """The host's copy of a tensor, if any: an input or a constant that no node writes."""
        if self.graph.writers[tensor]:
            return None
        if tensor.constant is not None:
            return as_array(tensor)
        return self._host_inputs.get(tensor)

    def _on_host(self, node: Node, request: OnHost) -> list[Any]:
        """Host fallback: run the graph up to a node, compute it on the host, upload its results and go on."""
        arrays = {live: self._host_copy(live.tensor) for live in tensors_in(request.arguments)}
        wanted = [live for live, array in arrays.items() if array is None]
        rows = [(live.tensor, live.shape, self.buffer_of(live.tensor)) for live in wanted]
        commands = self.encoder.commands(self.live, self._cursor, node.index)
        transfer = self._staging.start(commands, rows, self.graph.name, self._take_input_copies(), self._stateless)
        self._cursor = node.index
        arrays.update(zip(wanted, transfer.wait(), strict=True))
        results = computed(request, arrays, self.plan.limits.half)
        for live, data in results.data:
            self.device.write(self.buffer_of(live.tensor), 0, data)
        self._submitted = True
        return results.found

    def fetch(self, tensor: Tensor, start: int = 0, shape: Shape | None = None) -> Any:
        """Read back a tensor: its live elements, or those of `shape` from element `start` on."""
        self.ready()
        return self._fetch(tensor, start, self.live.tensor(tensor).shape if shape is None else shape)

    def _fetch(self, tensor: Tensor, start: int, shape: Shape) -> Any:
        begin = self._bytes(tensor, (start,))
        place = begin & ~3  # buffer copies are 4-byte aligned
        nbytes = (begin + self._bytes(tensor, shape) - place + 3) & ~3
        copies = [(self.buffer_of(tensor), place, nbytes, 0)] if nbytes else []
        rows = [(begin - place, tensor, shape)]
        return self._staging.submit((), copies, nbytes, rows, self.graph.name, self._take_input_copies()).wait()[0]

    def _take_input_copies(self) -> list[InputCopy]:
        copies, self._input_copies = self._input_copies, []
        return copies

    def _jump(self, node: Node, iterations: dict[int, Any]) -> int:
        """Execute a conditional jump: the condition is a live scalar or one element on the device."""
        condition, target, _ = node.args
        if isinstance(condition, Tensor):
            condition = self._read(node, Read(self.live.tensor(condition), 0))
        elif isinstance(condition, SymInt):
            condition = self.live.scalar(condition).value
        self._run(self._cursor, node.index)
        self._cursor = node.index + 1 if condition else int(target)
        if self._cursor <= node.index:
            # An iteration that read no data and changed no scalar and no shape would repeat for ever.
            now = None if self._submitted and self._depends_on_data(node) else self._loop_state()
            self._submitted = False
            if now is not None and iterations.get(node.index) == now:
                raise PlanError(f"{node.label}: the loop back to node {target} makes no progress and would never end")
            iterations[node.index] = now
        return self._cursor

    def _depends_on_data(self, jump: Node) -> bool:
        """Whether the exit of a loop may depend on tensor data."""
        target = int(jump.args[1])
        nodes = [*self.graph.data_nodes, *self.graph.controls]
        return any(
            self.graph.nodes[index].host or isinstance(self.graph.nodes[index].args[0], Tensor)
            for index in nodes
            if target <= index <= jump.index
        )

    def _loop_state(self) -> tuple[Any, ...]:
        """Scalars and shapes: all that planning depends on besides data, for comparison."""
        return self.live.scalars(), [self.live.tensor(tensor).shape for tensor in self.graph.tensors]

    def _run(self, start: int, stop: int) -> None:
        commands = self.encoder.commands(self.live, start, stop)
        if commands:
            self.device.submit(commands, (), self.graph.name, self._take_input_copies(), self._stateless)
            self._submitted = True

    def _finish(self, end: int, wanted: Sequence[int] | None) -> Pending:
        commands = self.encoder.commands(self.live, self._cursor, end)
        outputs, live = self.graph.outputs, self.live
        chosen = range(len(outputs)) if wanted is None else wanted
        tensors = [outputs[place] for place in chosen if isinstance(outputs[place], Tensor)]
        rows = [(tensor, live.tensor(tensor).shape, self.buffer_of(tensor)) for tensor in tensors]
        transfer = self._staging.start(commands, rows, self.graph.name, self._take_input_copies(), self._stateless)
        self._host_inputs = {}
        scalars = {place: live.scalar(value).value for place, value in enumerate(outputs) if isinstance(value, SymInt)}
        pending = Pending(self, transfer, list(chosen), scalars)
        log_submitted(self.graph, live, self.calls, commands, self.began)
        self._completed = self._consistent = True
        return pending

    # Tests and state

    def poison(self) -> None:
        """Fill every shared buffer with NaN (-1 for integers), so that reads past the live range show."""
        persistent = {storage.block for storage in self.plan.memory.storages.values() if storage.persistent}
        for block, buffer in self._own.items():
            if block not in persistent:
                self.device.write(buffer, 0, b"\xff" * buffer.nbytes)

    def state(self, tensor: Tensor) -> Any:
        """Read back a tensor that persists between calls, such as a KV cache."""
        return self.fetch(tensor, 0, tensor.max_shape)

    def close(self) -> None:
        """Free all device memory, except shared weights."""
        self._closed = True
        self._held.close()

    def _free_blocks(self) -> None:
        blocks, self._own = list(self._own.values()), {}
        self.device.free(blocks)


def _device_text(device: Device) -> str:
    return f"{device.name} ({device.adapter.library}, {device.adapter.backend})"
