"""docs/coverage.md was made with the operators that there are now, and `python -m tests.coverage` says what is so."""

from __future__ import annotations

import re

import numpy as np
import pytest
import torch

from liveshape.ops.registry import callable_by_files
from tests.coverage.outcomes import KINDS, Outcome, outcome_of
from tests.coverage.recording import Recorded, Recording, Suite, call
from tests.coverage.report import PAGE, page, renewed
from tests.support.exporting import cached, lower


def test_the_page_names_no_operator_as_missing_that_is_there() -> None:
    missing = set(re.findall(r"no operator `([^`]+)`", PAGE.read_text()))
    known = sorted(name for name in missing if callable_by_files(name) is not None)
    assert not known, f"docs/coverage.md is older than {', '.join(known)}: run python -m tests.coverage"


def test_the_totals_of_the_page_are_those_of_its_rows() -> None:
    text = PAGE.read_text()
    totals = re.findall(r"^\| ([^|]+) \| (\d+) \| (\d+) \| (\d+) \| (\d+) \| (\d+) \| (\d+) \|$", text, re.MULTILINE)
    assert len(totals) == 4
    for title, *numbers in totals:
        tests, passed, *others = map(int, numbers)
        assert tests == passed + sum(others)
        section = text.split(f"## {title}\n")[1].split("\n## ")[0]
        assert others == [len(re.findall(rf"\| {kind} \|", section)) for kind in KINDS[1:]]


def doubled() -> bytes:
    return cached("coverage.doubled", "x + x", lambda: lower(Doubled(), (torch.ones(3, 4),))).read_bytes()


class Doubled(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + x


@pytest.mark.parametrize(
    ("reference", "kind", "reason"),
    [
        (np.full((3, 4), 2.0005, np.float32), "passed", ""),
        (np.full((3, 4), 2.1, np.float32), "wrong", "result 0 is off by up to 0.1 in 12 of 12 places"),
        (np.full((3, 4), np.nan, np.float32), "wrong", "result 0 is off by up to nan in 12 of 12 places"),
        (np.full((4, 3), 2.0, np.float32), "wrong", "result 0 has shape (3, 4) instead of (4, 3)"),
    ],
)
def test_a_recorded_program_is_run_and_compared(reference: np.ndarray, kind: str, reason: str) -> None:
    program = Recorded(doubled(), (call((torch.ones(3, 4),), (torch.from_numpy(reference),)),), 1e-3, 0.0)
    assert outcome_of("doubled", Recording([program])) == Outcome("doubled", kind, reason)


def test_inputs_above_the_bound_are_refused_and_those_within_must_be_right() -> None:
    live = {"x": {1: torch.export.Dim("S", max=4)}}
    pte = cached("coverage.live", "x + x", lambda: lower(Doubled(), (torch.ones(3, 4),), live)).read_bytes()
    large, small = torch.ones(3, 5), torch.ones(3, 2)
    program = Recorded(pte, (call((large,), (large * 2,)), call((small,), (small * 2,))), 1e-3, 0.0)
    reason = "the test gives input 0 as (3, 5), above the (3, 4) that it exports"
    assert outcome_of("doubled", Recording([program])) == Outcome("doubled", "refused", reason)
    program = Recorded(pte, (call((large,), (large * 2,)), call((small,), (small * 3,))), 1e-3, 0.0)
    assert outcome_of("doubled", Recording([program])).kind == "wrong"


def test_numbers_that_are_none_are_right_where_the_reference_has_them() -> None:
    x = torch.full((3, 4), torch.nan)
    x[0] = torch.inf
    program = Recorded(doubled(), (call((x,), (x + x,)),), 1e-3, 1e-1)
    assert outcome_of("doubled", Recording([program])).kind == "passed"


def test_what_gives_no_program_is_not_exported() -> None:
    assert outcome_of("one", Recording(failure="ValueError: why")) == Outcome("one", "not exported", "ValueError: why")
    assert outcome_of("one", Recording()).kind == "not exported"


def test_a_program_that_a_part_is_missing_of_is_unsupported() -> None:
    broken = doubled().replace(b"aten.add.Tensor", b"aten.odd.Tensor")
    program = Recorded(broken, (call((torch.ones(3, 4),), (torch.ones(3, 4),)),), 1e-3, 0.0)
    found = outcome_of("odd", Recording([program]))
    assert found == Outcome("odd", "unsupported", "no operator `aten.odd.Tensor`")


def test_the_page_is_in_order_and_escapes_what_a_table_cannot_hold() -> None:
    suite = Suite("Some", "some.where", {}, {"test_absent": "No module named 'absent'"})
    rows = [
        Outcome("b", "wrong", "a | b"),
        Outcome("c", "passed"),
        Outcome("a", "wrong", "x"),
        Outcome("z", KINDS[1], "y"),
    ]
    text = page([(suite, rows)])
    assert "| Some | 4 | 1 | 1 | 0 | 0 | 2 |" in text
    assert (
        text.index("| z | not exported | y |") < text.index("| a | wrong | x |") < text.index(r"| b | wrong | a \| b |")
    )
    assert "`test_absent` is left out: No module named 'absent'." in text
    assert text == page([(suite, list(reversed(rows)))])


def test_a_suite_is_renewed_alone() -> None:
    suites = [Suite(title, f"from.{title}", {}, {}) for title in ("First", "Second", "Last")]
    old = [(suite, [Outcome("a", "passed"), Outcome("b", "wrong", "x")]) for suite in suites]
    for place, suite in enumerate(suites):
        anew = (suite, [Outcome("a", "passed"), Outcome("b", "passed"), Outcome("c", "refused", "y")])
        assert renewed(page(old), [anew]) == page([*old[:place], anew, *old[place + 1 :]])
