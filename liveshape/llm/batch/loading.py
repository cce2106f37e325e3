"""A model's file as a runner of many sequences: context, float16 cache and batching are rewrites of its graph."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from liveshape.device.protocol import Device
from liveshape.errors import FormatError, InputError, UnsupportedError
from liveshape.graph import Graph, Tensor
from liveshape.graph.elements import prod, storage_bytes
from liveshape.llm.batch.runner import BatchRunner
from liveshape.llm.program.batch_graph import BatchGraph, batch_graph, pools_of
from liveshape.llm.program.batched_graph import BatchBounds, BatchTables, batched
from liveshape.llm.program.context import checked_context, with_context
from liveshape.llm.program.half_cache import halve_caches
from liveshape.llm.program.token_graph import CONTEXT, Description, at_positions, constants_of, describe, signature
from liveshape.model import program_file
from liveshape.program.compile_target import CompileTarget
from liveshape.program.program import Program, load_program, tell_host
from liveshape.progress import Progress

PAGE_SIZE = 16
SEQUENCES = 64
# Bytes of the pool if nobody says: WebGPU does not tell how much memory an adapter has.
_CACHE_BYTES, _CACHE_BYTES_OF_SOFTWARE = 2 << 30, 256 << 20


def load_runner(
    path: str | os.PathLike[str],
    *,
    device: Device | str | int | None = None,
    progress: Progress | None = None,
    half_cache: bool = False,
    activations: str = "float32",
    max_context: int | None = None,
    sequences: int = SEQUENCES,
    cache_bytes: int | None = None,
) -> tuple[BatchRunner, Description]:
    """Load a model from a `.pte` or a folder with one, for up to `sequences` at once on a pool of `cache_bytes`.

    Raises UnsupportedError, with the reason, for a program that cannot be batched.

    Example: `runner, description = load_runner("SmolLM2-135M-Instruct", cache_bytes=1 << 30)`.
    """
    context, file = checked_context(max_context), program_file(Path(path))
    if sequences < 1:
        raise InputError(f"{sequences} sequences: at least one is needed")
    target = CompileTarget(device, activations=activations)
    program = load_program(target, file)
    try:
        constants = constants_of(program)
        if context is not None:
            constants = {**constants, CONTEXT: context}
        made, description = batched_program(
            program, constants, context, target.device, half_cache, sequences, cache_bytes
        )
        return BatchRunner(made, target.device, progress), description
    except UnsupportedError as error:
        raise UnsupportedError(f"{file}: {error}", error.details) from error
    except FormatError as error:
        raise FormatError(f"{file}: {error}") from error
    finally:
        program.close()


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
        graph = halve_caches(graph, pools_of(graph))
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
