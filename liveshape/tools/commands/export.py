"""`liveshape export`: export a model or module to `.pte`, with progress and a summary of what was written."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

from liveshape.disk import room_in
from liveshape.errors import InputError
from liveshape.export.model.checkpoint import Checkpoint
from liveshape.export.model.config import Quantization
from liveshape.export.module.log import quiet_imports
from liveshape.export.sources.opening import located, open_checkpoint
from liveshape.export.sources.user_function import call_function, is_function
from liveshape.export.weights.recipe import rounded_again, table_needs_floats
from liveshape.formats import ExecutionPlan, KernelCall, open_program
from liveshape.formats.whole_file import place_of
from liveshape.lower.lowering import examine
from liveshape.lower.problems import by_operator
from liveshape.named_function import check_named
from liveshape.packages import need
from liveshape.tools.console import counted, print_table, print_text, size_text
from liveshape.tools.text_arguments import read_text

# Packages that lower a user's module, and those that convert a checkpoint.
_FOR_MODULES = {"torch": ("torch", "flatbuffers"), "executorch": ("torch", "torchao", "executorch")}
_EXTRAS = {"torch": "torch", "executorch": "export"}
_FOR_CHECKPOINTS = ("flatbuffers", "tokenizers")
_ROOM = "free some of it, or name a folder of another disk with -o"
# Default text of `--evaluate`.
EVALUATION = Path(__file__).with_name("evaluation.txt")


def export(
    source: str,
    out: str,
    quantization: Quantization,
    max_seq: int | None = None,
    max_context: int | None = None,
    half: bool = False,
    full_logits: bool = False,
    one_delegate: bool = False,
    force: bool = False,
    evaluate: str | None = None,
    device: str | None = None,
    adapter: str | None = None,
    via: Literal["torch", "executorch"] = "torch",
) -> int:
    """Export a checkpoint or a user's module and print a summary: sizes, and with `evaluate` the quantization loss.

    `evaluate` is a text file, or "" for the shipped text; `adapter` is a LoRA folder of peft; `via` is what lowers a
    user's module.

    Example: `export("SmolLM2-135M/", "smollm", Quantization("4w"))`.
    """
    # Validate all arguments before anything is loaded or written.
    _check_output(Path(out), force)
    if adapter is not None and is_function(source):
        raise InputError(f"--adapter {adapter} is for models; {source} is a function, which merges its own")
    text = _evaluation_text(evaluate, source)
    if text is not None:
        from liveshape.device.backends import open_device

        open_device(device)  # --evaluate needs a device: fail before the export
    if is_function(source):
        check_named(source)
        need(*_FOR_MODULES[via], extra=_EXTRAS[via], what=f"exporting {source}")
        start = time.monotonic()
        with _steps() as steps, room_in(out, _ROOM):
            path = _export_function(source, Path(out), half, one_delegate, via, steps)
        _report(path, time.monotonic() - start)
        print(f"next: liveshape run {path}")
        return 0
    place = located(source)
    need(*_FOR_CHECKPOINTS, what=f"exporting {source}")
    from liveshape.export.folder import MODEL, Settings, export_folder

    checkpoint = open_checkpoint(place)
    if adapter is not None:
        checkpoint = _with_adapter(checkpoint, Path(adapter))
    settings = Settings(quantization, max_seq, max_context, half, full_logits)
    _say(_notes(checkpoint, settings))
    start = time.monotonic()
    with _steps() as steps, room_in(out, _ROOM):
        size = export_folder(checkpoint, Path(out), settings, steps.step, steps.progress)
    _report(Path(out) / MODEL, time.monotonic() - start)
    print(f"{8 * size / checkpoint.config.parameters:.2f} bits per weight")
    if text is not None:
        from liveshape.tools.measuring.evaluating import evaluate as evaluated

        print_text(str(evaluated(checkpoint, Path(out), settings, text, device)))
    print(f'next: liveshape generate {out} -p "Once upon a time"')
    return 0


def _export_function(
    source: str, out: Path, half: bool, one_delegate: bool, via: Literal["torch", "executorch"], steps: _Steps
) -> Path:
    steps.step("loading torch")
    with quiet_imports():
        from liveshape.export.module.torch_export import ModuleSource, lower
    steps.step(f"calling {source}")
    module, args, dynamic_shapes = call_function(source)
    path = out if out.suffix == ".pte" else out / "model.pte"
    lower(ModuleSource(module, args, dynamic_shapes), path, half, one_delegate, steps.step, via)
    return path


def _with_adapter(checkpoint: Checkpoint, folder: Path) -> Checkpoint:
    from liveshape.export.sources.lora import with_adapter

    merged = with_adapter(checkpoint, folder)
    changed = [name for name in checkpoint.shapes if checkpoint.stored(name) != merged.stored(name)]
    if changed:
        print(
            f"note: the adapter makes floats of {counted(len(changed), 'layer')} that the source stores in fewer bits"
        )
    return merged


def _notes(checkpoint: Checkpoint, settings: Any) -> list[str]:
    """Notes on what a user may not expect of this model with these settings."""
    config, quantization = checkpoint.config, settings.quantization
    max_seq, max_context = settings.bounds(config.context)
    kind = quantization.mode
    notes = [
        f"{config.family}, {config.parameters / 1e6:,.0f} M parameters, {counted(config.layers, 'layer')}; "
        f"{'float16' if settings.half else 'float32'}, weights {'unquantized' if kind == 'none' else kind}, "
        f"prompts in pieces of {max_seq}, context {max_context}"
    ]
    if max_context > config.context:
        notes.append(f"note: the model was trained for {config.context} tokens; text beyond that will be poor")
    scaling = config.rope_scaling
    if scaling is not None and scaling.kind == "longrope" and max_context > scaling.original_context:
        notes.append(
            f"note: the rotary embedding is that of texts longer than {scaling.original_context} tokens, for shorter "
            f"ones too; with --max-context {scaling.original_context} it is that of shorter texts"
        )
    if scaling is not None and scaling.kind == "dynamic" and max_context > scaling.original_context:
        notes.append(
            f"note: the rotary embedding is that of texts of {max_context} tokens, for shorter ones too; with "
            f"--max-context {scaling.original_context} it is the one that the model was trained with"
        )
    window = config.window if any(map(config.has_window, range(config.layers))) else None
    if settings.max_context is not None and window is not None and max_context <= window < config.context:
        notes.append(
            f"note: there are no masks for the sliding window of {window} tokens, which is the most that this file can "
            "be loaded with; leave --max-context out for more"
        )
    if config.text_only:
        notes.append("note: the part of the model that sees pictures is left out")
    if config.experts is not None:
        notes.append(
            f"note: each token is computed by all {config.experts.count} experts and the {config.experts.used} that it "
            "chose count: the results are exact, the work is that of all of them"
        )
    again = rounded_again(checkpoint, quantization)
    if again:
        notes.append(
            f"note: {counted(len(again), 'layer')} of 8 bits will be rounded a second time; --quant auto does not"
        )
    if table_needs_floats(checkpoint, quantization):
        notes.append(f"note: the embedding stays in float32: rows of {config.hidden} are no multiple of 32")
    return notes


def _say(notes: list[str]) -> None:
    for note in notes:
        print(note)


def _report(path: Path, seconds: float) -> None:
    # A language model is exported as a folder with a program of this name, a module as a single file.
    files = sorted(path.parent.iterdir()) if path.name == "model.pte" else [path]
    rows = [(file.name, size_text(file.stat().st_size)) for file in files if file.is_file()]
    print_table(f"{path} written in {seconds:.0f} s", ("file", "size"), rows)
    with open_program(path) as program:
        _say(_parts(program.method("forward")))
        _, problems = examine(program, "forward", {})
    for missing in by_operator(problems):
        print(f"warning: no kernel of liveshape runs this yet: {missing}")


def _parts(method: ExecutionPlan) -> list[str]:
    """A line about a file that is more than one delegate."""
    delegates, outside = len(method.delegates), sum(isinstance(each, KernelCall) for each in method.instructions)
    if delegates == 1 and not outside:
        return []
    return [f"{counted(delegates, 'delegate')} and {counted(outside, 'operator')} outside of them run as one graph"]


def _evaluation_text(file: str | None, source: str) -> str | None:
    """The text of `--evaluate`, read before anything is written."""
    if file is None:
        return None
    if is_function(source):
        raise InputError(f"--evaluate is for language models, {source} is a module: leave it out")
    return read_text(file or str(EVALUATION))


def _check_output(out: Path, force: bool) -> None:
    if not force and (out.is_file() or (out.is_dir() and any(out.iterdir()))):
        raise InputError(f"{out} exists: --force replaces files of the same names, or name another with -o")
    if out.exists() and not out.is_dir():
        place_of(out, "a program")  # refuse a pipe or a device now, not after the export


class _Steps:
    """Progress of export steps: a spinner with elapsed time on a terminal, a line per step elsewhere."""

    def __init__(self, bar: Any) -> None:
        self._bar, self._task = bar, None

    def step(self, text: str) -> None:
        if self._bar is None:
            print(f"{text} ...", file=sys.stderr, flush=True)
            return
        if self._task is not None:
            self._bar.update(self._task, total=1, completed=1)
        self._task = self._bar.add_task(text, total=None)

    def progress(self, done: int, total: int) -> None:
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, completed=done, total=total)


@contextmanager
def _steps() -> Iterator[_Steps]:
    if not sys.stderr.isatty():
        yield _Steps(None)
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(finished_text="✓"), TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True)) as bar:
        steps = _Steps(bar)
        yield steps
        if steps._task is not None:
            bar.update(steps._task, total=1, completed=1)
