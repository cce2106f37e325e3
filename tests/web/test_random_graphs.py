"""Random graphs of all operator families in Node on Dawn, and in Chromium: every output of every call as the native
engine has it, at live sizes up and down, with states, branches and loops.

`random_program(seed)` makes a graph again; LIVESHAPE_FUZZ_SEED is the first seed.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from tests.graphs.comparing import Wrong, check_close
from tests.graphs.generator import random_program
from tests.graphs.program import listing
from tests.graphs.reference import Expected, expected
from tests.graphs.running import Choices, Run
from tests.support.browser import node, opened_page
from tests.web.page_graphs import FILES, read, text_of
from tests.web.page_host import hosted
from tests.web.test_node import WEB, environment

pytestmark = pytest.mark.slow

ROOT = WEB.parent
SEED = int(os.environ.get("LIVESHAPE_FUZZ_SEED", "20261118"))
BATCH = 10  # of one test, so that workers share them
SEEDS = range(SEED, SEED + 50, BATCH)
TEXTS = {name: (ROOT / name).read_text() for name in FILES}
CALLED = {"texts": TEXTS, "module": "tests.web.page_graphs", "name": "told"}

Answer = Callable[[str], str]


@cache
def native(seed: int) -> list[Expected]:
    """Every call, then the states, of the native engine, and how far each may be off: what torch allows."""
    program = random_program(seed)
    calls, states, _ = expected(program)
    run = Run(program, Choices())
    found = [Expected(run.call(turn), wanted.tolerances) for turn, wanted in enumerate(calls)]
    found.append(Expected(run.states(), states.tolerances))
    run.close()
    return found


def check(seed: int, answer: str) -> None:
    """What a page has found against the native engine."""
    found = json.loads(answer)
    program = random_program(seed)
    assert "failed" not in found, f"seed {seed}: {found['failed']}\n{listing(program)}"
    assert len(found) == program.count + 1
    for turn, (results, wanted) in enumerate(zip(found, native(seed), strict=True)):
        kept = [place for place, array in enumerate(wanted.arrays) if array is not None]
        wanted = Expected([wanted.arrays[place] for place in kept], [wanted.tolerances[place] for place in kept])
        try:
            check_close([read(results[place]) for place in kept], wanted, f"seed {seed}, call {turn}")
        except Wrong as error:
            raise AssertionError(f"{error}\n{listing(program)}") from error


@pytest.mark.parametrize("first", SEEDS)
def test_in_node(first: int, tmp_path: Path) -> None:
    seeds = range(first, first + BATCH)
    given = [text_of(random_program(seed)) for seed in seeds]
    (tmp_path / "given.json").write_text(json.dumps({**CALLED, "given": given}))
    command = [node(), str(WEB / "test" / "graphs.mjs"), str(tmp_path / "given.json")]
    run = subprocess.run(command, capture_output=True, text=True, env=environment(), timeout=1500, check=False)
    assert run.returncode == 0, run.stderr[-3000:]
    answers = [line for line in run.stdout.splitlines() if line.startswith(("[", "{"))]
    for seed, answer in zip(seeds, answers, strict=True):
        check(seed, answer)


@pytest.fixture(scope="module")
def answered(gpu_browser: Browser) -> Iterator[Answer]:
    """A page that runs a program and gives its results."""
    opening = """async (given) => {
        const { loadPyodide } = await import("/dist/pyodide/pyodide.mjs");
        const { openPython } = await import("/test/graphs.js");
        const archive = await (await fetch("/dist/liveshape.zip")).arrayBuffer();
        const options = { indexURL: "/dist/pyodide/" };
        globalThis.call = await openPython({ loadPyodide, options, archive, gpu: navigator.gpu, ...given });
    }"""
    with hosted(dist=WEB / "dist", test=WEB / "test") as (address, _), opened_page(gpu_browser, address) as page:
        page.evaluate(opening, CALLED)
        yield lambda text: page.evaluate("(text) => globalThis.call(text)", text)


@pytest.mark.long
@pytest.mark.parametrize("first", SEEDS)
def test_in_chromium(first: int, answered: Answer) -> None:
    for seed in range(first, first + BATCH):
        check(seed, answered(text_of(random_program(seed))))
