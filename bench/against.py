"""Whether this tree is slower than a commit: prefill and decode of the shipped model, interleaved in one run.

Run: python -m bench.against COMMIT|FOLDER [--turns 5] [--prompt 64] [--tokens 48] [--out FILE.json]

A FOLDER is another checkout, for a machine without git.

The trees alternate, each run in a process of its own, so that both see the same load; ratios are of the fastest runs.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench.rows import command_of
from liveshape.device.backends import open_device
from liveshape.shipped import shipped_model
from liveshape.tools.commands.bench import described

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


def measured(tree: Path, prompt: int, tokens: int) -> dict[str, float]:
    """Seconds of load, prefill and decode in one process, with the package of a tree."""
    command = [sys.executable, "-c", MEASURED, str(shipped_model()), str(prompt), str(tokens)]
    known = [str(tree), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(known)}
    done = subprocess.run(command, env=environment, cwd=tree, check=False, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"the package in {tree} failed:\n{done.stderr}")
    found: dict[str, float] = json.loads(done.stdout)
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
    options = parser.parse_args()
    rows: dict[str, list[dict[str, float]]] = {"then": [], "now": []}
    with other_tree(options.commit) as other:
        for _ in range(options.turns):
            for name, tree in (("then", other), ("now", ROOT)):
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
