"""Exported programs by name, made once per recipe and version and kept in `.cache/formats`."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

import pytest

from tests.formats import recipes
from tests.support.exporting import ANEW

CACHE = Path(__file__).resolve().parents[2] / ".cache" / "formats"
_checked: set[Path] = set()  # by this process


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def exported(name: str) -> Path:
    """The folder of an exported program; it appears in one step, so that two test workers cannot see half of it."""
    sources = Path(recipes.__file__).read_bytes()
    packages = " ".join(f"{package}-{version(package)}" for package in ("torch", "executorch"))
    folder = CACHE / f"{name}-{hashlib.sha256(sources + packages.encode()).hexdigest()[:16]}"
    if ANEW and folder.exists() and folder not in _checked:
        _checked.add(folder)
        with tempfile.TemporaryDirectory() as again:
            recipes.make(name, Path(again))
            assert contents(Path(again)) == contents(folder), f"{name} is not what the exporter writes today"
    if not folder.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        unfinished = Path(tempfile.mkdtemp(dir=CACHE, prefix=f".{name}-"))
        try:
            recipes.make(name, unfinished)
            os.rename(unfinished, folder)
        except OSError:
            # Another worker was first.
            if not folder.exists():
                raise
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)
    return folder


@pytest.fixture(scope="session")
def program_path() -> Callable[[str], Path]:
    """The path of the `.pte` of a recipe."""
    return lambda name: exported(name) / "program.pte"
