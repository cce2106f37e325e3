"""A file as large as a 4-bit Llama-3.2-1B that compresses to a few megabytes: every weight repeats a few rows.

Run: python -m bench.big_file [--layers 16] [--out .cache/big]
"""

from __future__ import annotations

import argparse
import lzma
import shutil
import sys
import time
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from liveshape.export.folder import MODEL, Settings, export_folder
from liveshape.export.model.checkpoint import Checkpoint, expected_tensors
from liveshape.export.model.config import ModelConfig, Quantization
from liveshape.tools.console import size_text
from liveshape.tools.measuring.random_llamas import Shape

_ROWS = 4  # of a weight, then they repeat


def config_of(shape: Shape) -> ModelConfig:
    """The config.json of a Llama of these sizes."""
    return ModelConfig(
        family="llama",
        hidden=shape.hidden,
        layers=shape.layers,
        heads=shape.heads,
        kv_heads=shape.kv_heads,
        head_size=shape.head_size,
        feed_forward=shape.ffn,
        vocabulary=shape.vocabulary,
        norm_eps=1e-5,
        rope_theta=500000.0,
        rotary_size=shape.head_size,
        context=shape.max_context,
        tied=True,
    )


def regular_checkpoint(config: ModelConfig) -> Checkpoint:
    """A few random rows per tensor, repeated: equal rows compress well."""
    shapes = dict(expected_tensors(config))

    def read(name: str, rows: slice = slice(None)) -> Any:
        *count, width = shapes[name]
        random = np.random.default_rng(zlib.crc32(name.encode()))
        few = random.standard_normal((_ROWS, width), np.float32) / np.float32(width**0.5)
        return few[np.arange(count[0])[rows] % _ROWS] if count else few[0][rows]

    return Checkpoint(config, shapes, read, rows=read)


def compress(path: Path) -> Path:
    """The file as `.xz` beside it. The lowest preset suffices: rows repeat within a few kilobytes."""
    packed = path.with_name(f"{path.name}.xz")
    with open(path, "rb") as source, lzma.open(packed, "wb", preset=0) as target:
        shutil.copyfileobj(source, target, 1 << 20)
    return packed


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--layers", type=int, default=Shape.layers)
    parser.add_argument("--out", type=Path, default=Path(".cache/big"))
    options = parser.parse_args()
    shape = Shape(layers=options.layers)
    settings = Settings(Quantization("4w"), max_seq=shape.max_seq_len, max_context=shape.max_context)
    config = config_of(shape)
    start = time.perf_counter()

    def step(text: str) -> None:
        print(f"{time.perf_counter() - start:4.0f} s  {text} ...", file=sys.stderr, flush=True)

    export_folder(regular_checkpoint(config), options.out, settings, step)
    step("compressing")
    packed = compress(options.out / MODEL)
    table = Table("file", "size", title=f"{config.parameters / 1e6:,.0f} M parameters")
    for path in (options.out / MODEL, packed):
        table.add_row(str(path), size_text(path.stat().st_size))
    Console().print(table)


if __name__ == "__main__":
    main()
