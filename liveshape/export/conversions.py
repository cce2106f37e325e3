"""Sources that were converted, kept in the user's cache folder: one folder per source, recipe and writer.

An entry appears whole, by a rename, and is never written again. Processes need not wait for each other: two that
convert one source at once do it twice, and whoever is second takes what the first one made.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import re
import shutil
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

from liveshape import __version__
from liveshape.cache_folder import cache_folder
from liveshape.disk import open_file, read_text, room_in
from liveshape.errors import FormatError, InputError, LiveshapeError
from liveshape.export.file.program_file import Progress
from liveshape.export.folder import MODEL, Settings, export_folder
from liveshape.export.sources.opening import open_checkpoint

_NOTE = "conversion.json"
_PART = ".part"
_PARTS = f".*{_PART}"
_READ = (".gguf", ".jinja", ".json", ".safetensors")  # of a folder
# A conversion that wrote nothing for so many seconds was killed: what it left is in nobody's hands.
_DEAD = 3600
_SEALED = 1 << 20  # bytes at either end of a file that are compared with what was written
_ADVICE = (
    "remove conversions that nothing asks for (liveshape cache --clear stale), set LIVESHAPE_CACHE to a folder "
    "of another disk, or give --no-cache (load(..., cache=False))"
)


@dataclass(frozen=True)
class Entry:
    """A folder of the cache, and what its note says; one whose note cannot be read has no source.

    Example: `[entry.source for entry in entries()]`.
    """

    folder: Path
    source: str = ""
    quant: str = ""
    identity: str = ""
    context: int | None = None  # that it loads with unless another one is asked for
    trained: int | None = None  # the context that the model was trained for

    @classmethod
    def read(cls, folder: Path) -> Entry:
        """The entry of a folder."""
        note = _note_of(folder)
        names = {"source": str, "quant": str, "identity": str, "context": int, "trained": int}
        return cls(folder, **{name: note[name] for name, kind in names.items() if isinstance(note.get(name), kind)})

    @property
    def size(self) -> int:
        """Bytes of its files; those that go just now count nothing."""
        total = 0
        for file in self.folder.rglob("*"):
            with contextlib.suppress(OSError):
                total += file.stat().st_size if file.is_file() else 0
        return total

    @property
    def used(self) -> float:
        """When it was made or asked for last, as `time.time` counts."""
        for path in (self.folder / _NOTE, self.folder):
            with contextlib.suppress(OSError):
                return path.stat().st_mtime
        return 0.0

    @property
    def is_stale(self) -> bool:
        """Whether nothing can lead here again: the source is gone or another, or the writer is another one."""
        try:
            return not self.source or self.identity != identity_of(Path(self.source))
        except OSError:
            return True


def entry_folder(source: Path, settings: Settings) -> Path:
    """Where the conversion of a source is kept, whether it is there or not.

    Example: `entry_folder(Path("model.gguf"), Settings()).exists()`.
    """
    name = re.sub(r"[^\w.-]+", "-", source.resolve().name.removesuffix(".gguf")).strip(".-")
    key = _digest(f"{identity_of(source)} {settings}")
    return _home() / f"{name[:60]}-{settings.quantization.mode}-{key}"


def find(source: Path, settings: Settings) -> Path | None:
    """The folder of a source that was converted before, if there is one.

    Example: `find(Path("model.gguf"), Settings())`.
    """
    folder = entry_folder(source, settings)
    if not _is_whole(folder):
        return None
    with contextlib.suppress(OSError):  # somebody else's cache, or a disk that is only read
        os.utime(folder / _NOTE)
    return folder


def convert(source: Path, settings: Settings, progress: Progress = lambda done, total: None) -> Path:
    """Convert a source into the cache and return its folder there; one that another process made by then is taken.

    Example: `find(source, settings) or convert(source, settings)`.
    """
    if found := find(source, settings):
        return found
    folder, identity = entry_folder(source, settings), identity_of(source)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        _sweep(folder.parent)
        part = Path(tempfile.mkdtemp(suffix=_PART, prefix=f".{folder.name}.", dir=folder.parent))
    except OSError as error:
        raise InputError(
            f"{error.filename}: {error.strerror}; what is converted is kept there: set LIVESHAPE_CACHE to a folder "
            "that can be written, or give --no-cache (load(..., cache=False))"
        ) from error
    try:
        made = part / "entry"
        with room_in(folder.parent, _ADVICE):
            checkpoint = open_checkpoint(source)
            export_folder(checkpoint, made, settings, progress=progress)
            note = {
                "source": str(source.resolve()),
                "quant": settings.quantization.mode,
                "identity": identity,
                "context": settings.bounds(checkpoint.config.context)[1],
                "trained": checkpoint.config.context,
                "settings": str(settings),
                "liveshape": __version__,
                "files": {file.name: _seal(file) for file in sorted(made.iterdir())},
            }
            (made / _NOTE).write_text(json.dumps(note, indent=2) + "\n", "utf-8")
        if identity_of(source) != identity:
            raise FormatError(f"{source} was changed while it was converted; try again")
        _place(made, folder)
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return folder


def _place(made: Path, folder: Path) -> None:
    """Make a whole entry appear, in one step, unless one is there; a damaged one makes room for it."""
    for last in (False, True):
        try:
            made.rename(folder)  # a folder that holds something is never replaced
            return
        except OSError:
            if _is_whole(folder):
                return  # another process was first
            if last:
                raise
            remove(Entry(folder))


def _is_whole(folder: Path) -> bool:
    """Whether every file of an entry is the one that was written, as far as its size, its start and its end tell."""
    files = _note_of(folder).get("files")
    try:
        return isinstance(files, dict) and MODEL in files and all(_seal(folder / name) == files[name] for name in files)
    except (OSError, LiveshapeError):
        return False


def _seal(file: Path) -> str:
    """What tells a file from a damaged one without reading gigabytes: its size, its first bytes and its last."""
    with open_file(file) as opened:
        size = os.fstat(opened.fileno()).st_size
        start = opened.read(_SEALED)
        opened.seek(max(size - _SEALED, 0))
        return f"{size} {_digest(start, opened.read(_SEALED))}"


def _note_of(folder: Path) -> dict[str, Any]:
    try:
        note = json.loads(read_text(folder / _NOTE))
    except (OSError, ValueError, RecursionError):  # none, or a damaged one
        return {}
    return note if isinstance(note, dict) else {}


def entries() -> list[Entry]:
    """Every conversion of the cache, those used last first.

    Example: `sum(entry.size for entry in entries())`.
    """
    folders = [folder for folder in _home().glob("*") if folder.is_dir() and not folder.name.endswith(_PART)]
    return sorted(map(Entry.read, folders), key=lambda entry: -entry.used)


def remove(entry: Entry) -> None:
    """Remove a conversion. Whoever uses it now keeps what is loaded.

    Example: `for entry in entries(): remove(entry)`.
    """
    # In one step, so that nobody finds half of it.
    gone = entry.folder.with_name(f".{entry.folder.name}.{time.monotonic_ns():x}{_PART}")
    with contextlib.suppress(FileNotFoundError):
        entry.folder.rename(gone)
        shutil.rmtree(gone, ignore_errors=True)


def identity_of(source: Path) -> str:
    """What tells a source, and what the writer makes of it, from any other: paths, sizes, times, and the writer itself.

    Files that are put in the place of others keep their times if they are told to (`cp -p`), but not the inode and the
    time of the change.

    Example: `identity_of(Path("model.gguf"))`.
    """
    found = [(str(file), file.stat()) for file in _files_of(source.resolve())]
    files = [(name, now.st_size, now.st_mtime_ns, now.st_ctime_ns, now.st_ino) for name, now in found]
    return _digest(f"{_writer()} {files}")


def _files_of(source: Path) -> list[Path]:
    if source.suffix == ".bin":
        return [source, *source.parent.glob("tokenizer.bin")]
    folder = source.parent if source.suffix == ".safetensors" else source
    return sorted(file for file in folder.iterdir() if file.suffix in _READ) if folder.is_dir() else [source]


@functools.cache
def _writer() -> str:
    """The version of the writer is its text: whatever changes in it may change what it writes."""
    return _digest(__version__, *_texts(resources.files("liveshape.export")))


def _texts(folder: Traversable) -> Iterator[bytes]:
    for entry in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if entry.is_dir():
            yield from _texts(entry)
        elif entry.name.endswith(".py"):
            yield entry.read_bytes()


def _sweep(home: Path) -> None:
    """Remove what conversions left that were killed in the middle, beside entries and inside of them."""
    for part in (*home.glob(_PARTS), *home.glob(f"*/{_PARTS}")):
        with contextlib.suppress(OSError):
            last = max(each.stat().st_mtime for each in (part, *part.rglob("*")))
            if time.time() - last > _DEAD:
                shutil.rmtree(part, ignore_errors=True)


def _home() -> Path:
    return cache_folder() / "models"


def _digest(*parts: str | bytes) -> str:
    digest = hashlib.blake2b(digest_size=8)
    for part in parts:
        digest.update(part.encode() if isinstance(part, str) else part)
    return digest.hexdigest()
