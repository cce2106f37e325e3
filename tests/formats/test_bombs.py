"""Files that ask for more than they pay for in bytes, in a process with limits: each ends in an error of ours."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.formats.bombs import BOMBS, FILES

REFUSED = {
    "bare_table": r"FormatError: .*node 0\): weight is a table of rows, a tensor of shape \(\) was given",
    "few_arguments_of_a_node": r"FormatError: .*4 arguments given",
    "infinite_dimension": r"FormatError: .*dim must be int, -inf was given",
    "jump_onto_itself": r"FormatError: instruction 1 jumps to 1",
    "order_bomb": r"ShapeError: .*\(20000, 20000, 0\) do not broadcast",
    "no_arguments_of_an_instruction": r"FormatError: .*0 arguments given",
    "output_nobody_writes": r"FormatError: output 0 reads .*which nothing writes",
    "result_of_2_gb": r"FormatError: .*is allocated as \(1, 128, 65536, 64\), the operator gives at most",
    "weight_nobody_writes": r"FormatError: .*which nothing writes",
    "a_delegate_called_again_and_again": r"FormatError: .*over and over, beyond what 207748 bytes pay for",
    "a_list_read_again_and_again": r"FormatError: the lists of instruction .*over and over, beyond what 1048576 bytes",
    "one_constant_in_many_orders": r"FormatError: a constant of float32 \(512, 1023\) in order \(1, 0\): .*over and",
    "a_roll_of_one_dimension_many_times": "done",
    "a_roll_of_many_dimensions": r"UnsupportedError: .*roll of 60 dimensions, 8 are supported",
    "decimals_by_the_billion": r"UnsupportedError: .*rounding to 1099511627776 decimals",
    "inputs_of_many_sizes": "done",
    "rows_by_the_billion": "done",
    "numbers_made_of_themselves": "done",
    "a_signature_of_many_inputs": "done",
}


@pytest.fixture(scope="module")
def ended() -> dict[str, str]:
    """What each ended in, from one process of its own."""
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run(
        [sys.executable, "-m", "tests.formats.bombs"],
        cwd=root,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    return {name: f"{kind}: {text}" if text else kind for name, kind, text in lines}


def test_every_bomb_has_an_end_here() -> None:
    assert set(REFUSED) == {*FILES, *(bomb.__name__ for bomb in BOMBS)}
    assert {path.stem for path in (Path(__file__).parent / "crafted").glob("*.pte")} == set(FILES)


@pytest.mark.parametrize("name", REFUSED)
def test_it_costs_what_it_paid_for(name: str, ended: dict[str, str]) -> None:
    assert re.match(REFUSED[name], ended[name], re.DOTALL), f"{name} ended in {ended[name]}"
