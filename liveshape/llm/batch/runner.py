"""Runs steps of many sequences on the device: tables in, sampled tokens out, ahead of what the host has read.

The plan stays constant while sequences come and go: live are the number of rows, of wanted rows and of lines of
attention, and rounded contexts. Joining and leaving write bytes of tables.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from liveshape.device.protocol import Device
from liveshape.errors import InputError
from liveshape.graph import Limits, SymInt, Tensor, Value
from liveshape.llm.batch.scheduler import Step
from liveshape.llm.batch.step_tables import LineSizes, StepTables, tables_of
from liveshape.llm.engine.origin import Origin
from liveshape.llm.program.batch_graph import BatchGraph
from liveshape.llm.program.batched_graph import BatchBounds
from liveshape.llm.program.token_graph import LOGITS, TOKEN
from liveshape.llm.sampling_settings import COMMON, Sampling
from liveshape.ops.attention_heuristics import few_queries, tile_queries
from liveshape.plan.compiling import compile
from liveshape.plan.plan import Choices
from liveshape.program.memory_use import Memory, memory_of
from liveshape.progress import Progress
from liveshape.run.executor import Executor
from liveshape.run.pending import Pending
from liveshape.run.warming import warm_up

# Together these take every branch of the sampling operator.
_MODES = ((False, False, False), (False, False, True), (True, False, False), (True, True, False), (True, True, True))
_PROMPTS = (16, 2, 4)  # tokens of short ones: each takes kernels of its own
_TOGETHER = (2, 4, 8)  # sequences that decode together, likewise


class BatchRunner:
    """One compiled graph with its weights and pool of pages on a device; `origin` is the model of its file, if any.

    `limits` are those of the device, or these with what the user chose: with `one_order` the logits of a sequence have
    the same bytes whatever runs beside it and however its prompt is cut.
    """

    def __init__(
        self,
        made: BatchGraph,
        device: Device,
        progress: Progress | None = None,
        limits: Limits | None = None,
        origin: Origin | None = None,
    ) -> None:
        self._made, self.device = made, device
        self.origin = origin or Origin("a graph")
        limits = limits or device.limits
        shapes = [(*shape, limits) for shape in made.attentions]
        few, tile = (min(most(*shape) for shape in shapes) for most in (few_queries, tile_queries))
        self.lines = LineSizes(few, tile)
        choices = Choices(ready=(TOKEN,), transfers=1 + device.steps_ahead, settings=self._routes())
        plan = compile(made.graph, limits, choices)
        self._executor: Executor | None = Executor(plan, device, progress=progress)

    def warm_up(self, samplings: Sequence[Sampling] = (), progress: Progress | None = None) -> None:
        """Finish the kernels of prompts and of tokens, greedy, drawn and by these settings, where the driver would in
        their first call.

        Example: `runner.warm_up([Sampling(temperature=0.7, top_p=0.9)])`.
        """
        bounds = self._made.bounds
        first, *others = (self._prompt(min(rows, bounds.rows)) for rows in _PROMPTS)
        token = [self._decode(1, (each,)) for each in (*COMMON, *samplings)]
        together = [self._decode(count, ()) for count in _TOGETHER if count <= bounds.sequences]
        warm_up(self.executor.plan, self.device, [first, *token, *others, *together], progress)

    def _prompt(self, rows: int) -> dict[Value, Any]:
        return self._call(rows, 1, 0, -(-rows // self.lines.tile), ())

    def _decode(self, count: int, samplings: Sequence[Sampling]) -> dict[Value, Any]:
        return self._call(count, count, count, 0, samplings)

    def _call(self, rows: int, wanted: int, few: int, tiles: int, samplings: Sequence[Sampling]) -> dict[Value, Any]:
        """Values of the live scalars of a step whose contexts are short."""
        made, tables = self._made, self._made.tables
        sizes = zip(tables.sizes, (rows, wanted, few + tiles, wanted, 1), strict=True)
        attention = zip(tables.attention, (few, tiles, 64, 64), strict=True)
        return dict[Value, Any]([*sizes, *attention, (made.rows, wanted), *self._modes(samplings).items()])

    def _routes(self) -> tuple[tuple[tuple[SymInt, Any], ...], ...]:
        """Values of the live scalars at which load looks for kernels: rows, lines, contexts, and modes of sampling."""
        made, tables, bounds = self._made, self._made.tables, self._made.bounds
        contexts = [1 << power for power in range(6, (bounds.context - 1).bit_length() + 1)] or [64]
        counts = [count for count in (1, 2, 3, 4, 8, 16, 32, 64, 128) if count < bounds.sequences]
        numbers = sorted({*range(1, 10), *(1 << power for power in range(4, bounds.rows.bit_length()))} | {bounds.rows})
        pages = bounds.pages_of_sequence

        def sizes(rows: int, wanted: int, lines: int) -> dict[SymInt, Any]:
            values = (rows, wanted, lines, min(rows, bounds.sequences), pages)
            return dict(zip(tables.sizes, values, strict=True)) | {made.rows: wanted}

        def attention(few: int, tiles: int, context: int) -> dict[SymInt, Any]:
            return dict(zip(tables.attention, (few, tiles, context, context), strict=True))

        lines = [
            sizes(count, count, count) | attention(*kinds, context)
            for context in contexts
            for count in (*counts, bounds.sequences)
            for kinds in ((count, 0), (0, count))
        ]
        rows = [
            sizes(each + odd, min(each, bounds.sequences), 1) | attention(0, 1, contexts[0])
            for each in numbers
            for odd in (0, 1)
            if each + odd <= bounds.rows
        ]
        modes = [
            sizes(count, count, count)
            | attention(count, 0, contexts[0])
            | dict(zip(made.modes.values(), mode, strict=True))
            for count in (1, bounds.sequences)
            for mode in _MODES
        ]
        return tuple(tuple(each.items()) for each in (*lines, *rows, *modes))

    @property
    def bounds(self) -> BatchBounds:
        """Upper bounds of a step and of the pool."""
        return self._made.bounds

    @property
    def states(self) -> tuple[Tensor, ...]:
        """The pools of keys and values and the history, in the order of a saved cache."""
        return self._made.states

    @property
    def window(self) -> int | None:
        """The most keys that a query sees in any layer; None where it may see all."""
        return self._made.window

    @property
    def executor(self) -> Executor:
        """The executor of the graph; an InputError once it is closed."""
        if self._executor is None:
            raise InputError("the engine was closed, and its memory is free for others; load the model again")
        return self._executor

    @property
    def memory(self) -> Memory:
        """Device memory of the graph and its pool."""
        return Memory(0, 0, 0, 0, 0, 0, 0) if self._executor is None else memory_of(self._executor.plan)

    def submit(self, step: Step, samplings: Sequence[Sampling], logits: bool = False) -> Pending:
        """Submit a step, with the sampling settings of its lines; rows may take tokens of the step before.

        With `logits`, those of its lines are an output, too.
        """
        tables = tables_of(step, samplings, self.lines, self._made.bounds.pages_of_sequence)
        executor = self.executor
        for symint, value in self._scalars(step, tables, samplings).items():
            executor.set_scalar(symint, value)
        return executor.start([tables.packed, tables.copies], [TOKEN, LOGITS] if logits else [TOKEN])

    def _scalars(self, step: Step, tables: StepTables, samplings: Sequence[Sampling]) -> dict[SymInt, Any]:
        made, live = self._made, self._made.tables
        return {
            **dict(zip(live.sizes, tables.sizes, strict=True)),
            **dict(zip(live.attention, tables.attention, strict=True)),
            made.rows: step.lines,
            **self._modes(samplings),
        }

    def _modes(self, samplings: Sequence[Sampling]) -> dict[SymInt, Any]:
        modes = self._made.modes
        return {
            modes["drawn"]: any(not each.greedy for each in samplings),
            modes["limited"]: any(not each.greedy and each.limited for each in samplings),
            modes["penalized"]: any(each.penalized for each in samplings),
        }

    def close(self) -> None:
        """Free the device memory of the graph and its pool."""
        executor, self._executor = self._executor, None
        if executor is not None:
            executor.close()
            self.origin.close()
