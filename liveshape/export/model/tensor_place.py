"""Where the numbers of a tensor lie in the source's files, for those who read the files themselves, as a page does."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class PairedHeads:
    """Rows of Q or K whose first `rotated` of each head are adjacent pairs; a decoder takes them as two halves.

    Example: `PairedHeads(heads=32, size=64, rotated=64)`.
    """

    heads: int
    size: int
    rotated: int


@dataclass(frozen=True)
class TensorPlace:
    """A contiguous tensor of a file: its first byte, its format by ggml's name, its shape with rows first.

    `pairs` says that the file has its rows in another order; `plus` is added to each number.

    Example: `TensorPlace("model.gguf", 4096, "Q4_0", (576, 576))`.
    """

    path: str
    offset: int
    format: str
    shape: tuple[int, ...]
    pairs: PairedHeads | None = None
    plus: float = 0.0
