"""Text generation: `load` gives a model and its tokenizer, `stream_generate` streams text by token, as in mlx-lm.

from liveshape.llm import load, stream_generate

model, tokenizer = load("SmolLM2-135M-Instruct")
for response in stream_generate(model, tokenizer, [{"role": "user", "content": "Hi"}], temperature=0.7):
    print(response.text, end="", flush=True)
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Literal

from liveshape.errors import InputError
from liveshape.graph.activation_kinds import AUTO
from liveshape.llm.arguments import LOOKAHEAD_TOKENS, check_pair, path_of
from liveshape.llm.generation.host_stream import HostChooser, HostStream
from liveshape.llm.generation.options import LogitsProcessor, Prompt, Sampler, Streamer
from liveshape.llm.generation.preparing import MAX_TOKENS, check_verifiable, prepare
from liveshape.llm.generation.response_stream import Request, ResponseStream, responses
from liveshape.llm.generation.stats import Stats
from liveshape.llm.sampling_settings import COMMON
from liveshape.llm.text.tokenizer import Tokenizer
from liveshape.option_names import checks_options

if TYPE_CHECKING:
    from liveshape.device.protocol import Device
    from liveshape.export.model.config import Mode
    from liveshape.llm.language_model import LanguageModel
    from liveshape.progress import Progress


@checks_options()
def load(
    path: str | os.PathLike[str],
    *,
    device: Device | str | int | None = None,
    backend: str | None = None,
    progress: Progress | None = None,
    kernels: Progress | None = None,
    half_cache: bool = False,
    activations: str = AUTO,
    deterministic: bool = False,
    quant: Mode | None = None,
    max_context: int | None = None,
    cache: bool = True,
) -> tuple[LanguageModel, Tokenizer]:
    """Load a model and its tokenizer, from a folder or a `.pte` with a tokenizer beside it, or from a checkpoint.

    A checkpoint (a GGUF file, a Hugging Face folder, or owner/name on the Hub) is converted first. The result is cached
    in LIVESHAPE_CACHE or in the system's cache folder, unless `cache` is False. `quant` is its quantization, as in
    `liveshape export`.
    `max_context` is the size of the KV cache in tokens: for a checkpoint the trained context, at most 2048, by
    default, and else what the file says. Another value needs no other copy of the weights.
    `device` and `backend` are as of `liveshape.load`.
    `progress(done, total)` gets the bytes written, if the model is converted, and then the bytes uploaded.
    On a software adapter, whose driver compiles kernels when they are first used, it compiles those that prompts and
    decode take, so that the first call is quick; `kernels(done, total)` counts them. The driver keeps them on disk.
    `half_cache` keeps a float32 KV cache as float16: half of the memory, slightly less accurate.
    `activations="int8"` quantizes the activations of 4- and 8-bit layers: faster on a GPU, less accurate.
    `"float16"` permits that inputs of products are rounded to float16 for the matrix units of a device, and `"auto"` is
    that where it has some; `"float32"` rounds nothing.
    With `deterministic` logits have the same bytes however a text is cut into calls: slower.

    Example: `model, tokenizer = load("SmolLM2-135M-Instruct.Q4_1.gguf", max_context=4096)`.
    """
    from liveshape.export.runnable import Conversion, runnable
    from liveshape.llm.language_model import LanguageModel
    from liveshape.llm.text.unconverted import tokenizer_of

    conversion = Conversion(quant, max_context, cache)
    told = progress or (lambda done, total: None)
    with runnable(str(path_of(path)), conversion, told, check=tokenizer_of) as folder:
        tokenizer = Tokenizer.load(folder)  # first: cheap, and fails before weights are uploaded
        model = LanguageModel.load(
            folder,
            device=device,
            backend=backend,
            progress=progress,
            half_cache=half_cache,
            activations=activations,
            deterministic=deterministic,
            max_context=max_context,
        )
        warm_up_loaded(model, tokenizer, kernels)
        return model, tokenizer


def warm_up_loaded(model: LanguageModel, tokenizer: Tokenizer, kernels: Progress | None) -> None:
    """Compile what the first call takes by the model's own sampling settings and common ones, or close the model.

    Example: `warm_up_loaded(model, tokenizer, lambda done, total: None)`.
    """
    with ExitStack() as held:
        held.callback(model.close)
        model.warm_up([*COMMON, tokenizer.generation.sampling()], kernels)
        held.pop_all()


@checks_options()
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
    frequency_penalty: float | None = None,
    presence_penalty: float | None = None,
    logit_bias: Mapping[int, float] | None = None,
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
    forced_tokens: Sequence[int] = (),
    raw: bool = False,
) -> ResponseStream:
    """Stream the generated text of a prompt, a response per token. A prompt is a text, token ids, or messages.

    A text is a user message, where the model has a chat template; with `raw`, or without a template, the model
    continues it, and special tokens that are spelled out in it are encoded as such. Token ids are used as they are.

    Options that are None come from the model's generation_config.json; `max_tokens=None` generates up to the context.
    `frequency_penalty` and `presence_penalty` (-2 to 2) are OpenAI's: a logit loses the first for each time that its
    token was generated, and the second once if it was at all; tokens of the prompt do not count. `logit_bias` (by
    token id, -100 to 100) is added after the penalties, with sampling on the host.
    `keep_prefix` reuses the KV cache of the prefix that this prompt shares with the last one.
    `lookahead` is speculative decoding: up to `lookahead_tokens` draft tokens are verified in one call. "ngram" is
    prompt lookup, a smaller model with the same tokenizer a draft model. The text is that of plain decoding, but where
    two logits are equal up to rounding: last bits with float32, much more with `activations="int8"`, where texts may
    diverge. For a model and tokenizer as `load` returns them the vocabularies are compared; for a model alone, only
    their sizes.
    `logprobs=N` adds the log-probabilities of the sampled token and of the top N to each response, from the raw logits:
    before temperature, filters, samplers and processors.
    `json_schema` or `regex` is constrained decoding (the extra `constrain`), with sampling on the host. The finish
    reason is "grammar" where nothing more can follow; with "length" the text does not match yet.
    `forced_tokens` are the first of the answer whatever the model would choose: so a text gets log-probabilities, and
    an EOS token among them ends nothing.
    `sampler(logits) -> token` and each of `logits_processors(tokens, logits) -> logits` get the logits of every step
    on the host, which is slow. Invalid options raise here, not at the first token.
    `async for` works as well: the event loop runs while the device works.

    Example: `for response in stream_generate(model, tokenizer, "Once", stop="\\n\\n"): print(response.text, end="")`.
    """
    check_pair(model, tokenizer)
    stats = Stats() if stats is None else stats
    _check_listeners(stats, streamer)
    given = prepare(
        model,
        tokenizer,
        prompt,
        stats,
        max_tokens=max_tokens,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        min_p=min_p,
        repetition_penalty=repetition_penalty,
        frequency_penalty=frequency_penalty,
        presence_penalty=presence_penalty,
        logit_bias=logit_bias,
        seed=seed,
        stop=stop,
        sampler=sampler,
        logits_processors=logits_processors,
        logprobs=logprobs,
        json_schema=json_schema,
        regex=regex,
        forced_tokens=forced_tokens,
        raw=raw,
    )
    ids, chooser = given.ids, given.chooser
    ahead = lookahead_options(model, tokenizer, lookahead, lookahead_tokens, chooser)

    def tokens(cached: int) -> Iterator[int]:
        if chooser is None:
            sampling, logits = given.sampling, given.logprobs is not None
            return model.stream(
                ids[cached:], sampling, max_tokens=given.limit, stop_ids=given.ends, logits=logits, **ahead
            )
        model.prefill(ids[cached:])
        return HostStream(model, ids, chooser)

    return responses(model, tokenizer, Request(given, keep_prefix, tokens), streamer, stats)


def _check_listeners(stats: Any, streamer: Any) -> None:
    if not isinstance(stats, Stats):
        raise InputError(f"stats must be a Stats, {type(stats).__name__} was given")
    if streamer is not None and not (hasattr(streamer, "put") and hasattr(streamer, "end")):
        raise InputError(f"a streamer has put(ids) and end(), {type(streamer).__name__} has not")


def lookahead_options(
    model: LanguageModel, tokenizer: Tokenizer, lookahead: Any, draft_tokens: int, chooser: HostChooser | None
) -> dict[str, Any]:
    """The options of `LanguageModel.stream` for speculative decoding, checked; empty without it.

    Example: `lookahead_options(model, tokenizer, "ngram", 7, None)`.
    """
    if lookahead is None:
        return {}
    check_verifiable(chooser)
    drafter = _drafter(tokenizer, lookahead)
    model.check_lookahead(drafter, draft_tokens)
    return {"lookahead": drafter, "lookahead_tokens": draft_tokens}


def _drafter(tokenizer: Tokenizer, lookahead: Any) -> Any:
    """The drafter, "ngram" or a draft model, whose tokenizer is compared if it is given."""
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
