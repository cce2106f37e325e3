"""int8 activations of 4-bit layers with every epilogue, and rows with NaN and infinity.

The rows are such that quantization is exact, so the golden is the program itself in float64.
"""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pytest

from liveshape.device.backends import open_device
from liveshape.device.protocol import Device
from liveshape.graph import Graph
from liveshape.lower.activations import with_activations
from liveshape.lower.fusion import fuse
from tests.models.test_layers import Layers, operators
from tests.ops.cases.quantized import rows_of_integers
from tests.support.chains import executor_of

ROWS = 70
SIZES = (ROWS, 1, 2, 5, 8, 9, 17, 33, 64, 65, 1, 0, 1)
EPILOGUES = ("one", "qkv", "gated", "residual")
COMBINATIONS = [
    (epilogue, normed) for epilogue in EPILOGUES for normed in (False, True) if not (epilogue == "residual" and normed)
]
QUICK = {("residual", False)}  # their kernels are large


class Weights(NamedTuple):
    """The weights of layers, as `Layers` has them; the last of three may have others."""

    kind: str = "4"
    group: int = 32
    last: tuple[str, int] = ("", 0)


PLAIN = Weights()


def program(
    epilogue: str, normed: bool, depth: int, width: int, bias: bool = False, weights: Weights = PLAIN
) -> tuple[Layers, Any, list[Any]]:
    """The layers of a row, or of its norm, and what they give."""
    made = Layers(group=weights.group, weights=weights.kind)
    x = made.chain.input((1, ROWS, depth))
    rows = made.norm(x) if normed else x
    if epilogue == "gated":
        return made, x, [made.gated(rows, width, bias)]
    if epilogue == "residual":
        other = made.chain.input((1, ROWS, width))
        return made, x, [made.add(other, made.layer(rows, width, bias))]
    if epilogue == "one":
        return made, x, [made.layer(rows, width, bias)]
    own = ((), (), weights.last)
    return made, x, [made.layer(rows, width * (index + 1), bias, *own[index]) for index in range(3)]


def weight_of(node: Any) -> np.ndarray:
    """The weight of a layer in float64."""
    _, weight, scales, group, _, _ = node.args
    packed = np.frombuffer(weight.constant, np.uint8).reshape(weight.max_shape)
    values = np.stack([packed & 15, packed >> 4], -1).reshape(len(packed), -1) - 8.0
    if weight.rank == 3:
        values = packed.view(np.int8).reshape(len(packed), -1).astype(np.float64)
    factors = np.frombuffer(scales.constant, np.float32).reshape(scales.max_shape)
    spread = np.repeat(factors.astype(np.float64), group, axis=0)
    return values * spread.T if scales.rank == 2 else values * spread[:, 0].T + spread[:, 1].T


def golden(made: Layers, inputs: list[np.ndarray], outputs: list[Any]) -> list[np.ndarray]:
    """What the chain says, in float64 and nothing rounded."""
    known: dict[Any, Any] = dict(zip(made.chain.inputs, (each.astype(np.float64) for each in inputs), strict=True))
    for node in made.chain.nodes:
        args = [known.get(value, value) if not isinstance(value, (int, float)) else value for value in node.args]
        if node.name == "et_vk.rms_norm.default":
            factors = np.frombuffer(node.args[1].constant, np.float32).astype(np.float64)
            result = args[0] / np.sqrt((args[0] ** 2).mean(-1, keepdims=True) + args[2]) * factors
        elif node.name == "aten.sigmoid.default":
            result = 1 / (1 + np.exp(-args[0]))
        elif node.name == "aten.mul.Tensor":
            result = args[0] * args[1]
        elif node.name == "aten.add.Tensor":
            result = args[0] + args[1]
        else:
            bias = node.args[4]
            offset = 0 if bias is None else np.frombuffer(bias.constant, np.float32).astype(np.float64)
            result = args[0] @ weight_of(node).T + offset
        known[node.args[-1]] = result
    return [known[value] for value in outputs]


