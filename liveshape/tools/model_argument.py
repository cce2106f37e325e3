"""A model as a command takes it: a program, its folder, or a source that becomes one, with a line and a bar."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from liveshape.export.model.checkpoint import Checkpoint
from liveshape.export.runnable import Conversion, runnable
from liveshape.llm.program.token_graph import CONTEXT, constants_of, parameters_of
from liveshape.model import program_file
from liveshape.runtime import Runtime
from liveshape.tools.console import upload_bar
from liveshape.tools.wrapping import wrapped


@contextmanager
def runnable_model(
    source: str, conversion: Conversion, check: Callable[[Checkpoint], object] | None = None
) -> Iterator[Path]:
    """The path to load a model from; what is converted for this time alone goes at the end.

    `check` may refuse what is not converted yet.

    Example: `with runnable_model("model.gguf", Conversion()) as folder: load(folder)`.
    """
    with upload_bar("converting") as progress, runnable(source, conversion, progress, _tell, check) as path:
        yield path


def contexts_of(path: Path) -> tuple[int | None, int | None]:
    """The context that a program is made for, and that it was trained for, if it says so; no weight is read for that.

    Example: `own, trained = contexts_of(Path("model-folder"))`.
    """
    with Runtime().load_program(str(program_file(path))) as program:
        constants = constants_of(program)
    own, parameters = constants.get(CONTEXT), parameters_of(constants)
    return own if isinstance(own, int) else None, None if parameters is None else parameters.reach


def _tell(text: str) -> None:
    print(wrapped(text, sys.stderr), file=sys.stderr, flush=True)
