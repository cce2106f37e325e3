"""Atomic file writes: to a temporary file in the same folder, renamed at the end."""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from liveshape.errors import InputError


def place_of(path: Any, what: str = "a file") -> Path:
    """Resolve an output path: symlinks are followed, and the target must be a regular file or absent.

    A rename would replace a pipe, a device or a symlink, so the first two are refused and symlinks followed.

    Example: `place_of("latest.cache", "a saved cache")`.
    """
    if not isinstance(path, (str, bytes, os.PathLike)):
        raise InputError(f"the path of {what} is expected, {_short(path)} was given")
    name = os.fsdecode(path)
    if not name or "\0" in name:
        raise InputError(f"{name!r} is no path that {what} could have")
    try:
        place = Path(os.path.realpath(name))
        mode = place.stat().st_mode
    except FileNotFoundError:
        if not place.parent.is_dir():
            raise InputError(f"{name}: the folder {place.parent} does not exist; make it first") from None
        return place
    except OSError as error:
        raise InputError(f"{name} is no place for {what}: {error.strerror or error}") from error
    if stat.S_ISDIR(mode):
        raise InputError(f"{name} is a folder; give the name of a file for {what}")
    if not stat.S_ISREG(mode):
        raise InputError(f"{name} is no ordinary file but a {_kind(mode)}: {what} is not written over it")
    return place


@contextmanager
def whole_file(path: Any, what: str = "a file") -> Iterator[BinaryIO]:
    """Write a file atomically: it is renamed into place at the end, or removed if anything fails before.

    Example: `with whole_file("model.pte") as file: file.write(content)`.
    """
    place = place_of(path, what)
    # In the same folder: a rename cannot cross file systems.
    unfinished = place.with_name(f".{place.name[:40]}.{secrets.token_hex(4)}.part")
    try:
        with open(unfinished, "wb") as file:
            yield file
        if place.exists():  # keep its permissions
            unfinished.chmod(stat.S_IMODE(place.stat().st_mode))
        unfinished.replace(place)
    finally:
        unfinished.unlink(missing_ok=True)


def _kind(mode: int) -> str:
    kinds = {stat.S_IFIFO: "pipe", stat.S_IFCHR: "device", stat.S_IFBLK: "device", stat.S_IFSOCK: "socket"}
    return kinds.get(stat.S_IFMT(mode), "special file")


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
