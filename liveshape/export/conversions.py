"""The cache of converted models: one folder per source, quantization recipe and version of the exporter.

An entry appears atomically, by a rename, and is immutable. There are no locks: two processes that convert one source
at once do it twice, and the second one takes the first one's entry.
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
from liveshape.export.folder import MODEL, Settings, export_folder
from liveshape.export.sources.opening import open_checkpoint
from liveshape.progress import Progress

_NOTE = "conversion.json"
_PART = ".part"
_PARTS = f".*{_PART}"
_READ = (".gguf", ".jinja", ".json", ".safetensors")  # of a folder
# Seconds without a write after which a conversion counts as killed.
_DEAD = 3600
_SEALED = 1 << 20  # bytes at either end of a file that its checksum covers
_ADVICE = (
    "remove conversions that nothing asks for (liveshape cache --clear stale), set LIVESHAPE_CACHE to a folder "
    "of another disk, or give --no-cache (load(..., cache=False))"
)


@dataclass(frozen=True)
class Entry:
    """A cache entry: its folder and metadata; one whose metadata cannot be read has no source.

    Example: `[entry.source for entry in entries()]`.
    """

    folder: Path
    source: str = ""
    quant: str = ""
    identity: str = ""
    context: int | None = None  # the default context length
    trained: int | None = None  # the trained context length

    @classmethod
    def read(cls, folder: Path) -> Entry:
        """Read the metadata of an entry."""
        note = _note_of(folder)
        names = {"source": str, "quant": str, "identity": str, "context": int, "trained": int}
        return cls(folder, **{name: note[name] for name, kind in names.items() if isinstance(note.get(name), kind)})

    @property
    def size(self) -> int:
        """Bytes of its files; those removed meanwhile count nothing."""
        total = 0
        for file in self.folder.rglob("*"):
            with contextlib.suppress(OSError):
                total += file.stat().st_size if file.is_file() else 0
        return total

    @property
    def used(self) -> float:
        """Time of last use, in seconds since the epoch."""
        for path in (self.folder / _NOTE, self.folder):
            with contextlib.suppress(OSError):
                return path.stat().st_mtime
        return 0.0

    @property
    def is_stale(self) -> bool:
        """Whether the entry can never be hit again: its source is gone or changed, or the exporter changed."""
        try:
            return not self.source or self.identity != identity_of(Path(self.source))
        except OSError:
            return True


def entry_folder(source: Path, settings: Settings) -> Path:
    """The cache folder of a source and its settings, whether it exists or not.

    Example: `entry_folder(Path("model.gguf"), Settings()).exists()`.
    """
    name = re.sub(r"[^\w.-]+", "-", source.resolve().name.removesuffix(".gguf")).strip(".-")
    key = _digest(f"{identity_of(source)} {settings}")
    return _home() / f"{name[:60]}-{settings.quantization.mode}-{key}"


def find(source: Path, settings: Settings) -> Path | None:
    """Look up a source in the cache: its folder if there is an intact entry, else None.

    Example: `find(Path("model.gguf"), Settings())`.
    """
    folder = entry_folder(source, settings)
    if not _is_whole(folder):
        return None
    with contextlib.suppress(OSError):  # a read-only cache
        os.utime(folder / _NOTE)
    return folder


def convert(source: Path, settings: Settings, progress: Progress = lambda done, total: None) -> Path:
    """Convert a source into the cache and return its folder; an entry that another process made meanwhile is used.

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
    """Move a complete entry into place atomically, unless one is there; a damaged one is replaced."""
    for last in (False, True):
        try:
            made.rename(folder)  # fails if a folder that is not empty is there
            return
        except OSError:
            if _is_whole(folder):
                return  # another process was first
            if last:
                raise
            remove(Entry(folder))


def _is_whole(folder: Path) -> bool:
    """Whether an entry is intact: every file has the size and checksum that were recorded."""
    files = _note_of(folder).get("files")
    try:
        return isinstance(files, dict) and MODEL in files and all(_seal(folder / name) == files[name] for name in files)
    except (OSError, LiveshapeError):
        return False


def _seal(file: Path) -> str:
    """A cheap checksum: the size, and a hash of the first and last MiB, without reading gigabytes."""
    with open_file(file) as opened:
        size = os.fstat(opened.fileno()).st_size
        start = opened.read(_SEALED)
        opened.seek(max(size - _SEALED, 0))
        return f"{size} {_digest(start, opened.read(_SEALED))}"


def _note_of(folder: Path) -> dict[str, Any]:
    try:
        note = json.loads(read_text(folder / _NOTE))
    except (OSError, ValueError, RecursionError):
        return {}
    return note if isinstance(note, dict) else {}


def entries() -> list[Entry]:
    """Every entry of the cache, the most recently used first.

    Example: `sum(entry.size for entry in entries())`.
    """
    folders = [folder for folder in _home().glob("*") if folder.is_dir() and not folder.name.endswith(_PART)]
    return sorted(map(Entry.read, folders), key=lambda entry: -entry.used)


def remove(entry: Entry) -> None:
    """Remove an entry from the cache. Processes that have it loaded are not affected.

    Example: `for entry in entries(): remove(entry)`.
    """
    # Renamed first, so that nobody finds half of it.
    gone = entry.folder.with_name(f".{entry.folder.name}.{time.monotonic_ns():x}{_PART}")
    with contextlib.suppress(FileNotFoundError):
        entry.folder.rename(gone)
        shutil.rmtree(gone, ignore_errors=True)


def identity_of(source: Path) -> str:
    """The cache key of a source: paths, sizes, times and inodes of its files, and the version of the exporter.

    `cp -p` preserves the mtime of a file that replaces another, but neither the inode nor the ctime.

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
    """A hash of the exporter's source code: any change in it may change what it writes."""
    return _digest(__version__, *_texts(resources.files("liveshape.export")))


def _texts(folder: Traversable) -> Iterator[bytes]:
    for entry in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if entry.is_dir():
            yield from _texts(entry)
        elif entry.name.endswith(".py"):
            yield entry.read_bytes()


def _sweep(home: Path) -> None:
    """Remove the temporary folders of killed conversions, beside entries and inside of them."""
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
