"""A model's file as a runner of many sequences: context, float16 cache and batching are rewrites of its graph."""

from __future__ import annotations

import os
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from liveshape.device.protocol import Device
from liveshape.errors import FormatError, InputError, UnsupportedError
from liveshape.formats.source import Source, is_view
from liveshape.graph import Graph, Tensor
from liveshape.graph.activation_kinds import AUTO
from liveshape.graph.elements import prod, storage_bytes
from liveshape.llm.batch.runner import BatchRunner
from liveshape.llm.engine.origin import Origin
from liveshape.llm.program.batch_graph import BatchGraph, batch_graph, pools_of
from liveshape.llm.program.batched_graph import BatchBounds, BatchTables, batched
from liveshape.llm.program.context import checked_context, rotation_of, with_context
from liveshape.llm.program.half_cache import halve_caches
from liveshape.llm.program.token_graph import CONTEXT, Description, at_positions, constants_of, describe, signature
from liveshape.program.compile_target import CompileTarget
from liveshape.program.files import program_file
from liveshape.program.program import Program, load_program, tell_host
from liveshape.progress import Progress

PAGE_SIZE = 16
SEQUENCES = 64
# Bytes of the pool if nobody says: WebGPU does not tell how much memory an adapter has.
_CACHE_BYTES, _CACHE_BYTES_OF_SOFTWARE = 2 << 30, 256 << 20


def load_runner(
    path: str | os.PathLike[str] | memoryview,
    *,
    device: Device | str | int | None = None,
    progress: Progress | None = None,
    half_cache: bool = False,
    activations: str = AUTO,
    deterministic: bool = False,
    max_context: int | None = None,
    sequences: int = SEQUENCES,
    cache_bytes: int | None = None,
) -> tuple[BatchRunner, Description]:
    """Load a model from a `.pte`, its bytes, or a folder with one, for up to `sequences` at once.

    They share a pool of `cache_bytes`. With `deterministic` the logits of a sequence have the same bytes whatever runs
    beside it. Raises UnsupportedError, with the reason, for a program that cannot be batched.

    Example: `runner, description = load_runner("SmolLM2-135M-Instruct", cache_bytes=1 << 30)`.
    """
    context = checked_context(max_context)
    file = path if is_view(path) else program_file(Path(path))
    name = "the program" if is_view(file) else str(file)
    if sequences < 1:
        raise InputError(f"{sequences} sequences: at least one is needed")
    target = CompileTarget(device, activations=activations, deterministic=deterministic)
    # Opened here and not by the program: the checksum must be of these bytes, even if the file is replaced later.
    source = Source(file)
    try:
        with ExitStack() as held, load_program(target, source.view) as program:
            held.callback(source.close)
            own = constants_of(program)
            constants = own if context is None else {**own, CONTEXT: context}
            made, description = batched_program(
                program, constants, context, target.device, half_cache, sequences, cache_bytes
            )
            turned = rotation_of(own, description.max_context)
            origin = Origin(name, source, program.data, target.activations, turned)
            runner = BatchRunner(made, target.device, progress, target.limits, origin)
            held.pop_all()
            return runner, description
    except UnsupportedError as error:
        raise UnsupportedError(f"{name}: {error}", error.details) from error
    except FormatError as error:
        raise FormatError(f"{name}: {error}") from error


def batched_program(
    program: Program,
    constants: dict[str, Any],
    context: int | None,
    device: Device,
    half_cache: bool,
    sequences: int,
    cache_bytes: int | None,
) -> tuple[BatchGraph, Description]:
    """The graph of a program for many sequences, fused for a device.

    Example: `batched_program(program, constants_of(program), None, device, False, 64, 1 << 30)`.
    """
    found: list[tuple[BatchBounds, BatchTables, Description]] = []

    def rewrite(lowered: Graph) -> Graph:
        graph = with_context(lowered, constants, context)
        tokens, position, logits = signature(graph, constants)
        states = at_positions(graph, position)
        description = describe(constants, tokens, logits, states)
        caches = [state.tensor for state in states]
        bounds = bounds_of(caches, tokens, description, device, half_cache, sequences, cache_bytes)
        tables = BatchTables.of(tokens, bounds)
        found.append((bounds, tables, description))
        return batched(graph, position, tokens, bounds, tables)

    graph = program.graph("forward", rewrite)
    ((bounds, tables, description),) = found
    tell_host(graph)
    if half_cache:
        graph = halve_caches(graph, pools_of(graph), device.limits)
    history = Tensor("history", "int32", (1, bounds.slots))
    return batch_graph(graph, tables, bounds, history), description


def bounds_of(
    caches: list[Tensor],
    tokens: Tensor,
    description: Description,
    device: Device,
    half_cache: bool,
    sequences: int,
    cache_bytes: int | None,
) -> BatchBounds:
    """Rows as the program allows, and as many pages as the memory for them has.

    Example: `bounds_of(caches, tokens, description, device, False, 64, 1 << 30).pages`.
    """
    half = device.limits.half
    sizes = [
        storage_bytes(
            "float16" if half_cache and cache.dtype == "float32" else cache.dtype, prod(cache.max_shape[2:]), half
        )
        for cache in caches
        if cache.rank > 2
    ]
    page = PAGE_SIZE * max(sum(sizes), 1)
    rows, context = tokens.max_shape[1], description.max_context
    if cache_bytes is None:
        usual = _CACHE_BYTES_OF_SOFTWARE if device.adapter.software else _CACHE_BYTES
        pages = min(-(-context // PAGE_SIZE) * min(sequences, rows), usual // page)
    elif cache_bytes < page:
        raise InputError(f"a cache of {cache_bytes:,} bytes: one page of {PAGE_SIZE} tokens takes {page:,}")
    else:
        pages = cache_bytes // page
    pages = min(pages, device.limits.max_buffer_bytes // (PAGE_SIZE * max(sizes, default=1)))
    return BatchBounds(rows, min(sequences, rows), max(pages, 1), PAGE_SIZE, context)
