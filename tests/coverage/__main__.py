"""Run ExecuTorch's own test suites through our loader and write docs/coverage.md.

    python -m tests.coverage [--jobs 2] [--suite models] [--only text] [--resume] [--print]

What was exported once is kept: the next run only runs. With --resume what a test came to is taken from the run before,
so that one which was stopped goes on where it was: whole models take hours on two cores.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import sys
from collections.abc import Iterator
from dataclasses import asdict

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from tests.coverage import recording
from tests.coverage.outcomes import Outcome, outcome_of
from tests.coverage.recording import Suite, recorded
from tests.coverage.report import PAGE, page, renewed
from tests.coverage.suites import suites
from tests.support.catalogue import one_thread
from tests.support.exporting import cached_path, write_once

_SUITES: list[Suite] = []  # as workers inherit it: tests are functions that cannot be sent to them
_resuming = False


def examine(place: tuple[int, str]) -> tuple[int, Outcome]:
    """One test: recorded, or read back, then run."""
    number, name = place
    suite = _SUITES[number]
    key, test = f"{suite.origin}.{name}", suite.tests[name]
    kept = cached_path(f"coverage/{key}", (recording, sys.modules[test.func.__module__]), ".outcome")
    if _resuming and kept.exists():
        return number, Outcome(**json.loads(kept.read_text()))
    outcome = outcome_of(name, recorded(key, test))
    write_once(kept, json.dumps(asdict(outcome)).encode())
    return number, outcome


def outcomes(places: list[tuple[int, str]], jobs: int) -> Iterator[tuple[int, Outcome]]:
    one_thread()
    if jobs == 1:
        yield from map(examine, places)
        return
    # Forked before a device is open; the modules and the exporter's patterns are then there already.
    with multiprocessing.get_context("fork").Pool(jobs) as pool:
        yield from pool.imap_unordered(examine, places, chunksize=1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=int, default=1, help="processes that export and run")
    parser.add_argument("--suite", default="", help="only suites with this in their title; the page keeps the others")
    parser.add_argument("--only", default="", help="only tests whose name has this in it; the page is printed")
    parser.add_argument("--print", action="store_true", help="print the page instead of writing docs/coverage.md")
    parser.add_argument("--resume", action="store_true", help="what the run before found is taken as it is")
    arguments = parser.parse_args()
    global _resuming
    _resuming = arguments.resume
    _SUITES[:] = [suite for suite in suites() if arguments.suite in suite.title]
    places = [(number, name) for number, suite in enumerate(_SUITES) for name in suite.tests if arguments.only in name]
    found: list[list[Outcome]] = [[] for _ in _SUITES]
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True)) as progress:
        task = progress.add_task("tests", total=len(places))
        for number, outcome in outcomes(places, arguments.jobs):
            found[number].append(outcome)
            progress.update(task, advance=1, description=outcome.name[:40].ljust(40))
    results = list(zip(_SUITES, found, strict=True))
    text = renewed(PAGE.read_text(), results) if arguments.suite else page(results)
    if arguments.only or arguments.print:
        print(text)
    else:
        PAGE.write_text(text)


if __name__ == "__main__":
    main()
