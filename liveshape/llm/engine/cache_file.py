"""Saved KV cache (prompt cache), the file format: checksum of the program, activations, tokens, and the state tensors
truncated to the number of tokens.

    "liveshape cache 3\\n" | length of the header | header, JSON | tokens, int32 | states, one after the other | digest

The header is checked against the model before the rest is read: nothing is allocated that the file did not pay for.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np

from liveshape.disk import room_in
from liveshape.errors import FormatError, InputError, counted
from liveshape.formats.whole_file import place_of, whole_file
from liveshape.graph import Shape
from liveshape.graph.elements import prod
from liveshape.run.arrays import numpy_dtype

Layout = tuple[tuple[str, Shape], ...]  # dtype and shape of each state tensor

_MAGIC = b"liveshape cache 3\n"
_WITHOUT_ACTIVATIONS = b"liveshape cache 2\n"
_LENGTH = struct.Struct("<I")
_MOST_HEADER = 1 << 20
_MOST_TOKENS = 1 << 31  # positions are kept in 32 bits
_DIGEST = 32
_TOKEN = np.dtype("<i4")


@dataclass(frozen=True)
class Saved:
    """A KV cache on the host: its tokens, and the rows of each state tensor up to their number.

    `activations` is the dtype that activations are quantized to, since every state depends on it. A float16 KV cache
    needs no such field: the dtypes of the states say it.
    """

    program: str
    activations: str
    tokens: tuple[int, ...]
    layout: Layout
    states: tuple[Any, ...]


@dataclass(frozen=True)
class Expected:
    """What a saved cache must match to be restored: checksum, activations, vocabulary, context length, and state
    layout."""

    program: str
    activations: str
    vocab_size: int
    max_context: int
    layout: Callable[[int], Layout]  # by the number of tokens


def save(path: str | os.PathLike[str], saved: Saved) -> None:
    """Save a KV cache to a file, atomically.

    Example: `save("prefix.cache", saved)`.
    """
    states = [
        np.ascontiguousarray(array).astype(_little(dtype), copy=False)
        for array, (dtype, _) in zip(saved.states, saved.layout, strict=True)
    ]
    fields = {
        "program": saved.program,
        "activations": saved.activations,
        "tokens": len(saved.tokens),
        "states": [[dtype, list(shape)] for dtype, shape in saved.layout],
    }
    header = json.dumps(fields).encode()
    parts = [
        _MAGIC,
        _LENGTH.pack(len(header)),
        header,
        np.array(saved.tokens, _TOKEN).data,
        *(_bytes(s) for s in states),
    ]
    digest = hashlib.blake2b(digest_size=_DIGEST)
    place, advice = place_of(path, "a saved cache"), "save the cache on another disk, or remove what nobody needs there"
    with room_in(place.parent, advice), whole_file(place, "a saved cache") as file:
        for part in parts:
            file.write(part)
            digest.update(part)
        file.write(digest.digest())


def load(path: str | os.PathLike[str], expected: Expected) -> Saved:
    """Load a saved KV cache and validate it: program, activations, layout, size, checksum, token ids.

    Example: `load("prefix.cache", expected).tokens`.
    """
    name = _name(path)
    if not stat.S_ISREG(os.stat(name).st_mode):
        raise FormatError(f"{name} is not a saved cache: it is no ordinary file")
    with open(name, "rb") as file:
        try:
            return _read(file, os.fstat(file.fileno()).st_size, expected)
        except (FormatError, InputError) as error:
            raise type(error)(f"{name} {error}") from error


def _name(path: Any) -> str:
    if not isinstance(path, (str, bytes, os.PathLike)):
        raise InputError(f"the path of a saved cache is expected, {_short(path)} was given")
    name = os.fsdecode(path)
    if "\0" in name:
        raise InputError(f"{name!r} is no path: it has a character that no file name can have")
    return name


def _read(file: BinaryIO, size: int, expected: Expected) -> Saved:
    start = file.read(len(_MAGIC) + _LENGTH.size)
    if start.startswith(_WITHOUT_ACTIVATIONS):
        raise FormatError(
            "was saved by a version that did not write down which activations its states were computed with, so they "
            "may be others than this model's; give the text again and save it"
        )
    if not start.startswith(_MAGIC) or len(start) < len(_MAGIC) + _LENGTH.size:
        raise FormatError(f"is not a saved cache: it begins with {start[:18]!r}, {_MAGIC!r} is expected")
    (length,) = _LENGTH.unpack(start[len(_MAGIC) :])
    if length > min(size - len(start), _MOST_HEADER):
        raise FormatError(f"is damaged: a header of {length:,} bytes, in a file of {size:,}")
    header = file.read(length)
    count = _check_header(header, expected)
    layout = expected.layout(count)
    rest = count * _TOKEN.itemsize + sum(_nbytes(dtype, shape) for dtype, shape in layout)
    whole = len(start) + length + rest + _DIGEST
    if size != whole:
        raise FormatError(
            f"is damaged: {size:,} bytes, a cache of {counted(count, 'token')} of this program takes {whole:,}"
        )
    data = file.read(rest + _DIGEST)
    digest = hashlib.blake2b(digest_size=_DIGEST)
    for part in (start, header, memoryview(data)[:rest]):
        digest.update(part)
    if digest.digest() != data[rest:]:
        raise FormatError("is damaged: its bytes are not those that were saved; save it again")
    tokens = tuple(np.frombuffer(data, _TOKEN, count).tolist())
    outside = next((token for token in tokens if not 0 <= token < expected.vocab_size), None)
    if outside is not None:
        raise FormatError(f"is damaged: token {outside} is outside the vocabulary of {expected.vocab_size:,}")
    states = _states(data, count * _TOKEN.itemsize, layout)
    return Saved(expected.program, expected.activations, tokens, layout, states)


def _check_header(header: bytes, expected: Expected) -> int:
    """Validate the header and return the number of tokens."""
    try:
        fields = json.loads(header)
    except (ValueError, RecursionError) as error:
        raise FormatError(f"is damaged: its header cannot be read: {error}") from error
    if not isinstance(fields, dict) or fields.keys() != {"program", "activations", "tokens", "states"}:
        raise FormatError("is damaged: its header must have program, activations, tokens and states")
    program, activations, count = fields["program"], fields["activations"], fields["tokens"]
    if not isinstance(program, str):
        raise FormatError(f"is damaged: program is {_short(program)}, a checksum is expected")
    if program != expected.program:
        raise InputError(f"is of another program: {_short(program)[1:-1]}, this one is {expected.program}")
    if not isinstance(activations, str):
        raise FormatError(f"is damaged: activations is {_short(activations)}, their kind is expected")
    if activations != expected.activations:
        raise InputError(
            f"was saved with activations={_short(activations)}, this model was loaded with "
            f"activations={expected.activations!r}: its states are other numbers; load the model with --activations "
            f"{_short(activations)[1:-1]} (load(activations={_short(activations)})), or give the text again and save it"
        )
    if type(count) is not int or not 0 <= count < _MOST_TOKENS:
        raise FormatError(f"is damaged: tokens is {_short(count)}, their number is expected")
    if count > expected.max_context:
        raise InputError(
            f"holds {counted(count, 'token')}, the context of this model is {expected.max_context:,}: load the model "
            f"with --max-context {count} (load(max_context={count}))"
        )
    wanted = [[dtype, list(shape)] for dtype, shape in expected.layout(count)]
    if fields["states"] != wanted:
        found = fields["states"] if isinstance(fields["states"], list) else [fields["states"]]
        _check_cache_dtype(found, wanted)
        place = next((at for at, (one, other) in enumerate(zip(found, wanted, strict=False)) if one != other), None)
        if place is None:
            raise FormatError(f"does not fit: it has {len(found)} states, this model has {len(wanted)}")
        raise FormatError(f"does not fit: state {place} is {_short(found[place])}, this model has {wanted[place]}")
    return count


def _check_cache_dtype(found: list[Any], wanted: list[list[Any]]) -> None:
    """Raise with the option to load with, if the states differ in nothing but a KV cache of float16 or of float32."""
    for half, saved, loaded in ((False, "float32", "float16"), (True, "float16", "float32")):
        if found == [[saved if dtype == loaded else dtype, shape] for dtype, shape in wanted]:
            how = "with --half-cache" if half else "without --half-cache"
            raise InputError(
                f"was saved with a KV cache of {saved}, this model was loaded with one of {loaded}: its states are "
                f"other numbers; load the model {how} (load(half_cache={half})), or give the text again and save it"
            )


def _states(data: bytes, place: int, layout: Sequence[tuple[str, Shape]]) -> tuple[Any, ...]:
    found = []
    for dtype, shape in layout:
        array = np.frombuffer(data, _little(dtype), prod(shape), place).reshape(shape)
        found.append(array.astype(numpy_dtype(dtype), copy=False))
        place += _nbytes(dtype, shape)
    return tuple(found)


def _little(dtype: str) -> np.dtype[Any]:
    little: np.dtype[Any] = numpy_dtype(dtype).newbyteorder("<")
    return little


def _nbytes(dtype: str, shape: Shape) -> int:
    return numpy_dtype(dtype).itemsize * prod(shape)


def _bytes(array: Any) -> Any:
    return array.reshape(-1).view(np.uint8).data


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
