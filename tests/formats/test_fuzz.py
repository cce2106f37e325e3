"""Damaged files get an error of ours or are read; they never crash, hang, or take memory that they did not pay for.

LIVESHAPE_FUZZ sets the number of mutations, LIVESHAPE_FUZZ_SEED the seed.
"""

from __future__ import annotations

import os
import random
import struct
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from liveshape.errors import FormatError, LiveshapeError
from liveshape.formats import open_program
from liveshape.formats.execution_plan import PLAN
from liveshape.formats.flatbuffer import FlatbufferReader
from liveshape.formats.pte import PROGRAM
from tests.formats.exercise import exercise_program, exercise_tensor_data, guarded

COUNT = int(os.environ.get("LIVESHAPE_FUZZ", "500"))
SEED = int(os.environ.get("LIVESHAPE_FUZZ_SEED", "20260822"))
PROGRAMS = ("split", "inline", "kv_cache", "methods", "portable", "external", "fp16")
NUMBERS = (
    0,
    1,
    2,
    3,
    4,
    8,
    -1,
    -2,
    -4,
    127,
    128,
    255,
    256,
    2**15,
    2**16 - 1,
    2**16,
    2**31 - 1,
    2**31,
    2**32 - 1,
    2**63,
)
Region = tuple[int, int]
Mutation = Callable[[random.Random, bytearray, Region], None]


def flip_bit(chance: random.Random, data: bytearray, region: Region) -> None:
    data[chance.randrange(*region)] ^= 1 << chance.randrange(8)


def set_byte(chance: random.Random, data: bytearray, region: Region) -> None:
    data[chance.randrange(*region)] = chance.choice((0, 1, 4, 127, 128, 254, 255, chance.randrange(256)))


def set_number(chance: random.Random, data: bytearray, region: Region) -> None:
    width = chance.choice((2, 4, 4, 4, 8))
    # Fields lie at multiples of four; the rest of the time hit anything.
    at = chance.randrange(*region) & (-1 if chance.random() < 0.1 else -4)
    value = chance.choice((*NUMBERS, len(data), len(data) - at, chance.getrandbits(64)))
    octets = struct.pack("<Q", value % 2**64)[:width]
    data[at : at + width] = octets[: max(0, len(data) - at)]


def nudge_number(chance: random.Random, data: bytearray, region: Region) -> None:
    """Off by a little: an offset that lands on a neighbour is harder to refuse than one that leaves the file."""
    at = chance.randrange(*region) & -4
    if at + 4 <= len(data):
        (value,) = struct.unpack_from("<I", data, at)
        struct.pack_into("<I", data, at, (value + chance.choice((-8, -4, -2, -1, 1, 2, 4, 8, 64))) % 2**32)


def copy_range(chance: random.Random, data: bytearray, region: Region) -> None:
    size = chance.choice((4, 8, 16, 64))
    source, target = chance.randrange(*region), chance.randrange(*region)
    piece = data[source : source + size]
    data[target : target + len(piece)] = piece[: len(data) - target]


def cut(chance: random.Random, data: bytearray, region: Region) -> None:
    del data[chance.randrange(len(data)) :]


def splice(chance: random.Random, data: bytearray, region: Region) -> None:
    at = chance.randrange(*region)
    if chance.random() < 0.5:
        del data[at : at + chance.randrange(1, 33)]
    else:
        data[at:at] = chance.randbytes(chance.randrange(1, 33))


MUTATIONS: tuple[Mutation, ...] = (flip_bit, set_byte, set_number, set_number, nudge_number, copy_range, cut, splice)


def regions_of(data: bytes) -> list[Region]:
    """Where a mutation hurts: the flatbuffer of the program, its head, the graph of each delegate, and everything."""
    program_size = struct.unpack_from("<Q", data, 16)[0] if data[8:12] == b"eh00" else len(data)
    regions = [(0, program_size), (0, program_size), (0, 64), (0, len(data))]
    for plan in open_program(data).plans:
        for delegate in plan.delegates:
            start = data.index(bytes(delegate.blob))
            regions += [(start, start + len(delegate.blob)), (start, start + 64)]
    return regions


