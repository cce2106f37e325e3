"""What a prompt and the cache of a model begin with alike need not be computed again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from liveshape.errors import UnsupportedError

if TYPE_CHECKING:
    from liveshape.llm.language_model import LanguageModel


def common_prefix(first: Sequence[int], second: Sequence[int]) -> int:
    """How many tokens two rows begin with alike.

    >>> common_prefix([1, 2, 3], [1, 2, 4, 5])
    2
    """
    pairs = zip(first, second, strict=False)
    return next((place for place, (one, other) in enumerate(pairs) if one != other), min(len(first), len(second)))


def cut_to_prefix(model: LanguageModel, ids: Sequence[int]) -> int:
    """Cut the cache to what it shares with a prompt, and give that length; the last id is left, for its logits.

    Example: `model.prefill(ids[cut_to_prefix(model, ids):])`.
    """

    def cut() -> int:
        length = min(common_prefix(model.tokens, ids), len(ids) - 1)
        try:
            model.truncate(length)
        except UnsupportedError:  # state that cannot go back to a position can still go back to the start
            length = 0
            model.reset()
        return length

    return model.turn.run(cut)
