"""Random sequences beside each other in every family of decoders that we write: windows, caps, sinks, experts, biases
and learned positions, with arrivals, lengths, cancels, forks, truncates, draft tokens and small pools."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.llm.batch.crowd import Subject, check, runner_of
from tests.llm.batch.test_families import EVERY, exported

pytestmark = pytest.mark.slow
# Where attention is spelled out, a single sequence has no float16 cache to compare with.
NO_HALF_ALONE = ("gemma2", "gpt_oss")


def run(subject: Subject, seeds: range) -> None:
    """Pools of which one holds a single sequence, one some of them, and one all."""
    forks = 0
    for pages in (5, 9, 24):
        runner = runner_of(subject, pages)
        forks += sum(check(subject, runner, 42, seed) for seed in seeds)
        runner.close()
    assert forks > 0


@pytest.mark.parametrize("name", EVERY)
def test_five_hundred_sequences(name: str, tmp_path: Path) -> None:
    run(Subject(exported(name, tmp_path)), range(4))


@pytest.mark.parametrize("name", [name for name in EVERY if name not in NO_HALF_ALONE])
def test_with_a_half_cache(name: str, tmp_path: Path) -> None:
    run(Subject(exported(name, tmp_path), half_cache=True), range(1))


@pytest.mark.parametrize("name", EVERY)
def test_with_int8_activations(name: str, tmp_path: Path) -> None:
    # One row and several are quantized by other kernels, whose last bits turn bytes over.
    file = exported(name, tmp_path, mode="4w")
    run(Subject(file, activations="int8", tolerance=0.25), range(1))
