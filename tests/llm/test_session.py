"""A text in the making: what it answers, and what it holds after a failure, a file that lies, and when it is closed."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import wgpu

import liveshape
from liveshape.device.backends import open_device
from liveshape.device.protocol import Device
from liveshape.errors import FormatError, InputError, UnsupportedError
from liveshape.graph import Tensor
from liveshape.llm.engine import engine
from liveshape.llm.language_model import LanguageModel
from liveshape.llm.sampling_settings import Sampling
from tests.llm.sessions import after, recurrent_logits
from tests.llm.test_model import DRAWN, IDS, LAST, close, stepwise
from tests.support.llamas import program

SHIPPED = Path(liveshape.__file__).parent / "demo/story"
PENALIZED = Sampling(repetition_penalty=5.0)
OTHER = Sampling(temperature=1.0, seed=99)


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


def test_the_sampling_node_reads_only_what_outlives_the_call(model: LanguageModel) -> None:
    made = model._engine._token_graph
    tail = made.graph.nodes[made.sample_node :]
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
        for state in model._engine._token_graph.states:
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


# Files


def test_a_refused_file_changes_nothing(model: LanguageModel, tmp_path: Path) -> None:
    model.prefill(IDS[:11])
    model.save(tmp_path / "cache")
    content = (tmp_path / "cache").read_bytes()
    model.reset()
    tokens = model.stream(IDS[20:26], DRAWN)
    got = [next(tokens)]
    other = content.replace(b'["float32"', b'["float64"')
    for broken in (content[:-1], content[:100], b"", other, b"\x93NUMPY" + content):
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
        pytest.raises(
            InputError, match=r"KV cache of float32, .* one of float16.* load the model without --half-cache"
        ),
    ):
        half.restore(tmp_path / "cache")


@pytest.mark.parametrize("kind", [pytest.param("int8", marks=pytest.mark.slow), "float16"])
def test_a_cache_of_other_activations_is_refused(tmp_path: Path, kind: str) -> None:
    """The numbers in it are others, by more than rounding."""
    with LanguageModel.load(SHIPPED, activations=kind) as rounded:
        rounded.prefill(IDS[:5])
        rounded.save(tmp_path / "cache")
        rounded.restore(tmp_path / "cache")
    with LanguageModel.load(SHIPPED) as exact:
        exact.prefill(IDS[:3])
        with pytest.raises(
            InputError, match=f"saved with activations='{kind}', .* with activations='float32'.*--activations {kind}"
        ):
            exact.restore(tmp_path / "cache")
        assert exact.tokens == tuple(IDS[:3])


def test_a_cache_is_saved_only_where_a_file_can_be(model: LanguageModel, tmp_path: Path) -> None:
    model.prefill(IDS[:3])
    os.mkfifo(tmp_path / "pipe")
    for path, message in (("", "is no path"), (tmp_path, "is a folder"), (tmp_path / "pipe", "but a pipe")):
        with pytest.raises(InputError, match=message):
            model.save(path)
    assert (tmp_path / "pipe").is_fifo()


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
        kind = type(open_device())
        create = kind._create

        def creating(device: Device, *args: Any, **named: Any) -> Any:
            self.made.append(create(device, *args, **named))
            return self.made[-1]

        monkeypatch.setattr(kind, "_create", creating)

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
    assert len(copies) == len(model._engine._token_graph.states)
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
    assert live() <= before + len(model._engine._token_graph.states), "at most the copy of one that is larger now"


def test_going_back_is_refused_where_it_cannot_be(opaque: LanguageModel) -> None:
    opaque.reset()
    opaque.prefill([3, 1, 4])
    with pytest.raises(UnsupportedError, match="it can go back to the start, not to 2"):
        opaque.truncate(2)
    opaque.truncate(3)
    close(opaque.logits(), recurrent_logits((3, 1, 4)))
