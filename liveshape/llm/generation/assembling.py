"""The tokens of one generation as responses: detokenized, with stop strings, finish reason and tokens per second."""

from __future__ import annotations

import time
from typing import Any

from liveshape.llm.generation.logprobs import logprobs_of
from liveshape.llm.generation.preparing import Preparation
from liveshape.llm.generation.responses import GenerationResponse
from liveshape.llm.text.tokenizer import StreamDecoder, Tokenizer


class Assembler:
    """Makes a response of each token; the last one has a finish reason.

    `memory` is the device's, in gigabytes.

    Example: `response = assembler.put(token)`.
    """

    def __init__(self, tokenizer: Tokenizer, given: Preparation, memory: float) -> None:
        self._ids, self._limit, self._ends, self._watch = given.ids, given.limit, given.ends, given.watch
        self._logprobs, self._memory = given.logprobs, memory
        self._forced = len(given.forced)
        self._decoder = StreamDecoder(tokenizer, given.ids)
        self._start = self._first = time.perf_counter()
        self._last = given.ids[-1]
        self.cached = 0  # tokens of the prompt that were not computed, since the KV cache had them
        self.count = 0

    def put(self, token: int, logits: Any = None, complete: bool = False) -> GenerationResponse:
        """The response of the next token; `logits` are those it was sampled from, if log-probabilities are wanted.

        `complete`: a grammar says that nothing may follow.
        """
        self.count += 1
        self._last = token
        if self.count == 1:
            self._first = time.perf_counter()
        logprobs = None if self._logprobs is None else logprobs_of(logits, token, self._logprobs)
        ends = token in self._ends and self.count > self._forced
        text = self._watch.put("" if ends else self._decoder.put(token))
        reason = None
        if ends or self._watch.matched is not None:
            reason = "stop"
        elif complete:
            reason = "grammar"
        elif self.count >= self._limit:
            reason = "length"
        return self._response(text, reason, logprobs)

    def end(self) -> GenerationResponse:
        """The last response where the tokens ended without a reason."""
        return self._response("", "stop", None)

    def _response(self, text: str, reason: str | None, logprobs: Any) -> GenerationResponse:
        if reason is not None:
            text += self._watch.put(self._decoder.end()) + self._watch.end()
            reason = "stop" if self._watch.matched is not None else reason
        return GenerationResponse(
            text=text,
            token=self._last,
            prompt_tokens=len(self._ids),
            prompt_tps=(len(self._ids) - self.cached) / max(self._first - self._start, 1e-9),
            generation_tokens=self.count,
            generation_tps=(self.count - 1) / max(time.perf_counter() - self._first, 1e-9) if self.count > 1 else 0.0,
            peak_memory=self._memory,
            finish_reason=reason,
            logprobs=logprobs,
            stop_string=self._watch.matched,
            cached_tokens=self.cached,
        )
