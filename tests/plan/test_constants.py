"""Constants interleaved into one: the bytes that NumPy gives, however small the pieces."""

from __future__ import annotations

import numpy as np
import pytest

from liveshape.graph.constants import Interleaved, Paired, Transposed, all_bytes, pieces


@pytest.mark.parametrize("nbytes", [1, 16, 100, 1 << 20])
@pytest.mark.parametrize("widths", [(4, 4), (8, 2, 6), (12,)])
def test_interleaved_runs(widths: tuple[int, ...], nbytes: int) -> None:
    random = np.random.default_rng(0)
    parts = [random.integers(0, 255, (26, width), np.uint8) for width in widths]
    interleaved = Interleaved(tuple(memoryview(part).cast("B") for part in parts), widths)
    found = [np.asarray(piece) for piece in pieces(interleaved, nbytes)]
    expected = np.concatenate(parts, axis=1).tobytes()
    assert b"".join(piece.tobytes() for piece in found) == bytes(all_bytes(interleaved)) == expected
    assert len(interleaved) == len(expected)
    assert all(piece.nbytes % 4 == 0 for piece in found[:-1]), "pieces are uploaded in all_bytes words"


def test_concatenation_is_not_copied() -> None:
    data = np.arange(64, dtype=np.uint8)
    parts = memoryview(data)[:24], memoryview(data)[24:]
    found = list(pieces(Interleaved(parts, (24, 40)), 16))
    assert [len(piece) for piece in found] == [16, 8, 16, 16, 8]
    assert all(np.shares_memory(np.asarray(piece), data) for piece in found)


@pytest.mark.parametrize("nbytes", [4, 100, 1 << 20])
@pytest.mark.parametrize("run", [4, 6, 64, 100])
@pytest.mark.parametrize("rounds", [1, 3])
def test_interleaved_halves_of_blocks(rounds: int, run: int, nbytes: int) -> None:
    random = np.random.default_rng(0)
    blocks = random.integers(0, 255, (rounds, 4, 2, 6, run), np.uint8)
    rest = random.integers(0, 255, (rounds, 40), np.uint8)
    pairs = Paired(memoryview(blocks).cast("B"), 12 * run, run)
    joined = Interleaved((pairs, memoryview(rest).cast("B")), (48 * run, 40))
    expected = np.concatenate([blocks.swapaxes(2, 3).reshape(rounds, -1), rest], axis=1).tobytes()
    assert b"".join(bytes(piece) for piece in pieces(joined, nbytes)) == bytes(all_bytes(joined)) == expected


@pytest.mark.parametrize("nbytes", [4, 100, 1 << 20])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_transposed_interleaved_and_paired(dtype: str, nbytes: int) -> None:
    """What layers with minima are joined of: scales, each row with minima below that the file has by columns."""
    random = np.random.default_rng(0)
    size = np.dtype(dtype).itemsize
    joined, expected = [], []
    for columns in (12, 24):
        scales, minima = random.random((5, columns)).astype(dtype), random.random((columns, 5)).astype(dtype)
        turned = Transposed(memoryview(minima).cast("B"), columns, size)
        assert bytes(all_bytes(turned)) == minima.T.tobytes()
        joined.append(Interleaved((memoryview(scales).cast("B"), turned), (columns * size,) * 2))
        expected.append(np.stack([scales, minima.T], axis=1))
        assert b"".join(bytes(piece) for piece in pieces(joined[-1], nbytes)) == expected[-1].tobytes()
    paired = Paired(joined[0], 6 * size, size)
    expected[0] = expected[0].reshape(5, 2, 2, 2, 3).swapaxes(3, 4).reshape(5, 2, 12)
    found = b"".join(bytes(piece) for piece in pieces(Interleaved((paired, joined[1]), (12 * size, 24 * size)), nbytes))
    assert found == np.concatenate(expected, axis=2).tobytes()
