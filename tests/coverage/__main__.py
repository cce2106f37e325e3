"""Run ExecuTorch's own test suites through our loader and write docs/coverage.md.

    python -m tests.coverage [--jobs 2] [--suite models] [--only text] [--print]

What was exported once is kept: a run that was stopped goes on where it was, and the next one only runs.
"""

from __future__ import annotations

import argparse
import multiprocessing
from collections.abc import Iterator

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from tests.coverage.outcomes import Outcome, outcome_of
from tests.coverage.recording import Suite, recorded
from tests.coverage.report import PAGE, page, renewed
from tests.coverage.suites import suites
from tests.support.catalogue import one_thread

_SUITES: list[Suite] = []  # as workers inherit it: tests are functions that cannot be sent to them


def examine(place: tuple[int, str]) -> tuple[int, Outcome]:
    """One test: recorded, or read back, then run."""
    number, name = place
    suite = _SUITES[number]
    return number, outcome_of(name, recorded(f"{suite.origin}.{name}", suite.tests[name]))


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
    arguments = parser.parse_args()
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
