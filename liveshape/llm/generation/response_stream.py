"""The generation loop: tokens are detokenized into responses, with finish reason and tokens per second."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from liveshape.llm.generation.assembling import Assembler
from liveshape.llm.generation.options import Streamer
from liveshape.llm.generation.preparing import Preparation
from liveshape.llm.generation.responses import GenerationResponse
from liveshape.llm.generation.reuse import truncate_to_prefix
from liveshape.llm.generation.stats import Stats, now_ms
from liveshape.llm.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from liveshape.llm.language_model import LanguageModel


@dataclass(frozen=True)
class Request:
    """A validated generation request; `tokens(cached)` starts decoding after the reused prefix."""

    given: Preparation
    keep_prefix: bool
    tokens: Callable[[int], Iterator[int]]


def responses(
    model: LanguageModel, tokenizer: Tokenizer, request: Request, streamer: Streamer | None, stats: Stats
) -> Generator[GenerationResponse, None, None]:
    """Yield a response per token, and a last one if the stream ended without a finish reason.

    Example: `for response in responses(model, tokenizer, request, None, Stats()): print(response.text)`.
    """
    ids = request.given.ids
    assembler = Assembler(tokenizer, request.given, model.memory.total / 1e9)
    stats.num_prompt_tokens = len(ids)
    _put(streamer, ids)
    # Under one lock: no other thread may use the cache between the truncate and the prefill.
    assembler.cached, source = model.lock.run(_start, model, request)
    response: GenerationResponse | None = None
    try:
        while response is None or response.finish_reason is None:
            token = next(source, None)
            if token is None:
                response = assembler.end()
            else:
                _put(streamer, [token])
                response = assembler.put(token, getattr(source, "logits", None), getattr(source, "complete", False))
            if response.generation_tokens == 1:
                stats.prompt_eval_end_ms = stats.first_token_ms = now_ms()
            _count(stats, source, response.generation_tokens)
            yield response
    finally:
        # Discard the steps ahead on the device if the reader stops early.
        close = getattr(source, "close", None)
        if close is not None:
            close()
        if streamer is not None:
            streamer.end()


def _start(model: LanguageModel, request: Request) -> tuple[int, Iterator[int]]:
    """Prefix reuse: the number of prompt tokens that are in the KV cache, and the stream after them."""
    if not request.keep_prefix:
        model.reset()
    cached = truncate_to_prefix(model, request.given.ids) if request.keep_prefix else 0
    return cached, request.tokens(cached)


def _put(streamer: Streamer | None, ids: list[int]) -> None:
    if streamer is not None:
        streamer.put(np.asarray(ids, np.int64))


def _count(stats: Stats, source: Any, tokens: int) -> None:
    stats.num_generated_tokens, stats.inference_end_ms = tokens, now_ms()
    stats.num_proposed_tokens = getattr(source, "proposed", 0)
    stats.num_accepted_tokens = getattr(source, "accepted", 0)
