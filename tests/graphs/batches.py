"""Batches of random programs, run and checked; a failure prints the seed and a listing of the smallest graph that fails
the same way; `random_program(seed)` makes it again.

LIVESHAPE_FUZZ sets the number of graphs, LIVESHAPE_FUZZ_SEED the first seed.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Callable
from typing import Any

from liveshape.errors import UnsupportedError
from tests.graphs.comparing import check_close
from tests.graphs.generator import random_program
from tests.graphs.program import Program, listing, shrunk
from tests.graphs.reference import expected
from tests.graphs.running import Choices, Run

COUNT = int(os.environ.get("LIVESHAPE_FUZZ", "150"))
SEED = int(os.environ.get("LIVESHAPE_FUZZ_SEED", "20260822"))
BATCH = min(25, COUNT)  # graphs of one test, so that workers share them

Check = Callable[[Program, random.Random], None]


def every_call(program: Program, choices: Choices, truth: Any) -> list[list[Any]]:
    """All calls in a row against torch, states at the end."""
    calls, states, _ = truth
    run = Run(program, choices)
    results = []
    for turn in range(program.count):
        results.append(run.call(turn))
        check_close(results[-1], calls[turn], f"{choices}, call {turn}")
    check_close(run.states(), states, f"{choices}, states")
    run.close()
    return results


def seeds(share: float) -> list[int]:
    """The first seed of each batch; at least one."""
    return list(range(SEED, SEED + max(BATCH, int(COUNT * share)), BATCH))


def run_batch(check: Check, first: int, made: Callable[[int], Program] = random_program) -> Counter[str]:
    """Check the programs of a batch; a failure is shown with the smallest program that fails in the same way."""
    seen: Counter[str] = Counter()
    for seed in range(first, first + BATCH):
        program = made(seed)
        error = problem(check, program)
        if isinstance(error, UnsupportedError):
            seen["refused"] += 1
            continue
        seen["run"] += 1
        if error is None:
            continue
        kind = type(error)
        small = shrunk(program, lambda smaller, kind=kind: type(problem(check, smaller)) is kind)
        shown = problem(check, small) or error
        raise AssertionError(
            f"seed {seed}: {type(error).__name__}: {error}\n\nas small as it gets: {shown}\n{describe(small)}"
        ) from error
    return seen


def problem(check: Check, program: Program) -> Exception | None:
    """What a check finds, always with the same chances for a seed."""
    try:
        check(program, random.Random(program.seed))
    except Exception as error:
        return error
    return None


def describe(program: Program) -> str:
    try:
        return listing(program, expected(program)[2])
    except Exception:  # torch itself refuses what is left of it
        return listing(program)
