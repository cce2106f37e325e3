"""The teacher's vocabulary: llama2.c's tokenizer.bin, a SentencePiece BPE with byte fallback."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path

BEGIN, END = 1, 2
# Ids 3..258 are raw bytes; they never match text, and text falls back to them.
FIRST_BYTE, FIRST_PIECE = 3, 259


class TeacherTokenizer:
    """Ids to text and back.

    >>> tokenizer = TeacherTokenizer(Path("tokenizer.bin"))
    >>> tokenizer.encode("Once upon a time")
    [1, 9038, 2501, 263, 931]
    """

    def __init__(self, path: Path) -> None:
        data = path.read_bytes()
        self.pieces: list[bytes] = []
        self.scores: list[float] = []
        # The file opens with the longest piece's length, then score, length and bytes of each piece.
        at = 4
        while at < len(data):
            score, size = struct.unpack_from("<fi", data, at)
            self.pieces.append(data[at + 8 : at + 8 + size])
            self.scores.append(score)
            at += 8 + size
        self.ids = {piece: i for i, piece in enumerate(self.pieces) if i >= FIRST_PIECE}
        raw = [bytes([i - FIRST_BYTE]) if FIRST_BYTE <= i < FIRST_PIECE else p for i, p in enumerate(self.pieces)]
        self.raw = [b"", b"", b"", *raw[FIRST_BYTE:]]

    def decode(self, ids: Iterable[int]) -> str:
        """Text of `ids`; the space that every story starts with is dropped, broken UTF-8 too."""
        return b"".join([self.raw[i] for i in ids]).decode("utf-8", errors="ignore").removeprefix(" ")

    def encode(self, text: str) -> list[int]:
        """BEGIN and the ids of `text`, merging the best-scored neighbours first."""
        ids: list[int] = []
        for char in f" {text}" if text else "":
            piece = char.encode()
            ids += [self.ids[piece]] if piece in self.ids else [FIRST_BYTE + byte for byte in piece]
        while True:
            pairs = [self.ids.get(self.pieces[a] + self.pieces[b], -1) for a, b in pairwise(ids)]
            if not pairs or max(pairs) < 0:
                return [BEGIN, *ids]
            best = max(range(len(pairs)), key=lambda i: self.scores[pairs[i]] if pairs[i] >= 0 else float("-inf"))
            ids[best : best + 2] = [pairs[best]]
