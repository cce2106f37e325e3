"""Whole programs beside torch, eager and compiled: encoders, image networks, diffusion, speech, detection.

    python -m bench.programs --export FOLDER [NAME ...]     exports them (liveshape[torch]) and compresses the files
    python -m bench.programs --run FOLDER [NAME ...]        runs them (needs torch; beside CUDA where there is some)
    python -m bench.programs --cpu FOLDER                   processor seconds on a software adapter, beside torch's

Inputs lie on the device on both sides, but for indices, which a call of ours checks and uploads; outputs are read, by
torch into pinned memory. A figure is the median of consecutive calls after a warm-up, and stands beside the largest
difference from torch's float32, relative to its largest number. Compiling takes torch seconds for each size: a program
has a budget (`--seconds`), and what it measured once is taken from `--torch FILE`, a file that `--out` wrote.
"""

from __future__ import annotations

import argparse
import json
import lzma
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from bench.calls import milliseconds
from bench.gpu_time import cpu_seconds
from bench.program_modules import OPERATORS, PROGRAMS, Measured
from liveshape.device.backends import open_device
from liveshape.program.compile_target import CompileTarget
from liveshape.program.program import load_program
from liveshape.run.constant_norms import compile_measured
from liveshape.run.device_arrays import uploaded
from liveshape.run.executor import Executor
from liveshape.tools.measuring.profiling import profiled

KINDS = ("float16", "float32")
ENOUGH = 0.4  # seconds of calls for a figure
SECONDS = 80.0  # of a program
SLOWEST = 20  # nodes of a profile that are shown
CPU_ROWS = (("encoder", (1, 128)), *((name, ()) for name in OPERATORS))
Arrays = tuple[Any, ...]
Row = dict[str, Any]


def path_of(folder: Path, name: str) -> Path:
    return folder / f"{name}.pte.xz"


def export(name: str, measured: Measured, folder: Path) -> None:
    """Export a program at its bound, and compress the file."""
    from liveshape.export.module.torch_export import ModuleSource, lower

    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.pte"
    nbytes = lower(ModuleSource(measured.module(), measured.inputs(*measured.bound), measured.dynamic()), path)
    with lzma.open(path_of(folder, name), "wb", preset=1) as packed, path.open("rb") as file:
        while piece := file.read(1 << 24):
            packed.write(piece)
    path.unlink()
    print(f"{name}: {nbytes / 1e6:.0f} MB, {path_of(folder, name).stat().st_size / 1e6:.2f} MB compressed", flush=True)


def inputs_of(measured: Measured, size: tuple[int, ...]) -> tuple[torch.Tensor, ...]:
    """The same inputs at every call."""
    torch.manual_seed(1)
    return measured.inputs(*size)


def as_arrays(outputs: Any) -> Arrays:
    """Outputs of torch, which may be one tensor, as arrays of float32."""
    rows = outputs if isinstance(outputs, (tuple, list)) else (outputs,)
    return tuple(row.float().cpu().numpy() for row in rows)


def difference(outputs: Arrays, golden: Arrays) -> float:
    """The largest difference, relative to the largest number; infinite where shapes differ or a number is none.

    >>> difference((np.ones(2),), (np.array([1.0, 2.0]),))
    0.5
    """
    pairs = list(zip(outputs, golden, strict=True))
    if any(one.shape != other.shape or not np.isfinite(one).all() for one, other in pairs):
        return float("inf")
    return max(float(abs(one.astype(np.float32) - other).max() / abs(other).max()) for one, other in pairs)


# liveshape


def executor_of(program: bytes, kind: str) -> tuple[Executor, float]:
    """A loaded program, and the seconds that took."""
    begin = time.perf_counter()
    target = CompileTarget(None, activations=kind)
    with load_program(target, program) as opened:
        graph = opened.graph("forward")
        executor = Executor(compile_measured(graph, target.limits), target.device)
    executor.device.flush()
    return executor, time.perf_counter() - begin


def ours(executor: Executor, inputs: Sequence[torch.Tensor], profile: bool) -> tuple[Row, Arrays]:
    """Milliseconds of a call, and of one whose outputs stay on the device; its dispatches; and its outputs."""
    device = executor.device
    arrays = [uploaded(device, each.numpy()) if each.is_floating_point() else each.numpy() for each in inputs]
    begin = time.perf_counter()
    outputs = tuple(executor.execute(arrays))
    first = time.perf_counter() - begin

    def unread() -> None:
        executor.start(arrays, wanted=())
        device.flush()

    row: Row = {
        "ms": milliseconds(lambda: executor.execute(arrays), ENOUGH),
        "unread": milliseconds(unread, ENOUGH / 2),
        "first": first * 1e3,
        "dispatches": len(executor.encoder.commands(executor.live, 0, len(executor.graph.nodes))),
    }
    if profile:

        def work() -> None:
            executor.execute(arrays)

        found = profiled(executor, "call", 1, device.flush, work)
        row["profile"] = {
            "device": found.device,
            "host": found.host,
            **{
                kind: [asdict(line) for line in sorted(lines, key=lambda line: -line.seconds)]
                for kind, lines in {
                    "kernels": found.by(lambda each: each.kernel),
                    "nodes": found.by(lambda each: f"{each.node} {each.label} {each.kernel}"),
                }.items()
            },
        }
    return row, outputs


