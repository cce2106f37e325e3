"""The lists that say which tests run when name tests that exist."""

from __future__ import annotations

from pathlib import Path

from tests.conftest import SLOW_CASES

ROOT = Path(__file__).resolve().parents[1]


def test_every_slow_case_is_one() -> None:
    assert len(SLOW_CASES) > 20
    for case in SLOW_CASES:
        path, _, name = case.partition("::")
        assert f"def {name.partition('[')[0]}(" in (ROOT / path).read_text(), case
