"""A call in flight: its outputs on the host, or left on the device."""

from __future__ import annotations

from typing import Any, Protocol

from liveshape.device.protocol import Buffer, Device, InputCopy
from liveshape.errors import InputError
from liveshape.graph import Graph, Tensor
from liveshape.graph.elements import padded, prod, storage_bytes
from liveshape.plan.plan import Plan
from liveshape.plan.plan_state import PlanState
from liveshape.run.results import DeviceTensor, ResidentOutput, Transfer
from liveshape.run.step_log import log_read


class Caller(Protocol):
    """The executor of a call, as far as its results need it."""

    graph: Graph
    plan: Plan
    device: Device
    live: PlanState
    calls: int
    began: float

    def buffer_of(self, tensor: Tensor) -> Buffer:
        """The device buffer of a tensor."""


class Pending:
    """A call in flight."""

    def __init__(self, executor: Caller, transfer: Transfer, chosen: list[int], scalars: dict[int, Any]) -> None:
        self._executor, self._transfer, self._chosen, self._scalars = executor, transfer, chosen, scalars
        self._call, self._began = executor.calls, executor.began
        self._shapes = {
            place: executor.live.tensor(tensor).shape
            for place in executor.plan.choices.resident
            if isinstance(tensor := executor.graph.outputs[place], Tensor)
        }

    def result(self) -> list[Any]:
        """Wait for the wanted outputs, as arrays and scalars."""
        return self._outputs(self._transfer.wait())

    async def result_async(self) -> list[Any]:
        """Async `result`: the event loop runs while the device works."""
        return self._outputs(await self._transfer.wait_async())

    def _outputs(self, arrays: list[Any]) -> list[Any]:
        log_read(self._executor.graph, self._call, self._began)
        outputs, found = self._executor.graph.outputs, iter(arrays)
        return [
            next(found) if isinstance(outputs[place], Tensor) else self._scalars.get(place, outputs[place])
            for place in self._chosen
        ]

    def kept(self) -> list[Any]:
        """All outputs, in device memory of their own, which later calls leave as it is; numbers as they are."""
        executor = self._executor
        device, half = executor.device, executor.plan.limits.half
        found: list[Any] = []
        copies: list[InputCopy] = []
        for place, value in enumerate(executor.graph.outputs):
            if not isinstance(value, Tensor):
                found.append(self._scalars.get(place, value))
                continue
            shape = executor.live.tensor(value).shape
            nbytes = padded(storage_bytes(value.dtype, prod(shape), half))
            buffer = device.buffer(nbytes, f"{value.name} of {executor.graph.name}")
            found.append(DeviceTensor(value, shape, buffer, device, half))
            if nbytes := found[-1].nbytes:
                copies.append((executor.buffer_of(value), (nbytes + 3) & ~3, buffer))
        device.submit((), (), executor.graph.name, copies)
        return found

    @property
    def is_latest(self) -> bool:
        """Whether the graph has not run again, so that its outputs are still valid on the device."""
        return self._executor.calls == self._call

    def on_device(self, position: int) -> ResidentOutput:
        """An output as a device tensor, without readback: valid as an input until the graph runs again."""
        executor, call = self._executor, self._call
        tensor = executor.graph.outputs[position]
        if not isinstance(tensor, Tensor):
            raise InputError(f"output {position} is a number, not a tensor")
        if position not in self._shapes:
            raise InputError(
                f"output {position} is not kept on the device: compile the plan with resident=({position},)"
            )
        half, shape = executor.plan.limits.half, self._shapes[position]
        return ResidentOutput(
            tensor, shape, executor.buffer_of(tensor), executor.device, half, lambda: executor.calls == call
        )
