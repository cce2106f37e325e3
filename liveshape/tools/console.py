"""Console output: rich tables on a terminal, aligned plain text elsewhere, progress bars on stderr."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

from liveshape.errors import InputError
from liveshape.errors import counted as counted
from liveshape.progress import Progress
from liveshape.tools.wrapping import wrapped

_WIDEST = 200  # columns of a coloured table in a pipe
_PATIENCE = 1.0  # seconds before a progress bar is shown
_KERNELS = "the driver compiles kernels, once, and keeps them"


def size_text(nbytes: int) -> str:
    """Human-readable size in bytes, with binary prefixes.

    >>> size_text(512), size_text(33024), size_text(3 << 30)
    ('512 B', '32.2 KiB', '3.0 GiB')
    """
    if nbytes < 1024:
        return f"{nbytes} B"
    amount, unit = nbytes / 1024, "KiB"
    for larger in ("MiB", "GiB", "TiB"):
        if amount < 1024:
            break
        amount, unit = amount / 1024, larger
    return f"{amount:.1f} {unit}"


def has_colours(stream: TextIO) -> bool:
    """Whether a stream gets ANSI colours: a terminal unless NO_COLOR is set, anything if FORCE_COLOR is.

    Example: `dim = "\\033[2m" if has_colours(sys.stderr) else ""`.
    """
    return not os.environ.get("NO_COLOR") and (bool(os.environ.get("FORCE_COLOR")) or stream.isatty())


def print_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print a table with a title; without a terminal it is plain text for `grep` and `awk`.

    >>> print_table("methods", ("name", "inputs"), [("forward", 1)])
    methods
      name     inputs
      forward  1
    """
    cells = [[str(cell) for cell in row] for row in rows]
    if sys.stdout.isatty() or has_colours(sys.stdout):
        from rich import box
        from rich.console import Console
        from rich.markup import escape
        from rich.table import Table

        table = Table(*columns, title=escape(title.strip()), title_justify="left", box=box.SIMPLE_HEAD)
        for row in cells:
            table.add_row(*(escape(cell) for cell in row))
        # A pipe has no width of its own.
        Console(width=None if sys.stdout.isatty() else _WIDEST).print(table)
        return
    lines = [list(columns), *cells]
    widths = [max(len(line[column]) for line in lines) for column in range(len(columns))]
    print(title)
    for line in lines:
        print(("  " + "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True))).rstrip())


def print_text(text: str) -> None:
    """Print text, word-wrapped to the width of a terminal.

    >>> print_text("It fits.")
    It fits.
    """
    print(wrapped(text, sys.stdout))


def check_writable(flag: str, file: str | None) -> None:
    """Raise if an output file is not writable, before the work whose result goes there.

    >>> check_writable("--plot", None)
    """
    if file is None:
        return
    path = Path(file)
    if path.is_dir():
        raise InputError(f"{flag} {file}: it is a folder; name a file")
    if not path.parent.is_dir():
        raise InputError(f"{flag} {file}: the folder {path.parent} does not exist; make it first")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise InputError(f"{flag} {file}: it may not be written; name another file")


def print_json(document: Any) -> None:
    """Print indented JSON.

    >>> print_json({"ok": True})
    {
      "ok": true
    }
    """
    print(json.dumps(document, indent=2, allow_nan=False))


@contextmanager
def upload_bar(what: str = "weights") -> Iterator[Progress]:
    """Progress callback (bytes done, total): a transient progress bar on a terminal's stderr, shown after one second,
    and a spinner before.

    Example: `with upload_bar() as progress: load("model.pte", progress=progress)`.
    """
    if not sys.stderr.isatty():
        yield lambda done, total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    bar = Progress(*columns, console=Console(stderr=True), transient=True)
    task = bar.add_task(what, total=None)
    start = time.monotonic()
    waiting = Console(stderr=True).status("opening the adapter, planning")

    def advance(done: int, total: int) -> None:
        waiting.stop()
        if not bar.live.is_started and time.monotonic() - start > _PATIENCE and done < total:
            bar.start()
        bar.update(task, completed=done, total=total)
        if done >= total:  # stop the live bar before anything else is printed
            bar.stop()

    try:
        waiting.start()
        yield advance
    finally:
        waiting.stop()
        bar.stop()


@contextmanager
def kernel_bar() -> Iterator[Progress]:
    """Progress callback (kernels done, total) of a warm-up: a bar on a terminal's stderr, elsewhere a line, if it takes
    a second and more.

    Example: `with kernel_bar() as progress: model.warm_up(progress=progress)`.
    """
    start, told = time.monotonic(), False
    with work_bar(1) as bar:

        def advance(done: int, total: int) -> None:
            nonlocal told
            waited = time.monotonic() - start
            if done < total and waited > _PATIENCE / 4:
                bar.show(_KERNELS, done, total)
            if done < total and waited > _PATIENCE and not told and not sys.stderr.isatty():
                told = True
                print(f"{_KERNELS}: {done} of {total}", file=sys.stderr, flush=True)

        yield advance


@contextmanager
def stage(text: str) -> Iterator[None]:
    """A spinner with a text on a terminal's stderr while nothing else is printed, as modules are imported.

    Example: `with stage("starting"): import torch`.
    """
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console

    with Console(stderr=True).status(text):
        yield


def status(text: str) -> None:
    """Status line on a terminal's stderr for work without a progress bar; does nothing elsewhere.

    >>> status("loading 1b: weights and kernels")
    """
    if sys.stderr.isatty():
        print(wrapped(text, sys.stderr), file=sys.stderr, flush=True)


class WorkBar:
    """Progress bar over pieces of work: names the current one, prints results above the bar; may be disabled.

    Example: `with work_bar(2) as bar: bar("pp512"); bar.tell("pp512: 7 t/s")`.
    """

    def __init__(self, bar: Any = None, task: Any = None) -> None:
        self._bar, self._task, self._done = bar, task, 0

    def __call__(self, text: str) -> None:
        """Begin a piece of work; the previous one is done."""
        if self._bar is None:
            return
        self._bar.update(self._task, completed=self._done, description=text)
        self._done += 1
        self._bar.start()
        self._bar.refresh()

    def show(self, text: str, done: int, total: int) -> None:
        """So many pieces of work are done."""
        if self._bar is not None:
            self._bar.update(self._task, completed=done, total=total, description=text)
            self._bar.start()
            self._bar.refresh()

    def tell(self, text: str) -> None:
        """Print a permanent line above the bar."""
        if self._bar is not None:
            self._bar.console.print(text, markup=False, highlight=False)


@contextmanager
def work_bar(total: int) -> Iterator[WorkBar]:
    """A transient progress bar over `total` pieces of work on a terminal's stderr; call it with the name of the next.

    Example: `with work_bar(2) as begin: begin("pp512"); measure()`.
    """
    if not sys.stderr.isatty():
        yield WorkBar()
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn())
    # No refresh thread: it would take CPU time from what is measured.
    bar = Progress(*columns, console=Console(stderr=True), transient=True, auto_refresh=False)
    try:
        yield WorkBar(bar, bar.add_task("", total=total))
    finally:
        bar.stop()


def say(text: str) -> None:
    """Write text to stdout and flush."""
    print(text, end="", flush=True)
