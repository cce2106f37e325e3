"""Sampling settings: temperature, top-k, top-p, min-p, penalties, seed. Sampling itself runs on the GPU
(operator `liveshape.sample`)."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from numbers import Integral, Real

from liveshape.errors import InputError

_SEEDS = 1 << 32
_MOST_LOGITS = 1 << 31
# Logits are float32 on the device: divided by less than this, different ones would overflow to the same infinity.
_COLDEST, _HOTTEST = 1e-30, 3e38
_PENALTIES = 1e-6, 1e6
_COUNTED = 2.0  # the highest penalty of frequency or presence, as OpenAI has them


@dataclass(frozen=True)
class Sampling:
    """Sampling settings, with the meaning and order of Hugging Face: penalty, temperature, top-k, top-p, min-p.

    A temperature of 0 is greedy: the filters do not matter; one below what float32 can divide by is 0, too. `top_k=0`,
    `top_p=1`, `min_p=0` and `repetition_penalty=1` are off. The same seed at the same position of the same sequence
    samples the same token.
    The repetition penalty is of all tokens so far. OpenAI's are of those that were sampled, behind the first
    `prompt_tokens`: a logit loses `frequency_penalty` for each time that its token was sampled, and `presence_penalty`
    once if it was at all, after the repetition penalty.

    Example: `Sampling(temperature=0.7, top_p=0.9, seed=1)`.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    seed: int = 0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    prompt_tokens: int = 0

    def __post_init__(self) -> None:
        for name in ("top_k", "seed", "prompt_tokens"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, Integral):
                raise InputError(f"{name} must be a whole number, {value!r} was given")
            object.__setattr__(self, name, int(value))
        for name in ("temperature", "top_p", "min_p", "repetition_penalty", "frequency_penalty", "presence_penalty"):
            object.__setattr__(self, name, _finite(name, getattr(self, name)))
        self._check("temperature", 0 <= self.temperature <= _HOTTEST, f"from 0 (greedy) to {_HOTTEST:g}")
        if self.temperature < _COLDEST:
            object.__setattr__(self, "temperature", 0.0)
        self._check("top_k", 0 <= self.top_k < _MOST_LOGITS, "0 (off) or above")
        self._check("top_p", 0 < self.top_p <= 1, "above 0 and at most 1 (off)")
        self._check("min_p", 0 <= self.min_p <= 1, "from 0 (off) to 1")
        least, most = _PENALTIES
        allowed = f"from {least:g} to {most:g}; 1 is off"
        self._check("repetition_penalty", least <= self.repetition_penalty <= most, allowed)
        for name in ("frequency_penalty", "presence_penalty"):
            self._check(name, abs(getattr(self, name)) <= _COUNTED, f"from {-_COUNTED:g} to {_COUNTED:g}; 0 is off")
        self._check("prompt_tokens", 0 <= self.prompt_tokens < _MOST_LOGITS, "0 or above")
        self._check("seed", 0 <= self.seed < _SEEDS, f"from 0 to {_SEEDS - 1}")

    def _check(self, name: str, holds: bool, allowed: str) -> None:
        if not holds:
            raise InputError(f"{name} must be {allowed}, {getattr(self, name)} was given")

    @property
    def limited(self) -> bool:
        """Whether top-k, top-p or min-p leave tokens out.

        >>> Sampling(temperature=0.8).limited, Sampling(temperature=0.8, top_k=40).limited
        (False, True)
        """
        return self.top_k > 0 or self.top_p < 1 or self.min_p > 0

    @property
    def counted(self) -> bool:
        """Whether tokens are penalized by how often they were sampled.

        >>> Sampling(frequency_penalty=0.5).counted
        True
        """
        return self.frequency_penalty != 0 or self.presence_penalty != 0

    @property
    def penalized(self) -> bool:
        """Whether the tokens so far change the scores.

        >>> Sampling(presence_penalty=0.5).penalized, Sampling(repetition_penalty=1.1).penalized
        (True, True)
        """
        return self.repetition_penalty != 1 or self.counted

    def after(self, prompt_tokens: int) -> Sampling:
        """The same settings for what is sampled behind a prompt of so many tokens.

        >>> Sampling(frequency_penalty=0.5).after(7).prompt_tokens
        7
        """
        return replace(self, prompt_tokens=prompt_tokens) if self.counted else self

    @property
    def greedy(self) -> bool:
        """Whether decoding is greedy (argmax).

        >>> Sampling().greedy, Sampling(temperature=0.8).greedy
        (True, False)
        """
        return self.temperature == 0


def _finite(name: str, value: object) -> float:
    try:
        number = float(value) if isinstance(value, Real) and not isinstance(value, bool) else math.nan
    except OverflowError:  # an integer beyond the range of float
        number = math.inf
    if not math.isfinite(number):
        raise InputError(f"{name} must be a finite number, {str(value)[:40]!r} was given")
    return number


# What callers choose most: greedy, and drawn from all tokens.
COMMON = Sampling(), Sampling(temperature=1.0)
