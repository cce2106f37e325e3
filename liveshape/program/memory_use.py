"""GPU memory usage of a plan, by kind."""

from __future__ import annotations

from dataclasses import dataclass

from liveshape.plan.plan import Plan


@dataclass(frozen=True)
class Memory:
    """GPU memory of a method in bytes, and its activations without memory planning, for comparison.

    Example: `print(f"{method.memory.total:,} bytes")`.
    """

    weights: int
    state: int  # KV caches and other tensors that persist between calls
    activations: int
    staging: int  # readback buffers
    params: int
    unshared: int  # activations without buffer sharing
    file_plan: int  # activations by the exporter's memory plan

    @property
    def total(self) -> int:
        return self.weights + self.state + self.activations + self.staging + self.params


def memory_of(plan: Plan) -> Memory:
    """GPU memory that an executor of a plan allocates.

    Example: `memory_of(compile(graph, limits)).weights`.
    """
    memory = plan.memory
    return Memory(
        weights=memory.persistent_bytes - plan.state_bytes,
        state=plan.state_bytes,
        activations=memory.activation_bytes,
        staging=plan.choices.transfers * plan.staging_bytes,
        params=plan.uniform_bytes,
        unshared=memory.unshared_bytes,
        file_plan=plan.graph.planned_bytes(plan.limits.half),
    )
