"""A text in the making that is interrupted anywhere, or that several threads are at: right, or said to be unknown."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from liveshape.errors import InputError, LiveshapeError
from liveshape.llm.language_model import LanguageModel
from tests.llm.sessions import after, every_line, recurrent_logits
from tests.llm.test_model import DRAWN, IDS, close, stepwise


def test_a_prefill_that_is_interrupted_anywhere(model: LanguageModel) -> None:
    def prepare() -> None:
        model.reset()
        model.prefill(IDS[:5])

    def check() -> None:
        assert model.tokens in (tuple(IDS[:5]), tuple(IDS[:16]), tuple(IDS[:13])), "chunks, each whole"
        close(model.logits(), after(model.tokens))

    assert every_line(lambda: model.prefill(IDS[5:16]), prepare, check, 2) > 40


def test_a_stream_that_is_interrupted_anywhere_goes_on(model: LanguageModel) -> None:
    expected = stepwise(model, IDS[:5], DRAWN, 5)
    held: list[Any] = []
    got: list[int] = []

    def prepare() -> None:
        model.reset()
        got.clear()
        held[:] = [model.stream(IDS[:5], DRAWN, max_tokens=5)]
        got.append(next(held[0]))

    def take() -> None:
        for _ in range(2):
            got.append(next(held[0]))

    def check() -> None:
        got.extend(held[0])
        assert model.tokens == (*IDS[:5], *expected[:-1])
        assert held[0].finish_reason == "length"
        missed = [token for token in expected if token not in got]
        assert len(missed) <= 1, "one that was on its way to its reader, and is in the cache"
        assert got[-1] == expected[-1]

    assert every_line(take, prepare, check, 5) > 60


def test_a_stream_that_is_interrupted_while_texts_are_swapped_goes_on(model: LanguageModel) -> None:
    expected = stepwise(model, IDS[:5], DRAWN, 9)
    held: list[Any] = []
    got: list[int] = []

    def prepare() -> None:
        model.reset()
        got.clear()
        held[:] = [model.fork(), model.stream(IDS[:5], DRAWN, max_tokens=9)]
        held[0].prefill(IDS[10:26])
        got.append(next(held[1]))

    def take() -> None:
        for text in (held[0], model):
            text.fork().close()
        got.append(next(held[1]))

    def check() -> None:
        got.extend(held[1])
        assert model.tokens == (*IDS[:5], *expected[:-1])
        assert got[-1] == expected[-1]
        close(held[0].logits(), after(IDS[10:26]))
        held[0].close()

    assert every_line(take, prepare, check, 41) > 60


def test_a_stream_that_is_interrupted_and_closed_holds_what_was_read(model: LanguageModel) -> None:
    """A token that is in the cache and reached nobody is taken back, at once or by the next call."""
    expected = stepwise(model, IDS[:5], DRAWN, 5)
    held: list[Any] = []

    def prepare() -> None:
        model.reset()
        held[:] = [model.stream(IDS[:5], DRAWN, max_tokens=5)]
        next(held[0])

    def take() -> None:
        next(held[0])
        held[0].close()

    def check() -> None:
        held[0].close()
        assert list(held[0]) == []
        assert model.tokens in ((*IDS[:5], expected[0]), (*IDS[:5], *expected[:2]))
        close(model.logits(), after(model.tokens))

    assert every_line(take, prepare, check, 7) > 30


def test_forks_that_are_interrupted_while_they_change_places(model: LanguageModel) -> None:
    other: list[LanguageModel] = []

    def prepare() -> None:
        model.reset()
        model.prefill(IDS[:9])
        other[:] = [model.fork()]
        model.prefill(IDS[9:12])

    def swap() -> None:
        other[0].prefill(IDS[20:23])
        model.prefill(IDS[12:14])
        other.append(other[0].fork())

    def check() -> None:
        assert model.tokens in (tuple(IDS[:12]), tuple(IDS[:14]))
        for each in (*other, model, *other):
            assert each is model or each.tokens in (tuple(IDS[:9]), (*IDS[:9], *IDS[20:23]))
            close(each.logits(), after(each.tokens))

    assert every_line(swap, prepare, check, 23) > 80


def test_a_restore_that_is_interrupted_is_whole_or_not_at_all(model: LanguageModel, tmp_path: Path) -> None:
    model.prefill(IDS[:11])
    model.save(tmp_path / "cache")

    def prepare() -> None:
        model.reset()
        model.prefill(IDS[20:26])

    def check() -> None:
        assert model.tokens in (tuple(IDS[:11]), tuple(IDS[20:26]))
        close(model.logits(), after(model.tokens))

    assert every_line(lambda: model.restore(tmp_path / "cache"), prepare, check, 5) > 20


def test_state_that_is_one_whole_is_right_or_unknown(opaque: LanguageModel) -> None:
    unknown = 0

    def prepare() -> None:
        opaque.reset()
        opaque.prefill([3, 1])

    def steps() -> None:
        opaque.prefill([4, 1])
        tokens = opaque.stream([5], DRAWN, max_tokens=3)
        next(tokens)
        next(tokens)

    def check() -> None:
        nonlocal unknown
        try:
            opaque.prefill([2])
        except InputError:
            unknown += 1
            opaque.reset()
            opaque.prefill([2])
        close(opaque.logits(), recurrent_logits(opaque.tokens))

    lines = every_line(steps, prepare, check, 5)
    assert 5 < unknown < lines // 5


# Threads


def in_threads(*work: Callable[[], None]) -> None:
    """Run functions at the same time; the first error of any of them is raised."""
    errors: list[BaseException] = []

    def guarded(function: Callable[[], None]) -> None:
        try:
            function()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(function,), daemon=True) for function in work]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(1800)
    assert not any(thread.is_alive() for thread in threads)
    if errors:
        raise errors[0]


def test_two_threads_share_one_model(model: LanguageModel) -> None:
    prompts = [IDS[:9], IDS[20:27]]
    expected = []
    for ids in prompts:
        model.reset()
        expected.append(list(model.stream(ids, DRAWN, max_tokens=8)))

    def text(ids: list[int]) -> list[int]:
        model.reset()
        return list(model.stream(ids, DRAWN, max_tokens=8))

    def work(place: int) -> None:
        for _ in range(6):
            assert model.lock.run(text, prompts[place]) == expected[place]

    in_threads(lambda: work(0), lambda: work(1))


def test_threads_that_do_not_wait_for_each_other_get_errors_and_no_nonsense(model: LanguageModel) -> None:
    """Every stream says so if the model was used otherwise; nothing aborts, and the text stays what it says it is."""
    count = 0
    messages: list[str] = []

    def work(seed: int) -> None:
        nonlocal count
        random = np.random.default_rng(seed)
        for _ in range(25):
            try:
                if random.random() < 0.4:
                    model.reset()
                for token in model.stream(IDS[: random.integers(1, 6)], DRAWN, max_tokens=4):
                    assert 0 <= token < 97
                    count += 1
                model.lock.run(lambda: close(model.logits(), after(model.tokens)))
            except LiveshapeError as error:
                messages.append(str(error))

    in_threads(lambda: work(1), lambda: work(2))
    assert count > 10
    assert messages
    known = ("used otherwise", "the context holds", "is empty")
    assert all(any(text in message for text in known) for message in messages)


def test_three_forks_in_threads_of_their_own(model: LanguageModel) -> None:
    model.prefill(IDS[:6])
    forks = [model.fork() for _ in range(3)]
    expected = []
    for token in (5, 6, 7):
        model.truncate(6)
        expected.append(list(model.stream([token], DRAWN, max_tokens=10)))
    model.truncate(6)

    def work(place: int) -> None:
        for _ in range(3):
            assert list(forks[place].stream([5 + place], DRAWN, max_tokens=10)) == expected[place]
            model.lock.run(lambda: close(forks[place].logits(), after(forks[place].tokens)))
            forks[place].truncate(6)

    in_threads(lambda: work(0), lambda: work(1), lambda: work(2))
    close(model.logits(), after(IDS[:6]))


def test_pieces_do_not_keep_the_turn(model: LanguageModel) -> None:
    pieces = model.evaluate_chunks(IDS[:10])
    next(pieces)
    in_threads(lambda: model.prefill([]))  # would wait for ever if the lock was kept
    with pytest.raises(InputError, match="used otherwise since the last piece"):
        next(pieces)
