"""Choosing a token on the host, for logits that callables of the user have changed: the settings mean what they do on
the GPU, the draws are others."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from liveshape.llm.sampling import Sampling

Logits = npt.NDArray[np.float32]  # (vocabulary,)
Tokens = npt.NDArray[np.int64]  # all so far, those of the prompt included


def host_sampler(sampling: Sampling) -> Callable[[Tokens, Logits], int]:
    """A function of the tokens so far and the logits of the next that draws it.

    >>> host_sampler(Sampling())(np.array([0]), np.array([0.5, 2.0, 1.0], np.float32))
    1
    """
    random = np.random.default_rng(sampling.seed)

    def choose(tokens: Tokens, logits: Logits) -> int:
        scores = logits.astype(np.float64)
        if sampling.repetition_penalty != 1:
            seen = np.unique(tokens)
            penalty = sampling.repetition_penalty
            scores[seen] = np.where(scores[seen] > 0, scores[seen] / penalty, scores[seen] * penalty)
        if sampling.greedy:
            return int(np.argmax(scores))
        order = np.argsort(-scores, kind="stable")
        order = order[: sampling.top_k] if sampling.top_k else order
        ranked = np.exp((scores[order] - scores[order[0]]) / sampling.temperature)
        ranked /= ranked.sum()
        # A token is within top-p if those before it do not reach it already, so the first always is.
        kept = np.concatenate(([0.0], np.cumsum(ranked)[:-1])) < sampling.top_p
        ranked = np.where(kept & (ranked >= sampling.min_p * ranked[0]), ranked, 0)
        return int(order[random.choice(len(order), p=ranked / ranked.sum())])

    return choose
