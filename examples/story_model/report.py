"""Put the recorded losses into README.md, between its two markers.

Run: python report.py RESULT/losses.json
"""

from __future__ import annotations

import json
import sys
from math import exp
from pathlib import Path
from typing import Any

BEGIN, END = "<!-- losses -->\n", "<!-- /losses -->"


def table(record: dict[str, Any]) -> str:
    """The losses as Markdown: nats per token of the 4,096-piece vocabulary, on held-out stories.

    >>> table(json.loads(Path("losses.json").read_text()))
    """
    before, final, tokens = record["before_rounding"], record["final"], record["tokens"]
    lines = [
        "| held-out loss (perplexity) | float weights | 4-bit weights |",
        "| --- | --- | --- |",
    ]
    for name, item in (("before quantization-aware training", before), ("as shipped", final)):
        cells = [f"{item[key]:.4f} ({exp(item[key]):.2f})" for key in ("validation", "validation_4bit")]
        lines.append(f"| {name} | {cells[0]} | {cells[1]} |")
    lines += [
        "",
        f"{record['parameters']:,} parameters; corpus {tokens['corpus_bytes'] / 1e6:.0f} MB, "
        f"{tokens['train_tokens']:,} training and {tokens['validation_tokens']:,} held-out tokens;",
        f"{record['steps']:,} steps over {record['tokens_seen']:,} tokens in {record['seconds'] / 60:.1f} minutes.",
        "",
    ]
    return "\n".join(lines)


def fill(readme: Path, losses: Path) -> None:
    """Replace what stands between the markers."""
    head, rest = readme.read_text().split(BEGIN)
    _, tail = rest.split(END)
    readme.write_text(f"{head}{BEGIN}{table(json.loads(losses.read_text()))}{END}{tail}")


if __name__ == "__main__":
    fill(Path(__file__).with_name("README.md"), Path(sys.argv[1]))
