"""A model beside its source: divergence against a computation of its own, and the text that the package brings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest

from liveshape.errors import InputError
from liveshape.llm import Tokenizer
from liveshape.shipped import shipped_model
from liveshape.tools.commands.export import EVALUATION
from liveshape.tools.measuring.evaluating import compare
from tests.llm.texts import SENTENCES, plain

TEXT = " ".join(SENTENCES)


class Guesser:
    """A model that looks at the last token alone: a row of logits for each, given in pieces."""

    def __init__(self, table: Any, piece: int) -> None:
        self.table, self.piece = table, piece
        self.max_context, self.vocab_size = 16, table.shape[1]
        self.seen = 0

    def reset(self) -> None:
        self.seen = 0

    def prefill(self, ids: Sequence[int]) -> None:
        assert self.seen == 0
        self.seen = len(ids)

    def evaluate_chunks(self, ids: Sequence[int]) -> Iterator[Any]:
        assert self.seen == 8
        for start in range(0, len(ids), self.piece):
            yield self.table[list(ids[start : start + self.piece])]


def test_a_model_beside_another() -> None:
    random, tokenizer = np.random.default_rng(0), plain()
    wanted = random.standard_normal((tokenizer.vocab_size, tokenizer.vocab_size)).astype(np.float32) * 3
    rounded = np.round(wanted)
    model: Any = Guesser(rounded, 3)
    source: Any = Guesser(wanted, 5)
    found = compare(model, source, tokenizer, TEXT)
    ids = tokenizer.encode(TEXT)
    windows = [ids[start : start + 16] for start in range(0, len(ids) - 15, 16)]
    pairs = [(window[at], window[at + 1]) for window in windows for at in range(8, 15)]
    chances = [np.exp(each.astype(np.longdouble)) for each in (wanted, rounded)]
    theirs, ours = (each / each.sum(-1, keepdims=True) for each in chances)
    assert found.model.counted == found.source.counted == len(pairs)
    assert found.model.perplexity == pytest.approx(float(np.exp(np.mean([-np.log(ours[pair]) for pair in pairs]))))
    assert found.source.perplexity == pytest.approx(float(np.exp(np.mean([-np.log(theirs[pair]) for pair in pairs]))))
    by_hand = [(theirs[last] * np.log(theirs[last] / ours[last])).sum() for last, _ in pairs]
    assert found.divergence == pytest.approx(float(np.mean(by_hand)))
    assert found.agreement == np.mean([rounded[last].argmax() == wanted[last].argmax() for last, _ in pairs])
    same = compare(source, source, tokenizer, TEXT)
    assert (same.divergence, same.agreement) == (0, 1)
    assert "(+0.0%); divergence 0.0000" in str(same)


def test_models_of_other_tokens_are_refused() -> None:
    small: Any = Guesser(np.zeros((4, 4)), 3)
    large: Any = Guesser(np.zeros((8, 8)), 3)
    with pytest.raises(InputError, match="4 and 8 tokens"):
        compare(small, large, plain(), TEXT)


def test_the_text_that_is_brought_has_several_windows() -> None:
    assert len(Tokenizer.load(shipped_model()).encode(EVALUATION.read_text("utf-8"))) > 3 * 256
