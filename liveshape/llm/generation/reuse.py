"""What a prompt and the cache of a model begin with alike need not be computed again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from liveshape.errors import UnsupportedError
from liveshape.llm.engine.common_prefix import common_prefix

if TYPE_CHECKING:
    from liveshape.llm.language_model import LanguageModel


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
