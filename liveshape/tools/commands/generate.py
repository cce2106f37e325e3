"""`liveshape generate`: stream the completion of a prompt to stdout, and its speed to stderr."""

from __future__ import annotations

import sys
from collections.abc import Generator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from liveshape.errors import InputError
from liveshape.export.runnable import Conversion
from liveshape.graph.activation_kinds import AUTO
from liveshape.llm.arguments import LOOKAHEAD_TOKENS
from liveshape.llm.generation.generating import stream_generate
from liveshape.llm.generation.logprobs import LEAST_LIKELY, Logprobs
from liveshape.llm.generation.options import Prompt
from liveshape.llm.generation.prompts import fitting_ids
from liveshape.llm.generation.responses import GenerationResponse, speed_text
from liveshape.llm.generation.stats import Stats, now_ms
from liveshape.llm.program.context import larger_context
from liveshape.llm.text.tokenizer import Tokenizer
from liveshape.shipped import shipped_model
from liveshape.tools.console import print_json, say
from liveshape.tools.interrupts import interruptible
from liveshape.tools.model_argument import AS_USUAL, device_text, open_lookahead, open_model
from liveshape.tools.prompt_cache import check_prompt_cache, keep_prompt_cache, take_prompt_cache
from liveshape.tools.text_arguments import check_form, check_options, read_prompts, read_schema, read_text
from liveshape.tools.wrapping import wrapped

if TYPE_CHECKING:
    from liveshape.llm.language_model import LanguageModel

_LABEL = 72  # characters of a prompt shown above its completion


def generate(
    model: str | None,
    *,
    prompt: str | Sequence[str] | None = None,
    prompt_file: str | None = None,
    system: str | None = None,
    chat_template: str | None = None,
    raw: bool = False,
    device: str | None = None,
    half_cache: bool = False,
    activations: str = AUTO,
    max_tokens: int | None = None,
    stop: Sequence[str] = (),
    sampling: Mapping[str, Any] | None = None,
    logit_bias: Mapping[int, float] | None = None,
    lookahead: str | None = None,
    lookahead_tokens: int = LOOKAHEAD_TOKENS,
    prompt_cache: str | None = None,
    json_schema: str | None = None,
    regex: str | None = None,
    logprobs: int | None = None,
    as_json: bool = False,
    conversion: Conversion = AS_USUAL,
) -> int:
    """Print generated text to stdout and the speed to stderr; exit code 0, or 130 after Ctrl-C.

    Example: `generate("SmolLM2-135M-Instruct", prompt="Why is the sky blue?", sampling={"temperature": 0.7})`.
    """
    check_options(sampling, max_tokens, stop, lookahead, lookahead_tokens)
    check_prompt_cache(prompt_cache)
    schema = read_schema(json_schema)
    check_form(schema, regex, lookahead, logit_bias)
    if logprobs is not None and not as_json:
        raise InputError("--logprobs are told in JSON: add --json")
    if raw and system is not None:
        raise InputError("--system cannot be told to the model: --raw takes the prompt as it is")
    texts = read_prompts(prompt, prompt_file)
    if not raw and not all(text.strip() for text in texts):
        where = "-p" if prompt_file is None else f"-f {prompt_file}"
        raise InputError(f"{where}: the prompt is empty; give a text, or --raw to let the model begin by itself")
    template = None if chat_template is None else read_text(chat_template)
    asked = _Prompts(texts, system, raw, template)
    stats = Stats(model_load_start_ms=now_ms())
    loaded, tokenizer = open_model(model, device, half_cache, activations, conversion, asked.check_fit, sampling or {})
    drafter = open_lookahead(lookahead, device, half_cache, activations, conversion)
    stats.model_load_end_ms = now_ms()
    take_prompt_cache(loaded, prompt_cache)
    tokenizer = asked.templated(tokenizer)
    if not as_json:
        print(f"device:     {device_text(loaded)}", file=sys.stderr)
    # Draw a random seed here, so that the JSON can report it.
    chosen = asdict(tokenizer.generation.sampling(**(sampling or {})))
    del chosen["prompt_tokens"]  # each prompt has its own
    chosen["logit_bias"] = dict(logit_bias or {})

    def answers(text: str, stats: Stats) -> Generator[GenerationResponse, None, None]:
        return stream_generate(
            loaded,
            tokenizer,
            asked.prompt(tokenizer, text),
            max_tokens=max_tokens,
            stop=stop,
            stats=stats,
            lookahead=drafter,
            lookahead_tokens=lookahead_tokens,
            keep_prefix=prompt_cache is not None,
            json_schema=schema,
            regex=regex,
            logprobs=logprobs,
            raw=raw,
            **chosen,
        )

    # Validate all prompts before the first token of the first one.
    for text in texts[1:]:
        answers(text, Stats()).close()
    documents: list[dict[str, Any]] = []
    stopped = False
    for place, text in enumerate(texts):
        own = replace(stats)
        responses = answers(text, own)
        if len(texts) > 1 and not as_json:
            say(f"{chr(10) if place else ''}==> {_first_line(text)} <==\n")
        answer = _spoken(responses, aloud=not as_json)
        if as_json:
            documents.append(_document(model, loaded, answer, chosen, own))
            if logprobs is not None:
                documents[-1]["logprobs"] = answer.likelihoods(tokenizer)
        else:
            say("\n")
            print(speed_text(answer.last, own), file=sys.stderr)
        _tell_full_context(loaded, answer.last)
        stopped = answer.stopped
        if stopped:
            break
    if as_json:
        print_json(documents[0] if len(texts) == 1 else documents)
    keep_prompt_cache(loaded, prompt_cache)
    return 130 if stopped else 0


