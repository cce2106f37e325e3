"""`/v1/completions`: texts that the model goes on from, as OpenAI's older route has them."""

from __future__ import annotations

import secrets
import time
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from typing import Any

from liveshape.llm.arguments import text_of, token_ids
from liveshape.llm.generation.prompts import is_batch, prompt_ids
from liveshape.llm.generation.responses import GenerationResponse
from liveshape.llm.text.fill_in import fill_in_ids
from liveshape.llm.text.tokenizer import Tokenizer
from liveshape.serve.answers import Answers
from liveshape.serve.chat_request import seeded
from liveshape.serve.completion_logprobs import TokenRows, joined_rows
from liveshape.serve.fields import Fields
from liveshape.serve.openai_options import common_options, usage, usage_wanted
from liveshape.serve.refusals import Refusal, refused
from liveshape.serve.request_limits import RequestLimits
from liveshape.serve.streaming import DONE, PING, event

_USUAL_TOKENS = 16  # OpenAI's default
_MOST_LOGPROBS = 5


@dataclass(frozen=True)
class PromptText:
    """A prompt as token ids, and what `echo` tells of it."""

    ids: list[int]
    text: str


@dataclass(frozen=True)
class Completion:
    """Prompts, `tried` texts for each, and the `count` best of them."""

    prompts: Sequence[PromptText]
    options: dict[str, Any]
    logprobs: int | None
    count: int
    tried: int
    echo: bool
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
        stream, echo = fields.flag("stream"), fields.flag("echo")
        most = fields.whole("max_tokens", 0 if echo else 1)
        options = {**common_options(fields, vocabulary, limits), "max_tokens": _USUAL_TOKENS if most is None else most}
        top = fields.whole("logprobs", 0, _MOST_LOGPROBS)
        count = fields.whole("n", 1, limits.choices) or 1
        tried = fields.whole("best_of", 1, limits.choices) or count
        if tried < count:
            raise Refusal(400, f"best_of is {tried}, and n is {count}: the best n of best_of are told", "best_of")
        if tried > count and stream:
            raise Refusal(400, "the best texts are known when all have ended: leave out stream or best_of", "best_of")
        if top is not None or tried > count:
            options["logprobs"] = top or 0
        prompts = _prompts(fields, tokenizer)
        if len(prompts) * tried > limits.choices:
            message = f"prompts times n or best_of are {len(prompts) * tried}, at most {limits.choices} are taken"
            raise Refusal(400, message, "prompt")
        wanted = usage_wanted(fields, stream)
        fields.done()
        identity, now = f"cmpl-{secrets.token_hex(12)}", int(time.time())
        return cls(prompts, options, top, count, tried, echo, stream, wanted, model, identity, now)

    def requests(self) -> list[tuple[list[int], dict[str, Any]]]:
        """What the engine is asked for: the texts, and behind them the log-probabilities of prompts that are told."""
        texts = [each for prompt in self.prompts for each in seeded(prompt.ids, self.options, self._tried)]
        return texts + [_scoring(prompt.ids, self.logprobs or 0) for prompt in self._scored]

    @property
    def _tried(self) -> int:
        """Texts of a prompt that the engine is asked for: none where the prompt alone is told."""
        return self.tried if self.options["max_tokens"] else 0

    @property
    def _scored(self) -> list[PromptText]:
        """Prompts whose log-probabilities are told; the first token of a prompt has none."""
        told = self.echo and self.logprobs is not None
        return [prompt for prompt in self.prompts if len(prompt.ids) > 1] if told else []

    async def whole(self, answers: Answers, tokenizer: Tokenizer) -> dict[str, Any]:
        """The texts at once."""
        read = _Reader(self, tokenizer)
        async for each in answers.responses():
            if each is not None:
                read.take(*each)
        choices: list[dict[str, Any]] = []
        for place, prompt in enumerate(self.prompts):
            tried = read.texts[place * self._tried : (place + 1) * self._tried]
            best = sorted(tried, key=_likelihood, reverse=True) if self.tried > self.count else tried
            for responses in best[: self.count] if self._tried else [[]] * self.count:
                likely = read.rows_of(place)
                rows = likely.first + [likely.row(response) for response in responses]
                text = (prompt.text if self.echo else "") + "".join(response.text for response in responses)
                found = joined_rows(rows) if self.logprobs is not None else None
                reason = responses[-1].finish_reason if responses else "length"
                choices.append(_choice(len(choices), text, reason, found))
        return {**self._heading, "choices": choices, "usage": self._usage(answers)}

    async def chunks(self, answers: Answers, tokenizer: Tokenizer, ping: float) -> AsyncGenerator[bytes, None]:
        """The texts as events; with `echo` each begins with its prompt, as soon as that is known."""
        read, likely = _Reader(self, tokenizer), dict[int, TokenRows]()
        told = {"usage": None} if self.usage else {}

        def chunk(index: int, text: str, reason: str | None, rows: Sequence[Any]) -> bytes:
            found = joined_rows(rows) if self.logprobs is not None and any(rows) else None
            choice = _choice(index, text, reason, found)
            return event({**self._heading, "choices": [choice], **told})

        def begun(place: int) -> list[bytes]:
            """The beginnings of the texts of a prompt, and what of them has come."""
            found = []
            for index in range(place * self.count, (place + 1) * self.count):
                rows = likely[index] = read.rows_of(place)
                if self.echo:
                    reason = None if self._tried else "length"
                    found.append(chunk(index, self.prompts[place].text, reason, rows.first))
                for response in read.texts[index] if self._tried else []:
                    found.append(chunk(index, response.text, response.finish_reason, [rows.row(response)]))
            return found

        open_places = set(range(len(self.prompts)))
        for place in [place for place in open_places if read.known(place)]:
            open_places.discard(place)
            for each in begun(place):
                yield each
        async for arrived in answers.responses(ping):
            if arrived is None:
                yield PING
                continue
            index, response = arrived
            read.take(index, response)
            place = read.place_of(index)
            if place in open_places:
                if read.known(place):
                    open_places.discard(place)
                    for each in begun(place):
                        yield each
                continue
            row = likely[index].row(response)
            if response.text or response.finish_reason or row:
                yield chunk(index, response.text, response.finish_reason, [row])
        if self.usage:
            yield event({**self._heading, "choices": [], "usage": self._usage(answers)})
        yield DONE

    def _usage(self, answers: Answers) -> dict[str, Any]:
        if not self._tried:
            tokens = sum(len(prompt.ids) for prompt in self.prompts)
            return {"prompt_tokens": tokens, "completion_tokens": 0, "total_tokens": tokens}
        return usage(answers, self._tried, len(self.prompts) * self._tried)

    @property
    def _heading(self) -> dict[str, Any]:
        return {"id": self.identity, "object": "text_completion", "created": self.created, "model": self.model}


