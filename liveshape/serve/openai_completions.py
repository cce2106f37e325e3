"""`/v1/completions`: texts that the model goes on from, as OpenAI's older route has them."""

from __future__ import annotations

import secrets
import time
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from typing import Any

from liveshape.llm.arguments import text_of, token_ids
from liveshape.llm.generation.logprobs import LEAST_LIKELY
from liveshape.llm.generation.prompts import is_batch, prompt_ids
from liveshape.llm.generation.responses import GenerationResponse
from liveshape.llm.text.tokenizer import Tokenizer
from liveshape.serve.answers import Answers
from liveshape.serve.chat_request import seeded
from liveshape.serve.fields import Fields
from liveshape.serve.openai_options import common_options, usage, usage_wanted
from liveshape.serve.refusals import Refusal, refused
from liveshape.serve.request_limits import RequestLimits
from liveshape.serve.streaming import DONE, PING, event

_USUAL_TOKENS = 16  # OpenAI's default
_MOST_LOGPROBS = 5


@dataclass(frozen=True)
class Completion:
    """Prompts as token ids, and `count` texts for each."""

    prompts: Sequence[list[int]]
    options: dict[str, Any]
    count: int
    stream: bool
    usage: bool
    model: str
    identity: str
    created: int

    @classmethod
    def read(
        cls, fields: Fields, model: str, tokenizer: Tokenizer, vocabulary: int, limits: RequestLimits
    ) -> Completion:
        """Read and check a request."""
        stream = fields.flag("stream")
        options = {
            **common_options(fields, vocabulary, limits),
            "max_tokens": fields.whole("max_tokens", 1) or _USUAL_TOKENS,
        }
        top = fields.whole("logprobs", 0, _MOST_LOGPROBS)
        if top is not None:
            options["logprobs"] = top
        count = fields.whole("n", 1, limits.choices) or 1
        fields.only("best_of", 1, count, advice="n is")
        fields.only("echo", False)
        fields.only("suffix", "")
        prompts = _prompts(fields, tokenizer, count, limits.choices)
        wanted = usage_wanted(fields, stream)
        fields.done()
        identity = f"cmpl-{secrets.token_hex(12)}"
        return cls(prompts, options, count, stream, wanted, model, identity, int(time.time()))

    def requests(self) -> list[tuple[list[int], dict[str, Any]]]:
        """What the engine is asked for."""
        return [each for ids in self.prompts for each in seeded(ids, self.options, self.count)]

    async def whole(self, answers: Answers, tokenizer: Tokenizer) -> dict[str, Any]:
        """The texts at once."""
        told: list[list[GenerationResponse]] = [[] for _ in range(len(self.prompts) * self.count)]
        async for each in answers.responses():
            if each is not None:
                told[each[0]].append(each[1])
        choices = []
        for index, responses in enumerate(told):
            likely = _Likely(tokenizer)
            rows = [likely.row(response) for response in responses]
            text = "".join(response.text for response in responses)
            choices.append(_choice(index, text, responses[-1], _joined(rows) if "logprobs" in self.options else None))
        return {**self._heading, "choices": choices, "usage": usage(answers, self.count)}

    async def chunks(self, answers: Answers, tokenizer: Tokenizer, ping: float) -> AsyncGenerator[bytes, None]:
        """The texts as events."""
        likely = [_Likely(tokenizer) for _ in range(len(self.prompts) * self.count)]
        told = {"usage": None} if self.usage else {}
        async for each in answers.responses(ping):
            if each is None:
                yield PING
                continue
            index, response = each
            row = likely[index].row(response)
            if response.text or response.finish_reason or row:
                choice = _choice(index, response.text, response, row)
                yield event({**self._heading, "choices": [choice], **told})
        if self.usage:
            yield event({**self._heading, "choices": [], "usage": usage(answers, self.count)})
        yield DONE

    @property
    def _heading(self) -> dict[str, Any]:
        return {"id": self.identity, "object": "text_completion", "created": self.created, "model": self.model}


def _prompts(fields: Fields, tokenizer: Tokenizer, count: int, most: int) -> list[list[int]]:
    given = fields.needed("prompt")
    several = given if is_batch(given) else [given]
    if len(several) * count > most:
        raise Refusal(400, f"prompts times n are {len(several) * count}, at most {most} are taken", "prompt")
    with refused("prompt"):
        return [
            prompt_ids(tokenizer, text_of(each, "a prompt") if isinstance(each, str) else token_ids(each), raw=True)
            for each in several
        ]


def _choice(index: int, text: str, response: GenerationResponse, likely: dict[str, Any] | None) -> dict[str, Any]:
    reason = "stop" if response.finish_reason == "grammar" else response.finish_reason
    return {"index": index, "text": text, "logprobs": likely, "finish_reason": reason}


class _Likely:
    """Log-probabilities in the form of this route, with the place of each token in the text."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer, self._offset = tokenizer, 0

    def row(self, response: GenerationResponse) -> dict[str, Any] | None:
        """Those of one response; None if there are none."""
        found, decode = response.logprobs, self._tokenizer.decode_behind
        if found is None or (response.finish_reason == "stop" and response.stop_string is None):
            return None
        text, offset = decode(response.token), self._offset
        self._offset += len(text)
        likeliest = dict[str, float]()
        for token, logprob in found.top:  # the likeliest first, also of those with one text
            likeliest.setdefault(decode(token), max(logprob, LEAST_LIKELY))
        return {
            "tokens": [text],
            "token_logprobs": [max(found.chosen, LEAST_LIKELY)],
            "top_logprobs": [likeliest],
            "text_offset": [offset],
        }


def _joined(rows: Sequence[dict[str, Any] | None]) -> dict[str, Any]:
    names = ("tokens", "token_logprobs", "top_logprobs", "text_offset")
    return {name: [value for row in rows if row is not None for value in row[name]] for name in names}
