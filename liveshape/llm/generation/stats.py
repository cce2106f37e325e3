"""Timestamps and token counts of a generation, with the field names of ExecuTorch's runners."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from typing import Any


def now_ms() -> int:
    """Wall clock in milliseconds since 1970, as in ExecuTorch."""
    return time.time_ns() // 1_000_000


@dataclass
class Stats:
    """Timestamps in milliseconds since 1970 and token counts; 0 if it has not happened.

    Example: `stats = Stats(); text = generate(model, tokenizer, "Hi", stats=stats); print(stats.as_dict())`.
    """

    SCALING_FACTOR_UNITS_PER_SECOND: int = 1000
    model_load_start_ms: int = 0
    model_load_end_ms: int = 0
    inference_start_ms: int = 0
    token_encode_end_ms: int = 0
    prompt_eval_end_ms: int = 0
    first_token_ms: int = 0
    inference_end_ms: int = 0
    num_prompt_tokens: int = 0
    num_generated_tokens: int = 0
    num_proposed_tokens: int = 0  # draft tokens
    num_accepted_tokens: int = 0

    def as_dict(self) -> dict[str, Any]:
        """The fields as a dict, for JSON."""
        return asdict(self)


def first_token_seconds(stats: Stats) -> float:
    """From the beginning of a generation to its first token; 0 if there was none.

    >>> first_token_seconds(Stats(inference_start_ms=1000, first_token_ms=1250))
    0.25
    """
    return (stats.first_token_ms - stats.inference_start_ms) / 1000 if stats.first_token_ms else 0.0
