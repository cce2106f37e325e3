"""Constants interleaved into one: the bytes that NumPy gives, however small the pieces."""

from __future__ import annotations

import numpy as np
import pytest

from liveshape.graph.constants import Interleaved, all_bytes, pieces


@pytest.mark.parametrize("nbytes", [1, 16, 100, 1 << 20])
@pytest.mark.parametrize("widths", [(4, 4), (8, 2, 6), (12,)])
def test_runs_of_each_in_turn(widths: tuple[int, ...], nbytes: int) -> None:
    random = np.random.default_rng(0)
    parts = [random.integers(0, 255, (26, width), np.uint8) for width in widths]
    interleaved = Interleaved(tuple(memoryview(part).cast("B") for part in parts), widths)
    found = [np.asarray(piece) for piece in pieces(interleaved, nbytes)]
    expected = np.concatenate(parts, axis=1).tobytes()
    assert b"".join(piece.tobytes() for piece in found) == bytes(all_bytes(interleaved)) == expected
    assert len(interleaved) == len(expected)
    assert all(piece.nbytes % 4 == 0 for piece in found[:-1]), "pieces are uploaded in all_bytes words"


def test_one_behind_the_other_is_not_copied() -> None:
    data = np.arange(64, dtype=np.uint8)
    parts = memoryview(data)[:24], memoryview(data)[24:]
    found = list(pieces(Interleaved(parts, (24, 40)), 16))
    assert [len(piece) for piece in found] == [16, 8, 16, 16, 8]
    assert all(np.shares_memory(np.asarray(piece), data) for piece in found)
