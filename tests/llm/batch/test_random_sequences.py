"""Random arrivals, lengths, cancels, forks, truncates and small pools against each sequence alone: the same tokens, the
same logits."""

from __future__ import annotations

import random
from collections.abc import Callable
from collections.abc import Sequence as Tokens
from typing import Any

import pytest

from liveshape.llm.batch.scheduler import Sequence
from liveshape.llm.engine.speculative import Lookahead
from tests.llm.batch.crowd import Crowd, Subject, check, compare, runner_of
from tests.support.llamas import Tiny, program

LAST = Tiny("last")
# Tiny models, and how each is loaded.
KINDS: dict[str, tuple[Tiny, dict[str, Any]]] = {
    "last": (LAST, {}),
    "qwen": (Tiny("qwen", qwen=True), {}),
    "rows": (Tiny("rows", full_logits=True), {}),
    # One row and several are summed in another order, so a key may be rounded to the half beside it, 2^-10 away.
    "half cache": (LAST, {"half_cache": True}),
    # One row and several are quantized by other kernels, whose last bits turn bytes over.
    "int8": (LAST, {"activations": "int8", "tolerance": 0.25}),
}
QUICK = ("last", "rows")


def subject_of(kind: str) -> Subject:
    """Its file, which is exported if there is none."""
    tiny, options = KINDS[kind]
    return Subject(program(tiny), **options)


@pytest.mark.parametrize(
    "kind", [kind if kind in QUICK else pytest.param(kind, marks=pytest.mark.slow) for kind in KINDS]
)
def test_forty_sequences(kind: str) -> None:
    subject = subject_of(kind)
    runner = runner_of(subject, 7)
    assert check(subject, runner, 40, 1) > 0
    runner.close()


class Told:
    """Drafts a text that it was told, with a wrong token now and then."""

    def __init__(self, text: Tokens[int]) -> None:
        self._text, self._draw = list(text), random.Random(1)

    def may_draft(self, tokens: Tokens[int]) -> bool:
        return self._draw.random() < 0.7

    def draft(self, tokens: Tokens[int], token: int, most: int) -> list[int]:
        found = self._text[len(tokens) + 1 :][:most]
        return [each if self._draw.random() < 0.7 else 3 for each in found]


def test_draft_tokens_change_nothing() -> None:
    subject = subject_of("last")
    runner = runner_of(subject, 9)

    def crowd_of(lookahead: Callable[[int], Lookahead | None]) -> Crowd:
        crowd = Crowd(runner, 3)
        for place, prompt in enumerate(([5, 6, 7] * 4, [9, 8])):
            sequence = Sequence(prompt, crowd.context, lookahead=lookahead(place))
            crowd.logits[sequence] = []
            crowd.scheduler.add(sequence)
        crowd.run(0, [])
        return crowd

    texts = [sequence.tokens for sequence in crowd_of(lambda place: None).logits]
    crowd = crowd_of(lambda place: Lookahead(Told(texts[place]), 3))
    assert [sequence.tokens for sequence in crowd.logits] == texts
    assert crowd.accepted > 0
    assert any(0 < each.lookahead.accepted < each.lookahead.proposed for each in crowd.logits if each.lookahead)
    compare(subject, crowd)
    runner.close()


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_five_hundred_sequences(kind: str) -> None:
    subject = subject_of(kind)
    for pages in (4, 9, 30):
        runner = runner_of(subject, pages)
        assert sum(check(subject, runner, 42, seed) for seed in range(4)) > 0
        runner.close()
