"""The options of a generation, validated before anything is computed, for one sequence or for many."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from liveshape.errors import InputError
from liveshape.llm.arguments import callables, token_biases, token_ids, token_limit
from liveshape.llm.generation.constraint import Constraint, grammar_of
from liveshape.llm.generation.host_sampling import host_sampler
from liveshape.llm.generation.host_stream import HostChooser
from liveshape.llm.generation.logprobs import logprob_count
from liveshape.llm.generation.options import LogitsProcessor, Prompt, Sampler
from liveshape.llm.generation.prompts import ModelInfo, fitting_ids, max_new_tokens
from liveshape.llm.generation.stats import Stats, now_ms
from liveshape.llm.generation.stopping import StopWatch
from liveshape.llm.sampling_settings import Sampling
from liveshape.llm.text.tokenizer import Tokenizer

MAX_TOKENS = 256


@dataclass(frozen=True)
class Preparation:
    """A validated generation: its prompt, how many tokens may follow, how they are sampled, and what ends them.

    `chooser` samples on the host, where options need that. `logprobs` is the number of top tokens to report. The first
    tokens of the answer are the `forced` ones.
    """

    ids: list[int]
    limit: int
    sampling: Sampling
    ends: frozenset[int]
    watch: StopWatch
    chooser: HostChooser | None
    logprobs: int | None
    forced: tuple[int, ...] = ()


def prepare(
    model: ModelInfo,
    tokenizer: Tokenizer,
    prompt: Prompt,
    stats: Stats,
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
    sampler: Sampler | None = None,
    logits_processors: Sequence[LogitsProcessor] = (),
    logprobs: int | None = None,
    json_schema: Mapping[str, Any] | str | bool | None = None,
    regex: str | None = None,
    forced_tokens: Sequence[int] = (),
    raw: bool = False,
) -> Preparation:
    """Validate the options of `stream_generate` that say which tokens follow.

    Example: `prepare(model, tokenizer, "Once upon a time", Stats(), max_tokens=20).ids`.
    """
    most, watch = token_limit(max_tokens), StopWatch(() if stop is None else stop)
    choosers = callables("sampler", () if sampler is None else (sampler,))
    processors = callables("logits_processors", logits_processors)
    ids, limit = _prompt(model, tokenizer, prompt, most, raw, stats)
    sampling = tokenizer.generation.sampling(
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        min_p=min_p,
        repetition_penalty=repetition_penalty,
        frequency_penalty=frequency_penalty,
        presence_penalty=presence_penalty,
        seed=seed,
    ).after(len(ids))
    biases = token_biases(logit_bias, model.vocab_size)
    ends = frozenset(model.eos_ids) | tokenizer.eos_ids
    grammar = grammar_of(json_schema, regex)
    forced = _forced(forced_tokens, model.vocab_size)
    if forced and grammar is not None:
        raise InputError("forced_tokens need not have the form that was asked for: leave out one of both")
    chooser = None
    if choosers or processors or grammar is not None or biases or forced:
        choose = host_sampler(sampling, biases) if sampler is None else lambda _, logits: sampler(logits)
        constraint = None if grammar is None else Constraint(tokenizer, grammar, model.vocab_size, ends)
        chooser = HostChooser(choose, processors, constraint, forced, len(ids))
    return Preparation(ids, limit, sampling, ends, watch, chooser, logprob_count(logprobs, model.vocab_size), forced)


def _forced(given: Any, vocabulary: int) -> tuple[int, ...]:
    forced = tuple(token_ids(given))
    wrong = next((each for each in forced if not 0 <= each < vocabulary), None)
    if wrong is not None:
        raise InputError(f"forced_tokens has {wrong}, the vocabulary of this model ends at {vocabulary}")
    return forced


def check_verifiable(chooser: HostChooser | None) -> None:
    """Raise for speculative decoding of tokens that the host chooses."""
    if chooser is not None:
        raise InputError(
            "lookahead cannot verify what sampler, logits_processors, logit_bias, json_schema, regex or forced_tokens "
            "choose: leave out one of both"
        )


def _prompt(
    model: ModelInfo, tokenizer: Tokenizer, prompt: Prompt, most: int | None, raw: bool, stats: Stats
) -> tuple[list[int], int]:
    """The token ids of a prompt, checked against vocabulary and context, and how many tokens may follow."""
    stats.inference_start_ms = now_ms()
    ids = fitting_ids(tokenizer, prompt, model.max_context, model.trained_context, begin=model.bos_id, raw=raw)
    stats.token_encode_end_ms = now_ms()
    limit = max_new_tokens(len(ids), model, most)
    outside = next((token for token in ids if not 0 <= token < model.vocab_size), None)
    if outside is not None:
        raise InputError(f"the prompt has the token {outside}, the vocabulary of this model ends at {model.vocab_size}")
    return ids, limit