# torch


def theirs(call: Callable[..., Any], inputs: Sequence[torch.Tensor], kind: str) -> tuple[Row, Arrays]:
    """Milliseconds of a call on CUDA whose outputs are read into pinned memory, and of one that is waited for."""
    dtype = getattr(torch, kind)
    given = [each.cuda().to(dtype) if each.is_floating_point() else each.cuda() for each in inputs]
    with torch.inference_mode():
        begin = time.perf_counter()
        found = call(*given)
        rows = found if isinstance(found, tuple) else (found,)
        outputs = as_arrays(rows)
        first = time.perf_counter() - begin
        pinned = [torch.empty(row.shape, dtype=row.dtype, pin_memory=True) for row in rows]

        def read() -> None:
            made = call(*given)
            for host, each in zip(pinned, made if isinstance(made, tuple) else (made,), strict=True):
                host.copy_(each, non_blocking=True)
            torch.cuda.synchronize()

        def unread() -> None:
            call(*given)
            torch.cuda.synchronize()

        row = {"ms": milliseconds(read, ENOUGH), "unread": milliseconds(unread, ENOUGH / 2), "first": first * 1e3}
    return row, outputs


def run(name: str, folder: Path, options: argparse.Namespace, known: Row, write: Callable[[Row], None]) -> None:
    """Every row of a program; `write` gets what there is after each figure."""
    measured, end = PROGRAMS[name], time.perf_counter() + options.seconds
    sizes = [size for size in measured.sizes if not options.size or list(size) in options.size]
    rows: dict[str, Row] = {"x".join(map(str, size)): dict(known.get("x".join(map(str, size)), {})) for size in sizes}
    document: Row = {"rows": rows, "load": {}}
    inputs = {label: inputs_of(measured, size) for label, size in zip(rows, sizes, strict=True)}
    cuda = torch.cuda.is_available()
    module = measured.module()
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False

    def keep(side: str, label: str, row: Row, outputs: Arrays) -> None:
        rows[label][side] = row | {"off": difference(outputs, golden[label])}
        write(document)

    golden: dict[str, Arrays] = {}
    with torch.inference_mode():
        if cuda:
            module.cuda()
        for label, given in inputs.items():
            golden[label] = as_arrays(module(*(each.cuda() if cuda else each for each in given)))
    if cuda:
        for kind in reversed(KINDS):
            eager = module.to(getattr(torch, kind))
            for label, given in inputs.items():
                if f"torch {kind}" not in rows[label]:
                    keep(f"torch {kind}", label, *theirs(eager, given, kind))
    program = lzma.decompress(path_of(folder, name).read_bytes())
    for kind in options.activations:
        executor, document["load"][kind] = executor_of(program, kind)
        with closing(executor):
            for label, given in inputs.items():
                keep(f"liveshape {kind}", label, *ours(executor, given, options.profile))
    for kind in options.compiled if cuda else ():
        compiled = module.to(getattr(torch, kind))
        for label, given in inputs.items():
            if f"torch.compile {kind}" in rows[label] or time.perf_counter() > end:
                continue
            torch._dynamo.reset()
            made = torch.compile(compiled, dynamic=False)
            keep(f"torch.compile {kind}", label, *theirs(made, given, kind))
    write(document)


def table_of(document: Row) -> Table:
    """Milliseconds of every side, and ratios of ours to the fastest of torch's of that dtype."""
    sides = [f"{who} {kind}" for kind in KINDS for who in ("liveshape", "torch", "torch.compile")]
    columns = [column for side in sides for column in ([side, "ratio"] if side.startswith("liveshape") else [side])]
    table = Table("program", "size", *columns, "dispatches", "off", title=f"Milliseconds on {document['device']}")
    for name, each in document["programs"].items():
        for label, row in each["rows"].items():
            cells: list[str] = []
            for side in sides:
                who, kind = side.split(" ")
                cells.append(f"{row[side]['ms']:.2f}" if side in row else "")
                if who == "liveshape":
                    rivals = [row[rival]["ms"] for rival in sides if rival in row and rival != side and kind in rival]
                    cells.append(f"{row[side]['ms'] / min(rivals):.2f}" if rivals and side in row else "")
            mine = [row[f"liveshape {kind}"] for kind in KINDS if f"liveshape {kind}" in row]
            counts = ", ".join(str(one["dispatches"]) for one in mine)
            table.add_row(name, label, *cells, counts, ", ".join(f"{one['off']:.0e}" for one in mine))
        table.add_section()
    return table


