"""Exports of our own programs that travel with the repository: the exporter takes most of the time of a first test.

`.cache` is filled from them before tests run. Its names are digests of the source of each program, the recipe and the
versions of the exporter, so a recorded file serves only what would be exported again byte for byte; anything else is
exported as before. `make test-recorded` exports them anew and compares the bytes.

Run: rm -rf .cache && make test && python -m tests.support.recorded
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CACHE, RECORDED = ROOT / ".cache", ROOT / "tests" / "recorded"
LARGEST = 128 << 10  # bytes of a file that is worth its place in the repository


def seed(cache: Path = CACHE) -> None:
    """Give the cache what it lacks; whole folders appear in one step, since a test takes one for complete."""
    for source in units(RECORDED):
        target = cache / source.relative_to(RECORDED)
        if target.exists():
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache, prefix=".seed-") as folder:
            draft = Path(folder) / source.name
            if source.is_dir():
                shutil.copytree(source, draft)
            else:
                shutil.copyfile(source, draft)
            try:
                os.rename(draft, target)
            except OSError:  # another run was first
                if not target.exists():
                    raise


def units(cache: Path) -> list[Path]:
    """What is kept or left out as one: a file, or a folder of them. ExecuTorch's own suites are imported, not kept."""
    found = [*cache.glob("exports/*.*"), *cache.glob("formats/*")]
    return sorted(each for each in found if not each.name.startswith("."))


def largest(unit: Path) -> int:
    files = [each for each in unit.rglob("*") if each.is_file()] if unit.is_dir() else [unit]
    return max((each.stat().st_size for each in files), default=0)


def record() -> None:
    """Replace the recorded exports by those of the cache."""
    shutil.rmtree(RECORDED, ignore_errors=True)
    for unit in units(CACHE):
        if largest(unit) > LARGEST:
            continue
        target = RECORDED / unit.relative_to(CACHE)
        target.parent.mkdir(parents=True, exist_ok=True)
        if unit.is_dir():
            shutil.copytree(unit, target)
        else:
            shutil.copyfile(unit, target)
    files = [each for each in RECORDED.rglob("*") if each.is_file()]
    print(f"{len(files)} files, {sum(each.stat().st_size for each in files):,} bytes")


if __name__ == "__main__":
    record()
