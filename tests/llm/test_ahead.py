"""Streams some steps ahead, as on a GPU: the same tests of streams, on a device whose thread submits."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from liveshape.device import worker
from liveshape.device.backends import open_device
from liveshape.llm.engine import step_period
from liveshape.llm.language_model import LanguageModel
from liveshape.llm.sampling_settings import Sampling
from tests.llm.test_model import (  # noqa: F401  its tests, with the model below
    IDS,
    LAST,
    stepwise,
    test_a_stream_can_be_left_and_the_text_goes_on,
    test_a_stream_ends_at_a_stop_token,
    test_a_stream_ends_with_the_context,
    test_a_stream_equals_step_by_step,
    test_a_token_in_steady_state_makes_nothing,
    test_questions_between_the_tokens_of_a_stream,
)
from tests.llm.test_session_interrupts import (  # noqa: F401
    test_a_stream_that_is_interrupted_and_closed_holds_what_was_read,
    test_a_stream_that_is_interrupted_anywhere_goes_on,
    test_a_stream_that_is_interrupted_while_texts_are_swapped_goes_on,
    test_three_forks_in_threads_of_their_own,
    test_two_threads_share_one_model,
)
from tests.llm.test_texts import (  # noqa: F401
    test_a_swap_between_two_tokens_of_a_stream,
    test_texts_in_any_order_agree_with_torch,
)
from tests.support.llamas import program


@pytest.fixture(scope="module")
def loaded() -> Iterator[LanguageModel]:
    device = open_device(limits=open_device().limits)
    device.adapter = replace(device.adapter, software=False)
    device.steps_ahead = 3
    with pytest.MonkeyPatch.context() as patch, LanguageModel.load(program(LAST), device=device) as model:
        recorder = device._submitter.recorder
        recorder.heuristics = replace(recorder.heuristics, deferred=1, pieces=8, first_piece=3)
        patch.setattr(step_period, "MAX_SECONDS_IN_FLIGHT", 1e6)
        yield model


@pytest.fixture
def model(loaded: LanguageModel) -> LanguageModel:
    loaded.reset()
    return loaded


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [(1e6, "ssssrsrsrsrsrrrr"), (0.0, "ssssrsrrrsrsrsrr")],
    ids=["short steps", "long steps"],
)
def test_steps_are_under_way_while_a_token_is_read(
    model: LanguageModel, seconds: float, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So many that nobody minds what they take for nothing; at first it is not known how long that is."""
    stepwise(model, IDS[:3], Sampling(), 8)  # and what tests before left unread is read
    model.reset()
    monkeypatch.setattr(step_period, "MAX_SECONDS_IN_FLIGHT", seconds)
    order: list[str] = []
    device = type(model.device)
    submit, read = device.submit, device.read
    monkeypatch.setattr(device, "submit", lambda *args, **named: (order.append("submit"), submit(*args, **named))[1])
    monkeypatch.setattr(device, "read", lambda *args, **named: (order.append("read"), read(*args, **named))[1])
    assert len(list(model.stream(IDS[:3], max_tokens=8))) == 8
    assert "".join(each[0] for each in order) == expected


def test_what_the_latency_of_a_device_hides_is_no_waste(monkeypatch: pytest.MonkeyPatch) -> None:
    """A browser tells of a step milliseconds after it is done: so much more may be in flight."""
    now = [0.0]
    monkeypatch.setattr(step_period, "MAX_SECONDS_IN_FLIGHT", 0.005)
    monkeypatch.setattr(step_period, "time", SimpleNamespace(perf_counter=lambda: now[0]))
    for latency, expected in ((0.0, 2), (0.007, 6)):
        period = step_period.StepPeriod(latency)
        assert period.steps_ahead(8) == 8, "not known yet"
        for _ in range(3):
            period.tick()
            now[0] += 0.002
        assert period.steps_ahead(8) == expected
        assert period.steps_ahead(1) == 1


def test_logits_that_a_stream_ran_past_are_made_again(model: LanguageModel) -> None:
    from tests.llm.sessions import after
    from tests.llm.test_model import close

    stream = model.stream(IDS[:9])
    next(stream)
    close(model.logits(), after(model.tokens))


class Box:
    """Part of a reference cycle."""


@pytest.mark.parametrize("where", ["in the submitting thread", "in the owner of the lock", "in a third thread"])
def test_an_abandoned_stream_is_collected_anywhere(
    model: LanguageModel, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its finalizer waits for nobody: it may interrupt the owner of the lock, or the thread that one waits for."""
    expected = stepwise(model, IDS[:3], Sampling(), 5)
    model.reset()

    def tokens() -> Iterator[int]:
        stream = model.stream(IDS[:6])
        with model.fork() as fork:
            fork.prefill([1])
            try:
                yield from stream
            finally:
                stream.close()

    box = Box()
    box.me, box.tokens = box, tokens()  # type: ignore[attr-defined]
    next(box.tokens)  # type: ignore[attr-defined]
    gone = weakref.ref(box)
    del box
    run, submit = worker.Job.run, type(model.device).submit

    def collect() -> None:
        if gone() is None:
            return
        if where == "in a third thread":
            threading.Thread(target=gc.collect, daemon=True).start()
        else:
            gc.collect()

    def collecting(job: worker.Job) -> None:
        if where == "in the submitting thread":
            collect()
        run(job)

    def submitting_now(*args: Any, **named: Any) -> None:
        if where != "in the submitting thread":
            collect()
        submit(*args, **named)

    gc.disable()
    try:
        with monkeypatch.context() as patch:
            patch.setattr(worker.Job, "run", collecting)
            patch.setattr(type(model.device), "submit", submitting_now)
            got: list[int] = []

            def generate() -> None:
                model.reset()
                got.extend(model.stream(IDS[:3], max_tokens=5))

            thread = threading.Thread(target=generate, daemon=True)
            thread.start()
            thread.join(1800)
    finally:
        gc.enable()
    assert got == expected
    assert gone() is None
