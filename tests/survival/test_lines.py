"""An interrupt at a line of the package while people do something: done again, it is right, and no memory is left."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from liveshape.device.backends import open_device
from tests.survival.faulty import FaultyDevice
from tests.survival.lines import Lines
from tests.survival.subjects import live_bytes
from tests.survival.test_faults import QUICK, SUBJECTS, Subject, undisturbed


def sweep(kind: type[Subject], folder: Path, most: int) -> None:
    device = FaultyDevice(open_device())
    subject = kind(device, folder)
    for _ in range(2):
        undisturbed(subject)
    subject.begin()
    lines = Lines()
    assert not lines.over(subject.act)
    subject.end()
    subject.begin()
    before = live_bytes(device)
    draw, cuts = random.Random(kind.__name__), 0
    for line in draw.sample(range(1, lines.count + 1), min(most, lines.count)):
        subject.begin()
        cut = Lines(line)
        cuts += cut.over(subject.act)  # how many lines there are depends on how long the device is waited for
        try:
            subject.end()
            subject.begin()
            subject.act()
            subject.check()
            subject.end()
            subject.begin()
            assert live_bytes(device) == before
        except BaseException as error:
            raise AssertionError(f"after an interrupt at {cut.where}, line {line} of {lines.count}") from error
    assert cuts >= min(most, lines.count) // 2


@pytest.mark.parametrize("kind", QUICK, ids=lambda kind: kind.__name__)
def test_an_interrupt_at_some_lines(kind: type[Subject], tmp_path: Path) -> None:
    sweep(kind, tmp_path, 2)


@pytest.mark.slow
@pytest.mark.parametrize("kind", SUBJECTS, ids=lambda kind: kind.__name__)
def test_an_interrupt_at_many_lines(kind: type[Subject], tmp_path: Path) -> None:
    sweep(kind, tmp_path, 200)
