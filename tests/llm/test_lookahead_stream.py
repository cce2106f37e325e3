"""Speculative decoding of a model: whatever the draft is, text, cache and ends are those of a stream without them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest

from liveshape.errors import InputError, UnsupportedError
from liveshape.llm import language_model as models
from liveshape.llm.engine.engine import tokens_of
from liveshape.llm.engine.speculative import Ngrams
from liveshape.llm.language_model import LanguageModel
from liveshape.llm.sampling_settings import Sampling
from tests.llm.sessions import after, every_line
from tests.llm.test_model import ALL, DRAWN, IDS, close
from tests.support.llamas import Tiny, program

GREEDY, PENALIZED = Sampling(), Sampling(repetition_penalty=5.0)
LOOPING = [7, 11, 13, 7, 11, 13, 7, 11]


@pytest.fixture(scope="module")
def small() -> Iterator[LanguageModel]:
    """Another model of the same tokens, which gives the logits of all of them."""
    with LanguageModel.load(program(ALL)) as model:
        yield model


class Prophet:
    """Knows what will be said, and says something else at every `wrong`-th position."""

    def __init__(self, said: Sequence[int], wrong: int) -> None:
        self.said, self.wrong = list(said), wrong

    def may_draft(self, text: Sequence[int]) -> bool:
        return True

    def draft(self, text: Sequence[int], token: int, most: int) -> list[int]:
        begin = len(text) + 1
        known = enumerate(self.said[begin : begin + most], begin)
        return [(each + (place % self.wrong == 0)) % 97 for place, each in known]


def prophecy(monkeypatch: pytest.MonkeyPatch, said: Sequence[int], wrong: int = 1000) -> None:
    monkeypatch.setattr(models, "Ngrams", lambda: Prophet(said, wrong))


def plain(model: LanguageModel, ids: Sequence[int], sampling: Sampling, **options: Any) -> tuple[Any, ...]:
    """What a stream says, how it ends, what the cache has then, and what may follow."""
    model.reset()
    stream = model.stream(ids, sampling, **options)
    said = list(stream)
    return said, stream.finish_reason, model.tokens, model.logits()


def same(got: tuple[Any, ...], expected: tuple[Any, ...]) -> None:
    assert got[:3] == expected[:3]
    close(got[3], expected[3])


# The same text


@pytest.mark.parametrize("sampling", [GREEDY, PENALIZED, DRAWN], ids=["greedy", "penalty", "drawn"])
@pytest.mark.parametrize("wrong", [2, 1000, *(pytest.param(each, marks=pytest.mark.slow) for each in (1, 3, 5))])
def test_right_and_wrong_drafts_give_the_same_text(
    model: LanguageModel, monkeypatch: pytest.MonkeyPatch, sampling: Sampling, wrong: int
) -> None:
    ids = IDS[:9]
    expected = plain(model, ids, sampling, max_tokens=25)
    prophecy(monkeypatch, [*ids, *expected[0]], wrong)
    for count in (1, 3, 7):
        calls = model._engine.executor.calls
        same(plain(model, ids, sampling, max_tokens=25, lookahead="ngram", lookahead_tokens=count), expected)
        calls = model._engine.executor.calls - calls
        assert wrong < 1000 or calls <= 2 + 3 + 25 // (count + 1) + 1, "prompt, length that grows, the rest"


@pytest.mark.parametrize("sampling", [GREEDY, PENALIZED, DRAWN], ids=["greedy", "penalty", "drawn"])
def test_the_text_itself_and_other_models_as_drafters(
    model: LanguageModel, small: LanguageModel, sampling: Sampling
) -> None:
    other = model.fork()
    for ids in (IDS[:3], LOOPING):
        expected = plain(model, ids, sampling, max_tokens=20)
        for lookahead in ("ngram", small, other):
            same(plain(model, ids, sampling, max_tokens=20, lookahead=lookahead), expected)


def test_a_model_that_would_say_the_same_is_always_right(model: LanguageModel) -> None:
    other = model.fork()
    for sampling in (GREEDY, DRAWN):
        model.reset()
        stream = model.stream(IDS[:5], sampling, max_tokens=20, lookahead=other)
        list(stream)
        assert stream.proposed == stream.accepted > 12
    other.close()


def test_models_of_all_logits_verify_as_well(small: LanguageModel, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = plain(small, IDS[:9], DRAWN, max_tokens=20)
    prophecy(monkeypatch, [*IDS[:9], *expected[0]], 4)
    same(plain(small, IDS[:9], DRAWN, max_tokens=20, lookahead="ngram"), expected)


def test_draws_follow_the_probabilities_of_each_row(model: LanguageModel) -> None:
    """Of a call with a draft: a token after each row, by its own logits, and no two rows by the same number."""
    model.prefill(IDS[:6])
    rows = model.evaluate(IDS[6:10])
    model.truncate(6)
    draws, drawn = 250, []
    for seed in range(draws):
        drawn.append(tokens_of(model._session.verify(IDS[6:10], Sampling(temperature=1.0, top_k=4, seed=seed))))
    for row, tokens in zip(rows.astype(np.float64), np.array(drawn).T, strict=True):
        likely = np.argsort(-row)[:4]
        shares = np.exp(row[likely] - row[likely].max())
        expected = draws * shares / shares.sum()
        counts = np.array([(tokens == token).sum() for token in likely])
        assert counts.sum() == draws
        assert (((counts - expected) ** 2) / expected).sum() < 21.1, "chi-square, 3 degrees: 1 in 10,000"
    assert len({tuple(tokens) for tokens in drawn}) > 30


# Ends


def test_it_ends_inside_of_an_accepted_draft(model: LanguageModel, monkeypatch: pytest.MonkeyPatch) -> None:
    said = plain(model, IDS[:5], DRAWN, max_tokens=20)[0]
    prophecy(monkeypatch, [*IDS[:5], *said])
    for place in (1, 4, 6, 9):
        for options in ({"stop_ids": [said[place]]}, {"max_tokens": place + 1}):
            expected = plain(model, IDS[:5], DRAWN, **options)
            same(plain(model, IDS[:5], DRAWN, lookahead="ngram", **options), expected)


@pytest.mark.parametrize("length", [30, 36, 39, 40])
def test_it_ends_with_the_context(
    model: LanguageModel, small: LanguageModel, monkeypatch: pytest.MonkeyPatch, length: int
) -> None:
    ids = IDS[:length]
    expected = plain(model, ids, GREEDY)
    assert len(expected[0]) == 41 - length
    same(plain(model, ids, GREEDY, lookahead=small), expected)
    prophecy(monkeypatch, [*ids, *expected[0], *IDS])
    same(plain(model, ids, GREEDY, lookahead="ngram"), expected)


def test_a_stream_that_is_left_inside_of_an_accepted_draft(
    model: LanguageModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = plain(model, IDS[:5], DRAWN, max_tokens=20)[0]
    prophecy(monkeypatch, [*IDS[:5], *said])
    for count in range(1, 9):
        model.reset()
        stream = model.stream(IDS[:5], DRAWN, max_tokens=20, lookahead="ngram")
        got = [next(stream) for _ in range(count)]
        stream.close()
        assert model.tokens == (*IDS[:5], *said[:count])
        close(model.logits(), after(model.tokens))
        assert got + list(model.stream([], DRAWN, max_tokens=20 - count)) == said


# What happens between the tokens


def test_questions_and_forks_between_the_tokens(model: LanguageModel, monkeypatch: pytest.MonkeyPatch) -> None:
    """A fork takes the cache, and with it the rows of draft tokens that were not part of the text yet."""
    expected = plain(model, IDS[:5], DRAWN, max_tokens=20)
    prophecy(monkeypatch, [*IDS[:5], *expected[0]])
    for between in (lambda: model.logits(), lambda: model.fork().prefill(IDS[20:33])):
        model.reset()
        said = []
        for token in model.stream(IDS[:5], DRAWN, max_tokens=20, lookahead="ngram"):
            said.append(token)
            if len(said) % 3 == 2:
                between()
        same((said, "length", model.tokens, model.logits()), expected)


def test_a_drafter_that_others_use_as_well(model: LanguageModel, small: LanguageModel) -> None:
    expected = plain(model, IDS[:5], GREEDY, max_tokens=20)
    model.reset()
    said = []
    for token in model.stream(IDS[:5], GREEDY, max_tokens=20, lookahead=small):
        said.append(token)
        if len(said) % 4 == 2:
            small.reset()
        elif len(said) % 4 == 0:
            small.prefill([1, 2, 3])
    same((said, "length", model.tokens, model.logits()), expected)


def test_a_stream_that_drafts_and_is_interrupted_anywhere_goes_on(
    model: LanguageModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = plain(model, IDS[:5], DRAWN, max_tokens=9)[0]
    prophecy(monkeypatch, [*IDS[:5], *expected], 4)
    held: list[Any] = []
    got: list[int] = []

    def prepare() -> None:
        model.reset()
        got.clear()
        held[:] = [model.stream(IDS[:5], DRAWN, max_tokens=9, lookahead="ngram")]
        got.append(next(held[0]))

    def take() -> None:
        for _ in range(5):
            got.append(next(held[0]))

    def check() -> None:
        got.extend(held[0])
        assert model.tokens == (*IDS[:5], *expected[:-1])
        assert held[0].finish_reason == "length"
        assert len([token for token in expected if token not in got]) <= 1
        assert got[-1] == expected[-1]

    assert every_line(take, prepare, check, 7) > 60


def test_where_nothing_is_drafted_steps_run_ahead_as_ever(
    model: LanguageModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    submitted = 0
    submit_next = models.Session.submit_next

    def counting(*args: Any, **named: Any) -> Any:
        nonlocal submitted
        submitted += 1
        return submit_next(*args, **named)

    monkeypatch.setattr(models.Session, "submit_next", counting)
    monkeypatch.setattr(Ngrams, "_match", lambda self: None)
    said = plain(model, IDS[:5], DRAWN, max_tokens=12, lookahead="ngram")[0]
    assert submitted == len(said) - 1


# What is refused


def test_what_cannot_draft_or_be_drafted_for_is_refused(model: LanguageModel, opaque: LanguageModel) -> None:
    wrong: list[tuple[Any, str]] = [
        ("words", "lookahead must be 'ngram' or a LanguageModel, 'words' was given"),
        (model, "a model cannot guess ahead of itself"),
        (opaque, "97 tokens and the one that guesses"),
    ]
    for lookahead, message in wrong:
        with pytest.raises(InputError, match=message):
            model.stream([1], lookahead=lookahead)
    for count in (0, -1, 1.5, True, "7"):
        with pytest.raises(InputError, match="lookahead_tokens is a whole number above 0"):
            model.stream([1], lookahead="ngram", lookahead_tokens=count)  # type: ignore[arg-type]
    with pytest.raises(UnsupportedError, match=r"guesses that turn out wrong could not be taken back"):
        opaque.stream([1], lookahead="ngram")
    assert model.position == 0


def test_a_program_of_one_token_a_call_cannot_verify(model: LanguageModel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(models.Session, "max_verified_tokens", 1)
    with pytest.raises(UnsupportedError, match="`--full-logits`"):
        model.check_lookahead("ngram")


# Rows of logits


@pytest.mark.parametrize(
    "tiny",
    [
        Tiny("rows_8da4w", layers=1, quantization="8da4w"),
        pytest.param(Tiny("rows_half", layers=1, half=True, qwen=True), marks=pytest.mark.slow),
    ],
    ids=["8da4w", "half"],
)
def test_every_kind_of_last_layer_gives_several_rows(tiny: Tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    with LanguageModel.load(program(tiny)) as model:
        rows = model.evaluate(IDS[:8])
        assert model._session.max_evaluated_tokens == 8
        model.reset()
        for row, token in zip(rows, IDS[:8], strict=True):
            model.prefill([token])
            np.testing.assert_allclose(row, model.logits(), 2e-3, 2e-3)
        expected = plain(model, IDS[:5], DRAWN, max_tokens=12)
        prophecy(monkeypatch, [*IDS[:5], *expected[0]], 5)
        assert plain(model, IDS[:5], DRAWN, max_tokens=12, lookahead="ngram")[:3] == expected[:3]
