"""`liveshape bench`: prefill (pp) and decode (tg) tokens per second at several depths, named as in llama-bench.

A program that is no language model has a latency per call instead. Each row begins with warmup runs, not counted:
some GPUs lower their clocks in every pause.
"""

from __future__ import annotations

import csv
import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from liveshape import __version__
from liveshape.device.protocol import Device
from liveshape.errors import InputError
from liveshape.export.runnable import Conversion
from liveshape.graph.activation_kinds import AUTO
from liveshape.llm.language_model import LanguageModel
from liveshape.model import Model
from liveshape.program.compile_target import CompileTarget
from liveshape.program.program import load_program
from liveshape.shipped import shipped
from liveshape.tools.commands.run import make_inputs
from liveshape.tools.console import WorkBar, check_writable, counted, size_text, status, upload_bar, work_bar
from liveshape.tools.measuring.plot import bars, lines
from liveshape.tools.measuring.subject import Subject, Work, call_name, check_calls, do, go_to_depth, is_program, works

WARM = 0.3  # seconds of warmup before a row is timed


@dataclass(frozen=True)
class Row:
    """One test and the wall-clock seconds of each repetition."""

    test: Work
    seconds: tuple[float, ...]

    @property
    def unit(self) -> str:
        """Unit of `values`: ms or t/s."""
        return "ms" if self.test.call else "t/s"

    @property
    def values(self) -> list[float]:
        """Latency of each call in ms, or throughput in tokens per second."""
        if self.test.call:
            return [1e3 * each for each in self.seconds]
        return [(self.test.prompt or self.test.tokens) / each for each in self.seconds]

    @property
    def text(self) -> str:
        """Mean ± standard deviation.

        >>> Row(Work(tokens=10), (1.0, 1.0)).text
        '10.00 ± 0.00'
        """
        return f"{mean(self.values):.2f} ± {deviation(self.values):.2f}"


def bench(
    model: str | None = None,
    *,
    shape: str | None = None,
    prompts: Sequence[int] = (512,),
    tokens: Sequence[int] = (128,),
    depths: Sequence[int] = (0,),
    repeats: int = 5,
    output: str = "md",
    plot: str | None = None,
    device: str | None = None,
    half_cache: bool = False,
    activations: str = AUTO,
    data: Sequence[str] = (),
    method: str = "forward",
    input_shapes: Sequence[str] = (),
    input_files: Sequence[str] | None = None,
    conversion: Conversion | None = None,
) -> int:
    """Run the benchmark and print a row per test; exit code 0 if all ran.

    Example: `bench(shape="tiny", prompts=[64], tokens=[16], depths=[0, 128])`.
    """
    if plot is not None and not plot.lower().endswith(".svg"):
        raise InputError(f"--plot {plot}: the plot is an .svg file")
    check_writable("--plot", plot)
    if model is not None and is_program(model):
        check_calls(model, conversion)
        target = CompileTarget(device, activations=activations)
        about, rows = _of_program(model, data, method, target, input_shapes, input_files, repeats)
    else:
        if input_shapes or input_files or data:
            raise InputError(
                "--input-shapes, --inputs and --data are for a .pte file; language models take -p, -n and -d"
            )
        tests, conversion = works(prompts, tokens, depths), conversion or Conversion()
        named = Subject(model, shape, half_cache, activations, conversion.max_context)
        with named.converted(conversion, tests) as subject:
            about, rows = _of_language_model(subject, tests, device, repeats)
    _PRINTERS[output](about, rows)
    if plot is not None:
        Path(plot).write_text(drawn(about["model"], about["device"], rows), encoding="utf-8")
        print(f"plot written to {plot}", file=sys.stderr)
    return 0


def _of_language_model(
    subject: Subject, tests: list[Work], choice: str | None, repeats: int
) -> tuple[dict[str, Any], list[Row]]:
    subject.context(tests)  # refuse before a device is opened
    status(f"loading {subject.name}: weights, then kernels")
    with upload_bar() as progress:
        opened = subject.open(tests, subject.device(choice), progress)
    with opened as model:
        rows = rows_of(model, tests, repeats)
        about = described(subject.name, model.device, model.memory.weights)
        return about | {"activations": model.activations}, rows


def rows_of(model: LanguageModel, tests: Sequence[Work], repeats: int) -> list[Row]:
    """Time each test on a loaded model.

    Example: `rows_of(model, works([512], [128], [0, 4096]), 5)`.
    """
    with work_bar(len(tests) * (repeats + 1)) as begin:
        rows = []
        for test in tests:

            def once(test: Work = test) -> float:
                go_to_depth(model, test.depth)
                start = time.perf_counter()
                do(model, test)
                return time.perf_counter() - start

            rows.append(_repeated(test, once, repeats, begin))
        return rows


