"""The generation loop: tokens are detokenized into responses, with finish reason and tokens per second."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from liveshape.llm.generation.logprobs import logprobs_of
from liveshape.llm.generation.options import Streamer
from liveshape.llm.generation.responses import GenerationResponse
from liveshape.llm.generation.reuse import truncate_to_prefix
from liveshape.llm.generation.stats import Stats, now_ms
from liveshape.llm.generation.stopping import StopWatch
from liveshape.llm.text.tokenizer import StreamDecoder, Tokenizer

if TYPE_CHECKING:
    from liveshape.llm.language_model import LanguageModel


@dataclass(frozen=True)
class Request:
    """A validated generation request; `tokens(cached)` starts decoding after the reused prefix."""

    ids: list[int]
    limit: int
    ends: frozenset[int]
    watch: StopWatch
    keep_prefix: bool
    tokens: Callable[[int], Iterator[int]]
    logprobs: int | None  # the number of top tokens to report


def responses(
    model: LanguageModel, tokenizer: Tokenizer, request: Request, streamer: Streamer | None, stats: Stats
) -> Generator[GenerationResponse, None, None]:
    """Yield a response per token, and a last one if the stream ended without a finish reason.

    Example: `for response in responses(model, tokenizer, request, None, Stats()): print(response.text)`.
    """
    ids, watch = request.ids, request.watch
    decoder = StreamDecoder(tokenizer, ids)
    memory = model.memory.total / 1e9
    start = first = time.perf_counter()
    stats.num_prompt_tokens = len(ids)
    _put(streamer, ids)
    # Under one lock: no other thread may use the cache between the truncate and the prefill.
    cached, source = model.lock.run(_start, model, request)
    tokens: list[int] = []
    reason: str | None = None
    try:
        while reason is None:
            token, text, logprobs = next(source, None), "", None
            if token is None:
                reason = "stop"
            else:
                tokens.append(token)
                if request.logprobs is not None:
                    logprobs = logprobs_of(getattr(source, "logits", None), token, request.logprobs)
                _put(streamer, [token])
                text = watch.put("" if token in request.ends else decoder.put(token))
                reason = _finish_reason(request, source, token, len(tokens))
            if len(tokens) == 1:
                first = time.perf_counter()
                stats.prompt_eval_end_ms = stats.first_token_ms = now_ms()
            if reason is not None:
                text += watch.put(decoder.end()) + watch.end()
                reason = "stop" if watch.matched is not None else reason
            _count(stats, source, len(tokens))
            yield GenerationResponse(
                text=text,
                token=tokens[-1] if tokens else ids[-1],
                prompt_tokens=len(ids),
                prompt_tps=(len(ids) - cached) / max(first - start, 1e-9),
                generation_tokens=len(tokens),
                generation_tps=(len(tokens) - 1) / max(time.perf_counter() - first, 1e-9) if len(tokens) > 1 else 0.0,
                peak_memory=memory,
                finish_reason=reason,
                logprobs=logprobs,
            )
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
    cached = truncate_to_prefix(model, request.ids) if request.keep_prefix else 0
    return cached, request.tokens(cached)


def _finish_reason(request: Request, source: Iterator[int], token: int, count: int) -> str | None:
    """The finish reason after the `count`th token, or None."""
    if token in request.ends or request.watch.matched is not None:
        return "stop"
    if getattr(source, "complete", False):
        return "grammar"
    return "length" if count >= request.limit else None


def _put(streamer: Streamer | None, ids: list[int]) -> None:
    if streamer is not None:
        streamer.put(np.asarray(ids, np.int64))


def _count(stats: Stats, source: Any, tokens: int) -> None:
    stats.num_generated_tokens, stats.inference_end_ms = tokens, now_ms()
    stats.num_proposed_tokens = getattr(source, "proposed", 0)
    stats.num_accepted_tokens = getattr(source, "accepted", 0)
