"""Safe file opening and disk-full errors: only regular files, since a FIFO would block and a device never end."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO

from liveshape.errors import InputError, StorageError

Path = str | os.PathLike[str]

_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a FIFO",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
}
# Disk full, quota exceeded, or file too large for the file system or the process.
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def check_file(path: Path) -> None:
    """Raise InputError for a path that is no regular file, before it is opened: opening a FIFO blocks.

    Example: `check_file("tokenizer.json")`.
    """
    _check(path, os.stat(_name(path)))


def open_file(path: Path) -> BinaryIO:
    """Open a regular file for reading; InputError for a folder, a FIFO or a device.

    Example: `with open_file("model.gguf") as file: magic = file.read(4)`.
    """
    check_file(path)
    # The file object alone owns the descriptor: an interrupt closes it once, and never another's of the same number.
    file = open(_name(path), "rb", opener=_open_without_blocking)  # noqa: SIM115  # the caller closes it
    try:
        _check(path, os.fstat(file.fileno()))  # again, against a race with a replacement
    except BaseException:
        file.close()
        raise
    return file


def _open_without_blocking(name: str, flags: int) -> int:
    return os.open(name, flags | getattr(os, "O_NONBLOCK", 0))


def read_bytes(path: Path) -> bytes:
    """Read all bytes of a regular file.

    Example: `read_bytes(folder / "tokenizer.json")`.
    """
    with open_file(path) as file:
        return file.read()


def read_text(path: Path) -> str:
    """Read a regular file as UTF-8 text; invalid bytes raise UnicodeDecodeError.

    Example: `json.loads(read_text(folder / "config.json"))`.
    """
    return read_bytes(path).decode("utf-8").replace("\r\n", "\n")


@contextmanager
def room_in(folder: Path, advice: str) -> Iterator[None]:
    """Convert disk-full errors into a StorageError that names the folder, its free space and what helps.

    Example: `with room_in(out, "choose another folder"): out.write_bytes(content)`.
    """
    try:
        yield
    except OSError as error:
        if error.errno not in _FULL or isinstance(error, StorageError):
            raise
        left = _room(folder)
        raise StorageError(
            f"{os.fspath(folder)}: {os.strerror(error.errno).lower()}{left}, and nothing was kept there; {advice}"
        ) from error


def _room(folder: Path) -> str:
    """Free space on the file system of a folder, which may not exist yet."""
    place = os.path.abspath(folder)
    while not os.path.isdir(place) and place != os.path.dirname(place):
        place = os.path.dirname(place)
    try:
        free = os.statvfs(place).f_bavail * os.statvfs(place).f_frsize
    except (OSError, AttributeError):  # statvfs is not on every system
        return ""
    return f" ({free / 1e6:,.0f} MB are free)"


def _name(path: Path) -> str:
    name = os.fspath(path)
    if "\0" in name:
        raise InputError(f"{name!r} is no path: it has a character that no file name can have")
    return name


def _check(path: Path, found: os.stat_result) -> None:
    if not stat.S_ISREG(found.st_mode):
        kind = _KINDS.get(stat.S_IFMT(found.st_mode), "no file")
        raise InputError(f"{os.fspath(path)} is {kind}, and an ordinary file is needed: copy what it gives to one")
