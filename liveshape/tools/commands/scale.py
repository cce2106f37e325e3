"""`liveshape scale`: what an adapter needs to serve a model to many sequences, and how fast it can be at most."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from liveshape.device.backends import open_device
from liveshape.device.protocol import Device
from liveshape.errors import InputError, NoAdapterError
from liveshape.export.runnable import Conversion
from liveshape.graph import Limits
from liveshape.graph.activation_kinds import AUTO
from liveshape.shipped import shipped_model
from liveshape.tools.console import counted, print_json, print_table, print_text, size_text
from liveshape.tools.measuring.capacity import Capacity, DecodeStep, capacity_of, capacity_of_shape, on_paper
from liveshape.tools.measuring.random_llamas import SHAPES
from liveshape.tools.measuring.rates import rates_of
from liveshape.tools.model_argument import AS_USUAL, runnable_model

CONTEXT = 1024


def scale(
    model: str | None,
    *,
    shape: str | None = None,
    sequences: Sequence[int] = (1, 8, 64),
    context: int | None = None,
    bandwidth: float | None = None,
    memory: int | None = None,
    half_cache: bool = False,
    activations: str = AUTO,
    device: str | None = None,
    as_json: bool = False,
    conversion: Conversion = AS_USUAL,
) -> int:
    """Print the memory of a model and of its sequences, and the traffic of a decode step; exit code 0.

    `bandwidth` is in bytes a second; None is that of the adapter, if there is one. `memory` is that of an adapter, to
    tell how many sequences fit.

    Example: `scale("model-folder", sequences=[64], context=4096, memory=80 << 30)`.
    """
    if model is not None and shape is not None:
        raise InputError(f"MODEL {model} and --shape {shape}: give one of the two")
    if shape is not None and shape not in SHAPES:
        raise InputError(f"--shape {shape}: there are {', '.join(SHAPES)}")
    if min(sequences) < 1:
        raise InputError(f"--sequences {min(sequences)}: at least one is needed")
    target, real = _target(device)
    options: dict[str, Any] = {"sequences": max(sequences), "half_cache": half_cache, "activations": activations}
    if shape is not None:
        found = capacity_of_shape(shape, target, context=context or CONTEXT, **options)
    else:
        with runnable_model(str(shipped_model()) if model is None else model, conversion) as path:
            found = capacity_of(path, target, max_context=conversion.max_context, **options)
    tokens = min(CONTEXT, found.bounds.context) if context is None else context
    steps = [found.step(count, tokens) for count in sequences]
    rate = rates_of(target).copy if bandwidth is None and real else bandwidth
    if as_json:
        print_json(_document(found, steps, tokens, rate, memory))
    else:
        _print(found, steps, tokens, rate, memory)
    return 0


def _target(device: str | None) -> tuple[Device, bool]:
    """The device to plan for, and whether there is one."""
    try:
        return open_device(device), True
    except NoAdapterError:
        if device is not None:
            raise
        return on_paper(Limits()), False


def _document(
    found: Capacity, steps: Sequence[DecodeStep], tokens: int, rate: float | None, memory: int | None
) -> dict[str, Any]:
    rows = [
        {**asdict(step), "tokens_per_second": None if rate is None else step.tokens_per_second(rate)} for step in steps
    ]
    return {
        "weights": found.memory.weights,
        "fixed_bytes": found.fixed_bytes,
        "page_size": found.bounds.page_size,
        "page_bytes": found.page_bytes,
        "context": tokens,
        "sequence_bytes": found.sequence_bytes(tokens),
        "bandwidth": rate,
        "steps": rows,
        "fitting": None if memory is None else found.fitting(memory, tokens),
    }


def _print(found: Capacity, steps: Sequence[DecodeStep], tokens: int, rate: float | None, memory: int | None) -> None:
    size, sequence = found.bounds.page_size, found.sequence_bytes(tokens)
    print_table(
        "memory",
        ("what", "bytes", ""),
        [
            ("weights", size_text(found.memory.weights), ""),
            ("around them", size_text(found.fixed_bytes - found.memory.weights), "activations, staging, params"),
            ("a page", size_text(found.page_bytes), f"keys and values of {size} tokens, all layers"),
            ("a sequence", size_text(sequence), f"{tokens:,} tokens, {counted(-(-tokens // size), 'page')}"),
        ],
    )
    limit = ("tokens/s at most",) if rate is not None else ()
    print_table(
        f"\na decode step with {tokens:,} tokens of context",
        ("sequences", "memory in all", "weights, activations", "KV cache", "operations", *limit),
        [
            (
                step.sequences,
                size_text(found.fixed_bytes + step.sequences * sequence),
                size_text(step.nbytes),
                size_text(step.cache_bytes),
                f"{step.operations / 1e9:,.2f} G",
                *(() if rate is None else (f"{step.tokens_per_second(rate):,.0f}",)),
            )
            for step in steps
        ],
    )
    if rate is not None:
        print_text(f"  at most: by memory alone, at {rate / 1e9:,.0f} GB/s; docs/scale.md says how near a GPU comes")
    if memory is not None:
        fits = counted(found.fitting(memory, tokens), "sequence")
        print_text(f"  {size_text(memory)} hold the model and {fits} of {tokens:,} tokens")
