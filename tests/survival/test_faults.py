"""An exception at every device call of what people do, one at a time: the same thing done again is right, and no memory
of the device is left."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from liveshape.device.backends import open_device
from liveshape.device.protocol import Device
from liveshape.errors import DeviceError, LiveshapeError
from liveshape.graph.limits import Limits
from liveshape.llm.language_model import LanguageModel
from liveshape.plan.compiling import compile
from liveshape.run.executor import Executor
from tests.support.chains import Chain
from tests.support.llamas import Tiny, program
from tests.support.paper import PaperDevice
from tests.survival.faulty import FaultyDevice
from tests.survival.subjects import DRAWN, PROMPT, Block, Text, live_bytes, tiny_model

MOST = 8  # failures of one action in `make test`
ERRORS: tuple[Callable[[], BaseException], ...] = (
    lambda: DeviceError("injected"),
    lambda: RuntimeError("injected"),
    lambda: KeyboardInterrupt("injected"),
)


class Subject:
    """An action, what to do before it, and how to see that it is done. `begin` may run after anything."""

    def __init__(self, device: FaultyDevice, folder: Path) -> None:
        self.device = device

    def begin(self) -> None:
        """To the same place, whatever happened."""

    def act(self) -> None:
        """What is disturbed."""

    def check(self) -> None:
        """After an action that nobody disturbed."""

    def end(self) -> None:
        """Give back what only this action holds."""


class Load(Subject):
    def __init__(self, device: FaultyDevice, folder: Path) -> None:
        super().__init__(device, folder)
        self.block = Block(device)

    def act(self) -> None:
        self.method = self.block.load()

    def check(self) -> None:
        self.block.call(29, self.method)

    def end(self) -> None:
        if hasattr(self, "method"):
            del self.method


class Call(Subject):
    def __init__(self, device: FaultyDevice, folder: Path) -> None:
        super().__init__(device, folder)
        self.block = Block(device)

    def begin(self) -> None:
        self.block.call(7)

    def act(self) -> None:
        self.block.call(41)

    def check(self) -> None:
        self.block.call(41)
        self.block.call(3)


class TextSubject(Subject):
    held = 8

    def __init__(self, device: FaultyDevice, folder: Path) -> None:
        super().__init__(device, folder)
        self.text = Text(tiny_model(device), folder)
        self.model, self.tokens = self.text.model, self.text.tokens

    def begin(self) -> None:
        self.model.reset()
        self.model.prefill(self.tokens[: self.held])

    def check(self) -> None:
        self.text.check()
        self.text.follows()


class Prefill(TextSubject):
    held = 3

    def act(self) -> None:
        self.model.prefill(self.tokens[self.held :])  # in two chunks

    def check(self) -> None:
        assert self.model.position == len(self.tokens)
        self.text.check()


class FiveTokens(TextSubject):
    def act(self) -> None:
        assert list(self.model.stream([], DRAWN, max_tokens=5)) == self.tokens[self.held : self.held + 5]


class Choice(TextSubject):
    def act(self) -> None:
        assert self.model.next_token(DRAWN) == self.tokens[self.held]
        np.testing.assert_allclose(self.model.logits(), self.text.logits[self.held], 1e-3, 1e-4)


class Fork(TextSubject):
    """Made, used, and swapped with its origin."""

    other: LanguageModel | None = None

    def act(self) -> None:
        self.other = self.model.fork()
        self.other.prefill(self.tokens[self.held : self.held + 2])
        self.model.prefill(self.tokens[self.held : self.held + 1])

    def check(self) -> None:
        super().check()
        assert self.other is not None
        assert self.other.position == self.held + 2
        self.text.check(self.other)

    def end(self) -> None:
        if self.other is not None:
            self.other.close()
        self.other = None


class Save(TextSubject):
    def begin(self) -> None:
        super().begin()
        self.text.file.unlink(missing_ok=True)

    def act(self) -> None:
        self.model.save(self.text.file)

    def check(self) -> None:
        super().check()
        self.model.reset()
        self.model.restore(self.text.file)
        assert self.model.position == self.held
        super().check()


class Restore(TextSubject):
    def __init__(self, device: FaultyDevice, folder: Path) -> None:
        super().__init__(device, folder)
        super().begin()
        self.model.save(self.text.file)

    def begin(self) -> None:
        self.model.reset()
        self.model.prefill(self.tokens[:PROMPT])

    def act(self) -> None:
        self.model.restore(self.text.file)
        self.model.prefill(self.tokens[self.held : self.held + 2])

    def check(self) -> None:
        assert self.model.position == self.held + 2
        super().check()

    def end(self) -> None:
        self.model.reset()


class Truncate(TextSubject):
    def act(self) -> None:
        self.model.truncate(self.held - 1)
        self.text.check()


SUBJECTS = (Load, Call, Prefill, FiveTokens, Choice, Fork, Save, Restore, Truncate)
# Those of `make test`: most lines and most device calls of the others are in these.
QUICK = (Load, FiveTokens, Fork, Restore)


def undisturbed(subject: Subject) -> int:
    """How many calls the action takes."""
    subject.begin()
    subject.device.count()
    subject.act()
    calls = subject.device.count()
    subject.check()
    subject.end()
    return calls


def disturb(subject: Subject, call: int, error: BaseException, after: bool) -> None:
    """Once with a failure, once without."""
    subject.begin()
    subject.device.fail_at(call, error, after)
    try:
        subject.act()
    except BaseException as raised:
        # A failure of the device comes as itself or, if it is no interrupt, as an error of the package.
        if raised is not error and not (isinstance(raised, LiveshapeError) and isinstance(error, Exception)):
            raise
    else:
        # Only a reading that another call had to make, and that the action itself did not want, may fail unheard.
        assert isinstance(error, DeviceError), f"call {call}: {error!r} was lost"
    assert subject.device.has_failed, f"call {call} never came"
    subject.end()
    subject.begin()
    subject.act()
    subject.check()
    subject.end()


def sweep(kind: type[Subject], folder: Path, most: int | None) -> None:
    device = FaultyDevice(open_device())
    subject = kind(device, folder)
    calls = undisturbed(subject)
    assert calls == undisturbed(subject), "the same calls each time, or nothing is counted"
    assert calls > 0
    subject.begin()
    before = live_bytes(device)
    failures = list(itertools.product(range(1, calls + 1), ERRORS, (False, True)))
    if most is not None and len(failures) > most:
        failures = random.Random(kind.__name__).sample(failures, most)
    for call, make, after in failures:
        disturb(subject, call, make(), after)
    subject.begin()
    assert live_bytes(device) == before


@pytest.mark.parametrize("kind", QUICK, ids=lambda kind: kind.__name__)
def test_a_failure_at_some_device_calls(kind: type[Subject], tmp_path: Path) -> None:
    sweep(kind, tmp_path, MOST)


@pytest.mark.slow
@pytest.mark.parametrize("kind", SUBJECTS, ids=lambda kind: kind.__name__)
def test_a_failure_at_every_device_call(kind: type[Subject], tmp_path: Path) -> None:
    sweep(kind, tmp_path, None)


# What the sweep found, each for itself


class Interrupted(Exception):
    """Stands for Ctrl-C."""


def test_a_token_under_way_is_not_taken_from_a_step_that_was_cut_short(tmp_path: Path) -> None:
    """The step ahead was submitted, and with it the token on the device became another; the caller never heard."""
    device = FaultyDevice(open_device())
    text = Text(tiny_model(device), tmp_path)
    stream = text.model.stream(text.tokens[:PROMPT], DRAWN, max_tokens=10)
    got = [next(stream)]
    for submit in (3, 4):  # behind two writes, and then also behind a reading
        device.fail_at(submit, KeyboardInterrupt("injected"), after=True)
        with pytest.raises(KeyboardInterrupt):
            next(stream)
    got += stream
    assert got == text.tokens[PROMPT : PROMPT + 10]
    text.check()


@pytest.fixture
def all_logits() -> LanguageModel:
    """Logits of every token of a call, so that those of the last one lie where the live length says."""
    return LanguageModel.load(
        program(Tiny("all", quantization="none", layers=1, full_logits=True)), device=FaultyDevice(open_device())
    )


def test_a_choice_after_one_that_was_cut_short(all_logits: LanguageModel) -> None:
    ids, device = [5, 17, 60], all_logits.device
    assert isinstance(device, FaultyDevice)
    all_logits.prefill(ids)
    logits, token = all_logits.logits(), all_logits.next_token()
    all_logits.next_token(DRAWN)
    device.fail_at(1, KeyboardInterrupt("injected"))
    with pytest.raises(KeyboardInterrupt):
        all_logits.next_token()
    assert all_logits.next_token() == token
    np.testing.assert_allclose(all_logits.logits(), logits, 1e-4, 1e-4)


def test_a_setting_that_was_cut_short_is_set_again() -> None:
    """A number that is new while the nodes that read it are not planned again would be taken for unchanged."""
    chain = Chain()
    x, factor = chain.input((4,)), chain.scalar(value=2)
    out = chain.node("aten.add.Tensor", x, x, factor, chain.tensor((4,)))
    device = open_device()
    executor = Executor(compile(chain.graph(out), device.limits), device)
    one = np.ones(4, np.float32)
    assert executor.execute([one])[0][0] == 3

    class Cut(list[int]):
        def __iter__(self) -> Any:
            raise Interrupted

    scalar = executor.live.scalar(factor)
    scalar.consumers = Cut(scalar.consumers)
    with pytest.raises(Interrupted):
        executor.set_scalar(factor, 5)
    executor.set_scalar(factor, 5)
    assert executor.execute([one])[0][0] == 6


def test_memory_that_is_only_forgotten_does_not_count_as_live() -> None:
    device: Device = open_device()
    before = live_bytes(device)
    buffers = [device.buffer(1 << 20, "forgotten") for _ in range(200)]
    assert device.counters.live_bytes == before + (200 << 20)
    del buffers
    assert device.counters.live_bytes == before


@pytest.mark.parametrize("error", ERRORS)
def test_the_device_on_paper_can_fail_as_well(error: Callable[[], BaseException]) -> None:
    device = FaultyDevice(PaperDevice(Limits()))
    model = tiny_model(device)
    model.prefill([1, 2, 3])
    before = device.counters.live_bytes
    device.fail_at(1, error())
    with pytest.raises((LiveshapeError, RuntimeError, KeyboardInterrupt)):
        model.prefill([4])
    assert model.tokens == (1, 2, 3)
    model.prefill([4])
    assert model.tokens == (1, 2, 3, 4)
    assert device.counters.live_bytes == before
