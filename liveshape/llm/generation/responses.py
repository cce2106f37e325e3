"""Generation responses, one per token, and the tokens per second as text."""

from __future__ import annotations

from dataclasses import dataclass, replace

from liveshape.errors import counted
from liveshape.llm.generation.logprobs import Logprobs
from liveshape.llm.generation.stats import Stats, first_token_seconds


@dataclass  # frozen, it would take five times as long to make, once per token
class GenerationResponse:
    """One token and the text that it completed, which is empty while a character or a stop string is incomplete.

    `prompt_tps` is prefill without the reused prefix, `generation_tps` is decode after the first token, both in
    tokens/s; `peak_memory` is in gigabytes; `finish_reason` is None but in the last response: "stop", "length", or
    "grammar". `stop_string` is the one that ended the text, if one did. `cached_tokens` of the prompt were in the KV
    cache already.
    """

    text: str
    token: int
    prompt_tokens: int
    prompt_tps: float
    generation_tokens: int
    generation_tps: float
    peak_memory: float
    finish_reason: str | None = None
    logprobs: Logprobs | None = None
    stop_string: str | None = None
    cached_tokens: int = 0


def speed_text(response: GenerationResponse, stats: Stats | None = None) -> str:
    """Tokens per second of prefill and decode, a line each; with stats the time to the first token, which no tokens
    per second of decode has in it, and the acceptance of draft tokens.

    Example: `print(speed_text(last), file=sys.stderr)`.
    """
    return (
        f"prompt:     {counted(response.prompt_tokens, 'token')}, {response.prompt_tps:,.1f} tokens/s"
        f"{_first_token_text(stats)}\n"
        f"generation: {counted(response.generation_tokens, 'token')}, {response.generation_tps:,.1f} tokens/s"
        f" ({response.finish_reason or 'interrupted'}){acceptance_text(stats)}"
    )


def _first_token_text(stats: Stats | None) -> str:
    return (
        "" if stats is None or not stats.first_token_ms else f", first token after {first_token_seconds(stats):,.1f} s"
    )


def joined(first: GenerationResponse, second: GenerationResponse) -> GenerationResponse:
    """Two responses in a row as one.

    Example: `joined(responses[0], responses[1]).text`.
    """
    return replace(second, text=first.text + second.text)


def acceptance_text(stats: Stats | None, before: str = "\nlookahead:  ") -> str:
    """The acceptance of draft tokens as text; empty if there were none.

    >>> acceptance_text(Stats(num_proposed_tokens=40, num_accepted_tokens=30), "; ")
    '; 30 of 40 draft tokens accepted'
    """
    if stats is None or not stats.num_proposed_tokens:
        return ""
    return f"{before}{stats.num_accepted_tokens:,} of {stats.num_proposed_tokens:,} draft tokens accepted"
