"""Language models: calls with legal tokens at legal positions, prefill of several lengths and decode between them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from liveshape.errors import InputError, UnsupportedError
from liveshape.graph import Graph, Limits, Tensor
from liveshape.llm.program.context import with_context
from liveshape.llm.program.prefill_chunk import prefill_chunk, with_chunk
from liveshape.llm.program.token_graph import Description, at_positions, describe, signature

_LENGTHS = (7, 1, 33, 1, 2)  # tokens of the first calls, each at the position where the one before ended
_BOUND_WORK = 4 << 30  # bytes of weights times tokens, up to which the longest call is made unasked


@dataclass(frozen=True)
class LanguageCall:
    """A call of a language model: tokens at a position, after the calls before it or as the first."""

    tokens: tuple[int, ...]
    position: int
    goes_on: bool

    def __str__(self) -> str:
        return f"{len(self.tokens)} at {self.position}"


@dataclass(frozen=True)
class Language:
    """A graph of a language model as it is loaded for generation, before it is fused."""

    graph: Graph
    tokens: Tensor
    position: Tensor
    description: Description

    def steps(self, lengths: Sequence[int | None] | None = None, seed: int = 0) -> list[LanguageCall]:
        """Calls up and down: short and long prefill, decode, the last position of the context, the longest call.

        `lengths` are others, of which None is the longest; each goes on where the one before ended.

        Example: `language.steps([7, 1, None])`.
        """
        if seed < 0:
            raise InputError(f"--seed {seed}: a seed is 0 or above")
        most, context = self.description.max_seq_len, self.description.max_context
        random = np.random.default_rng(seed)
        found: list[LanguageCall] = []

        def add(count: int, position: int, goes_on: bool) -> None:
            ids = random.integers(0, self.description.vocab_size, count)
            found.append(LanguageCall(tuple(int(each) for each in ids), position, goes_on))

        end = 0
        for length in _LENGTHS if lengths is None else lengths:
            count = most if length is None else length
            if lengths is not None and not 1 <= count <= most:
                raise InputError(f"--shapes tokens={count}: a call of this model takes from 1 to {most:,} tokens")
            count = min(count, most, context)
            end = end if end + count <= context else 0
            add(count, end, end > 0)
            end += count
        if lengths is None:
            if end < context:
                add(1, context - 1, True)
            nbytes = sum(len(tensor.constant or b"") for tensor in self.graph.tensors)
            if nbytes * most <= _BOUND_WORK and most > max(_LENGTHS):
                add(min(most, context), 0, False)
        return found

    def inputs(self, step: LanguageCall) -> list[Any]:
        """The inputs of a call, in the order of the graph."""
        rows = 1 if self.position.max_shape[0] == 1 else len(step.tokens)
        tokens = np.array([step.tokens], self.tokens.dtype)
        positions = np.arange(step.position, step.position + rows).astype(self.position.dtype)
        return [tokens if value is self.tokens else positions for value in self.graph.inputs]


def language_of(graph: Graph, constants: dict[str, Any], limits: Limits) -> Language | None:
    """The language model that an unfused graph is, as it is loaded for generation; None where it is something else.

    Example: `language_of(graph, constants_of(program), device.limits)`.
    """
    try:
        signature(graph, constants)
        resized = with_context(graph, constants, None)
        longer, known = with_chunk(resized, constants, prefill_chunk(limits))
        tokens, position, logits = signature(longer, known)
    except UnsupportedError:
        return None
    states = at_positions(longer, position)
    return Language(longer, tokens, position, describe(known, tokens, logits, states)) if states else None