def _of_program(
    program: str,
    data: Sequence[str],
    method: str,
    target: CompileTarget,
    shapes: Sequence[str],
    files: Sequence[str] | None,
    repeats: int,
) -> tuple[dict[str, Any], list[Row]]:
    source = shipped(program) or program
    with upload_bar() as progress, load_program(target, source, data_path=list(data), progress=progress) as opened:
        takes = opened.inputs(method)
        wanted: Sequence[str | None] = shapes or [None]
        calls = [make_inputs(takes, each, files) for each in wanted]
        model = Model(target, opened, method)
        with work_bar(len(calls) * (repeats + 1)) as begin:
            rows = []
            for inputs in calls:

                def once(inputs: list[Any] = inputs) -> float:
                    start = time.perf_counter()
                    model(*inputs)
                    return time.perf_counter() - start

                rows.append(_repeated(Work(call=call_name(method, inputs)), once, repeats, begin))
        about = described(Path(program).name, model.device, model.memory.weights)
        return about | {"activations": target.activations}, rows


def _repeated(test: Work, once: Callable[[], float], repeats: int, begin: WorkBar) -> Row:
    begin(f"{test.name}, warming up")
    start = time.perf_counter()
    once()
    while time.perf_counter() - start < WARM:
        once()
    seconds = []
    for number in range(repeats):
        begin(f"{test.name}, run {number + 1} of {repeats}")
        seconds.append(once())
    row = Row(test, tuple(seconds))
    begin.tell(f"{test.name}: {row.text} {row.unit}")
    return row


# Output


def described(model: str, device: Device, weights: int) -> dict[str, Any]:
    """Metadata of a benchmark: model, device, driver, version, date.

    Example: `described("1b", model.device, model.memory.weights)["driver"]`.
    """
    return {
        "liveshape": __version__,
        "model": model,
        "weight_bytes": weights,
        "device": device.name,
        "driver": device.adapter.driver,
        "backend": device.adapter.backend,
        "test_time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }


def _document(about: dict[str, Any], row: Row) -> dict[str, Any]:
    """A row as JSON, with the field names of llama-bench."""
    test, samples = row.test, [round(1e9 * each) for each in row.seconds]
    found = {
        **about,
        "test": test.name,
        "n_prompt": test.prompt,
        "n_gen": test.tokens,
        "n_depth": test.depth,
        "avg_ns": round(mean(samples)),
        "stddev_ns": round(deviation(samples)),
        "samples_ns": samples,
    }
    if not test.call:
        found |= {"avg_ts": mean(row.values), "stddev_ts": deviation(row.values), "samples_ts": row.values}
    return found


def deviation(values: Sequence[float]) -> float:
    """Sample standard deviation; 0 for a single value.

    >>> deviation([1.0, 3.0]), deviation([7.0])
    (1.4142135623730951, 0.0)
    """
    return stdev(values) if len(values) > 1 else 0.0


def _print_markdown(about: dict[str, Any], rows: Sequence[Row]) -> None:
    size = size_text(about["weight_bytes"])
    cells = [("model", "size", "device", "test", rows[0].unit), ("---", "---:", "---", "---:", "---:")]
    cells += [(about["model"], size, about["device"], row.test.name, row.text) for row in rows]
    widths = [max(len(line[column]) for line in cells) for column in range(len(cells[0]))]
    for line in cells:
        print(f"| {' | '.join(cell.ljust(width) for cell, width in zip(line, widths, strict=True))} |")
    repeats = counted(len(rows[0].seconds), "repetition")
    print(
        f"\nliveshape {about['liveshape']}, {about['driver']}, {about['activations']} activations, "
        f"{about['test_time']}, {repeats}"
    )


def _print_json(about: dict[str, Any], rows: Sequence[Row]) -> None:
    print(json.dumps([_document(about, row) for row in rows], indent=2))


def _print_csv(about: dict[str, Any], rows: Sequence[Row]) -> None:
    documents = [_document(about, row) for row in rows]
    names = [name for name in documents[0] if not name.startswith("samples_")]
    writer = csv.DictWriter(sys.stdout, names, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows(documents)


_PRINTERS = {"md": _print_markdown, "json": _print_json, "csv": _print_csv}


def drawn(model: str, device: str, rows: Sequence[Row]) -> str:
    """SVG plot: decode speed over depth where there are several depths, bars otherwise.

    >>> "polyline" in drawn("1b", "a GPU", [Row(Work(tokens=8, depth=d), (1.0,)) for d in (0, 64)])
    True
    """
    title = f"{model} on {device}"
    generated = [row for row in rows if row.test.tokens]
    if len({row.test.depth for row in generated}) > 1:
        found: dict[str, list[tuple[float, float]]] = {}
        for row in sorted(generated, key=lambda row: row.test.depth):
            found.setdefault(f"tg{row.test.tokens}", []).append((row.test.depth, mean(row.values)))
        return lines(title, "tokens/s", "tokens before", found)
    return bars(title, rows[0].unit, {row.test.name: mean(row.values) for row in rows})
