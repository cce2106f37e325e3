"""A model as a command takes it: a program, its folder, or a source that becomes one, with a line and a bar."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from liveshape.export.runnable import Conversion, runnable
from liveshape.tools.console import upload_bar
from liveshape.tools.wrapping import wrapped


@contextmanager
def runnable_model(source: str, conversion: Conversion) -> Iterator[Path]:
    """The path to load a model from; what is converted for this time alone goes at the end.

    Example: `with runnable_model("model.gguf", Conversion()) as folder: load(folder)`.
    """
    with upload_bar("converting") as progress, runnable(source, conversion, progress, _tell) as path:
        yield path


def _tell(text: str) -> None:
    print(wrapped(text, sys.stderr), file=sys.stderr, flush=True)
