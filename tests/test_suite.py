"""The lists that say which tests run when name tests that exist."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import SLOW_CASES, unknown_cases

ROOT = Path(__file__).resolve().parents[1]


def test_every_slow_case_is_one() -> None:
    assert len(SLOW_CASES) > 20
    for case in SLOW_CASES:
        path, _, name = case.partition("::")
        assert f"def {name.partition('[')[0]}(" in (ROOT / path).read_text(), case


@pytest.mark.parametrize("line", ["tests/a.py::f[3]", "tests/a.py::g", "tests/a.py::f"])
def test_a_line_that_names_no_collected_test_is_found(line: str) -> None:
    """What the hook of conftest.py asks at every collection: a parameter that was renamed would run among the quick."""
    collected = ["tests/a.py::f[1]", "tests/a.py::f[2]", "tests/b.py::g"]
    assert unknown_cases([*collected, line, "tests/c.py::h"], collected) == [line]
    assert unknown_cases([line], collected[:1], chosen=["tests/a.py"]) == []
