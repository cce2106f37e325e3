"""Saved caches: what was written comes back, and whatever else a file holds is refused before it costs anything."""

from __future__ import annotations

import errno
import io
import json
import os
import struct
import tracemalloc
import zipfile
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from liveshape.errors import FormatError, InputError, StorageError
from liveshape.llm.engine.cache_file import Expected, Layout, Saved, load, save
from liveshape.run.arrays import numpy_dtype
from liveshape.run.bfloat16 import rounded

PROGRAM = "6edf153a6fae6339b2367ee1db58f921"
TOKENS = (5, 0, 96, 7, 7)
MAGIC = b"liveshape cache 3\n"


def layout(length: int) -> tuple[tuple[str, tuple[int, ...]], ...]:
    floats = ("float32", (1, length, 2, 3)), ("float16", (1, length, 2, 3)), ("bfloat16", (length, 3))
    return *floats, ("int32", (1, length)), ("bool", (4,))


EXPECTED = Expected(PROGRAM, "float32", vocab_size=97, max_context=40, layout=layout)


def saved(tokens: tuple[int, ...] = TOKENS) -> Saved:
    random = np.random.default_rng(3)
    states = []
    for dtype, shape in layout(len(tokens)):
        state = (random.standard_normal(shape) * 9).astype(numpy_dtype(dtype))
        states.append(rounded(state) if dtype == "bfloat16" else state)
    return Saved(PROGRAM, "float32", tokens, layout(len(tokens)), tuple(states))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    save(tmp_path / "cache", saved())
    return tmp_path / "cache"


def rewritten(content: bytes, **changes: Any) -> bytes:
    """A file with another header; everything else as it was."""
    (length,) = struct.unpack_from("<I", content, len(MAGIC))
    start = len(MAGIC) + 4
    header = json.loads(content[start : start + length]) | changes
    text = json.dumps(header).encode()
    return MAGIC + struct.pack("<I", len(text)) + text + content[start + length :]


