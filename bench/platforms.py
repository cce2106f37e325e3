"""Writes the table of docs/platforms.md from reports of `liveshape check --selftest`.

Run: liveshape check --selftest --report report.json       on the machine
     python -m bench.platforms report.json ...             here: adds them, a newer one in the place of an older

docs/platforms.json keeps a row for each adapter, driver, library and machine.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
ROWS = ROOT / "docs" / "platforms.json"
PAGE = ROOT / "docs" / "platforms.md"
BEGIN, END = "<!-- python -m bench.platforms -->", "<!-- end -->"
HEAD = (
    "| adapter | driver | through | system | date | liveshape | sweeps | passed | failed | not run | worst error |\n"
    "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |"
)
WHO = ("adapter", "driver", "via", "library", "system")


def row_of(report: dict[str, Any]) -> dict[str, Any]:
    """What the table says of a report; one of a part of the sweeps is refused."""
    if report["only"] is not None:
        raise SystemExit(f"a report of --only {report['only']} is not one of all sweeps: run it without --only")
    adapter, library = report["adapter"], report["adapter"]["library"]
    package = {"dawn": "wgpudawn"}.get(library, library)
    worst = max((row for row in report["families"] if not row["failed"]), key=lambda row: row["error"])
    return {
        "adapter": adapter["name"],
        "driver": adapter["driver"],
        "via": adapter["backend"],
        "library": f"{package} {report['packages'].get(package, '')}".strip(),
        "system": f"{report['platform'].split('-')[0]} {report['machine']}, Python {report['python']}",
        "date": report["date"],
        "liveshape": report["liveshape"],
        **{name: report[name] for name in ("sweeps", "passed", "failed", "not_run")},
        "reasons": sorted({row["reason"] for row in report["refused"]}),
        "worst": f"{worst['error']:.0e} ({worst['name']})",
    }


def table(rows: Iterable[dict[str, Any]]) -> str:
    """Rows in Markdown, with a line for what was not run."""
    lines = [HEAD]
    notes = []
    for row in rows:
        through = f"{row['via']}, {row['library']}"
        cells = [row["adapter"], row["driver"], through, row["system"], row["date"], row["liveshape"]]
        cells += [f"{row[name]:,}" for name in ("sweeps", "passed", "failed", "not_run")]
        lines.append(f"| {' | '.join([*cells, row['worst']])} |")
        notes += [f"- {row['adapter']}, {row['driver']}, not run: {reason}." for reason in row["reasons"]]
    return "\n".join([*lines, *(["", *dict.fromkeys(notes)] if notes else [])])


def page(text: str, rows: Iterable[dict[str, Any]]) -> str:
    """The page with its table between the marks replaced."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{table(rows)}\n\n{END}{after}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("reports", nargs="+", type=Path, metavar="REPORT")
    rows = {tuple(row[name] for name in WHO): row for row in json.loads(ROWS.read_text())}
    for path in parser.parse_args().reports:
        row = row_of(json.loads(path.read_text()))
        rows[tuple(row[name] for name in WHO)] = row
    ordered = [rows[key] for key in sorted(rows)]
    ROWS.write_text(json.dumps(ordered, indent=1) + "\n")
    PAGE.write_text(page(PAGE.read_text(), ordered))
    print(f"{len(ordered)} rows in {PAGE.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