def mutants(data: bytes, regions: list[Region], count: int, chance: random.Random) -> Iterator[bytes]:
    for _ in range(count):
        changed = bytearray(data)
        for _ in range(chance.choice((1, 1, 1, 2, 3))):
            start, stop = chance.choice(regions)
            if start < len(changed):
                chance.choice(MUTATIONS)(chance, changed, (start, min(stop, len(changed))))
        yield bytes(changed)


def check_mutants(name: str, mutations: Iterator[bytes], exercise: Callable[[bytes], None]) -> None:
    accepted = refused = 0
    tracemalloc.start()
    try:
        for number, data in enumerate(mutations):
            before = tracemalloc.get_traced_memory()[0]
            tracemalloc.reset_peak()
            try:
                with guarded(f"mutation {number} of {name}, seed {SEED}"):
                    exercise(data)
                    accepted += 1
            except LiveshapeError:
                refused += 1
            grown = tracemalloc.get_traced_memory()[1] - before
            assert grown < 16 * len(data) + (4 << 20), f"mutation {number} of {name}, seed {SEED}: {grown} bytes"
    finally:
        tracemalloc.stop()
    print(f"{name}: seed {SEED}, {accepted} read, {refused} refused")
    # Some mutations must get through, or they only ever break the first check.
    assert accepted
    assert refused


@pytest.mark.parametrize("name", PROGRAMS)
def test_damaged_programs(name: str, program_path: Callable[[str], Path]) -> None:
    data = program_path(name).read_bytes()
    chance = random.Random(f"{SEED} {name}")
    count = max(20, COUNT // len(PROGRAMS))
    check_mutants(name, mutants(data, regions_of(data), count, chance), exercise_program)


def test_one_value_used_over_and_over(program_path: Callable[[str], Path]) -> None:
    """An offset is four bytes, a tensor is hundreds: a list that names one tensor for ever must not be unfolded."""
    data = bytearray(program_path("portable").read_bytes())
    program_size, segment_base = struct.unpack_from("<QQ", data, 16)
    plan = next(FlatbufferReader(memoryview(data)).root(b"ET12", "Program", PROGRAM).tables("execution_plan", PLAN))
    # A new list of values behind the flatbuffer, and behind it the one value: a tensor without any fields.
    count, start = 200_000, -(-program_size // 4) * 4
    value_at = start + 4 + 4 * count + 8
    offsets = [value_at - start - 4 - 4 * index for index in range(count)]
    grown = data[:program_size] + bytes(start - program_size) + struct.pack(f"<I{count}I", count, *offsets)
    grown += struct.pack("<4HiIBxxx2Hi", 8, 12, 8, 4, 8, 12, 5, 4, 4, 4)
    field = plan._locate("values", 4)
    struct.pack_into("<I", grown, field, start - field)
    struct.pack_into("<QQ", grown, 16, len(grown), len(grown))
    grown += data[segment_base:]
    tracemalloc.start()
    try:
        with pytest.raises(FormatError, match=r"values\[\d{5}\].*: the same bytes are used over and over"):
            exercise_program(bytes(grown))
        assert tracemalloc.get_traced_memory()[1] < 16 * len(grown)
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("name", ["external", "external_delegate"])
def test_damaged_tensor_data(name: str, program_path: Callable[[str], Path]) -> None:
    (path,) = program_path(name).parent.glob("*.ptd")
    data = path.read_bytes()
    chance = random.Random(f"{SEED} {name} data")
    regions = [(0, struct.unpack_from("<Q", data, 32)[0]), (0, 64), (0, len(data))]
    check_mutants(name, mutants(data, regions, max(20, COUNT // 5), chance), exercise_tensor_data)
