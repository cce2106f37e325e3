"""Halve stories15M for transport: the same llama2.c layout in float16, without the rotary tables (30 MB).

Run: python pack_weights.py FOLDER_WITH_stories15M TARGET_FOLDER
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import numpy as np
from teacher import HEADER_BYTES, read_checkpoint


def pack(source: Path, target: Path) -> int:
    """Write TARGET/stories15M.bin in float16 and TARGET/tokenizer.bin; returns their bytes together."""
    _, weights = read_checkpoint(source / "stories15M.bin")
    target.mkdir(parents=True, exist_ok=True)
    with (target / "stories15M.bin").open("wb") as file:
        file.write((source / "stories15M.bin").read_bytes()[:HEADER_BYTES])
        for value in weights.values():
            file.write(value.astype(np.float16).tobytes())
    shutil.copyfile(source / "tokenizer.bin", target / "tokenizer.bin")
    return sum(path.stat().st_size for path in target.iterdir())


if __name__ == "__main__":
    print(f"{pack(Path(sys.argv[1]), Path(sys.argv[2])) / 1e6:.1f} MB")
