"""A sequence between requests: its tokens, and the pages of their rows while nobody needs these more. No GPU."""

from __future__ import annotations

from collections.abc import Sequence

from liveshape.llm.batch.pages import PageTable


class KeptSequence:
    """Tokens that requests go on from. Without pages they are computed again, which changes no result.

    Example: `kept = KeptSequence(); scheduler.add(Sequence([*kept.tokens, 7], limit, continues=kept))`.
    """

    def __init__(self) -> None:
        self.tokens: list[int] = []
        self.table: PageTable | None = None  # with a row of each token

    def replace(self, tokens: Sequence[int], table: PageTable | None) -> None:
        """Other tokens, and their pages."""
        self.drop()
        self.tokens, self.table = list(tokens), table

    def fork(self) -> KeptSequence:
        """The same tokens in the same pages; of these at most one, which is not full, is ever copied."""
        other = KeptSequence()
        other.replace(self.tokens, None if self.table is None else self.table.fork())
        return other

    def truncate(self, length: int) -> None:
        """Keep the first `length` tokens."""
        del self.tokens[length:]
        if self.table is not None:
            self.table.truncate(length)

    def drop(self) -> None:
        """Give the pages back."""
        table, self.table = self.table, None
        if table is not None:
            table.release()
