"""A text in the making: what it holds after an interrupt, in threads, after a file that lies, and when it is closed."""

from __future__ import annotations

import functools
import gc
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import wgpu

from liveshape.device.webgpu import Device
from liveshape.errors import FormatError, InputError, LiveshapeError, UnsupportedError
from liveshape.graph import Tensor
from liveshape.llm import cache, engine, session, stream
from liveshape.llm import model as models
from liveshape.llm.model import LanguageModel
from liveshape.llm.sampling import Sampling
from tests.llm.test_model import DRAWN, IDS, LAST, Recurrent, close, recurrent, stepwise
from tests.support.llamas import logits_of, program

PENALIZED = Sampling(repetition_penalty=5.0)
OTHER = Sampling(temperature=1.0, seed=99)


@pytest.fixture(scope="module")
def loaded() -> Iterator[LanguageModel]:
    with LanguageModel.load(program(LAST)) as model:
        yield model


@pytest.fixture
def model(loaded: LanguageModel) -> LanguageModel:
    loaded.reset()
    return loaded


@pytest.fixture(scope="module")
def opaque() -> Iterator[LanguageModel]:
    """State that is no entry per token."""
    with LanguageModel.load(recurrent()) as model:
        yield model


def after(tokens: Sequence[int]) -> Any:
    """Torch's logits of what follows a text. Not for several threads at once."""
    return _after(tuple(tokens))


@functools.cache
def _after(tokens: tuple[int, ...]) -> Any:
    return logits_of(LAST, list(tokens))[-1]


def recurrent_logits(tokens: tuple[int, ...]) -> Any:
    module, position = Recurrent(), torch.zeros(1, dtype=torch.long)
    return [module(torch.tensor([[token]]), position)[0].numpy() for token in tokens][-1]


# Asking again


def test_the_same_question_has_the_same_answer(model: LanguageModel) -> None:
    ids = [7, 11, 7, 11, 13, 7, 11, 13]
    model.prefill(ids)
    before = model.logits()
    answers = [model.next_token(PENALIZED) for _ in range(4)]
    assert answers == answers[:1] * 4
    model.next_token(OTHER)
    np.testing.assert_array_equal(model.logits(), before)
    assert model.next_token(PENALIZED) == answers[0]


@pytest.mark.parametrize("questions", [1, 3])
def test_a_question_does_not_change_what_follows(model: LanguageModel, questions: int) -> None:
    ids = [7, 11, 7, 11, 13, 7, 11, 13]
    model.prefill(ids)
    expected = list(model.stream([], PENALIZED, max_tokens=12))
    model.reset()
    model.prefill(ids)
    for _ in range(questions):
        model.next_token(PENALIZED)
    assert list(model.stream([], PENALIZED, max_tokens=12)) == expected


def test_the_choice_reads_only_what_outlives_the_call(model: LanguageModel) -> None:
    made = model._engine._made
    tail = made.graph.nodes[made.choice :]
    assert [node.name for node in tail] == ["liveshape.sample"]
    read = [value for node in tail for value in node.inputs if isinstance(value, Tensor)]
    kept = {state.tensor for state in made.states} | set(made.graph.outputs)
    assert read
    assert all(value in kept for value in read)


# Rows at positions


def test_rows_behind_the_text_are_never_read(model: LanguageModel) -> None:
    """So going back needs no work: whatever lies there, even what is no number, is not seen."""
    model.prefill(IDS[:13])
    expected = [model.logits(), model.evaluate(IDS[13:22]), list(model.stream([], DRAWN, max_tokens=5))]
    for length in (13, 1, 0):
        model.reset()
        model.prefill(IDS[:length])
        executor = model._engine.executor
        for state in model._engine._made.states:
            assert state.axis == 1
            row = executor.buffer_of(state.tensor).nbytes // 4 // state.tensor.max_shape[1]
            rest = (state.tensor.max_shape[1] - length) * row
            executor.device.write(executor.buffer_of(state.tensor), length * row * 4, np.full(rest, np.nan, np.float32))
        model.prefill(IDS[length:13])
        again = [model.logits(), model.evaluate(IDS[13:22]), list(model.stream([], DRAWN, max_tokens=5))]
        for one, other in zip(again, expected, strict=True):
            np.testing.assert_allclose(one, other, 1e-4, 1e-4)


