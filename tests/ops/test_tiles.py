"""4-bit layers in tiles of 64 rows and of more, where workgroups have many threads and much memory, as on a GPU."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from liveshape.device.backends import open_device
from liveshape.device.protocol import Device
from liveshape.graph import Limits
from liveshape.ops.matrix_heuristics import LARGE_TILE, MULTIPROCESSORS
from liveshape.ops.q4_heuristics import (
    INT8_TILE_COLUMNS,
    MAX_PARTIAL_SUMS,
    is_large,
    partial_sums_bound,
    split_k_of,
)
from tests.ops.cases.quantized import dq8ca, int8_activations, q4gsw, qcs4w
from tests.support.graphs import OpCase, sweep

SIZES = (65, 1, 130)  # a part of a tile, and more than one
QUICK = [
    q4gsw(576, 130, 64, bias=True, sizes=SIZES),  # the depth is shared
    q4gsw(48, 7, 4, dtype="float16", aligned=1, sizes=SIZES),
    int8_activations(96, 130, 32, bias=True, sizes=SIZES),
    dq8ca(320, 13, 64, bias=True, sizes=SIZES),
]
MORE = [
    q4gsw(128, 3, 32, bias=True, aligned=1, sizes=SIZES),
    q4gsw(256, 68, 16, bias=True, minima=True, sizes=SIZES),
    q4gsw(96, 70, 32, bits=8, minima=True, sizes=SIZES),
    q4gsw(1120, 260, 16, sizes=SIZES),
    q4gsw(64, 16, 32, scale_dtype="float16", sizes=SIZES),
    q4gsw(64, 16, 2, sizes=SIZES),  # scales for less than four neighbours, which other tiles serve
    qcs4w(32, 20, sizes=SIZES),
    int8_activations(1024, 70, 512, sizes=SIZES),
    int8_activations(576, 13, 576, between=True, sizes=SIZES),
    dq8ca(1024, 130, 32, sizes=SIZES),
    dq8ca(64, 24, 64, dtype="float16", sizes=SIZES),
]
FEWER = (17, 64, 1, 33)  # that tiles of 32 and 64 rows take
SMALL = [
    q4gsw(576, 130, 64, bias=True, sizes=FEWER),
    int8_activations(576, 130, 32, bias=True, sizes=FEWER),
    q4gsw(48, 7, 4, dtype="float16", aligned=1, sizes=FEWER),
    q4gsw(96, 70, 32, bits=8, minima=True, sizes=FEWER),
    q4gsw(256, 68, 16, bias=True, minima=True, sizes=FEWER),
    q4gsw(20, 9, 20, sizes=FEWER),
    int8_activations(256, 70, 64, minima=True, sizes=FEWER),
    dq8ca(1024, 130, 32, bias=True, sizes=FEWER),
    qcs4w(32, 20, sizes=FEWER),
]
GPU = Limits(max_invocations=1024, max_workgroup_bytes=49152)
LAYERS = [(2048, 3072), (2048, 16384), (8192, 2048), (4096, 28672), (14336, 4096), (576, 960), (1536, 576)]


@pytest.fixture(scope="module")
def many() -> Device:
    limits = replace(open_device().limits, max_invocations=256, max_cooperating_threads=256)
    assert is_large(65, 64, 32, limits)
    return open_device(limits=limits)


@pytest.mark.parametrize(
    "case",
    [*QUICK, SMALL[0], *(pytest.param(case, marks=pytest.mark.slow) for case in (*SMALL[1:], *MORE))],
    ids=lambda case: case.name,
)
def test_tiles(case: OpCase, many: Device) -> None:
    sweep(case, many.limits, many, rounds=1)


@pytest.mark.parametrize(
    "less",
    [{"max_workgroup_bytes": 16384}, {"max_invocations": 128}, {"max_cooperating_threads": 8}],
    ids=lambda less: next(iter(less)),
)
def test_a_device_that_has_less_takes_other_tiles(less: dict[str, int]) -> None:
    assert is_large(512, 2048, 32, GPU)
    assert not is_large(512, 2048, 32, replace(GPU, **less))
    assert split_k_of(512, 2048, 2048, False, replace(GPU, **less)) == 1


@pytest.mark.parametrize("int8", [False, True])
@pytest.mark.parametrize(("depth", "columns"), LAYERS)
def test_waves_of_workgroups_are_nearly_full(depth: int, columns: int, int8: bool) -> None:
    """What a device could do in the time of a layer is little more than the layer, and more rows never take less."""
    times = []
    for rows in range(128, 2049, 128):
        tiles, splits = rows // LARGE_TILE * -(-columns // LARGE_TILE), split_k_of(rows, columns, depth, int8, GPU)
        times.append(-(-tiles * splits // MULTIPROCESSORS) * -(-depth // splits))
        assert splits == 1 or splits * rows * columns <= MAX_PARTIAL_SUMS
        if tiles * depth > MULTIPROCESSORS * 1024:
            assert tiles * depth >= 0.65 * MULTIPROCESSORS * times[-1], f"{rows} rows in {splits} splits"
    assert all(after > 0.9 * before for before, after in pairwise(times))


@pytest.mark.parametrize(("depth", "columns"), LAYERS)
def test_waves_of_64_int8_rows_are_nearly_full(depth: int, columns: int) -> None:
    """Two workgroups share an SM; of a shallow layer the partial sums cost more than SMs that wait."""
    for rows in (33, 64):
        tiles, splits = -(-columns // INT8_TILE_COLUMNS), split_k_of(rows, columns, depth, True, GPU)
        slots = 2 * MULTIPROCESSORS
        waves = -(-tiles * splits // slots)
        if depth >= 2048:
            assert tiles * splits >= 0.9 * slots * waves, f"{rows} rows in {splits} splits"
    assert split_k_of(64, 2048, 8192, True, GPU) > split_k_of(64, 2048, 8192, False, GPU)
    assert split_k_of(64, 16384, 2048, True, GPU) < split_k_of(64, 16384, 2048, False, GPU)


@pytest.mark.parametrize(("depth", "columns"), [*LAYERS, (576, 130), (2048, 5)])
def test_scratch_holds_the_partial_sums_of_every_row_count(depth: int, columns: int) -> None:
    for bound in (1, 64, 65, 200, 512):
        for int8 in (False, True):
            (room,) = partial_sums_bound(bound, columns, depth, int8, GPU)
            for rows in range(1, bound + 1):
                splits = split_k_of(rows, columns, depth, int8, GPU)
                assert splits == 1 or splits * rows * -(-columns // 4) * 4 <= room


@pytest.mark.parametrize(("depth", "columns"), LAYERS)
def test_what_is_compiled_at_load_serves_all_rows_between_powers_of_two(depth: int, columns: int) -> None:
    for power in range(6, 12):
        counts = range((1 << power) + 1, (2 << power) + 1, 17)
        for int8 in (False, True):
            assert len({split_k_of(rows, columns, depth, int8, GPU) > 1 for rows in counts}) == 1