def powers_of_two(made: Layers) -> None:
    """Weights of norms that are powers of two, one for 32 neighbours: what was a multiple of the scale stays one."""
    for node in made.chain.nodes:
        if node.name == "et_vk.rms_norm.default":
            factors = node.args[1].constant.cast("f")
            for place in range(len(factors)):
                factors[place] = 2.0 ** (place // 32 % 3 - 1)


def check(graph: Graph, made: Layers, outputs: list[Any], device: Any, sizes: tuple[int, ...] = SIZES) -> None:
    executor = executor_of(graph, device)
    for size in sizes:
        random = np.random.default_rng(size)
        inputs = [rows_of_integers(random, (1, size, made.chain.inputs[0].max_shape[-1])).astype(np.float32)]
        for value in made.chain.inputs[1:]:
            inputs.append(random.standard_normal((1, size, value.max_shape[-1])).astype(np.float32))
        executor.poison()
        for got, wanted in zip(executor.execute(inputs), golden(made, inputs, outputs), strict=True):
            assert got.shape == wanted.shape
            most = np.abs(wanted).max(initial=0) * 4e-6
            np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=most, err_msg=f"at {size}")


def threads(invocations: int, cooperating: int) -> Device:
    limits = replace(open_device().limits, max_invocations=invocations, max_cooperating_threads=cooperating)
    return open_device(limits=limits)


FORMS = {"small": (64, 36, False), "odd": (576, 13, True), "deep": (1024, 66, False)}


@pytest.mark.parametrize(
    ("form", "epilogue", "normed"),
    [
        pytest.param(form, *combination, marks=[] if form == "small" and combination in QUICK else [pytest.mark.slow])
        for form in FORMS
        for combination in COMBINATIONS
    ],
)
def test_every_epilogue(form: str, epilogue: str, normed: bool) -> None:
    depth, width, bias = FORMS[form]
    made, _, outputs = program(epilogue, normed, depth, width, bias and not normed)
    powers_of_two(made)
    plain = made.chain.graph(*outputs)
    device = threads(256, 256)
    fused = with_activations(fuse(plain, device.limits), "int8")
    name = {"one": "linear", "qkv": "qkv_linear", "gated": "gated_linear", "residual": "residual_linear"}[epilogue]
    wanted = f"{'rms_norm_' * normed}{name}_q4gsw"
    expected = "et_vk.linear_q4gsw.default" if wanted == "linear_q4gsw" else wanted
    assert operators(fused) == Counter({expected: 1})
    check(fused, made, outputs, device)
    check(with_activations(plain, "int8"), made, outputs, device, (1, 9))


OTHER_WEIGHTS = {
    "values of bytes": ("qkv", True, Weights("minima", 32, ("8", 16))),
    "values of bytes, not normed": ("qkv", False, Weights(last=("8", 32))),
    "gated bytes": ("gated", False, Weights("8", 16)),
    "gated minima": ("gated", True, Weights("minima")),
    "bytes and a residual": ("residual", False, Weights("8", 16)),
}


@pytest.mark.parametrize(
    ("epilogue", "normed", "weights"),
    [
        pytest.param(*each, marks=[] if each[:2] == ("residual", False) else [pytest.mark.slow])
        for each in OTHER_WEIGHTS.values()
    ],
    ids=OTHER_WEIGHTS,
)
def test_other_weights(epilogue: str, normed: bool, weights: Weights) -> None:
    """Bytes, minima, and a projection whose values have more bits than queries and keys."""
    interleaved = epilogue == "gated"  # its bias: no weight of a norm lies behind such
    made, _, outputs = program(epilogue, normed, 64, 36, not (normed and interleaved), weights)
    powers_of_two(made)
    device = threads(256, 256)
    fused = with_activations(fuse(made.chain.graph(*outputs), device.limits), "int8")
    assert operators(fused) == Counter({f"{'rms_norm_' * normed}{epilogue}_linear_q4gsw": 1})
    found = [value for node in fused.nodes for value in node.inputs if value.dtype == "int8"]
    assert len(found) == (2 if weights.last[0] else 1), "every weight says that its rows are quantized"
    check(fused, made, outputs, device)


