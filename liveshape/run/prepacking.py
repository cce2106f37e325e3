"""Prepacking: constants in the layouts that kernels want, computed on the device once, when the weights are loaded."""

from __future__ import annotations

from collections.abc import Callable

from liveshape.device.protocol import Buffer, Command, Device
from liveshape.graph import Tensor
from liveshape.plan.params import Arena, Slot
from liveshape.plan.plan import Plan, PrepackStep


def prepack(plan: Plan, device: Device, buffer_of: Callable[[Tensor], Buffer]) -> None:
    """Run every prepack step of a plan on uploaded constants, and wait for the device.

    Example: `prepack(plan, device, lambda tensor: blocks[plan.memory.storages[tensor].block])`.
    """
    if not plan.prepack:
        return
    arena = Arena(plan.limits.uniform_alignment)
    slots = [_slot(step, arena) for step in plan.prepack]
    uniforms = device.uniforms(max(len(arena.data), plan.limits.uniform_alignment))
    try:
        dirty = arena.dirty()
        if dirty is not None:
            device.write(uniforms, *dirty)
        commands = []
        for step, slot in zip(plan.prepack, slots, strict=True):
            buffers = [(buffer_of(tensor), plan.memory.storages[tensor].nbytes) for tensor in step.tensors]
            label = f"{plan.graph.nodes[step.node].label}, kernel {step.variant.kernel.name}"
            commands.append(Command(device.bind(step.variant, buffers, uniforms), slot, label, (step.node, 0)))
        device.submit(commands, what=f"prepacking {plan.graph.name}")
        device.flush()
    finally:
        device.free([uniforms])


def _slot(step: PrepackStep, arena: Arena) -> Slot:
    slot = Slot(arena.place(len(step.params)) if step.params else -1)
    slot.grid = step.grid
    if step.params:
        arena.store(slot, step.params)
    return slot
