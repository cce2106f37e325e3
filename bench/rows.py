"""The time of a call by its number of tokens: the weights are read once for all of them.

Run: python -m bench.rows [--shape 1b] [--activations float32,int8] [--rows 1,2,3,4] [--plot rows.svg] [--out rows.json]

A call has so many tokens at a depth of 512, and samples after each of them, or after the last ones if they are more
than the verification of draft tokens takes. It is timed until the samples are read back.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from bench.calls import milliseconds
from liveshape.device.backends import open_device
from liveshape.graph.activation_kinds import ACTIVATIONS
from liveshape.llm.engine.engine import TOKEN, tokens_of
from liveshape.llm.language_model import LanguageModel
from liveshape.llm.sampling_settings import Sampling
from liveshape.tools.commands.bench import described
from liveshape.tools.measuring.plot import lines
from liveshape.tools.measuring.random_llamas import SHAPES
from liveshape.tools.measuring.subject import Subject, Work, go_to_depth, random_tokens

ROWS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128)
DEPTH = 512
CLIFF = 1.15  # a cliff: a row count that costs more than this times the next larger one


def costs_of(model: LanguageModel, counts: Sequence[int], depth: int = DEPTH) -> dict[int, float]:
    """Milliseconds of a call, by its number of tokens.

    Example: `costs_of(model, (1, 8), 64)[8]`.
    """
    go_to_depth(model, depth)
    engine = model.engine
    most = engine.description.sampled_rows

    def cost(count: int) -> float:
        tokens, chosen = random_tokens(model, count), min(count, most)
        return milliseconds(lambda: tokens_of(engine.run(tokens, depth, Sampling(), [TOKEN], chosen)))

    return model.lock.run(lambda: {count: cost(count) for count in counts})


def cliffs(costs: Mapping[int, float]) -> list[int]:
    """The row counts that are slower than the next larger one by more than CLIFF.

    >>> cliffs({1: 1.0, 8: 3.0, 16: 2.0})
    [8]
    """
    ordered = sorted(costs.items())
    return [rows for (rows, cost), (_, larger) in pairwise(ordered) if cost > CLIFF * larger]


def drawn(document: Mapping[str, Any]) -> str:
    """The plot of results that `main` wrote.

    Example: `drawn(json.loads(Path("rows.json").read_text()))`.
    """
    found = {
        side: sorted((int(rows), cost) for rows, cost in costs.items()) for side, costs in document["rows"].items()
    }
    title = f"a call of {document['model']} at depth {document['depth']} on {document['device']}"
    return lines(title, "ms", "rows", found)


def numbers(text: str) -> list[int]:
    """A list of numbers, as an option takes it.

    >>> numbers("1,8")
    [1, 8]
    """
    return [int(each) for each in text.split(",")]


def command_of(module: str, arguments: Sequence[str] | None) -> str:
    """The command line, with paths reduced to file names.

    >>> command_of("bench.rows", ["--shape", "1b", "--out", "/somewhere/rows.json"])
    'python -m bench.rows --shape 1b --out rows.json'
    """
    given = sys.argv[1:] if arguments is None else arguments
    return " ".join(["python", "-m", module, *(each.rpartition("/")[2] for each in given)])


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--shape", choices=SHAPES, default="1b")
    parser.add_argument("--activations", default=",".join(ACTIVATIONS), help="some of them, with commas")
    parser.add_argument("--rows", type=numbers, default=list(ROWS))
    parser.add_argument("--depth", type=int, default=DEPTH)
    parser.add_argument("--device")
    parser.add_argument("--plot", type=Path, help="an .svg file")
    parser.add_argument("--out", type=Path, help="a .json file, for bench.performance")
    options = parser.parse_args(arguments)
    device = open_device(options.device)
    found: dict[str, dict[int, float]] = {}
    document: dict[str, Any] = {}
    for activations in options.activations.split(","):
        subject = Subject(shape=options.shape, activations=activations)
        with subject.open([Work(prompt=max(options.rows), depth=options.depth)], device) as model:
            found[activations] = costs_of(model, options.rows, options.depth)
            document = described(options.shape, device, model.memory.weights)
    command = command_of("bench.rows", arguments)
    document |= {"kind": "rows", "depth": options.depth, "command": command, "rows": found}
    table = Table("rows", *found, title=f"ms of a call of {options.shape} at depth {options.depth} on {device.name}")
    for rows in options.rows:
        table.add_row(str(rows), *(_cell(costs, rows) for costs in found.values()))
    Console().print(table)
    if options.plot is not None:
        options.plot.write_text(drawn(document), encoding="utf-8")
    if options.out is not None:
        options.out.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")


def _cell(costs: Mapping[int, float], rows: int) -> str:
    ratio = costs[rows] / costs[min(costs)]
    flag = f", more than {CLIFF} times the next" if rows in cliffs(costs) else ""
    return f"{costs[rows]:.3f} ({ratio:.2f}x{flag})"


if __name__ == "__main__":
    main()
