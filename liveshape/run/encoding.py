"""Steps as commands: params placed in one uniform arena, bind groups made once, commands kept while nothing moved."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from liveshape.device.protocol import Buffer, Command, Device, Slot
from liveshape.errors import PlanError
from liveshape.graph import Tensor
from liveshape.kernels import Variant
from liveshape.plan.planning import Planner, Step

_SLOTS_PER_NODE = 16


class Arena:
    """Places params in a uniform buffer. Equal params share a slot, and a slot stays while there is room."""

    def __init__(self, nbytes: int, alignment: int) -> None:
        self.nbytes = nbytes
        self.alignment = alignment
        self.restarts = 0  # grows when the arena was full and everything must be placed again
        self._slots: dict[bytes, int] = {}
        self._cursor = 0
        self._fresh: list[bytes] = []
        self._fresh_from = 0

    def place(self, params: bytes) -> int:
        """The offset of these params, or -1 if the arena is full and has started anew."""
        offset = self._slots.get(params)
        if offset is None:
            size = -(-len(params) // self.alignment) * self.alignment
            offset = self._cursor
            if offset + size > self.nbytes:
                self._slots.clear()
                self._fresh.clear()
                self._cursor = self._fresh_from = 0
                self.restarts += 1
                return -1
            self._slots[params] = offset
            self._fresh.append(params.ljust(size, b"\0"))
            self._cursor = offset + size
        return offset

    def take_fresh(self) -> tuple[int, bytes]:
        """What was placed since the last time: where, and the bytes to upload there."""
        start, data = self._fresh_from, b"".join(self._fresh)
        self._fresh.clear()
        self._fresh_from = self._cursor
        return start, data


class Encoder:
    """Keeps the commands of a planned graph right; only what was planned again is made again."""

    def __init__(self, planner: Planner, device: Device, buffer_of: Callable[[Tensor], Buffer]) -> None:
        self.planner = planner
        self.device = device
        self.buffer_of = buffer_of
        limits, count = planner.graph.limits, len(planner.graph.nodes)
        slot = max(limits.uniform_alignment, 256)
        self.arena = Arena(slot * max(64, _SLOTS_PER_NODE * count), limits.uniform_alignment)
        self._uniforms = device.uniforms(self.arena.nbytes)
        self._bind_groups: dict[Any, Any] = {}
        self._bound: dict[Any, Any] = {}  # by tensors, which is quicker than by what they lie in
        self._of_node: list[tuple[Any, list[Command]]] = [((), [])] * count
        self._rows: dict[tuple[int, int], tuple[int, int, list[Command]]] = {}

    def commands(self, start: int, stop: int) -> list[Command]:
        """The commands of nodes start..stop, with their params on the device."""
        version, row = self.planner.version, self._rows.get((start, stop))
        if row is None or row[:2] != (version, self.arena.restarts):
            made = self._make(start, stop)
            if made is None:  # the arena was full of params that nobody uses any more
                made = self._make(start, stop)
            if made is None:
                raise PlanError(
                    f"the params of nodes {start} to {stop} exceed the {self.arena.nbytes:,} bytes for them"
                )
            row = self._rows[start, stop] = (version, self.arena.restarts, made)
            offset, fresh = self.arena.take_fresh()
            if fresh:
                self.device.write(self._uniforms, offset, fresh)
        return row[2]

    def _make(self, start: int, stop: int) -> list[Command] | None:
        restarts, of_node = self.arena.restarts, self._of_node
        result: list[Command] = []
        for node in self.planner.graph.nodes[start:stop]:
            steps = node.steps
            if not steps:
                continue
            known, commands = of_node[node.index]
            if known is not steps:
                commands = [self.resolve(step) for step in steps]
                if self.arena.restarts != restarts:
                    self._of_node = [((), [])] * len(of_node)
                    return None
                of_node[node.index] = (steps, commands)
            result += commands
        return result

    def resolve(self, step: Step) -> Command:
        """The command of one step."""
        key = step.variant, step.tensors
        bound = self._bound.get(key)
        if bound is None:
            bound = self._bound[key] = self.bound(*key)
        params = step.params
        label = f"{step.node.label}, kernel {step.variant.kernel.name}"
        return Command(bound, Slot(step.grid, self.arena.place(params) if params else -1), label)

    def bound(self, variant: Variant, tensors: tuple[Tensor, ...]) -> Any:
        """A kernel with its tensors; the bind group and the pipeline are made at the first use."""
        key = (variant, *[tensor.storage for tensor in tensors])
        found = self._bind_groups.get(key)
        if found is None:
            buffers = [(self.buffer_of(tensor), tensor.storage.nbytes) for tensor in tensors]
            found = self._bind_groups[key] = self.device.bind(variant, buffers, self._uniforms)
        return found
