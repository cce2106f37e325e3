"""Command encoding: bind groups are created once, commands reused while kernels stay, uniforms updated in place."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from liveshape.device.protocol import Buffer, Command, Device
from liveshape.errors import DeviceError
from liveshape.graph import Tensor
from liveshape.kernels import Variant
from liveshape.plan.groups import LiveNode, LiveRoute, tensors_of
from liveshape.plan.plan import Plan
from liveshape.plan.plan_state import PlanState


class Encoder:
    """Encodes the commands of one plan on one device, for any live shape."""

    def __init__(self, plan: Plan, device: Device, buffer_of: Callable[[Tensor], Buffer]) -> None:
        self._plan, self._device, self._buffer_of = plan, device, buffer_of
        self._uniform_capacity = plan.uniform_bytes
        self.uniforms = device.uniforms(self._uniform_capacity)
        self._bind_groups: dict[Any, Any] = {}
        self._old_bind_groups: list[Any] = []  # they keep their pipelines from being compiled again
        self._node_commands: dict[tuple[int, LiveRoute], list[Command]] = {}
        self._range_commands: dict[tuple[int, int], tuple[int, list[Command]]] = {}

    def warm(self) -> None:
        """Warm up: compile every pipeline and create every bind group ahead, so that no call waits for one."""
        graph, scratch = self._plan.graph, self._plan.scratch
        for route in self._plan.routes:
            for member in route.members:
                tensors = tensors_of(graph.nodes[member], scratch[member])
                for variant, places in route.dispatched:
                    row = tuple(tensors[place] for place in places)
                    for each in (variant, *variant.siblings):
                        self._bind(each, row, graph.nodes[member].label)

    def drop_commands(self) -> None:
        """Drop cached commands, when the plan state is replaced."""
        self._node_commands.clear()
        self._range_commands.clear()

    def commands(self, live: PlanState, start: int, stop: int) -> list[Command]:
        """The commands of nodes start..stop, after uploading their changed params."""
        if len(live.arena.data) > self._uniform_capacity:
            self._grow(live)
        row = self._range_commands.get((start, stop))
        if row is None or row[0] != live.version:
            made = [command for node in live.nodes[start:stop] for command in self._commands(node)]
            row = self._range_commands[start, stop] = (live.version, made)
        dirty = live.arena.dirty()
        if dirty is not None:
            self._device.write(self.uniforms, *dirty)
            live.arena.mark_clean()
        return row[1]

    def _commands(self, node: LiveNode) -> list[Command]:
        route = node.group.route
        found = self._node_commands.get((node.index, route))
        if found is None:
            found = []
            for step, ((variant, places), slot) in enumerate(zip(route.dispatched, route.slots, strict=True)):
                bound = self._bind(variant, tuple([node.tensors[place].tensor for place in places]), node.node.label)
                label = f"{node.node.label}, kernel {variant.kernel.name}"
                found.append(Command(bound, slot, label, (node.index, step)))
            self._node_commands[node.index, route] = found
        return found

    def _bind(self, variant: Variant, tensors: tuple[Tensor, ...], node: str) -> Any:
        """The bind group of a kernel variant and its tensors, created (and the pipeline compiled) at first use."""
        storages = self._plan.memory.storages
        key = (variant, *[storages[tensor].number for tensor in tensors])
        found = self._bind_groups.get(key)
        if found is None:
            buffers = [(self._buffer_of(tensor), storages[tensor].nbytes) for tensor in tensors]
            found = self._bind_groups[key] = bind_named(self._device, node, variant, buffers, self.uniforms)
        return found

    def _grow(self, live: PlanState) -> None:
        """Grow the uniform buffer for kernels that no trial plan met, and rebind everything."""
        capacity = 2 * len(live.arena.data)
        before, larger = self.uniforms, self._device.uniforms(capacity)
        self._old_bind_groups += self._bind_groups.values()
        # In this order: an interrupt between two lines leaves nothing bound to a buffer without params.
        self._bind_groups.clear()
        self.drop_commands()
        self.uniforms, self._uniform_capacity = larger, capacity
        live.arena.mark_dirty()
        self._device.free([before])

    def close(self) -> None:
        """Free the uniform buffer, and the pipelines that no other bind group uses."""
        self.drop_commands()
        self._bind_groups.clear()
        self._old_bind_groups.clear()
        self._device.free([self.uniforms])


def bind_named(
    device: Device, node: str, variant: Variant, buffers: Sequence[tuple[Buffer, int]], uniforms: Buffer
) -> Any:
    """The bind group of a kernel variant; errors name the node that asks for it.

    Example: `bind_named(device, "aten.add.Tensor (node 3)", variant, [(buffer, 64)], uniforms)`.
    """
    try:
        return device.bind(variant, buffers, uniforms)
    except DeviceError as error:
        raise DeviceError(f"{node}: {error}") from error
