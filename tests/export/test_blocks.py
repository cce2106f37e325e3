"""The blocks of GGUF files as the whole numbers that they hold: no weight changes on the way into a model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from liveshape.export.model.layout import Layout, restored
from liveshape.export.sources.ggml_blocks import FORMATS
from liveshape.export.sources.gguf import GgufFile
from liveshape.export.sources.opening import open_checkpoint
from tests.export.gguf_files import READERS, WRITERS, q4_k_m, rewritten, stored, write_gguf
from tests.export.test_readers import WEIGHTS, gguf_of_weights

# Of each format: bits, weights of a group, and whether groups have a minimum.
KEPT = {
    "Q4_0": (4, 32, False),
    "Q4_1": (4, 32, True),
    "Q5_0": (8, 32, False),
    "Q5_1": (8, 32, True),
    "Q8_0": (8, 32, False),
    "Q2_K": (4, 16, True),
    "Q3_K": (4, 16, False),
    "Q4_K": (4, 32, True),
    "Q5_K": (8, 32, True),
    "Q6_K": (8, 16, False),
    "Q8_K": (8, 256, False),
    "MXFP4": (8, 32, False),
}
LIMITS = {4: (-8, 7), 8: (-128, 127)}


def assert_within_one_step(found: Any, expected: Any, least: Any) -> None:
    """Equal to the last bit, or off by one last bit of the larger of the two numbers that are added."""
    if least is None:
        np.testing.assert_array_equal(found, expected)
        return
    size = np.maximum(np.abs(expected), np.repeat(np.abs(least), expected.shape[1] // least.shape[1], axis=1))
    assert np.all(np.abs(found - expected) <= np.spacing(size))


@pytest.mark.parametrize("number", [number for number, form in FORMATS.items() if form.bits])
def test_codes_are_the_floats(number: int, tmp_path: Path) -> None:
    form = FORMATS[number]
    generator = np.random.default_rng(number)
    records = np.frombuffer(generator.bytes(6 * form.nbytes), form.record).copy()
    for name in ("d", "m", "dmin"):
        if name in (form.record.names or ()):
            records[name] = generator.standard_normal(6)
    if "e" in (form.record.names or ()):
        records["e"] = generator.integers(100, 140, 6)
    write_gguf(tmp_path / "x.gguf", {}, {"x": (number, (3, 2 * form.weights), records.tobytes())})
    file = GgufFile(tmp_path / "x.gguf")
    found = file.grouped("x")
    assert found.layout == form.layout == file.tensors["x"].layout == Layout(*KEPT[form.name])
    low, high = LIMITS[found.bits]
    assert (found.codes.dtype, found.scales.dtype) == (np.int8, np.float32)
    assert (found.codes >= low).all()
    assert (found.codes <= high).all()
    assert_within_one_step(restored(found), file.read("x"), found.minima)


@pytest.mark.parametrize("name", ["F32", "F16"])
def test_floats_have_no_codes(name: str, tmp_path: Path) -> None:
    weight = np.ones((2, 32), np.float32)
    write_gguf(tmp_path / "x.gguf", {}, {"x": stored(weight, name), "y": stored(weight[0], "Q8_0")})
    file = GgufFile(tmp_path / "x.gguf")
    assert file.tensors["x"].layout is None
    assert file.tensors["y"].layout is None  # a vector


@pytest.mark.parametrize("name", [name for name in WRITERS if name.startswith("Q")])
def test_blocks_written_are_those_read(name: str) -> None:
    """The writer of tests against the reader of tests: neither is the package's."""
    weight = np.random.default_rng(0).standard_normal((4, 512)).astype(np.float32)
    _, _, content = stored(weight, name)
    number, size, _ = WRITERS[name]
    step = FORMATS[number].nbytes
    read = [each for at in range(0, len(content), step) for each in READERS[name](content[at : at + step])]
    assert len(read) == weight.size
    steps = {"Q4": 15, "Q5": 31, "Q6": 63, "Q8": 255}[name[:2]]
    reach = 2 * np.abs(weight).max()
    # Half a step of the widest group; the scales of K formats are rounded themselves.
    assert np.abs(np.array(read).reshape(weight.shape) - weight).max() < reach / steps * 0.75
    assert size in (32, 256)


@pytest.mark.parametrize("name", ["Q4_0", "Q4_1", "Q8_0"])
def test_rows_of_query_and_key_are_put_in_order(name: str, tmp_path: Path) -> None:
    pytest.importorskip("tokenizers")
    gguf_of_weights(tmp_path / "plain.gguf")
    rewritten(tmp_path / "plain.gguf", tmp_path / "tiny.gguf", lambda _: name)
    checkpoint = open_checkpoint(str(tmp_path / "tiny.gguf"))
    assert checkpoint.grouped is not None
    for tensor, weight in WEIGHTS.items():
        assert (checkpoint.stored(tensor) is None) == (weight.ndim == 1)
        if weight.ndim == 2:
            found = checkpoint.grouped(tensor, slice(3, 17))
            np.testing.assert_array_equal(checkpoint.read_rows(tensor, slice(3, 17)), checkpoint.read(tensor)[3:17])
            assert_within_one_step(restored(found), checkpoint.read(tensor)[3:17], found.minima)
            # A step of 4 bits is about a third of these weights; rows in another order would be off by more.
            assert np.corrcoef(restored(found).reshape(-1), weight[3:17].reshape(-1))[0, 1] > 0.98


def test_a_mixed_file_mixes(tmp_path: Path) -> None:
    pytest.importorskip("tokenizers")
    gguf_of_weights(tmp_path / "plain.gguf")
    rewritten(tmp_path / "plain.gguf", tmp_path / "tiny.gguf", q4_k_m)
    checkpoint = open_checkpoint(str(tmp_path / "tiny.gguf"))
    kinds = {(found.bits, found.minima) for name in WEIGHTS if (found := checkpoint.stored(name)) is not None}
    # Rows of 64 and 96 have no blocks of 256: Q5_0 and Q8_0 take their place.
    assert kinds == {(8, False)}
    assert {tensor.format.name for tensor in GgufFile(tmp_path / "tiny.gguf").tensors.values()} == {
        "F32",
        "Q5_0",
        "Q8_0",
    }
