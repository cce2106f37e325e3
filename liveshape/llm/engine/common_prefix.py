"""How far two rows of tokens are the same: what a cache holds of a prompt, and what of a draft is accepted."""

from __future__ import annotations

from collections.abc import Sequence


def common_prefix(first: Sequence[int], second: Sequence[int]) -> int:
    """How many tokens two rows begin with alike.

    >>> common_prefix([1, 2, 3], [1, 2, 4, 5])
    2
    """
    pairs = zip(first, second, strict=False)
    return next((place for place, (one, other) in enumerate(pairs) if one != other), min(len(first), len(second)))
