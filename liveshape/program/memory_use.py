"""What a plan takes on its device, by kind."""

from __future__ import annotations

from dataclasses import dataclass

from liveshape.plan.plan import Plan


@dataclass(frozen=True)
class Memory:
    """GPU memory of a method in bytes, and what its activations would take otherwise.

    Example: `print(f"{method.memory.total:,} bytes")`.
    """

    weights: int
    state: int  # caches and other tensors that outlive a call
    activations: int
    staging: int  # what results are read back through
    params: int
    unshared: int  # the activations, had each tensor memory of its own
    file_plan: int  # the activations, by the plan that the exporter wrote into the file

    @property
    def total(self) -> int:
        return self.weights + self.state + self.activations + self.staging + self.params


def memory_of(plan: Plan) -> Memory:
    """What an executor of a plan takes on its device.

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
