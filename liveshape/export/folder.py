"""Writes the folder of an exported language model: `model.pte` and the tokenizer files, atomically."""

from __future__ import annotations

import errno
import secrets
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from liveshape.errors import InputError
from liveshape.export.decoder.decoder import Bounds, decoder_program
from liveshape.export.file.program_file import ProgramSpec, write_program
from liveshape.export.model.checkpoint import Checkpoint, check_tensors
from liveshape.export.model.config import Quantization, check_context
from liveshape.export.weights.storage import RoundedStorage
from liveshape.formats.whole_file import place_of, whole_file
from liveshape.progress import Progress

MODEL = "model.pte"
# Default context length and prefill chunk, unless the model was trained for less.
_CONTEXT, _PIECE = 2048, 512

Step = Callable[[str], None]


@dataclass(frozen=True)
class Settings:
    """Export settings. `max_seq` is the longest prefill chunk, `max_context` the length of the KV cache.

    Without a `max_context` the file supports any context up to the trained one, and loads with a default.

    Example: `Settings(Quantization("4w", group=64), max_context=4096)`.
    """

    quantization: Quantization = field(default_factory=Quantization)
    max_seq: int | None = None
    max_context: int | None = None
    half: bool = False
    full_logits: bool = False

    def bounds(self, trained: int) -> tuple[int, int]:
        """Prefill chunk and KV cache length for a model of this trained context length.

        >>> Settings().bounds(256), Settings(max_context=4096).bounds(8192)
        ((256, 256), (512, 4096))
        """
        context = self.max_context or min(_CONTEXT, trained)
        return self.max_seq or min(_PIECE, context), context


def checkpoint_program(checkpoint: Checkpoint, settings: Settings) -> ProgramSpec:
    """The program of a checkpoint, its weights still unread; a checkpoint that does not fit its config is refused.

    Example: `write_program(checkpoint_program(open_checkpoint("model.gguf"), Settings()), Path("model.pte"))`.
    """
    config, quantization = checkpoint.config, settings.quantization
    # With an explicit context, sliding windows get no masks that it does not need: some runners take none.
    bounds = Bounds(*settings.bounds(config.context), reach=0 if settings.max_context else config.context)
    check_context(config, bounds.piece, bounds.context)
    check_tensors(checkpoint)
    return decoder_program(
        config,
        RoundedStorage(checkpoint, quantization),
        bounds,
        half=settings.half,
        full_logits=settings.full_logits,
        rounds_rows=quantization.mode == "8da4w",
    )


def export_folder(
    checkpoint: Checkpoint,
    out: Path,
    settings: Settings | None = None,
    step: Step = lambda text: None,
    progress: Progress = lambda done, total: None,
) -> int:
    """Export a checkpoint to a folder and return the size of its `model.pte`.

    Example: `export_folder(open_checkpoint("SmolLM2-135M/"), Path("smollm"), Settings(max_context=4096))`.
    """
    settings = settings or Settings()
    program = checkpoint_program(checkpoint, settings)
    with whole_folder(out) as unfinished:
        step("writing weights" if settings.quantization.mode == "none" else "quantizing and writing weights")
        size = write_program(program, unfinished / MODEL, progress)
        for name, content in checkpoint.files.items():
            (unfinished / name).write_bytes(content)
    return size


@contextmanager
def whole_folder(out: Path) -> Iterator[Path]:
    """A temporary folder that is renamed to `out` on success, and removed on failure.

    If `out` exists, its files are replaced one by one by renaming, at the very end.

    Example: `with whole_folder(Path("smollm")) as folder: (folder / "tokenizer.json").write_bytes(content)`.
    """
    if out.exists() and not out.is_dir():
        raise InputError(f"{out} is a file; give the name of a folder")
    home = out if out.exists() else out.parent
    home.mkdir(parents=True, exist_ok=True)
    # In the same folder: renaming does not cross file systems.
    unfinished = home / f".{out.name}.{secrets.token_hex(4)}.part"
    unfinished.mkdir()
    try:
        yield unfinished
        if home is out:
            made = list(unfinished.iterdir())
            for file in made:  # check all before the first is replaced
                place_of(out / file.name)
            try:
                _move(made, out)
            except KeyboardInterrupt:  # finish: never leave old and new files mixed
                _move(made, out)
                raise
        else:
            unfinished.rename(out)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def _move(files: list[Path], out: Path) -> None:
    for file in files:
        if file.exists():
            _put(file, place_of(out / file.name))


def _put(file: Path, place: Path) -> None:
    try:
        file.replace(place)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        # The target is a symlink into another file system.
        with open(file, "rb") as made, whole_file(place) as copied:
            shutil.copyfileobj(made, copied)