def slowest(document: Row) -> Table:
    """The kernels and nodes that take most of each row that was profiled."""
    table = Table("program", "size", "kernel, or node", "times", "us", "of all", title="Profiles")
    for name, each in document["programs"].items():
        for label, row in each["rows"].items():
            for side, found in row.items():
                for line in (
                    [*found["profile"]["kernels"][:SLOWEST], *found["profile"]["nodes"][:SLOWEST]]
                    if "profile" in found
                    else ()
                ):
                    share = line["seconds"] / found["profile"]["device"]
                    cells = str(line["times"]), f"{line['seconds'] * 1e6:.1f}", f"{share:.0%}"
                    table.add_row(f"{name}, {side.split(' ')[1]}", label, line["name"], *cells)
                table.add_section()
    return table


# Processor time


def on_processor(folder: Path, names: Sequence[str]) -> Table:
    """Processor seconds of the threads of a software adapter's driver, beside torch's with one thread."""
    torch.set_num_threads(1)
    device = open_device()
    table = Table("program", "size", "s", "torch, s", "ratio", "off", title=f"Processor seconds on {device.name}")
    for name, size in CPU_ROWS:
        if names and name not in names:
            continue
        measured = (PROGRAMS | OPERATORS)[name]
        inputs, module = inputs_of(measured, size or measured.bound), measured.module()
        executor, _ = executor_of(lzma.decompress(path_of(folder, name).read_bytes()), "float32")
        with closing(executor), torch.inference_mode():
            outputs = tuple(executor.execute([each.numpy() for each in inputs]))
            took = cpu_seconds(executor.device, executor.encoder.commands(executor.live, 0, len(executor.graph.nodes)))
            golden = as_arrays(module(*inputs))
            begin, turns = time.process_time(), 0
            while turns < 3 or time.process_time() - begin < ENOUGH:
                module(*inputs)
                turns += 1
            beside = (time.process_time() - begin) / turns
        label = "x".join(map(str, size or measured.bound))
        off = difference(outputs[: len(golden)], golden)
        table.add_row(name, label, f"{took:.4f}", f"{beside:.5f}", f"{took / beside:.1f}", f"{off:.0e}")
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"some of {', '.join(PROGRAMS)}")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--export", type=Path, metavar="FOLDER")
    what.add_argument("--run", type=Path, metavar="FOLDER")
    what.add_argument("--cpu", type=Path, metavar="FOLDER")
    parser.add_argument("--size", action="append", type=lambda text: [*map(int, text.split("x"))], help="as 32x128")
    parser.add_argument("--activations", nargs="*", default=KINDS, choices=KINDS)
    parser.add_argument("--compiled", nargs="*", default=["float16"], choices=KINDS, help="dtypes for torch.compile")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="after which a program compiles no more sizes")
    parser.add_argument("--profile", action="store_true", help="also the kernels and nodes that take most")
    parser.add_argument("--torch", type=Path, help="an earlier --out, for the figures of torch")
    parser.add_argument("--out", type=Path, help="a .json file")
    options = parser.parse_args()
    unknown = set(options.names) - {*PROGRAMS, *OPERATORS}
    if unknown:
        parser.error(f"{', '.join(sorted(unknown))}: there are {', '.join((*PROGRAMS, *OPERATORS))}")
    if options.export is not None:
        for name, measured in (PROGRAMS | OPERATORS).items():
            if name in (options.names or (*PROGRAMS, *OPERATORS)):
                export(name, measured, options.export)
        return
    if options.cpu is not None:
        Console().print(on_processor(options.cpu, options.names))
        return
    names = options.names or [name for name in PROGRAMS if path_of(options.run, name).exists()]
    known = json.loads(options.torch.read_text())["programs"] if options.torch else {}
    document: Row = {"device": open_device().name, "programs": {}}
    for name in names:
        rows = known.get(name, {}).get("rows", {})
        beside = {label: {k: v for k, v in row.items() if k.startswith("torch")} for label, row in rows.items()}

        def write(found: Row, name: str = name) -> None:
            document["programs"][name] = found
            if options.out is not None:
                options.out.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")

        run(name, options.run, options, beside, write)
    console = Console(width=200)
    console.print(table_of(document))
    if options.profile:
        console.print(slowest(document))


if __name__ == "__main__":
    main()