@pytest.mark.parametrize("epilogue", ["qkv", pytest.param("gated", marks=pytest.mark.slow)])
def test_large_tiles_of_float_rows(epilogue: str) -> None:
    made, _, outputs = program(epilogue, False, 64, 36, True)
    device = threads(256, 256)
    fused = fuse(made.chain.graph(*outputs), device.limits)
    assert operators(fused) == Counter({f"{'qkv' if epilogue == 'three' else epilogue}_linear_q4gsw": 1})
    check(fused, made, outputs, device, (65, 1))


@pytest.mark.slow
@pytest.mark.parametrize("cooperating", [1, 16, 256])
@pytest.mark.parametrize("invocations", [32, 100, 256])
@pytest.mark.parametrize(("epilogue", "normed"), COMBINATIONS)
def test_other_limits(epilogue: str, normed: bool, invocations: int, cooperating: int) -> None:
    made, _, outputs = program(epilogue, normed, 576, 50)
    powers_of_two(made)
    device = threads(invocations, cooperating)
    check(with_activations(fuse(made.chain.graph(*outputs), device.limits), "int8"), made, outputs, device)


BAD = {"nan": np.nan, "infinity": np.inf, "minus infinity": -np.inf}


@pytest.mark.parametrize(
    ("many", "normed"),
    [
        (True, False),
        pytest.param(True, True, marks=pytest.mark.slow),
        pytest.param(False, False, marks=pytest.mark.slow),
    ],
    ids=["plain", "normed", "few threads"],
)
def test_a_row_with_nan_or_infinity_spoils_no_other_row(many: bool, normed: bool) -> None:
    made, _, outputs = program("one", normed, 96, 37)
    device = threads(256, 256) if many else open_device()
    executor = executor_of(with_activations(fuse(made.chain.graph(*outputs), device.limits), "int8"), device)
    for size in (1, 5, 8, 9, 40):
        clean = np.random.default_rng(size).standard_normal((1, size, 96)).astype(np.float32)
        (right,) = executor.execute([clean])
        assert np.isfinite(right).all()
        for bad in BAD.values():
            for row, place in ((0, 95), (size - 1, 0), (size // 2, 40)):
                spoiled = clean.copy()
                spoiled[0, row, place] = bad
                executor.poison()
                (got,) = executor.execute([spoiled])
                assert not np.isfinite(got[0, row]).any(), f"{bad} in row {row} of {size}"
                others = [each for each in range(size) if each != row]
                assert got[0, others].tobytes() == right[0, others].tobytes(), f"{bad} in row {row} of {size}"


def test_rows_of_any_magnitude() -> None:
    """Zeros, subnormal, tiny and huge rows, and rows that have all of these."""
    made, _, outputs = program("one", False, 96, 37)
    executor = executor_of(with_activations(made.chain.graph(*outputs), "int8"), open_device())
    weight = weight_of(made.chain.nodes[0])
    for scale, size in itertools.product((0.0, 1e-40, 1e-36, 1e-30, 1e-10, 1e10, 1e30, 1e37), (1, 5, 40)):
        x = rows_of_integers(np.random.default_rng(7), (1, size, 96)) / 254
        rows = (x * scale).astype(np.float32)
        rows[0, :, 32:64] /= 1e20
        executor.poison()
        (got,) = executor.execute([rows])
        wanted = rows.astype(np.float64) @ weight.T
        # A group below 1e-35 becomes zero: nothing that a sum would show.
        most = np.abs(wanted).max() * 1e-5 + 1e-33
        np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=most, err_msg=f"{size} rows of {scale}")
