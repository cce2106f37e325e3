"""Log-probabilities (logprobs) of sampled and top tokens, from the raw logits: before temperature and filters."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Integral
from typing import Any

import numpy as np

from liveshape.errors import InputError

LEAST_LIKELY = -9999.0  # OpenAI's logprob for a probability of 0, since JSON has no infinity


@dataclass(frozen=True)
class Logprobs:
    """Log-probability of the sampled token, and the top tokens in descending order: (token, log-probability).

    Example: `math.exp(response.logprobs.chosen)`.
    """

    chosen: float
    top: tuple[tuple[int, float], ...] = ()


def logprobs_of(logits: Any, token: int, count: int) -> Logprobs:
    """The log-probabilities of a token and of the top `count` tokens (log-softmax).

    >>> logprobs_of(np.log([0.5, 0.25, 0.25]), 2, 1).top
    ((0, -0.6931471805599453),)
    """
    scores = np.asarray(logits, np.float64).reshape(-1)
    highest = scores.max()
    found = scores - highest - np.log(np.exp(scores - highest).sum())
    likeliest = np.argpartition(-found, count - 1)[:count] if 0 < count < found.size else np.arange(found.size)[:count]
    # Ties: the lower token id first.
    order = likeliest[np.lexsort((likeliest, -found[likeliest]))]
    return Logprobs(float(found[token]), tuple((int(each), float(found[each])) for each in order))


def logprob_count(given: Any, vocabulary: int) -> int | None:
    """Validate `logprobs`: the number of top tokens to report; None for no logprobs at all.

    >>> logprob_count(5, 100), logprob_count(None, 100)
    (5, None)
    """
    if given is None:
        return None
    if isinstance(given, bool) or not isinstance(given, Integral) or not 0 <= int(given) <= vocabulary:
        raise InputError(f"logprobs is a whole number from 0 to {vocabulary}, or None, {given!r} was given")
    return int(given)