class _Reader:
    """The responses of a request as they come: those of texts, and those that have a prompt's log-probabilities."""

    def __init__(self, asked: Completion, tokenizer: Tokenizer) -> None:
        self._asked, self._tokenizer = asked, tokenizer
        self._count = len(asked.prompts) * asked._tried
        scored = asked._scored
        self._scored = [place for place, prompt in enumerate(asked.prompts) if prompt in scored]
        self._left = set(self._scored)
        self.texts: list[list[GenerationResponse]] = [[] for _ in range(self._count)]
        self._prompts: list[list[GenerationResponse]] = [[] for _ in asked.prompts]

    def place_of(self, index: int) -> int:
        """The prompt that a response belongs to."""
        return index // self._asked._tried if index < self._count else self._scored[index - self._count]

    def take(self, index: int, response: GenerationResponse) -> None:
        """Keep a response."""
        place = self.place_of(index)
        if index < self._count:
            self.texts[index].append(response)
        else:
            self._prompts[place].append(response)
            if response.finish_reason is not None:
                self._left.discard(place)

    def known(self, place: int) -> bool:
        """Whether what is told of a prompt is known."""
        return place not in self._left

    def rows_of(self, place: int) -> TokenRows:
        """The log-probabilities of a text, whose first rows are those of its prompt, where they are told."""
        asked = self._asked
        if not asked.echo or asked.logprobs is None:
            return TokenRows(self._tokenizer)
        return TokenRows(self._tokenizer, asked.prompts[place].ids[0], self._prompts[place])


def _scoring(ids: list[int], top: int) -> tuple[list[int], dict[str, Any]]:
    """The request that gives the log-probabilities of a prompt: its tokens are forced behind the first."""
    rest = ids[1:]
    return ids[:1], {"forced_tokens": rest, "max_tokens": len(rest), "logprobs": top, "temperature": 0}


def _likelihood(responses: Sequence[GenerationResponse]) -> float:
    """The mean log-probability of the tokens of a text."""
    found = [response.logprobs.chosen for response in responses if response.logprobs is not None]
    return sum(found) / max(len(found), 1)


def _prompts(fields: Fields, tokenizer: Tokenizer) -> list[PromptText]:
    given, suffix = fields.needed("prompt"), fields.text("suffix")
    several = given if is_batch(given) else [given]
    made = []
    for each in several:
        with refused("prompt"):
            prompt = text_of(each, "a prompt") if isinstance(each, str) else token_ids(each)
            ids = prompt_ids(tokenizer, prompt, raw=True)
            text = prompt if isinstance(prompt, str) else tokenizer.decode(ids, skip_special_tokens=True)
        if suffix:
            with refused("suffix"):
                ids = fill_in_ids(tokenizer, prompt, text_of(suffix, "suffix"))
        made.append(PromptText(ids, text))
    return made


def _choice(index: int, text: str, reason: str | None, likely: dict[str, Any] | None) -> dict[str, Any]:
    reason = "stop" if reason == "grammar" else reason
    return {"index": index, "text": text, "logprobs": likely, "finish_reason": reason}
