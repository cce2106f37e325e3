"""Speculative decoding without a model: what the text itself drafts, how much, and when nothing for a while."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from liveshape.llm.engine.speculative import Lookahead, Ngrams

TEXT = [1, 2, 3, 4, 50, 9, 2, 3, 4, 60, 9, 3, 4, 70, 9]


@pytest.mark.parametrize(
    ("text", "token", "expected"),
    [
        (TEXT[:-1], 3, []),  # one token alone is no reason
        ([*TEXT, 3], 4, [70, 9, 3]),  # the last time counts
        ([*TEXT, 2, 3], 4, [60, 9, 3]),  # and the longest row of tokens first
        ([*TEXT, 1, 2, 3], 4, [50, 9, 2]),
        ([*TEXT, 1, 2], 3, [4, 50, 9]),
        ([5, 6, 5, 6], 5, [6, 5, 6]),  # what repeats itself goes on
        ([7, 7], 7, [7, 7, 7]),
        ([], 7, []),
        ([7], 7, []),
    ],
)
def test_what_followed_before_may_follow_again(text: list[int], token: int, expected: list[int]) -> None:
    assert Ngrams().draft(text, token, 3) == expected


def test_a_text_that_grows_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    put, count = Ngrams._append, 0

    def counting(self: Ngrams, token: int) -> None:
        nonlocal count
        count += 1
        put(self, token)

    monkeypatch.setattr(Ngrams, "_append", counting)
    tokens = np.random.default_rng(0).integers(0, 5, 300).tolist()
    grams = Ngrams()
    for length in range(100, 300):
        text = tokens[:length]
        grams.may_draft(text)
        assert grams.draft(text, tokens[length], 5) == Ngrams().draft(text, tokens[length], 5)
        count -= length + 1  # what the new one has read
    assert count == 100 + 200 + 199 - 199, "the prompt, and each token when it came"


def test_a_text_that_was_taken_back_is_only_drafted_worse() -> None:
    grams = Ngrams()
    grams.draft([1, 2, 3, 4, 5, 6], 7, 3)
    assert grams.draft([1, 2, 3, 4, 5], 6, 3) == [], "what followed is no more"
    assert grams.draft([1, 2, 3, 4], 1, 3) == []
    assert grams.draft([1, 2, 3, 4, 1], 2, 3) == [3, 4, 1]
    assert not grams.may_draft([1, 2, 3])


class Scripted:
    """Always drafts the same token."""

    def may_draft(self, text: Any) -> bool:
        return True

    def draft(self, text: Any, token: int, most: int) -> list[int]:
        return [5] * most


def test_as_many_as_were_right_of_late() -> None:
    ahead = Lookahead(Scripted(), 7)
    text = list(range(50))

    def drafted(right: int | None) -> int:
        """The number of draft tokens, of which so many, or all, are accepted."""
        found = len(ahead.draft(text, 0, 100))
        ahead.record(len(text), found, found if right is None else right)
        text.append(0)
        return found

    assert [drafted(None) for _ in range(3)] == [4, 7, 7]
    assert [drafted(right) for right in (2, 0, 1, 1, 0)] == [7, 3, 1, 2, 2]
    assert (ahead.proposed, ahead.accepted) == (33, 22)
    ahead.record(len(text) - 1, 7, 7)
    assert ahead.proposed == 33, "told twice, counted once"
    assert len(ahead.draft(text, 0, 100)) == 1
    assert ahead.draft(text, 0, 0) == (), "where there is no room"


def test_after_failures_nothing_is_drafted_for_a_while() -> None:
    ahead = Lookahead(Scripted(), 7)
    pauses, length = [], 10
    for _ in range(6):
        for _ in range(3):
            assert ahead.may_draft(range(length))
            ahead.record(length, 1, 0)
            length += 1
        begin = length
        while not ahead.may_draft(range(length)):
            assert ahead.draft(range(length), 0, 9) == ()
            length += 1
        pauses.append(length - begin + 1)
    assert pauses == [8, 16, 32, 64, 64, 64]
    ahead.record(length, 1, 1)
    for more in (1, 2, 3):
        ahead.record(length + more, 1, 0)
    assert [ahead.may_draft(range(length + more)) for more in (4, 10, 11)] == [False, False, True]