@dataclass(frozen=True)
class _Prompts:
    """The given texts and how each is turned into a prompt: chat template or raw."""

    texts: Sequence[str]
    system: str | None
    raw: bool
    template: str | None

    def templated(self, tokenizer: Tokenizer) -> Tokenizer:
        """The tokenizer with the given chat template, or its own."""
        return tokenizer if self.template is None else tokenizer.with_chat_template(self.template)

    def prompt(self, tokenizer: Tokenizer, text: str) -> Prompt:
        """Chat messages for a model with a chat template, else (and with `raw`) the text itself."""
        if self.raw or tokenizer.chat_template is None:
            if self.system is not None:
                raise InputError("--system cannot be told to the model: it has no chat template")
            return text
        opening = [{"role": "system", "content": self.system}] if self.system is not None else []
        return [*opening, {"role": "user", "content": text}]

    def check_fit(self, tokenizer: Tokenizer, context: int | None, trained: int | None) -> None:
        """Raise for a prompt longer than the context, before weights are uploaded."""
        chatting = self.templated(tokenizer)
        for text in self.texts:
            # An empty prompt becomes the BOS token, which only the model knows; for a length any token will do.
            room = sys.maxsize if context is None else context
            fitting_ids(chatting, self.prompt(chatting, text), room, trained, begin=0, raw=self.raw)


@dataclass(frozen=True)
class _Answer:
    """A completion: pieces of text, tokens, logprobs, the last response, and whether Ctrl-C ended it."""

    pieces: list[str]
    tokens: list[int]
    likely: list[Logprobs]
    last: GenerationResponse
    stopped: bool

    @property
    def generated(self) -> list[int]:
        """The generated tokens, without the end-of-sequence token of the last response."""
        return self.tokens[: self.last.generation_tokens]

    def likelihoods(self, tokenizer: Tokenizer) -> list[dict[str, Any]]:
        """Logprobs of each generated token and of the top candidates at its position."""
        return [_likely(tokenizer, *pair) for pair in zip(self.generated, self.likely, strict=True)]


def _spoken(responses: Generator[GenerationResponse, None, None], aloud: bool) -> _Answer:
    """Collect a completion, streaming its text to stdout if `aloud`."""
    pieces: list[str] = []
    tokens: list[int] = []
    likely: list[Logprobs] = []
    last: GenerationResponse | None = None
    with interruptible() as interrupted:
        for last in responses:
            pieces.append(last.text)
            tokens.append(last.token)
            if last.logprobs is not None:
                likely.append(last.logprobs)
            if aloud:
                say(last.text)
            if interrupted():
                responses.close()
                break
        stopped = interrupted()
    assert last is not None
    return _Answer(pieces, tokens, likely, last, stopped)


def _first_line(text: str) -> str:
    line = (text.strip().splitlines() or [""])[0]
    return line if len(line) <= _LABEL else f"{line[: _LABEL - 3]}..."


def _tell_full_context(model: LanguageModel, last: GenerationResponse) -> None:
    tokens = last.prompt_tokens + last.generation_tokens
    if last.finish_reason == "length" and tokens > model.max_context:
        advice = larger_context(model.trained_context, tokens)
        full = f"the context of {model.max_context:,} tokens is full: for a longer text, {advice}"
        print(wrapped(full, sys.stderr), file=sys.stderr)


def _document(
    model: str | None,
    loaded: LanguageModel,
    answer: _Answer,
    sampling: dict[str, Any],
    stats: Stats,
) -> dict[str, Any]:
    numbers = {key: value for key, value in asdict(answer.last).items() if key not in ("text", "token", "logprobs")}
    return {
        "model": model or str(shipped_model()),
        "device": loaded.device.name,
        "activations": loaded.activations,
        "text": "".join(answer.pieces),
        "tokens": answer.generated,
        **numbers,
        "sampling": sampling,
        "stats": stats.as_dict(),
    }


def _likely(tokenizer: Tokenizer, token: int, found: Logprobs) -> dict[str, Any]:
    """Logprobs of a token and its top candidates in OpenAI's format; JSON has no infinity."""

    def row(index: int, logprob: float) -> dict[str, Any]:
        return {"id": index, "token": tokenizer.decode([index]), "logprob": max(logprob, LEAST_LIKELY)}

    return {**row(token, found.chosen), "top_logprobs": [row(*each) for each in found.top]}
