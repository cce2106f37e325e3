"""Many sequences in one graph whose layers take matrix units: random arrivals, forks, cuts, draft tokens and pools that
are too small, against each sequence alone."""

from __future__ import annotations

import pytest

from tests.llm.batch.crowd import Subject, check, runner_of
from tests.matrices.opened import kernels_of, with_matrices
from tests.survival.subjects import STORY

pytestmark = pytest.mark.slow
# Inputs of products are rounded to halves where a step has rows enough, and not where a sequence is alone.
ROUNDING = 0.15  # of logits up to 25


@pytest.mark.parametrize(("pages", "half_cache"), [(3, False), (6, True), (24, False)])
def test_random_sequences(pages: int, half_cache: bool) -> None:
    device, _ = with_matrices()
    subject = Subject(STORY, half_cache, "float16", ROUNDING, device)
    runner = runner_of(subject, pages)
    forks = sum(check(subject, runner, 42, seed) for seed in range(2))
    assert forks > 0 or pages == 3
    assert any("/matrix_tiles" in name for name in kernels_of(device))
    runner.close()
