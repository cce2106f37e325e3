"""The page docs/coverage.md: a table of totals, and for each suite the tests that do not pass with the reason."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from tests.coverage.outcomes import KINDS, Outcome
from tests.coverage.recording import Suite

PAGE = Path(__file__).resolve().parents[2] / "docs" / "coverage.md"
EXPORTERS = ("executorch", "torch", "torchao", "torchvision", "torchaudio", "transformers")


def page(results: Sequence[tuple[Suite, Sequence[Outcome]]]) -> str:
    """The whole page, the same for the same results."""
    return "\n".join([*_head(), *_totals(results), *(line for found in results for line in _section(*found))]) + "\n"


def renewed(text: str, results: Sequence[tuple[Suite, Sequence[Outcome]]]) -> str:
    """A page on which the parts of these suites are new and all others are as they were."""
    text = "\n".join(_head()) + text[text.index("\n| suite |") :]
    for suite, outcomes in results:
        before, _, rest = text.partition(f"\n{_total_start(suite)}")
        text = f"{before}\n{_total(suite, outcomes)}\n{rest.partition(chr(10))[2]}"
        before, _, rest = text.partition(f"\n## {suite.title}\n")
        _, following, after = rest.partition("\n## ")
        text = before + "\n" + "\n".join(_section(suite, outcomes)) + (following or "\n") + after
    return text


def _head() -> Iterator[str]:
    yield "# ExecuTorch's own test suites on liveshape"
    yield ""
    yield "Written by `python -m tests.coverage`; do not edit. Each test of ExecuTorch's suites is exported by its own"
    yield "code, run by liveshape on its own inputs in memory poisoned with NaN, and compared with its own reference at"
    yield "its own tolerance. *Not exported* are tests without a program to run: the exporter refuses it, or the test"
    yield "checks the export alone. *Refused* are tests whose input is above the bound that they export."
    yield ""
    yield f"Made with {', '.join(_installed(name) for name in EXPORTERS)}."
    yield ""


def _installed(name: str) -> str:
    try:
        return f"{name} {version(name)}"
    except PackageNotFoundError:
        return f"{name} (not installed)"


def _totals(results: Sequence[tuple[Suite, Sequence[Outcome]]]) -> Iterator[str]:
    yield f"| suite | tests | {' | '.join(KINDS)} |"
    yield "| --- |" + " ---: |" * (1 + len(KINDS))
    yield from (_total(*found) for found in results)
    yield ""


def _total(suite: Suite, outcomes: Sequence[Outcome]) -> str:
    counts = Counter(outcome.kind for outcome in outcomes)
    return f"{_total_start(suite)}{len(outcomes)} | {' | '.join(str(counts[kind]) for kind in KINDS)} |"


def _total_start(suite: Suite) -> str:
    return f"| {suite.title} | "


def _section(suite: Suite, outcomes: Sequence[Outcome]) -> Iterator[str]:
    yield f"## {suite.title}"
    yield ""
    yield f"`{suite.origin}`"
    yield ""
    for module, reason in sorted(suite.absent.items()):
        yield f"- `{module}` is left out: {_cell(reason)}."
    if suite.absent:
        yield ""
    rows = sorted((KINDS.index(each.kind), each.name, each.reason) for each in outcomes if each.kind != "passed")
    if not rows:
        yield "Everything passes." if outcomes else "Nothing could be run."
        yield ""
        return
    yield "| test | | reason |"
    yield "| --- | --- | --- |"
    for kind, name, reason in rows:
        yield f"| {_cell(name)} | {KINDS[kind]} | {_cell(reason)} |"
    yield ""


def _cell(text: str) -> str:
    """Text that fits a row of a table."""
    short = text if len(text) <= 300 else f"{text[:297]}..."
    return short.replace("|", "\\|").replace("\n", " ").replace("<", "&lt;")
