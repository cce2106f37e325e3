"""Command encoding: bind groups are created once, commands reused while kernels stay, uniforms updated in place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from liveshape.device.protocol import Buffer, Command, Device
from liveshape.graph import Tensor
from liveshape.kernels import Variant
from liveshape.plan.groups import LiveNode, LiveRoute, tensors_of
from liveshape.plan.plan import Plan
from liveshape.plan.plan_state import PlanState


class Encoder:
    """Encodes the commands of one plan on one device, for any live shape."""

    def __init__(self, plan: Plan, device: Device, buffer_of: Callable[[Tensor], Buffer]) -> None:
        self._plan, self._device, self._buffer_of = plan, device, buffer_of
        self._room = plan.uniform_bytes
        self.uniforms = device.uniforms(self._room)
        self._bound: dict[Any, Any] = {}
        self._kept: list[Any] = []  # old bind groups: they keep their pipelines from being compiled again
        self._of_node: dict[tuple[int, LiveRoute], list[Command]] = {}
        self._rows: dict[tuple[int, int], tuple[int, list[Command]]] = {}

    def warm(self) -> None:
        """Warm up: compile every pipeline and create every bind group ahead, so that no call waits for one."""
        graph, scratch = self._plan.graph, self._plan.scratch
        for route in self._plan.routes:
            for member in route.members:
                tensors = tensors_of(graph.nodes[member], scratch[member])
                for variant, places in route.dispatched:
                    row = tuple(tensors[place] for place in places)
                    for each in (variant, *variant.siblings):
                        self._bind(each, row)

    def forget(self) -> None:
        """Drop cached commands, when the plan state is replaced."""
        self._of_node.clear()
        self._rows.clear()

    def commands(self, live: PlanState, start: int, stop: int) -> list[Command]:
        """The commands of nodes start..stop, after uploading their changed params."""
        if len(live.arena.data) > self._room:
            self._grow(live)
        row = self._rows.get((start, stop))
        if row is None or row[0] != live.version:
            made = [command for node in live.nodes[start:stop] for command in self._commands(node)]
            row = self._rows[start, stop] = (live.version, made)
        dirty = live.arena.dirty()
        if dirty is not None:
            self._device.write(self.uniforms, *dirty)
            live.arena.mark_clean()
        return row[1]

    def _commands(self, node: LiveNode) -> list[Command]:
        route = node.group.route
        found = self._of_node.get((node.index, route))
        if found is None:
            found = []
            for step, ((variant, places), slot) in enumerate(zip(route.dispatched, route.slots, strict=True)):
                bound = self._bind(variant, tuple([node.tensors[place].tensor for place in places]))
                label = f"{node.node.label}, kernel {variant.kernel.name}"
                found.append(Command(bound, slot, label, (node.index, step)))
            self._of_node[node.index, route] = found
        return found

    def _bind(self, variant: Variant, tensors: tuple[Tensor, ...]) -> Any:
        """The bind group of a kernel variant and its tensors, created (and the pipeline compiled) at first use."""
        storages = self._plan.memory.storages
        key = (variant, *[storages[tensor].number for tensor in tensors])
        found = self._bound.get(key)
        if found is None:
            buffers = [(self._buffer_of(tensor), storages[tensor].nbytes) for tensor in tensors]
            found = self._bound[key] = self._device.bind(variant, buffers, self.uniforms)
        return found

    def _grow(self, live: PlanState) -> None:
        """Grow the uniform buffer for kernels that no trial plan met, and rebind everything."""
        room = 2 * len(live.arena.data)
        before, larger = self.uniforms, self._device.uniforms(room)
        self._kept += self._bound.values()
        # In this order: an interrupt between two lines leaves nothing bound to a buffer without params.
        self._bound.clear()
        self.forget()
        self.uniforms, self._room = larger, room
        live.arena.mark_dirty()
        self._device.free([before])

    def close(self) -> None:
        """Free the uniform buffer, and the pipelines that no other bind group uses."""
        self.forget()
        self._bound.clear()
        self._kept.clear()
        self._device.free([self.uniforms])
