"""Sampling on the host, for logits that the user's callables or a grammar changed. The settings mean the same as on the
GPU; the random draws differ."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from numbers import Integral
from typing import Any

import numpy as np
import numpy.typing as npt

from liveshape.errors import InputError
from liveshape.llm.sampling_settings import Sampling

Logits = npt.NDArray[np.float32]  # (vocabulary,)
_HIGHEST = 3e38  # as on the device: +inf is clamped to a finite float32
Tokens = npt.NDArray[np.int64]  # all so far, with the prompt


def host_sampler(sampling: Sampling, logit_bias: Mapping[int, float] | None = None) -> Callable[[Tokens, Logits], int]:
    """A function that samples the next token from the tokens so far and its logits, to which the bias of tokens is
    added after the penalties.

    >>> host_sampler(Sampling())(np.array([0]), np.array([0.5, 2.0, 1.0], np.float32))
    1
    """
    random = np.random.default_rng(sampling.seed)
    given = logit_bias or {}
    biased, bias = np.fromiter(given, np.int64, len(given)), np.fromiter(given.values(), np.float64, len(given))

    def sample(tokens: Tokens, logits: Logits) -> int:
        scores = logits.astype(np.float64)
        if sampling.repetition_penalty != 1:
            seen = np.unique(tokens)
            penalty = sampling.repetition_penalty
            scores[seen] = np.where(scores[seen] > 0, scores[seen] / penalty, scores[seen] * penalty)
        if sampling.counted:
            sampled, times = np.unique(tokens[sampling.prompt_tokens :], return_counts=True)
            scores[sampled] -= times * sampling.frequency_penalty + sampling.presence_penalty
        scores[biased] += bias
        # As on the device, a NaN is never sampled.
        scores = np.where(np.isnan(scores), -np.inf, np.minimum(scores, _HIGHEST))
        if not np.isfinite(scores).any():
            raise InputError("no token can be drawn: every logit is -inf or NaN; look at the logits_processors")
        if sampling.greedy:
            return int(np.argmax(scores))
        order = np.argsort(-scores, kind="stable")
        order = order[: sampling.top_k] if sampling.top_k else order
        ranked = np.exp((scores[order] - scores[order[0]]) / sampling.temperature)
        ranked /= ranked.sum()
        # top-p: a token is kept if the cumulative probability before it is below p, so the first always is.
        kept = np.concatenate(([0.0], np.cumsum(ranked)[:-1])) < sampling.top_p
        ranked = np.where(kept & (ranked >= sampling.min_p * ranked[0]), ranked, 0)
        return int(order[random.choice(len(order), p=ranked / ranked.sum())])

    return sample


def checked_logits(given: Any, count: int) -> Logits:
    """Validate the logits that a logits processor returned.

    >>> checked_logits([1, 2], 2)
    array([1., 2.], dtype=float32)
    """
    try:
        logits: Logits = np.asarray(given, np.float32).reshape(-1)
    except (TypeError, ValueError) as error:
        raise InputError(f"a logits processor must give logits, {type(given).__name__} came: {error}") from error
    if logits.size != count:
        raise InputError(f"a logits processor must give the logits of all {count} tokens, {logits.size} came")
    return logits


def checked_token(given: Any, count: int) -> int:
    """Validate the token that a sampler returned.

    >>> checked_token(np.array([3]), 10)
    3
    """
    token = given.item() if getattr(given, "size", None) == 1 else given
    if isinstance(token, bool) or not isinstance(token, Integral) or not 0 <= int(token) < count:
        raise InputError(f"a sampler must give a token, an integer from 0 to {count - 1}; {given!r} came")
    return int(token)
