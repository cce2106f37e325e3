"""Prepacking: constants in the layouts that kernels want, computed on the device once, when the weights are loaded.

Constants that are read by nothing else are on the device for as long as that takes, a few at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from liveshape.device.protocol import Buffer, Command, Device
from liveshape.graph import Tensor
from liveshape.graph.elements import padded, prod, storage_bytes
from liveshape.plan.params import Arena, Slot
from liveshape.plan.plan import Plan, PrepackStep
from liveshape.run.encoding import bind_named

_AT_ONCE = 256 << 20  # bytes of constants that leave the device again


def prepack(
    plan: Plan,
    device: Device,
    buffer_of: Callable[[Tensor], Buffer],
    upload: Callable[[Device, Buffer, Tensor, bool], None],
) -> None:
    """Run every prepack step of a plan on uploaded constants, and wait for the device.

    Example: `prepack(plan, device, lambda tensor: blocks[plan.memory.storages[tensor].block], upload)`.
    """
    for steps in _batches(plan):
        _run(plan, device, steps, buffer_of, upload)


def _batches(plan: Plan) -> Iterator[list[PrepackStep]]:
    """The steps in order, as many at once as constants that leave the device again allow."""
    steps: list[PrepackStep] = []
    room = _AT_ONCE
    for step in plan.prepack:
        nbytes = sum(_bytes_of(plan, tensor) for tensor in step.tensors if tensor not in plan.memory.storages)
        if steps and nbytes > room:
            yield steps
            steps, room = [], _AT_ONCE
        steps.append(step)
        room -= nbytes
    if steps:
        yield steps


def _bytes_of(plan: Plan, tensor: Tensor) -> int:
    storage = plan.memory.storages.get(tensor)
    if storage is not None:
        return storage.nbytes
    return padded(storage_bytes(tensor.dtype, prod(tensor.max_shape), plan.limits.half))


def _run(
    plan: Plan,
    device: Device,
    steps: list[PrepackStep],
    buffer_of: Callable[[Tensor], Buffer],
    upload: Callable[[Device, Buffer, Tensor, bool], None],
) -> None:
    arena = Arena(plan.limits.uniform_alignment)
    slots = [_slot(step, arena) for step in steps]
    uniforms = device.uniforms(max(len(arena.data), plan.limits.uniform_alignment))
    left: dict[Tensor, Buffer] = {}
    try:
        for tensor in dict.fromkeys(tensor for step in steps for tensor in step.tensors):
            if tensor not in plan.memory.storages:
                left[tensor] = device.buffer(_bytes_of(plan, tensor), f"{plan.graph.name} {tensor.name}")
                upload(device, left[tensor], tensor, plan.limits.half)
        dirty = arena.dirty()
        if dirty is not None:
            device.write(uniforms, *dirty)
        commands = []
        for step, slot in zip(steps, slots, strict=True):
            buffers = [
                (left[tensor] if tensor in left else buffer_of(tensor), _bytes_of(plan, tensor))
                for tensor in step.tensors
            ]
            node = plan.graph.nodes[step.node].label
            group = bind_named(device, node, step.variant, buffers, uniforms)
            commands.append(Command(group, slot, f"{node}, kernel {step.variant.kernel.name}", (step.node, 0)))
        device.submit(commands, what=f"prepacking {plan.graph.name}")
        device.flush()
    finally:
        device.free([uniforms, *left.values()])


def _slot(step: PrepackStep, arena: Arena) -> Slot:
    slot = Slot(arena.place(len(step.params)) if step.params else -1)
    slot.grid = step.grid
    if step.params:
        arena.store(slot, step.params)
    return slot
