"""How the next token is chosen. The choice itself is made on the GPU, by the operator `liveshape.sample`."""

from __future__ import annotations

import math
from dataclasses import dataclass

from liveshape.errors import InputError

_SEEDS = 1 << 32
_MOST_LOGITS = 1 << 31


@dataclass(frozen=True)
class Sampling:
    """Settings with the meaning and the order of Hugging Face: penalty, temperature, top-k, top-p, min-p.

    A temperature of 0 takes the likeliest token, and the filters do not matter; `top_k=0`, `top_p=1`, `min_p=0` and
    `repetition_penalty=1` are off. The same seed at the same position of the same text draws the same token.

    Example: `Sampling(temperature=0.7, top_p=0.9, seed=1)`.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("top_k", "seed"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int):
                raise InputError(f"{name} must be a whole number, {value!r} was given")
        for name in ("temperature", "top_p", "min_p", "repetition_penalty"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
                raise InputError(f"{name} must be a finite number, {value!r} was given")
        self._check("temperature", self.temperature >= 0, "0 (greedy) or above")
        self._check("top_k", 0 <= self.top_k < _MOST_LOGITS, "0 (off) or above")
        self._check("top_p", 0 < self.top_p <= 1, "above 0 and at most 1 (off)")
        self._check("min_p", 0 <= self.min_p <= 1, "from 0 (off) to 1")
        self._check("repetition_penalty", self.repetition_penalty > 0, "above 0; 1 is off")
        self._check("seed", 0 <= self.seed < _SEEDS, f"from 0 to {_SEEDS - 1}")

    def _check(self, name: str, holds: bool, allowed: str) -> None:
        if not holds:
            raise InputError(f"{name} must be {allowed}, {getattr(self, name)} was given")

    @property
    def greedy(self) -> bool:
        """Whether the likeliest token is taken.

        >>> Sampling().greedy, Sampling(temperature=0.8).greedy
        (True, False)
        """
        return self.temperature == 0
