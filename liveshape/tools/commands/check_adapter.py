"""`liveshape check --selftest`: the sweeps of the package on this adapter, as one table and a file for an issue."""

from __future__ import annotations

import json
import math
import platform
import re
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from fnmatch import fnmatch
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from liveshape import __version__
from liveshape.check.selftest import FAILED, NOT_RUN, PASSED, SweepOutcome, selftest, tallied
from liveshape.check.sweeps import Sweep, shipped_sweeps
from liveshape.device.backends import open_device
from liveshape.device.protocol import Device
from liveshape.errors import InputError
from liveshape.formats.whole_file import whole_file
from liveshape.tools.console import check_writable, counted, print_json, print_table, print_text, work_bar

FORMAT = 1  # of a report
_PACKAGES = ("numpy", "wgpu", "wgpudawn")
_SHOWN = 20  # failures that are printed; the file has all


def check_adapter(
    device: str | None = None, *, only: str | None = None, report: str | None = None, as_json: bool = False
) -> int:
    """Run the sweeps on a device, print a table and write a report; 1 if one failed.

    Example: `check_adapter("nvidia", only="attention")`.
    """
    check_writable("--report", report)
    opened = open_device(device)
    sweeps = chosen_sweeps(shipped_sweeps(), only)
    file = report or f"liveshape-selftest-{slug(f'{opened.adapter.library} {opened.name}')}.json"
    check_writable("--report", file)
    began = time.perf_counter()
    with work_bar(len(sweeps)) as begin:
        outcomes = selftest(sweeps, lambda: open_device(device), begin)
    document = report_of(outcomes, opened, time.perf_counter() - began, only)
    with whole_file(Path(file), "a report") as written:
        written.write((json.dumps(document, indent=1, allow_nan=False) + "\n").encode())
    if as_json:
        print_json(document)
    else:
        _print(outcomes, opened, file)
    return 1 if any(outcome.status == FAILED for outcome in outcomes) else 0


def chosen_sweeps(sweeps: Sequence[Sweep], only: str | None) -> list[Sweep]:
    """The sweeps whose name, operator or family has a text in it; `*` and `?` stand for others.

    Example: `chosen_sweeps(shipped_sweeps(), "conv*float16")`.
    """
    if only is None:
        return list(sweeps)
    found = [
        sweep
        for sweep in sweeps
        if any(fnmatch(name.lower(), f"*{only.lower()}*") for name in (sweep.name, sweep.node.name, sweep.family))
    ]
    if not found:
        families = ", ".join(sorted({sweep.family for sweep in sweeps}))
        raise InputError(f"--only {only}: no sweep, operator or family has that in its name; families are {families}")
    return found


def slug(text: str) -> str:
    """A text as a part of the name of a file.

    >>> slug("llvmpipe (LLVM 15.0.6, 128 bits)")
    'llvmpipe-llvm-15-0-6-128-bits'
    """
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-") or "adapter"


def report_of(outcomes: Sequence[SweepOutcome], device: Device, seconds: float, only: str | None) -> dict[str, Any]:
    """What goes to an issue: versions, adapter, limits, counts by family and operator, and all that did not pass.

    Example: `report_of(outcomes, device, 12.0, None)["failed"]`.
    """
    counts = {status: sum(outcome.status == status for outcome in outcomes) for status in (PASSED, FAILED, NOT_RUN)}
    document = {
        "format": FORMAT,
        "liveshape": __version__,
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "only": only,
        "adapter": asdict(device.adapter),
        "limits": asdict(device.limits),
        "platform": platform.platform(),
        "machine": platform.machine(),
        "python": platform.python_version(),
        "packages": {name: found for name in _PACKAGES if (found := _version(name)) is not None},
        "sweeps": len(outcomes),
        "passed": counts[PASSED],
        "failed": counts[FAILED],
        "not_run": counts[NOT_RUN],
        "seconds": round(seconds, 1),
        "families": [asdict(tally) for tally in tallied(outcomes, lambda outcome: outcome.family)],
        "operators": [asdict(tally) for tally in tallied(outcomes, lambda outcome: outcome.operator)],
        "failures": [asdict(outcome) for outcome in outcomes if outcome.status == FAILED],
        "refused": [
            {"sweep": outcome.sweep, "reason": outcome.reason} for outcome in outcomes if outcome.status == NOT_RUN
        ],
    }
    made: dict[str, Any] = _finite(document)
    return made


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _finite(value: Any) -> Any:
    """A document in which NaN and infinities are texts, since JSON has none."""
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    if isinstance(value, complex):
        return str(value)
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _print(outcomes: Sequence[SweepOutcome], device: Device, file: str) -> None:
    tallies = tallied(outcomes, lambda outcome: outcome.family)
    total = tallied(outcomes, lambda outcome: "all")
    rows = [
        (
            tally.name,
            tally.count,
            tally.passed,
            tally.failed or "-",
            tally.not_run or "-",
            f"{tally.error:.0e}",
            "; ".join(tally.reasons),
        )
        for tally in (*tallies, *total)
    ]
    adapter = device.adapter
    title = f"{device.name}, {adapter.driver}, {adapter.backend} through {adapter.library}"
    print_table(title, ("family", "sweeps", "passed", "failed", "not run", "worst error", "why not run"), rows)
    failed = [outcome for outcome in outcomes if outcome.status == FAILED]
    for outcome in failed[:_SHOWN]:
        print_text(_told(outcome))
    if len(failed) > _SHOWN:
        print_text(f"  and {len(failed) - _SHOWN} more, which the file has")
    what = f"{counted(len(failed), 'sweep')} failed" if failed else "nothing failed"
    print_text(f"{what}; attach {file} to an issue: a report of what works is welcome, too")
    sys.stdout.flush()


def _told(outcome: SweepOutcome) -> str:
    rows = [f"  {outcome.operator}, {outcome.sweep}: {outcome.reason}"]
    if outcome.difference is not None:
        rows.append(f"    {outcome.value}: {outcome.difference}")
    if outcome.shapes:
        rows.append(f"    reads {', '.join(f'{name} {shape}' for name, shape in outcome.shapes.items())}")
    if outcome.kernels:
        rows.append(f"    kernels {', '.join(outcome.kernels)}")
    return "\n".join(rows)
