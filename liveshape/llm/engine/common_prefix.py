"""Common prefix of two token sequences, for prefix reuse of the KV cache and for accepting draft tokens."""

from __future__ import annotations

from collections.abc import Sequence


def common_prefix(first: Sequence[int], second: Sequence[int]) -> int:
    """The length of the common prefix of two token sequences.

    >>> common_prefix([1, 2, 3], [1, 2, 4, 5])
    2
    """
    pairs = zip(first, second, strict=False)
    return next((place for place, (one, other) in enumerate(pairs) if one != other), min(len(first), len(second)))