# State that is one whole


def test_a_reset_clears_state_that_is_no_cache(opaque: LanguageModel) -> None:
    opaque.reset()
    opaque.prefill([3])
    expected = opaque.logits()
    opaque.prefill([1, 4])
    opaque.reset()
    opaque.prefill([3])
    np.testing.assert_array_equal(opaque.logits(), expected)
    close(expected, recurrent_logits((3,)))


def test_a_fork_of_nothing_begins_with_nothing(opaque: LanguageModel) -> None:
    opaque.reset()
    other = opaque.fork()
    opaque.prefill([1, 4, 2])
    other.prefill([3])
    close(other.logits(), recurrent_logits((3,)))
    close_after = (1, 4, 2, 5)
    opaque.prefill([5])
    close(opaque.logits(), recurrent_logits(close_after))


def test_the_logits_of_a_stream_that_was_left_are_still_there(opaque: LanguageModel) -> None:
    opaque.reset()
    tokens = opaque.stream([3, 1], DRAWN)
    next(tokens)
    tokens.close()
    close(opaque.logits(), recurrent_logits(opaque.tokens))


def test_a_failed_step_leaves_such_state_unknown(
    opaque: LanguageModel, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    opaque.reset()
    opaque.prefill([3, 1])
    opaque.save(tmp_path / "cache")

    def fail(*args: Any) -> None:
        raise KeyboardInterrupt

    for heal in (opaque.reset, lambda: opaque.truncate(0), lambda: opaque.restore(tmp_path / "cache")):
        tokens = opaque.stream([4], DRAWN)
        with monkeypatch.context() as patch:
            patch.setattr(engine.Engine, "run", fail)
            with pytest.raises(KeyboardInterrupt):
                opaque.prefill([1])
        uses: list[Callable[[], Any]] = [
            lambda: opaque.prefill([1]),
            opaque.logits,
            opaque.next_token,
            opaque.fork,
            lambda: opaque.evaluate([1]),
            lambda: opaque.stream([1]),
            lambda: opaque.save(tmp_path / "never"),
        ]
        for use in uses:
            with pytest.raises(InputError, match=r"unknown; reset\(\) and give the text again"):
                use()
        with pytest.raises(InputError, match="used otherwise"):
            next(tokens)
        heal()
        opaque.prefill([5])
        close(opaque.logits(), recurrent_logits(opaque.tokens))
    assert opaque.tokens == (3, 1, 5)
    assert not (tmp_path / "never").exists()


def test_a_prefill_that_fails_in_its_second_chunk_is_not_there(
    model: LanguageModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    model.prefill(IDS[:5])
    real, calls = engine.Engine.run, 0

    def fail(*args: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise KeyboardInterrupt
        return real(*args)

    with monkeypatch.context() as patch:
        patch.setattr(engine.Engine, "run", fail)
        with pytest.raises(KeyboardInterrupt):
            model.prefill(IDS[10:30])
    assert model.tokens == tuple(IDS[:5])
    close(model.logits(), after(IDS[:5]))
    model.prefill(IDS[5:14])
    close(model.logits(), after(IDS[:14]))


# Ctrl-C between any two lines

FILES = frozenset(module.__file__ for module in (cache, engine, session, stream, models))


def interrupt_after(lines: int, action: Callable[[], Any]) -> bool:
    """Run an action; before so many lines of the session's files have run, nothing, then a KeyboardInterrupt."""
    left = lines

    def trace(frame: Any, event: str, argument: Any) -> Any:
        nonlocal left
        if frame.f_code.co_filename not in FILES:
            return None
        if event == "line":
            left -= 1
            if left < 0:
                sys.settrace(None)
                raise KeyboardInterrupt
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        action()
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(before)
    return False


def every_line(
    action: Callable[[], Any], prepare: Callable[[], None], check: Callable[[], None], stride: int = 1
) -> int:
    """Interrupt an action after each number of lines, until it is through; the number of lines."""
    lines = 0
    while True:
        prepare()
        over = not interrupt_after(lines, action)
        check()
        if over:
            return lines
        lines += stride


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
        thread.join(60)
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
            assert model.turn.run(text, prompts[place]) == expected[place]

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
                model.turn.run(lambda: close(model.logits(), after(model.tokens)))
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
            model.turn.run(lambda: close(forks[place].logits(), after(forks[place].tokens)))
            forks[place].truncate(6)

    in_threads(lambda: work(0), lambda: work(1), lambda: work(2))
    close(model.logits(), after(IDS[:6]))


def test_pieces_do_not_keep_the_turn(model: LanguageModel) -> None:
    pieces = model.evaluate_chunks(IDS[:10])
    next(pieces)
    in_threads(lambda: model.prefill([]))  # would wait for ever if the turn was kept
    with pytest.raises(InputError, match="used otherwise since the last piece"):
        next(pieces)


# Files


def test_a_refused_file_changes_nothing(model: LanguageModel, tmp_path: Path) -> None:
    model.prefill(IDS[:11])
    model.save(tmp_path / "cache")
    content = (tmp_path / "cache").read_bytes()
    model.reset()
    tokens = model.stream(IDS[20:26], DRAWN)
    got = [next(tokens)]
    for broken in (content[:-1], content[:100], b"", content.replace(b"float32", b"float64"), b"\x93NUMPY" + content):
        (tmp_path / "broken").write_bytes(broken)
        with pytest.raises(FormatError):
            model.restore(tmp_path / "broken")
    got += [next(tokens) for _ in range(3)]
    model.reset()
    assert got == stepwise(model, IDS[20:26], DRAWN, 4), "the stream goes on"


def test_a_cache_goes_to_whoever_restores_it(model: LanguageModel, tmp_path: Path) -> None:
    model.prefill(IDS[:11])
    model.save(tmp_path / "cache")
    model.prefill(IDS[11:13])
    other = model.fork()
    model.prefill([4])  # at home, the fork is not
    other.restore(tmp_path / "cache")
    assert (other.tokens, model.tokens) == (tuple(IDS[:11]), (*IDS[:13], 4))
    close(other.logits(), after(IDS[:11]))
    close(model.logits(), after([*IDS[:13], 4]))
    model.restore(tmp_path / "cache")
    assert list(model.stream([5], DRAWN, max_tokens=4)) == list(other.stream([5], DRAWN, max_tokens=4))


def test_a_cache_of_halves_is_not_one_of_floats(model: LanguageModel, tmp_path: Path) -> None:
    model.prefill(IDS[:5])
    model.save(tmp_path / "cache")
    with (
        LanguageModel.load(program(LAST), half_cache=True) as half,
        pytest.raises(FormatError, match=r"state 0 is \['float32', .*this model has \['float16'"),
    ):
        half.restore(tmp_path / "cache")


def test_the_checksum_is_of_the_bytes_that_were_loaded(tmp_path: Path) -> None:
    content = bytearray(program(LAST).read_bytes())
    (tmp_path / "one.pte").write_bytes(content)
    content[-1] ^= 1
    (tmp_path / "other.pte").write_bytes(content)
    with LanguageModel.load(tmp_path / "one.pte") as one, LanguageModel.load(tmp_path / "other.pte") as other:
        (tmp_path / "other.pte").replace(tmp_path / "one.pte")
        assert one.checksum != other.checksum
        with LanguageModel.load(program(LAST)) as same:
            assert one.checksum == same.checksum
        assert one.fork().checksum == one.checksum


# What is given


@pytest.mark.parametrize("given", [None, "abc", 5, [1.5], ["1"], [None], [[1]]], ids=repr)
def test_tokens_that_are_no_numbers(model: LanguageModel, given: Any) -> None:
    for use in (model.prefill, model.evaluate, model.stream):
        with pytest.raises(InputError, match="tokens must be whole numbers"):
            use(given)


def test_other_arguments_that_are_not_what_they_must_be(model: LanguageModel) -> None:
    wrong: list[tuple[Callable[[], Any], str]] = [
        (lambda: model.stream([1], stop_ids=5), "stop_ids must be whole numbers"),  # type: ignore[arg-type]
        (lambda: model.stream([1], max_tokens=1.5), "max_tokens must be whole numbers"),  # type: ignore[arg-type]
        (lambda: model.stream([1], sampling=0.7), "sampling must be a Sampling or None"),  # type: ignore[arg-type]
        (lambda: model.truncate("0"), "length must be whole numbers"),  # type: ignore[arg-type]
    ]
    for use, message in wrong:
        with pytest.raises(InputError, match=message):
            use()
    assert list(model.stream(np.array(IDS[:3]), max_tokens=np.int64(2), stop_ids=np.array([1000]))) != []  # type: ignore[arg-type]


# Memory


class Ledger:
    """The memory of the device from now on, and what of it was given back."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.made: list[Any] = []
        create = Device._create

        def creating(device: Device, *args: Any, **named: Any) -> Any:
            self.made.append(create(device, *args, **named))
            return self.made[-1]

        monkeypatch.setattr(Device, "_create", creating)

    @property
    def freed(self) -> list[Any]:
        return [memory for memory in self.made if memory.freed]


@pytest.fixture
def ledger(monkeypatch: pytest.MonkeyPatch) -> Ledger:
    return Ledger(monkeypatch)


def test_closing_gives_the_memory_back_at_once(ledger: Ledger) -> None:
    with LanguageModel.load(program(LAST)) as model:
        model.prefill(IDS[:5])
        forks = [model.fork(), model.fork()]
        forks[0].prefill([1])
        later = model.stream([2], DRAWN)
        pieces = model.evaluate_chunks(IDS[:3])
        assert len(ledger.made) > 20
        assert not ledger.freed
    assert ledger.freed == ledger.made
    assert model.memory.total == 0
    uses: list[Callable[[], Any]] = [
        lambda: forks[0].prefill([1]),
        forks[0].logits,
        forks[1].reset,
        forks[1].fork,
        lambda: next(later),
        lambda: next(pieces),
        lambda: model.prefill([1]),
        model.next_token,
        model.reset,
    ]
    for use in uses:
        with pytest.raises(InputError, match="was closed"):
            use()
    later.close()
    forks[0].close()
    model.close()


def test_closing_a_fork_gives_its_copies_back_and_nothing_else(model: LanguageModel, ledger: Ledger) -> None:
    model.prefill(IDS[:5])
    fork = model.fork()
    copies = list(ledger.made)
    assert len(copies) == len(model._engine._made.states)
    fork.close()
    assert ledger.freed == copies
    with pytest.raises(InputError, match="this text was closed"):
        fork.prefill([1])
    model.prefill(IDS[5:7])
    close(model.logits(), after(IDS[:7]))


def test_a_fork_that_was_at_home_leaves_no_copy_behind(model: LanguageModel, ledger: Ledger) -> None:
    model.prefill(IDS[:5])
    with model.fork() as fork:
        fork.prefill([1, 2])
    made = len(ledger.made)
    model.prefill(IDS[5:7])
    assert len(ledger.made) == made
    close(model.logits(), after(IDS[:7]))


def test_a_fork_that_is_dropped_gives_its_copies_back(model: LanguageModel) -> None:
    def live() -> int:
        gc.collect()
        counts = wgpu.diagnostics.wgpu_native_counts.get_dict()
        return int(counts["Buffer"]["count"])

    model.prefill(IDS[:5])
    model.fork().prefill([1])  # the model takes a copy along, once
    model.logits()
    before = live()
    for number in range(5):
        model.fork().prefill([number])
        model.prefill([number])
    assert live() <= before + len(model._engine._made.states), "at most the copy of one that is larger now"


def test_going_back_is_refused_where_it_cannot_be(opaque: LanguageModel) -> None:
    opaque.reset()
    opaque.prefill([3, 1, 4])
    with pytest.raises(UnsupportedError, match="it can go back to the start, not to 2"):
        opaque.truncate(2)
    opaque.truncate(3)
    close(opaque.logits(), recurrent_logits((3, 1, 4)))
