"""What a model needs of an adapter to run many sequences: memory, and the traffic of a decode step. No device is asked.

Of a step every weight counts once, whoever's rows multiply it, activations count as they are written and read, and of
the KV cache the rows that each sequence sees.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

from liveshape.device.protocol import Adapter, Device
from liveshape.errors import InputError
from liveshape.graph import Limits, Node, Tensor
from liveshape.graph.activation_kinds import AUTO
from liveshape.graph.elements import prod, storage_bytes
from liveshape.llm.batch.loading import batched_program, bounds_of
from liveshape.llm.program.batch_graph import BatchGraph, batch_graph, pools_of
from liveshape.llm.program.batched_graph import BatchTables, batched
from liveshape.llm.program.context import checked_context
from liveshape.llm.program.half_cache import halve_caches
from liveshape.llm.program.token_graph import (
    CONTEXT,
    TOKEN,
    Description,
    at_positions,
    constants_of,
    describe,
    signature,
)
from liveshape.lower.activations import with_activations
from liveshape.lower.fusion import fuse
from liveshape.ops.batch_inputs import packed_size
from liveshape.ops.paged_attention import paged_attention
from liveshape.plan.compiling import compile
from liveshape.plan.cost import Cost, costs
from liveshape.plan.plan import Choices
from liveshape.plan.plan_state import PlanState
from liveshape.program.compile_target import CompileTarget
from liveshape.program.files import program_file
from liveshape.program.memory_use import memory_of
from liveshape.program.program import load_program
from liveshape.run.half_scales import fit_halves
from liveshape.tools.measuring.random_llamas import Llama, shape_of


@dataclass(frozen=True)
class DecodeStep:
    """The traffic and the operations of a step that decodes a token of each sequence."""

    sequences: int
    nbytes: int  # of weights and activations
    cache_bytes: int  # of the KV cache
    operations: int

    def tokens_per_second(self, bandwidth: float) -> float:
        """At most, of all sequences together, at so many bytes a second.

        >>> DecodeStep(8, nbytes=3_000, cache_bytes=1_000, operations=0).tokens_per_second(1e6)
        2000.0
        """
        return self.sequences * bandwidth / (self.nbytes + self.cache_bytes)


class Capacity:
    """A model planned for many sequences on a device with these limits.

    Example: `capacity_of("model-folder", device, sequences=64).step(64, context=1024).nbytes`.
    """

    def __init__(self, made: BatchGraph, limits: Limits) -> None:
        self._made, self._limits = made, limits
        self.bounds = made.bounds
        self._pools = pools_of(made.graph)
        self._plan = compile(made.graph, limits, Choices(ready=(TOKEN,), warm=False))
        self.memory = memory_of(self._plan)  # its state is the pool and what is kept for each of its rows

    @property
    def page_bytes(self) -> int:
        """Of one page, with the keys and values of all layers."""
        return self.bounds.page_size * sum(self._row(pool) for pool in self._pools)

    def sequence_bytes(self, tokens: int) -> int:
        """Of the pages of one sequence."""
        return -(-tokens // self.bounds.page_size) * self.page_bytes

    @property
    def fixed_bytes(self) -> int:
        """What does not depend on how many sequences there are: weights, activations, staging, params."""
        return self.memory.total - self.memory.state

    def fitting(self, memory: int, tokens: int) -> int:
        """How many sequences of so many tokens fit in a memory, beside what is fixed."""
        return max(memory - self.fixed_bytes, 0) // self.sequence_bytes(tokens)

    def step(self, sequences: int, context: int) -> DecodeStep:
        """A step that decodes a token of each of so many sequences, each with `context` tokens in the cache."""
        most = min(self.bounds.rows, self.bounds.sequences)
        if not 1 <= sequences <= most:
            raise InputError(f"{sequences} sequences: a step of this model has 1 to {most} rows")
        if not 1 <= context <= self.bounds.context:
            raise InputError(f"a context of {context:,} tokens: this model has up to {self.bounds.context:,}")
        live = self._live(sequences, context)
        pools = [live.tensor(pool) for pool in self._pools]
        half = self._limits.half
        found = sum((cost for node in live.nodes for cost in costs(node, half, pools)), Cost())
        seen = sum(self._seen(node, context) for node in self._made.graph.nodes if node.run is paged_attention)
        written = sum(self._row(pool) for pool in self._pools)
        return DecodeStep(sequences, found.nbytes, sequences * (seen + written), found.operations)

    def _live(self, sequences: int, context: int) -> PlanState:
        made, live = self._made, PlanState(self._plan)
        sizes = (sequences, sequences, sequences, sequences, self.bounds.pages_of_sequence)
        scalars = (*zip(made.tables.sizes, sizes, strict=True), (made.rows, sequences))
        for symint, value in (*scalars, *zip(made.tables.attention, (sequences, 0, context, 1), strict=True)):
            live.set(symint, value)
        for value in made.graph.inputs:  # beside the tables nothing is given to a step that only decodes
            live.set(value, (packed_size(*sizes),) if value is made.tables.packed else (0, *value.max_shape[1:]))
        live.begin()
        live.walk(0, len(made.graph.nodes), _no_data)
        return live

    def _row(self, pool: Tensor) -> int:
        return storage_bytes(pool.dtype, prod(pool.max_shape[2:]), self._limits.half)

    def _seen(self, node: Node, context: int) -> int:
        """Bytes of keys and values that one query of a layer sees."""
        rows = min(context, node.named["window"] or context)
        return rows * sum(self._row(node.named[name]) for name in ("k_cache", "v_cache"))


def _no_data(node: Node, request: Any) -> None:
    raise InputError(f"{node.label} depends on data, which there is none of before a step runs")


def capacity_of(
    path: Path,
    device: Device,
    *,
    sequences: int,
    half_cache: bool = False,
    activations: str = AUTO,
    max_context: int | None = None,
) -> Capacity:
    """The capacity of a model's folder, for at most so many sequences at once; reads no weights.

    Example: `capacity_of(Path("model-folder"), on_paper(Limits()), sequences=64)`.
    """
    context = checked_context(max_context)
    target = CompileTarget(device, activations=activations)
    with load_program(target, program_file(path)) as program:
        constants = constants_of(program) | ({} if context is None else {CONTEXT: context})
        made, _ = batched_program(program, constants, context, device, half_cache, sequences, None)
        return Capacity(made, target.limits)


def capacity_of_shape(
    shape: str, device: Device, *, sequences: int, context: int, half_cache: bool = False, activations: str = AUTO
) -> Capacity:
    """The capacity of a Llama of random weights.

    Example: `capacity_of_shape("1b", on_paper(Limits()), sequences=64, context=512)`.
    """
    target = CompileTarget(device, activations=activations)
    made, _ = random_batch(shape, target, sequences=sequences, context=context, half=half_cache)
    return Capacity(made, target.limits)


def random_batch(
    shape: str,
    target: CompileTarget,
    *,
    sequences: int,
    context: int,
    half: bool = False,
    pages: int | None = None,
) -> tuple[BatchGraph, Description]:
    """The graph of a Llama of random weights for many sequences, on a pool of as many pages as usual or as given.

    Example: `made, description = random_batch("tiny", CompileTarget(), sequences=8, context=256)`.
    """
    limits = target.limits
    graph = Llama(shape_of(shape, context)).graph()
    tokens, position, logits = signature(graph, {})
    states = at_positions(graph, position)
    description = describe({}, tokens, logits, states)
    found = bounds_of([state.tensor for state in states], tokens, description, target.device, half, sequences, None)
    found = found if pages is None else replace(found, pages=pages)
    tables = BatchTables.of(tokens, found)
    fused = fuse(batched(graph, position, tokens, found, tables), limits)
    fused = with_activations(fused, target.activations, limits, fit_halves)
    if half:
        fused = halve_caches(fused, pools_of(fused))
    return batch_graph(fused, tables, found, Tensor("history", "int32", (1, found.slots))), description


def on_paper(limits: Limits) -> Device:
    """A device to plan for where there is none: it has limits and no memory.

    >>> on_paper(Limits()).adapter.software
    False
    """
    sizes = limits.max_buffer_bytes, limits.max_binding_bytes
    return cast(Device, _Paper(limits, Adapter(0, "none", "none", "none", "none", False, limits.half, *sizes)))


@dataclass(frozen=True)
class _Paper:
    limits: Limits
    adapter: Adapter
    lost: bool = False