@pytest.mark.parametrize("tokens", [TOKENS, (), tuple(range(40))])
def test_what_was_saved_comes_back(tmp_path: Path, tokens: tuple[int, ...]) -> None:
    written = saved(tokens)
    save(tmp_path / "cache", written)
    read = load(tmp_path / "cache", EXPECTED)
    assert (read.program, read.tokens) == (PROGRAM, tokens)
    for one, other in zip(read.states, written.states, strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(one, other)
    assert os.listdir(tmp_path) == ["cache"], "nothing else is left"


def test_a_full_disk_names_the_folder_and_what_helps(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = path.read_bytes()

    def full(self: Any, other: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(StorageError, match=f"{path.parent}: no space left on device.*save the cache on another disk"):
        save(path, saved((1,)))
    assert path.read_bytes() == before


def test_a_file_that_cannot_be_written_whole_is_not_written(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = path.read_bytes()

    def full(*args: Any) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(OSError, match="no space"):
        save(path, saved((1,)))
    assert path.read_bytes() == before
    assert os.listdir(path.parent) == ["cache"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"program": "ff"}, "of another program: ff, this one is 6edf"),
        ({"program": 5}, "program is 5, a checksum is expected"),
        ({"program": None}, "program is None"),
        ({"tokens": 41}, "holds 41 tokens, the context of this model is 40: load the model with --max-context 41"),
        ({"activations": "int8"}, "saved with activations='int8', this model was loaded with activations='float32'"),
        (
            {"activations": "float16"},
            r"load the model with --activations float16 \(load\(activations='float16'\)\), or",
        ),
        ({"activations": "x" * 10**5}, r"saved with activations='x{56}\.\.\., this model"),
        ({"activations": None}, "is damaged: activations is None, their kind is expected"),
        ({"activations": ["int8"]}, r"is damaged: activations is \['int8'\]"),
        ({"tokens": -1}, "tokens is -1"),
        ({"tokens": 2**200}, "tokens is 16069"),
        ({"tokens": True}, "tokens is True"),
        ({"tokens": "five"}, "tokens is 'five'"),
        ({"tokens": 5.0}, r"tokens is 5\.0"),
        ({"tokens": [1, 2]}, r"tokens is \[1, 2\]"),
        ({"tokens": 4}, r"state 0 is \['float32', \[1, 5, 2, 3\]\], this model has \['float32', \[1, 4, 2, 3\]\]"),
        ({"states": []}, "it has 0 states, this model has 5"),
        ({"states": "all"}, "state 0 is 'all'"),
        ({"states": None}, "state 0 is None"),
        ({"states": [["float64", [1, 5, 2, 3]]]}, r"state 0 is \['float64'"),
        ({"states": [["float32", [1, 5, 2, 10**12]]]}, "state 0 is"),
        ({"more": 1}, "its header must have program, activations, tokens and states"),
    ],
    ids=str,
)
def test_a_header_that_does_not_fit_names_the_field(path: Path, changes: dict[str, Any], message: str) -> None:
    path.write_bytes(rewritten(path.read_bytes(), **changes))
    other = changes.get("program") == "ff" or changes.get("tokens") == 41 or isinstance(changes.get("activations"), str)
    kind = InputError if other else FormatError
    with pytest.raises(kind, match=message) as caught:
        load(path, EXPECTED)
    assert str(caught.value).startswith(str(path))


@pytest.mark.parametrize(("saved_as", "loaded_as"), [("float32", "float16"), ("float16", "float32")])
def test_a_kv_cache_of_another_dtype_says_how_to_load(tmp_path: Path, saved_as: str, loaded_as: str) -> None:
    """Only where nothing else differs: other states say which of them do not fit."""

    def layout_as(dtype: str, length: int, width: int = 3) -> Layout:
        return (dtype, (1, length, 2, width)), ("int32", (1, length))

    states = np.ones((1, 2, 2, 3), saved_as), np.ones((1, 2), np.int32)
    save(tmp_path / "cache", Saved(PROGRAM, "float32", (1, 2), layout_as(saved_as, 2), states))
    how = {
        "float32": r"without --half-cache \(load\(half_cache=False\)\)",
        "float16": r"with --half-cache \(load\(half_cache=True\)\)",
    }
    with pytest.raises(
        InputError,
        match=f"a KV cache of {saved_as}, this model was loaded with one of {loaded_as}.* {how[saved_as]}, or",
    ):
        load(tmp_path / "cache", replace(EXPECTED, layout=partial(layout_as, loaded_as)))
    with pytest.raises(FormatError, match=f"does not fit: state 0 is \\['{saved_as}'"):
        load(tmp_path / "cache", replace(EXPECTED, layout=partial(layout_as, loaded_as, width=4)))


def headed(text: bytes) -> bytes:
    return MAGIC + struct.pack("<I", len(text)) + text


def npz(**arrays: Any) -> bytes:
    file = io.BytesIO()
    np.savez(file, **arrays)
    return file.getvalue()


def npy(array: Any, *, pickled: bool = False) -> bytes:
    file = io.BytesIO()
    np.save(file, array, allow_pickle=pickled)
    return file.getvalue()


def bomb() -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("tokens.npy", npy(np.zeros(1 << 20, np.int64)))
    return file.getvalue()


HOSTILE = {
    "nothing": b"",
    "half a beginning": MAGIC[:9],
    "only a beginning": MAGIC,
    "an endless header": MAGIC + b"\xff\xff\xff\xff" + b"{}",
    "a header that is no text": headed(b"\xff\xfe\xfd"),
    "a header that is a number": headed(b"5"),
    "a header that is nested": headed(b"[" * 100_000),
    "a header with a long number": headed(b'{"tokens": ' + b"9" * 10_000 + b"}"),
    "an array of numpy": npy(np.arange(5)),
    "a pickle in an array": npy(np.array([{}], object), pickled=True),
    "a cache of another version": npz(format="liveshape cache 1", program=PROGRAM, tokens=np.arange(5)),
    "a bomb": bomb(),
    "a pickle": b"\x80\x04\x95\x05\x00\x00\x00\x00\x00\x00\x00\x8c\x01a\x94.",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_other_files_are_refused_and_cost_nothing(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").write_bytes(HOSTILE[name])
    tracemalloc.start()
    try:
        with pytest.raises(FormatError, match=r"is not a saved cache|is damaged"):
            load(tmp_path / "file", EXPECTED)
        assert tracemalloc.get_traced_memory()[1] < 2 << 20
    finally:
        tracemalloc.stop()


def test_a_file_that_promises_more_than_it_has_is_refused_before_it_is_read(path: Path) -> None:
    wide = Expected(PROGRAM, "float32", 97, 1 << 30, lambda length: (("float32", (length, 1 << 20)),))
    states = [["float32", [1 << 30, 1 << 20]]]
    path.write_bytes(rewritten(path.read_bytes(), tokens=1 << 30, states=states))
    with pytest.raises(FormatError, match=r"bytes, a cache of 1,073,741,824 tokens of this program takes 4,503,6"):
        load(path, wide)


def test_a_file_that_does_not_say_its_activations_is_refused(path: Path) -> None:
    """Of the version before: nobody knows which numbers are in it."""
    path.write_bytes(path.read_bytes().replace(MAGIC, b"liveshape cache 2\n"))
    with pytest.raises(FormatError, match=r"did not write down which activations .* save it"):
        load(path, EXPECTED)


def test_tokens_outside_of_the_vocabulary(tmp_path: Path) -> None:
    for token in (97, -1, -(1 << 31), (1 << 31) - 1):
        save(tmp_path / "cache", saved((1, token)))
        with pytest.raises(FormatError, match=f"token {token} is outside the vocabulary of 97"):
            load(tmp_path / "cache", EXPECTED)


@pytest.mark.parametrize("given", [None, 5, "a\0b", b"a\0b", ["cache"], ""], ids=repr)
def test_what_is_no_path(given: Any) -> None:
    with pytest.raises((InputError, FileNotFoundError), match=r"is no path|the path of a saved cache is|No such file"):
        load(given, EXPECTED)
    with pytest.raises(InputError, match=r"is no path|the path of a saved cache is expected"):
        save(given, saved())


def test_what_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="is no ordinary file"):
        load(tmp_path, EXPECTED)
    with pytest.raises(FormatError, match="is no ordinary file"):
        load("/dev/zero", EXPECTED)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(FormatError, match="is no ordinary file"):
        load(tmp_path / "pipe", EXPECTED)
    with pytest.raises(FileNotFoundError):
        load(tmp_path / "absent", EXPECTED)


def mutated(content: bytes, random: np.random.Generator) -> bytes:
    """One change anywhere: a flipped bit, another byte, a cut, a gap, something in between, two halves swapped."""
    place, kind = int(random.integers(len(content))), int(random.integers(6))
    if kind == 0:
        changed = bytearray(content)
        changed[place] ^= 1 << int(random.integers(8))
        return bytes(changed)
    if kind == 1:
        changed = bytearray(content)
        changed[place] = (changed[place] + 1 + int(random.integers(255))) % 256
        return bytes(changed)
    if kind == 2:
        return content[:place]
    if kind == 3:
        return content[:place] + content[place + 1 + int(random.integers(9)) :]
    if kind == 4:
        return content[:place] + random.bytes(1 + int(random.integers(9))) + content[place:]
    return content[place:] + content[:place] if place else content[:-1]


def test_two_hundred_mutations_are_refused(path: Path) -> None:
    content, random = path.read_bytes(), np.random.default_rng(0)
    for number in range(200):
        path.write_bytes(mutated(content, random))
        with pytest.raises((FormatError, InputError)):
            pytest.fail(f"mutation {number} was taken: {load(path, EXPECTED)}")
