"""Resolves a model source to a folder that loads: a program as it is, a cached conversion, or one made now."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

from liveshape.disk import room_in
from liveshape.errors import InputError
from liveshape.export.model.checkpoint import Checkpoint
from liveshape.export.model.config import Mode, Quantization
from liveshape.export.sources.opening import located, runs_as_it_is
from liveshape.packages import need
from liveshape.progress import Progress


@dataclass(frozen=True)
class Conversion:
    """Options of a conversion, and the context length to load with; None is the default.

    Without `cache` the folder is temporary. The context length is not part of the file: it is set at load.

    Example: `Conversion(quant="none", max_context=4096)`.
    """

    quant: Mode | None = None
    max_context: int | None = None
    cache: bool = True

    def __post_init__(self) -> None:
        if self.quant not in (None, *get_args(Mode)):
            raise InputError(f"quant {self.quant!r}: {', '.join(get_args(Mode))} are possible")
        if self.max_context is not None and self.max_context < 1:
            raise InputError(f"max_context {self.max_context}: a context holds at least one token")


@contextmanager
def runnable(
    source: str,
    conversion: Conversion,
    progress: Progress = lambda done, total: None,
    tell: Callable[[str], None] = lambda text: None,
    check: Callable[[Checkpoint], object] | None = None,
) -> Iterator[Path]:
    """The path to load a model from: a program as it is, or the folder that a checkpoint is converted into.

    `tell` is called with status lines, `progress` with the bytes written. Temporary folders are removed on exit.
    `check` may refuse a checkpoint before any of its weights is read.

    Example: `with runnable("model.gguf", Conversion()) as folder: model = LanguageModel.load(folder)`.
    """
    path = located(source)
    if runs_as_it_is(path):
        _check_nothing_asked(source, conversion)
        yield path
        return
    need("flatbuffers", "tokenizers", what=f"converting {source}")
    from liveshape.export.conversions import convert, entry_folder, find
    from liveshape.export.folder import Settings, export_folder
    from liveshape.export.sources.opening import open_checkpoint

    quantization = Quantization() if conversion.quant is None else Quantization(conversion.quant)
    settings = Settings(quantization)
    if conversion.cache:
        if found := find(path, settings):
            tell(f"{source}, as converted before in {found}")
        else:
            if check is not None:
                check(open_checkpoint(path))
            tell(f"converting {source} once, into {entry_folder(path, settings)}")
        yield found or convert(path, settings, progress)
        return
    checkpoint = open_checkpoint(path)
    if check is not None:
        check(checkpoint)
    with tempfile.TemporaryDirectory(prefix="liveshape-", ignore_cleanup_errors=True) as home:
        tell(f"converting {source} for this time alone")
        folder = Path(home) / "model"
        with room_in(home, "set TMPDIR to a folder of another disk"):
            export_folder(checkpoint, folder, settings, progress=progress)
        yield folder


def _check_nothing_asked(source: str, conversion: Conversion) -> None:
    if conversion.quant is not None:
        raise InputError(
            f"{source} is a program already, and --quant {conversion.quant} cannot change it: name the model that it "
            "was made of, a GGUF file or a Hugging Face folder"
        )
