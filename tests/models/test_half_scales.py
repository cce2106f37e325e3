"""Scales as float16, where activations are rounded anyway: products are those of scales that were rounded before."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from liveshape.device.backends import open_device
from liveshape.device.protocol import Device
from liveshape.formats.source import FileRange
from liveshape.graph import Graph, Limits, Tensor
from liveshape.graph.activation_kinds import FLOAT16, FLOAT32
from liveshape.graph.constants import Interleaved, RoundedConstant, all_bytes
from liveshape.graph.limits import MatrixShape
from liveshape.lower.activations import with_activations
from liveshape.lower.fusion import fuse
from liveshape.lower.rewriting import renamed
from liveshape.run.arrays import as_array, stored_pieces
from liveshape.run.half_scales import fit_halves
from tests.models.test_int8_activations import Weights, program
from tests.models.test_layers import ROWS
from tests.support.chains import Chain, executor_of

SIZES = (ROWS, 1, 2, 9, 33, 1, 0, 5)
MINIMA, SMALL = Weights("minima", 32), Weights("8", 16)


@pytest.fixture(scope="module")
def device() -> Device:
    limits = replace(open_device().limits, max_invocations=256, max_cooperating_threads=256)
    return open_device(limits=limits)


def with_matrices(limits: Limits) -> Limits:
    """Those of a device with float16 and matrix units, for lowering alone: where halves are stored is the device's."""
    return replace(limits, half=True, matrices=(MatrixShape(FLOAT16, FLOAT32, 16, 16, 16),))


def scales_of(graph: Graph) -> list[Tensor]:
    found = [node.named.get(name) for node in graph.nodes for name in ("scales", "value_scales")]
    return [each for each in found if isinstance(each, Tensor)]


def rounded_before(graph: Graph, rounded: Graph) -> Graph:
    """The graph with float32 scales that have the values of the rounded ones."""
    made: dict[Any, Any] = {}
    for before, after in zip(scales_of(graph), scales_of(rounded), strict=True):
        if isinstance(after.constant, RoundedConstant):
            numbers = np.frombuffer(all_bytes(after.constant), "<f2").astype("<f4")
            made[before] = replace(before, constant=memoryview(numbers.tobytes()))
    assert made
    nodes = tuple(replace(node, args=renamed(node.args, made)) for node in graph.nodes)
    return replace(graph, nodes=nodes, values=tuple(made.get(value, value) for value in graph.values))


@pytest.mark.parametrize(
    ("epilogue", "weights", "activations"),
    [
        ("one", MINIMA, "int8"),
        pytest.param("gated", MINIMA, "float16", marks=pytest.mark.slow),
        pytest.param("one", SMALL, "int8", marks=pytest.mark.slow),
        pytest.param("residual", MINIMA, "int8", marks=pytest.mark.slow),
        pytest.param("qkv", Weights("minima", 32, ("8", 16)), "int8", marks=pytest.mark.slow),
        pytest.param("qkv", Weights("minima", 32, ("8", 16)), "float16", marks=pytest.mark.slow),
    ],
)
def test_products_are_those_of_rounded_scales(
    device: Device, epilogue: str, weights: Weights, activations: str
) -> None:
    made, _, outputs = program(epilogue, normed=False, depth=128, width=36, weights=weights)
    fused = fuse(made.chain.graph(*outputs), device.limits)
    rounded = with_activations(fused, activations, with_matrices(device.limits), lambda scales: True)
    halves = [each for each in scales_of(rounded) if each.dtype == "float16"]
    assert halves
    exact = rounded_before(with_activations(fused, activations, device.limits), rounded)
    random = np.random.default_rng(5)
    executors = executor_of(rounded, device), executor_of(exact, device)
    for size in SIZES:
        inputs = [
            random.standard_normal((1, size, value.max_shape[-1])).astype(np.float32) for value in made.chain.inputs
        ]
        found = []
        for executor in executors:
            executor.poison()
            found.append([array.tobytes() for array in executor.execute(inputs)])
        assert found[0] == found[1], f"at {size}"


