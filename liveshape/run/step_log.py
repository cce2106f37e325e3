"""Lines of the debug log about an executor: its memory, its kernels, and every call with its shapes and times."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from typing import Any

from liveshape.debug_log import DEVICE, SHADERS, STEPS
from liveshape.graph import Graph, Node, Tensor
from liveshape.ops.composed import has_expression
from liveshape.plan.plan import Plan
from liveshape.plan.plan_state import PlanState


def log_memory(plan: Plan, weights: int) -> None:
    """The memory of a plan, of which so many bytes are weights."""
    if DEVICE.isEnabledFor(logging.DEBUG):
        sizes = plan.memory.blocks
        whole = sum(sizes)
        DEVICE.debug(
            "%s: %s bytes of weights, %s of activations and state, %d blocks in all",
            plan.graph.name, f"{weights:,}", f"{whole - weights:,}", len(sizes),
        )  # fmt: skip


def log_kernels(plan: Plan) -> None:
    """Which fusions pay; which nodes run each kernel, and the nodes of the file that these come from: their WGSL
    follows."""
    if SHADERS.isEnabledFor(logging.DEBUG):
        for decision in plan.graph.decisions:
            SHADERS.debug("%s", decision)
        members: dict[str, dict[int, None]] = {}
        for route in plan.routes:
            for variant, _ in route.dispatched:
                members.setdefault(variant.label, {}).update(dict.fromkeys(route.members))
        for label, indices in members.items():
            nodes = [plan.graph.nodes[index] for index in indices]
            told = "\n".join(f"  {node.label}: {node.name} {_origin(node)}" for node in nodes)
            SHADERS.debug("%s is run by\n%s", label, told)


def _origin(node: Node) -> str:
    """Its expression where it has one, and where it comes from."""
    fused = str(node.args[0]) if has_expression(node) else ""
    sources = f"from {', '.join(map(str, node.sources))}" if node.sources else ""
    return "; ".join(each for each in (fused, sources) if each)


def log_submitted(graph: Graph, live: PlanState, call: int, commands: Sequence[Any], began: float) -> None:
    """A call that was submitted, and what the host took for it."""
    if STEPS.isEnabledFor(logging.DEBUG):
        given = ", ".join(
            f"{value.name} {live.tensor(value).shape if isinstance(value, Tensor) else live.scalar(value).value}"
            for value in graph.inputs
        )
        took = 1e3 * (time.perf_counter() - began)
        STEPS.debug("%s, call %d: %s; %d commands, %.2f ms", graph.name, call, given, len(commands), took)


def log_read(graph: Graph, call: int, began: float) -> None:
    """A call whose results are on the host."""
    if STEPS.isEnabledFor(logging.DEBUG):
        STEPS.debug("%s, call %d: read after %.2f ms", graph.name, call, 1e3 * (time.perf_counter() - began))
