"""Prefix reuse (prompt caching): the common prefix of a prompt and the KV cache is not computed again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from liveshape.errors import UnsupportedError
from liveshape.llm.engine.common_prefix import common_prefix

if TYPE_CHECKING:
    from liveshape.llm.language_model import LanguageModel


def truncate_to_prefix(model: LanguageModel, ids: Sequence[int]) -> int:
    """Truncate the KV cache to the prefix it shares with a prompt; returns its length. The last token is left out: its
    logits are needed.

    Example: `model.prefill(ids[truncate_to_prefix(model, ids):])`.
    """

    def truncate() -> int:
        length = min(common_prefix(model.tokens, ids), len(ids) - 1)
        try:
            model.truncate(length)
        except UnsupportedError:  # state that is not positional can still be reset
            length = 0
            model.reset()
        return length

    return model.lock.run(truncate)