def test_only_scales_that_take_many_bytes_are_rounded(device: Device) -> None:
    for weights, many in ((Weights("4", 32), False), (MINIMA, True), (Weights("8", 32), False), (SMALL, True)):
        made, _, outputs = program("one", normed=False, depth=128, width=36, weights=weights)
        graph = fuse(made.chain.graph(*outputs), device.limits)
        for activations in ("float32", "float16", "int8"):
            found = with_activations(graph, activations, with_matrices(device.limits), lambda scales: True)
            dtypes = {each.dtype for each in scales_of(found)}
            assert dtypes == {"float16" if many and activations != "float32" else "float32"}, (weights, activations)
            able = with_matrices(device.limits)
            others = [replace(able, max_cooperating_threads=4), replace(able, half=False), None]
            for limits in others if activations == "int8" else [*others, replace(able, matrices=())]:
                unchanged = with_activations(graph, activations, limits, lambda scales: True)
                assert {each.dtype for each in scales_of(unchanged)} == {"float32"}


def scales(numbers: Any) -> Tensor:
    chain = Chain()
    made: Tensor = chain.constant(np.asarray(numbers, np.float32))
    return made


def test_numbers_that_float16_has_not_stay_as_they_are() -> None:
    usual = np.full((4, 2, 8), 0.01)
    assert fit_halves(scales(usual))
    for number in (1e-5, 7e4, np.inf, np.nan, 2.0**-13):
        wrong = usual.copy()
        wrong[:, :, 3] = number
        assert not fit_halves(scales(wrong)), number
    padded = usual.copy()
    padded[:, :, 5] = 0
    padded[1, 0, 2] = 1e-9  # beside larger ones of its column
    assert fit_halves(scales(padded))


def test_scales_that_a_page_uploads_from_their_file_stay_as_they_are(tmp_path: Path) -> None:
    usual = scales(np.full((4, 2, 8), 0.01))
    file = tmp_path / "scales"
    file.write_bytes(all_bytes(usual.constant))
    with open(file, "rb") as opened:
        there: Any = FileRange(str(file), opened.fileno(), 0, file.stat().st_size)
        for constant in (there, Interleaved((there, there), (32, 32))):
            assert not fit_halves(replace(usual, constant=constant))


def test_halves_are_the_nearest() -> None:
    numbers = np.random.default_rng(2).standard_normal(1000).astype("<f4")
    halves = RoundedConstant(memoryview(numbers.tobytes()))
    wanted = numbers.astype("<f2").tobytes()
    assert len(halves) == len(wanted)
    assert all_bytes(halves).tobytes() == wanted
    for part in (slice(0, 8), slice(3, 9), slice(7, 8), slice(1990, 2000), slice(5, 5)):
        assert halves[part].tobytes() == wanted[part]
    tensor = replace(scales(numbers), dtype="float16", constant=halves)
    assert as_array(tensor).tobytes() == wanted


def test_odd_columns_of_one_group() -> None:
    """Scales and minima are then a row each, which ends inside of a word of float16."""
    made, _, outputs = program("one", normed=False, depth=32, width=77, weights=MINIMA)
    graph = made.chain.graph(*outputs)
    plain = np.concatenate([as_array(each).reshape(-1) for each in scales_of(graph)])
    halves = memoryview(plain.astype("<f2").tobytes())
    rows = Interleaved((memoryview(plain[:77].tobytes()), memoryview(plain[77:].tobytes())), (77 * 4, 77 * 4))
    apart = replace(scales_of(graph)[0], dtype="float16", constant=RoundedConstant(rows))
    found = b"".join(bytes(piece) for piece in stored_pieces(apart, half=True))
    assert found[: len(halves)] == bytes(halves)
