"""Writes a site into a folder, whole or not at all, and never over files that are somebody else's."""

from __future__ import annotations

import json
import os
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path

import liveshape
from liveshape.errors import InputError
from liveshape.progress import Progress
from liveshape.tools.web_page.site_files import SiteFiles

MARK = "liveshape-site.json"  # by which a folder is known as ours
_PIECE = 1 << 22  # bytes that are copied at a time


def check_folder(out: Path, force: bool) -> None:
    """Refuse a folder that has files of others, unless told to write into it.

    Example: `check_folder(Path("site"), force=False)`.
    """
    if out.exists() and not out.is_dir():
        raise InputError(f"{out} is a file; give the name of a folder")
    if out.exists() and any(out.iterdir()) and not (out / MARK).is_file() and not force:
        raise InputError(
            f"{out} is not empty and was not made by `liveshape web`: name another folder, or --force, which keeps "
            "what is there but index.html, model and liveshape"
        )


def write_site(files: SiteFiles, out: Path, progress: Progress = lambda done, total: None) -> int:
    """Write a site into a folder and return its size in bytes. Files beside those of the site stay as they are.

    Example: `write_site(form_site(Path("model.pte"), "model", runtime_files(), "forward"), Path("site"))`.
    """
    total = sum(_size(content) for content in files.values())
    fresh = not out.exists()
    out.mkdir(parents=True, exist_ok=True)
    # In the same folder: renaming does not cross file systems.
    unfinished = out / f".{secrets.token_hex(4)}.part"
    made, replaced = unfinished / "made", unfinished / "replaced"
    try:
        made.mkdir(parents=True)
        replaced.mkdir()
        done = 0
        for name, content in files.items():
            place = made / name
            place.parent.mkdir(parents=True, exist_ok=True)
            for size in _copied(content, place):
                done += size
                progress(done, total)
        mark = {"made by": "liveshape web", "version": liveshape.__version__, "bytes": total}
        (made / MARK).write_text(json.dumps(mark) + "\n")
        try:
            _swap(made, out, replaced)
        except KeyboardInterrupt:  # finish: never leave an old page beside a new model
            _swap(made, out, replaced)
            raise
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
        if fresh and not any(out.iterdir()):
            out.rmdir()
    return total


def _size(content: Path | bytes) -> int:
    return len(content) if isinstance(content, bytes) else content.stat().st_size


def _copied(content: Path | bytes, place: Path) -> Iterator[int]:
    """Write a file, and tell the size of each piece of it."""
    if isinstance(content, bytes):
        place.write_bytes(content)
        yield len(content)
        return
    with open(content, "rb") as source, open(place, "wb") as target:
        while piece := source.read(_PIECE):
            target.write(piece)
            yield len(piece)


def _swap(made: Path, out: Path, replaced: Path) -> None:
    for entry in sorted(made.iterdir()):
        place = out / entry.name
        if os.path.lexists(place) and not os.path.lexists(replaced / entry.name):
            place.rename(replaced / entry.name)
        entry.rename(place)
