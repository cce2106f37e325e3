"""Text from a prompt: `generate` gives it whole, `stream_generate` token by token, with the names of mlx-lm.

from liveshape.llm import load, stream_generate

model, tokenizer = load("SmolLM2-135M-Instruct")
for response in stream_generate(model, tokenizer, [{"role": "user", "content": "Hi"}], temperature=0.7):
    print(response.text, end="", flush=True)
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeGuard, Unpack, overload

import numpy as np

from liveshape.errors import InputError, counted
from liveshape.llm.arguments import LOOKAHEAD_TOKENS, callables, check_pair, path_of, text_of, token_ids, token_limit
from liveshape.llm.generation.constraint import Constraint, grammar_of
from liveshape.llm.generation.host_sampling import host_sampler
from liveshape.llm.generation.host_stream import HostStream
from liveshape.llm.generation.logprobs import logprob_count, logprobs_of
from liveshape.llm.generation.options import GenerationOptions, LogitsProcessor, Prompt, Prompts, Sampler, Streamer
from liveshape.llm.generation.responses import GenerationResponse, speed_text
from liveshape.llm.generation.reuse import cut_to_prefix
from liveshape.llm.generation.stats import Stats, now_ms
from liveshape.llm.generation.stopping import StopWatch
from liveshape.llm.program.context import larger_context
from liveshape.llm.text.tokenizer import StreamDecoder, Tokenizer

if TYPE_CHECKING:
    from liveshape.device.protocol import Device
    from liveshape.export.model.config import Mode
    from liveshape.llm.language_model import LanguageModel
    from liveshape.run.weights import Progress

MAX_TOKENS = 256


class ContextError(InputError):
    """A prompt is longer than the context of the model; both numbers are in the message and here.

    Example: `except ContextError as error: print(error.tokens, error.context)`.
    """

    def __init__(self, tokens: int, context: int, trained: int | None = None) -> None:
        super().__init__(
            f"the prompt is {counted(tokens, 'token')} long, the context of this model is {context:,}: "
            f"shorten the prompt, or {larger_context(trained, tokens)}"
        )
        self.tokens, self.context = tokens, context


def load(
    path: str | os.PathLike[str],
    *,
    device: Device | str | int | None = None,
    progress: Progress | None = None,
    half_cache: bool = False,
    activations: str = "float32",
    quant: Mode | None = None,
    max_context: int | None = None,
    cache: bool = True,
) -> tuple[LanguageModel, Tokenizer]:
    """A model and its tokenizer: a folder or a `.pte` with a tokenizer beside it, or a model that is converted first.

    That is a GGUF file, a Hugging Face folder, or the name of one on the Hub (owner/name). What is made of it is kept
    for the next time, in LIVESHAPE_CACHE or where the system keeps such things; without `cache` it is not.
    `quant` says how it is converted, as of `liveshape export`.
    `max_context` is how many tokens the cache holds: of what is converted 2048 or what the model was trained for if
    that is less, and else what the file says. No other copy of the weights is made for another one.
    `progress(done, total)` is told the bytes that are written, if they are, and then those that are uploaded.
    `half_cache` keeps a float32 cache as float16: half of its memory, a little less exact.
    `activations="int8"` rounds the rows of 4-bit layers to integers: faster on a GPU, and less exact.

    Example: `model, tokenizer = load("SmolLM2-135M-Instruct.Q4_1.gguf", max_context=4096)`.
    """
    from liveshape.export.runnable import Conversion, runnable
    from liveshape.llm.language_model import LanguageModel
    from liveshape.llm.text.unconverted import tokenizer_of

    conversion = Conversion(quant, max_context, cache)
    told = progress or (lambda done, total: None)
    with runnable(str(path_of(path)), conversion, told, check=tokenizer_of) as folder:
        tokenizer = Tokenizer.load(folder)  # first: it is cheap, and fails without any weight uploaded
        return LanguageModel.load(
            folder,
            device=device,
            progress=progress,
            half_cache=half_cache,
            activations=activations,
            max_context=max_context,
        ), tokenizer


@overload
def generate(
    model: LanguageModel,
    tokenizer: Tokenizer,
    prompt: Prompt,
    *,
    verbose: bool = ...,
    **options: Unpack[GenerationOptions],
) -> str: ...


@overload
def generate(
    model: LanguageModel,
    tokenizer: Tokenizer,
    prompt: Prompts,
    *,
    verbose: bool = ...,
    **options: Unpack[GenerationOptions],
) -> list[str]: ...


def generate(
    model: LanguageModel,
    tokenizer: Tokenizer,
    prompt: Prompt | Prompts,
    *,
    verbose: bool = False,
    **options: Unpack[GenerationOptions],
) -> str | list[str]:
    """The whole answer to a prompt; the options are those of `stream_generate`, `verbose` prints as it comes.

    Of a list of prompts, a list of texts: one after the other, with the same options, and none before all are checked.

    Example: `generate(model, tokenizer, "Once upon a time", max_tokens=100, seed=7)`.
    """

    def text(responses: Iterator[GenerationResponse]) -> str:
        pieces = []
        response = None
        for response in responses:
            pieces.append(response.text)
            if verbose:
                print(response.text, end="", flush=True)
        if verbose and response is not None:
            print(f"\n{speed_text(response, options.get('stats'))}")
        return "".join(pieces)

    prompts: Sequence[Any] = prompt if _are_several(prompt) else [prompt]
    streams = [stream_generate(model, tokenizer, each, **options) for each in prompts]
    # Each in one turn: threads that share a model get a whole text each.
    texts = [model.turn.run(text, stream) for stream in streams]
    return texts if _are_several(prompt) else texts[0]


def stream_generate(
    model: LanguageModel,
    tokenizer: Tokenizer,
    prompt: Prompt,
    *,
    max_tokens: int | None = MAX_TOKENS,
    temperature: float | None = None,
    top_k: int | None = None,
    top_p: float | None = None,
    min_p: float | None = None,
    repetition_penalty: float | None = None,
    seed: int | None = None,
    stop: str | Sequence[str] | None = (),
    streamer: Streamer | None = None,
    sampler: Sampler | None = None,
    logits_processors: Sequence[LogitsProcessor] = (),
    keep_prefix: bool = False,
    stats: Stats | None = None,
    lookahead: Literal["ngram"] | LanguageModel | tuple[LanguageModel, Tokenizer] | None = None,
    lookahead_tokens: int = LOOKAHEAD_TOKENS,
    logprobs: int | None = None,
    json_schema: Mapping[str, Any] | str | bool | None = None,
    regex: str | None = None,
    raw: bool = False,
) -> Generator[GenerationResponse, None, None]:
    """The answer to a prompt, a response for each token. A prompt is a text, ids, or messages.

    A text is what a user says, where the model has a chat template; with `raw`, or without a template, it is what the
    model goes on from, control tokens that are spelled out in it included. ids are taken as they are.

    What is None is as the model's generation_config.json recommends; `max_tokens=None` goes on while there is context.
    With `keep_prefix` the tokens that this prompt and the last one begin with alike are not computed again.
    `lookahead` guesses what follows and verifies up to `lookahead_tokens` guesses in one call, so that it comes sooner:
    "ngram" guesses from the text itself, a smaller model with the same tokenizer from what it would write. The text is
    that without guesses, but where two tokens are as likely as each other up to rounding: last bits with float32, much
    more with `activations="int8"`, where texts may go apart. What `load` gives for the smaller model is checked against
    the tokenizer; of the model alone, only the number of its tokens can be.
    `logprobs=N` gives each response the log-probability of its token and of the N likeliest, by the model's own logits:
    no setting, sampler or processor has touched them.
    `json_schema` or `regex` gives the text a form (the extra `constrain`): tokens that would leave it are not chosen,
    which is done on the host. Where nothing can follow any more, the finish reason is "grammar"; a text that "length"
    ends is not of the form yet.
    `sampler(logits) -> token` and each of `logits_processors(tokens, logits) -> logits` see the logits of every step
    on the host, which is slow. What cannot work is an error here, not at the first token.

    Example: `for response in stream_generate(model, tokenizer, "Once", stop="\\n\\n"): print(response.text, end="")`.
    """
    check_pair(model, tokenizer)
    stats = Stats() if stats is None else stats
    if not isinstance(stats, Stats):
        raise InputError(f"stats must be a Stats, {type(stats).__name__} was given")
    if streamer is not None and not (hasattr(streamer, "put") and hasattr(streamer, "end")):
        raise InputError(f"a streamer has put(ids) and end(), {type(streamer).__name__} has not")
    most, watch = token_limit(max_tokens), StopWatch(() if stop is None else stop)
    choosers = callables("sampler", () if sampler is None else (sampler,))
    processors = callables("logits_processors", logits_processors)
    stats.inference_start_ms = now_ms()
    ids = prompt_ids(tokenizer, prompt, model.bos_id, raw=raw)
    stats.token_encode_end_ms = now_ms()
    limit = _room(len(ids), model, most)
    outside = next((token for token in ids if not 0 <= token < model.vocab_size), None)
    if outside is not None:
        raise InputError(f"the prompt has the token {outside}, the vocabulary of this model ends at {model.vocab_size}")
    sampling = tokenizer.generation.sampling(
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        min_p=min_p,
        repetition_penalty=repetition_penalty,
        seed=seed,
    )
    ends = frozenset(model.eos_ids) | tokenizer.eos_ids
    ahead: dict[str, Any] = {}
    grammar = grammar_of(json_schema, regex)
    on_host = bool(choosers or processors or grammar is not None)
    if lookahead is not None:
        if on_host:
            raise InputError(
                "lookahead cannot verify what sampler, logits_processors, json_schema or regex choose: "
                "leave out one of both"
            )
        guesses = _guesses(tokenizer, lookahead)
        model.check_lookahead(guesses, lookahead_tokens)
        ahead = {"lookahead": guesses, "lookahead_tokens": lookahead_tokens}
    told = logprob_count(logprobs, model.vocab_size)
    if told is not None:
        ahead["logits"] = True
    constraint = None if grammar is None else Constraint(tokenizer, grammar, model.vocab_size, ends)

    def tokens(cached: int) -> Iterator[int]:
        if not on_host:
            return model.stream(ids[cached:], sampling, max_tokens=limit, stop_ids=ends, **ahead)
        model.prefill(ids[cached:])
        choose = host_sampler(sampling) if sampler is None else lambda _, logits: sampler(logits)
        return HostStream(model, ids, choose, processors, constraint)

    request = _Request(ids, limit, ends, watch, keep_prefix, tokens, told)
    return _responses(model, tokenizer, request, streamer, stats)


def prompt_ids(tokenizer: Tokenizer, prompt: Prompt, begin: int | None = None, *, raw: bool = False) -> list[int]:
    """The ids of a prompt: messages go through the chat template, and so does a text unless it is `raw`.

    One that is empty is the token that begins a text: the tokenizer's, or else `begin`.

    Example: `prompt_ids(tokenizer, [{"role": "user", "content": "Hi"}])`.
    """
    if isinstance(prompt, str):
        text = text_of(prompt, "the prompt")
        chats = tokenizer.chat_template is not None and not raw
        said = [{"role": "user", "content": text}]
        ids = tokenizer.apply_chat_template(said) if chats else tokenizer.encode_prompt(text)
    elif _are_messages(prompt):
        if raw:
            raise InputError("raw takes a text as it is, and messages were given: they need the chat template")
        ids = tokenizer.apply_chat_template(prompt)
    else:
        try:
            ids = token_ids(prompt)
        except InputError as error:
            raise InputError(f"a prompt is a text, token ids, or messages: {error}") from error
    if ids:
        return ids
    begin = begin if tokenizer.bos_id is None else tokenizer.bos_id
    if begin is None:
        raise InputError("the prompt is empty, and this model has no token that begins a text")
    return [begin]


def _guesses(tokenizer: Tokenizer, lookahead: Any) -> Any:
    """What guesses, after a look at its tokenizer where there is one."""
    if not isinstance(lookahead, tuple):
        return lookahead
    if len(lookahead) != 2 or not isinstance(lookahead[1], Tokenizer):
        raise InputError("lookahead must be 'ngram', a model, or a model and its tokenizer as `load` gives them")
    model, other = lookahead
    if not tokenizer.same_tokens(other):
        raise InputError(
            f"the tokenizer of the model that guesses is another one ({other.vocab_size:,} tokens, here "
            f"{tokenizer.vocab_size:,}): it must give every token the same number; take a model of the same family"
        )
    return model


def _are_messages(prompt: Any) -> TypeGuard[Sequence[Mapping[str, Any]]]:
    listed = isinstance(prompt, Sequence) and len(prompt) > 0
    return listed and all(isinstance(item, Mapping) for item in prompt)


def _are_several(prompt: Any) -> TypeGuard[Prompts]:
    """Whether each item of a list is a prompt of its own: a text, ids, or messages."""
    if not isinstance(prompt, (list, tuple)) or not prompt:
        return False
    return all(isinstance(item, (str, list, tuple, np.ndarray)) for item in prompt)


def _room(tokens: int, model: LanguageModel, max_tokens: int | None) -> int:
    """How many tokens may follow the prompt; the last of them needs no place of its own in the cache."""
    if tokens > model.max_context:
        raise ContextError(tokens, model.max_context, model.trained_context)
    room = model.max_context - tokens + 1
    return room if max_tokens is None else min(max_tokens, room)


@dataclass(frozen=True)
class _Request:
    """What is asked of a model, checked; `tokens(cached)` starts it behind what the cache holds."""

    ids: list[int]
    limit: int
    ends: frozenset[int]
    watch: StopWatch
    keep_prefix: bool
    tokens: Callable[[int], Iterator[int]]
    logprobs: int | None  # how many of the likeliest tokens to tell of


def _responses(
    model: LanguageModel, tokenizer: Tokenizer, request: _Request, streamer: Streamer | None, stats: Stats
) -> Generator[GenerationResponse, None, None]:
    ids, watch = request.ids, request.watch
    decoder = StreamDecoder(tokenizer, ids)
    memory = model.memory.total / 1e9
    start = first = time.perf_counter()
    stats.num_prompt_tokens = len(ids)
    if streamer is not None:
        streamer.put(np.asarray(ids, np.int64))

    def begin() -> tuple[int, Iterator[int]]:
        if not request.keep_prefix:
            model.reset()
        cached = cut_to_prefix(model, ids) if request.keep_prefix else 0
        return cached, request.tokens(cached)

    # In one turn: nobody else's text may come between what is cut and what is added.
    cached, source = model.turn.run(begin)
    said: list[int] = []
    reason: str | None = None
    try:
        while reason is None:
            token = next(source, None)
            text = ""
            logprobs = None
            if token is None:
                reason = "stop"
            else:
                said.append(token)
                if request.logprobs is not None:
                    logprobs = logprobs_of(getattr(source, "logits", None), token, request.logprobs)
                if streamer is not None:
                    streamer.put(np.asarray([token], np.int64))
                ended = token in request.ends
                text = watch.put("" if ended else decoder.put(token))
                if ended or watch.matched is not None:
                    reason = "stop"
                elif getattr(source, "complete", False):
                    reason = "grammar"
                elif len(said) >= request.limit:
                    reason = "length"
            if len(said) == 1:
                first = time.perf_counter()
                stats.prompt_eval_end_ms = stats.first_token_ms = now_ms()
            if reason is not None:
                text += watch.put(decoder.end()) + watch.end()
                reason = "stop" if watch.matched is not None else reason
            stats.num_generated_tokens, stats.inference_end_ms = len(said), now_ms()
            stats.num_proposed_tokens = getattr(source, "proposed", 0)
            stats.num_accepted_tokens = getattr(source, "accepted", 0)
            yield GenerationResponse(
                text=text,
                token=said[-1] if said else ids[-1],
                prompt_tokens=len(ids),
                prompt_tps=(len(ids) - cached) / max(first - start, 1e-9),
                generation_tokens=len(said),
                generation_tps=(len(said) - 1) / max(time.perf_counter() - first, 1e-9) if len(said) > 1 else 0.0,
                peak_memory=memory,
                finish_reason=reason,
                logprobs=logprobs,
            )
    finally:
        # A stream that nobody reads on must not run ahead on the device.
        close = getattr(source, "close", None)
        if close is not None:
            close()
        if streamer is not None:
            streamer.end()
