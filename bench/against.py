"""Whether this tree is slower than a commit: language models of both, interleaved in one run.

Run: python -m bench.against COMMIT|FOLDER [--turns 5] [--prompt 64] [--tokens 48] [--out FILE.json]
     python -m bench.against COMMIT|FOLDER --shape 1b [--turns 5] [--activations float32,int8] [--rows 1,2,8,512]

A FOLDER is another checkout, for a machine without git.

The trees alternate, so that both see the same load. Of the shipped model it is load, prefill and decode, each run in a
process of its own, and the fastest runs are compared. With --shape it is the calls of bench.rows: a process of each
tree loads the model once, they measure in turns, and medians are compared, as GPUs change their clocks meanwhile.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench.rows import command_of, numbers
from liveshape.device.backends import open_device
from liveshape.graph.activation_kinds import FLOAT32, INT8
from liveshape.shipped import shipped_model
from liveshape.tools.commands.bench import described
from liveshape.tools.measuring.random_llamas import SHAPES

ROOT = Path(__file__).parents[1]
# Only calls that both trees have.
MEASURED = """
import json, sys, time
from liveshape.llm import LanguageModel, Sampling
path, prompt, tokens = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
begin = time.perf_counter()
model = LanguageModel.load(path, activations="float32")
loaded = time.perf_counter() - begin
ids = [1 + i % 100 for i in range(prompt)]
def prefill():
    model.reset()
    begin = time.perf_counter()
    model.prefill(ids)
    model.device.flush()
    return time.perf_counter() - begin
def decode():
    begin = time.perf_counter()
    for _ in model.stream([5], Sampling(), max_tokens=tokens):
        pass
    return time.perf_counter() - begin
prefill(), decode()
rows = [(prefill(), decode()) for _ in range(3)]
print(json.dumps({"load": loaded, "prefill": min(row[0] for row in rows), "decode": min(row[1] for row in rows)}))
"""
# The same; it reads how many tokens a call shall have, and writes its milliseconds.
ANSWERS = """
import sys
from bench.rows import DEPTH, costs_of
from liveshape.tools.measuring.subject import Subject, Work
subject, most = Subject(shape=sys.argv[1], activations=sys.argv[2]), int(sys.argv[3])
with subject.open([Work(prompt=most, depth=DEPTH)], subject.device()) as model:
    for line in sys.stdin:
        print(costs_of(model, [int(line)])[int(line)], flush=True)
"""


def environment_of(tree: Path) -> dict[str, str]:
    """The environment of a process that has the package of a tree."""
    known = [str(tree), *filter(None, [os.environ.get("PYTHONPATH")])]
    return os.environ | {"PYTHONPATH": os.pathsep.join(known)}


def measured(tree: Path, prompt: int, tokens: int) -> dict[str, float]:
    """Seconds of load, prefill and decode in one process, with the package of a tree."""
    command = [sys.executable, "-c", MEASURED, str(shipped_model()), str(prompt), str(tokens)]
    done = subprocess.run(command, env=environment_of(tree), cwd=tree, check=False, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"the package in {tree} failed:\n{done.stderr}")
    found: dict[str, float] = json.loads(done.stdout)
    return found


@contextmanager
def answering(tree: Path, shape: str, activations: str, most: int) -> Iterator[Callable[[int], float]]:
    """Milliseconds of a call by its number of tokens, by a process of a tree that loads the model once.

    Loading goes on behind the caller's back, until the first answer is asked for.
    """
    command = [sys.executable, "-c", ANSWERS, shape, activations, str(most)]
    with subprocess.Popen(
        command, env=environment_of(tree), cwd=tree, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        asked, answers = process.stdin, process.stdout
        assert asked is not None
        assert answers is not None

        def cost(rows: int) -> float:
            print(rows, file=asked, flush=True)
            answer = answers.readline()
            if not answer:
                raise SystemExit(f"the package in {tree} failed with {activations}, {rows} tokens")
            return float(answer)

        yield cost


def calls(
    trees: dict[str, Path], shape: str, activations: str, counts: list[int], turns: int
) -> dict[str, list[float]]:
    """Median milliseconds of calls by each tree, in the order of `counts`; the trees take turns."""
    with ExitStack() as stack:
        sides = {
            name: stack.enter_context(answering(tree, shape, activations, max(counts))) for name, tree in trees.items()
        }
        found: dict[str, list[float]] = {name: [] for name in trees}
        for rows in counts:
            times: dict[str, list[float]] = {name: [] for name in trees}
            for _ in range(turns):
                for name, cost in sides.items():
                    times[name].append(cost(rows))
            for name, each in times.items():
                found[name].append(statistics.median(each))
    return found


@contextmanager
def other_tree(commit: str) -> Iterator[Path]:
    """A temporary worktree of a commit, or a folder as it is."""
    if Path(commit).is_dir():
        yield Path(commit).resolve()
        return
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "tree"
        subprocess.run(["git", "worktree", "add", "-q", "--detach", str(tree), commit], cwd=ROOT, check=True)
        try:
            yield tree
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", str(tree)], cwd=ROOT, check=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("commit", metavar="COMMIT|FOLDER")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--prompt", type=int, default=64)
    parser.add_argument("--tokens", type=int, default=48)
    parser.add_argument("--out", type=Path, help="a .json file, for bench.performance")
    parser.add_argument("--shape", choices=SHAPES, help="calls of random weights of a known size, as in bench.rows")
    parser.add_argument("--activations", default=f"{FLOAT32},{INT8}", help="with --shape: some of them, with commas")
    parser.add_argument("--rows", type=numbers, default=[1, 2, 8, 512], help="with --shape: tokens of a call")
    options = parser.parse_args()
    if options.shape is not None and options.out is not None:
        parser.error("--out is for the shipped model: leave --shape out")
    with other_tree(options.commit) as other:
        trees = {"then": other, "now": ROOT}
        if options.shape is None:
            _shipped(trees, options)
        else:
            _calls(trees, options)


def _calls(trees: dict[str, Path], options: argparse.Namespace) -> None:
    title = f"ms of a call of {options.shape}, medians of {options.turns} turns"
    table = Table("activations", "tokens", options.commit, "this tree", "ratio", title=title)
    for activations in options.activations.split(","):
        found = calls(trees, options.shape, activations, options.rows, options.turns)
        for rows, then, now in zip(options.rows, found["then"], found["now"], strict=True):
            table.add_row(activations, str(rows), f"{then:.3f}", f"{now:.3f}", f"{now / then:.3f}")
    Console().print(table)


def _shipped(trees: dict[str, Path], options: argparse.Namespace) -> None:
    rows: dict[str, list[dict[str, float]]] = {name: [] for name in trees}
    for _ in range(options.turns):
        for name, tree in trees.items():
            rows[name].append(measured(tree, options.prompt, options.tokens))
    best = {name: {key: min(row[key] for row in turns) for key in turns[0]} for name, turns in rows.items()}
    table = Table("", options.commit, "this tree", "ratio", title="Seconds, fastest run")
    for key, then in best["then"].items():
        now = best["now"][key]
        table.add_row(key, f"{then:.3f}", f"{now:.3f}", f"{now / then:.2f}")
    Console().print(table)
    if options.out is not None:
        found = described("shipped", open_device(), (shipped_model() / "model.pte").stat().st_size) | {
            "kind": "against",
            "command": command_of("bench.against", None),
            "commit": options.commit,
            "prompt": options.prompt,
            "tokens": options.tokens,
            "best": {key: (then, best["now"][key]) for key, then in best["then"].items()},
        }
        options.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
