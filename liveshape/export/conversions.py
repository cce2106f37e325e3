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
import time
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path
from typing import Any

from liveshape import __version__
from liveshape.device.remembered import cache_folder
from liveshape.errors import InputError
from liveshape.export.folder import MODEL, Settings, export_folder
from liveshape.export.program_file import Progress
from liveshape.export.sources import open_checkpoint

_NOTE = "conversion.json"
_PARTS = ".*.part"
_READ = (".gguf", ".jinja", ".json", ".safetensors")  # of a folder
# A conversion that wrote nothing for so many seconds was killed: what it left is in nobody's hands.
_DEAD = 3600


@dataclass(frozen=True)
class Entry:
    """A folder of the cache, and what its note says.

    Example: `[entry.source for entry in entries()]`.
    """

    folder: Path
    source: str
    quant: str
    identity: str

    @property
    def size(self) -> int:
        """Bytes of its files."""
        return sum(file.stat().st_size for file in self.folder.iterdir())

    @property
    def used(self) -> float:
        """When it was made or asked for last, as `time.time` counts."""
        return (self.folder / _NOTE).stat().st_mtime

    @property
    def is_stale(self) -> bool:
        """Whether nothing can lead here again: the source is gone or another, or the writer is another one."""
        try:
            return self.identity != identity_of(Path(self.source))
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
    if not (folder / MODEL).exists():
        return None
    with contextlib.suppress(OSError):  # somebody else's cache, or a disk that is only read
        os.utime(folder / _NOTE)
    return folder


def convert(source: Path, settings: Settings, progress: Progress = lambda done, total: None) -> Path:
    """Convert a source into the cache and return its folder there.

    Example: `find(source, settings) or convert(source, settings)`.
    """
    folder = entry_folder(source, settings)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        _sweep(folder.parent)
    except OSError as error:
        raise InputError(
            f"{error.filename}: {error.strerror}; what is converted is kept there: set LIVESHAPE_CACHE to a folder "
            "that can be written, or give --no-cache (load(..., cache=False))"
        ) from error
    checkpoint = open_checkpoint(source)
    note = {
        "source": str(source.resolve()),
        "quant": settings.quantization.mode,
        "identity": identity_of(source),
        "settings": str(settings),
        "liveshape": __version__,
    }
    files = {**checkpoint.files, _NOTE: (json.dumps(note, indent=2) + "\n").encode()}
    try:
        export_folder(replace(checkpoint, files=files), folder, settings, progress=progress)
    except OSError:
        if not (folder / MODEL).exists():  # or another process was first
            raise
    return folder


def entries() -> list[Entry]:
    """Every conversion of the cache, those used last first.

    Example: `sum(entry.size for entry in entries())`.
    """
    found = []
    for folder in _home().glob("*"):
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):  # it is going now, or none of ours
            note: dict[str, Any] = json.loads((folder / _NOTE).read_text("utf-8"))
            found.append(Entry(folder, note["source"], note["quant"], note["identity"]))
    return sorted(found, key=lambda entry: -entry.used)


def remove(entry: Entry) -> None:
    """Remove a conversion. Whoever uses it now keeps what is loaded.

    Example: `for entry in entries(): remove(entry)`.
    """
    # In one step, so that nobody finds half of it.
    gone = entry.folder.with_name(f".{entry.folder.name}.{time.monotonic_ns():x}.part")
    with contextlib.suppress(FileNotFoundError):
        entry.folder.rename(gone)
        shutil.rmtree(gone, ignore_errors=True)


def identity_of(source: Path) -> str:
    """What tells a source, and what the writer makes of it, from any other: paths, sizes, times, and the writer itself.

    Example: `identity_of(Path("model.gguf"))`.
    """
    files = [(str(file), file.stat().st_size, file.stat().st_mtime_ns) for file in _files_of(source.resolve())]
    return _digest(f"{_writer()} {files}")


def _files_of(source: Path) -> list[Path]:
    if source.suffix == ".bin":
        return [source, *source.parent.glob("tokenizer.bin")]
    folder = source.parent if source.suffix == ".safetensors" else source
    return sorted(file for file in folder.iterdir() if file.suffix in _READ) if folder.is_dir() else [source]


@functools.cache
def _writer() -> str:
    """The version of the writer is its text: whatever changes in it may change what it writes."""
    files = sorted(resources.files("liveshape.export").iterdir(), key=lambda file: file.name)
    texts = (file.read_bytes() for file in files if file.name.endswith((".py", ".txt")))
    return _digest(__version__, *texts)


def _sweep(home: Path) -> None:
    """Remove what conversions left that were killed in the middle."""
    for part in home.glob(_PARTS):
        with contextlib.suppress(OSError):
            last = max(each.stat().st_mtime for each in (part, *part.iterdir()))
            if time.time() - last > _DEAD:
                shutil.rmtree(part, ignore_errors=True)


def _home() -> Path:
    return cache_folder() / "models"


def _digest(*parts: str | bytes) -> str:
    digest = hashlib.blake2b(digest_size=8)
    for part in parts:
        digest.update(part.encode() if isinstance(part, str) else part)
    return digest.hexdigest()
