"""Deferred RMSNorm: an epilogue quantizes a row before its norm, the layers of the norm apply the RMSNorm scale.

The sums are such that quantization is exact, so the golden is the program itself in float64.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from liveshape.device.backends import open_device
from liveshape.device.protocol import Device
from liveshape.graph import Graph, Limits
from liveshape.lower.activations import with_activations
from liveshape.lower.fusion import fuse
from liveshape.run.executor import Executor
from tests.models.test_int8_activations import PLAIN, Weights, golden, powers_of_two
from tests.models.test_layers import Layers, operators
from tests.ops.cases.quantized import rows_of_integers
from tests.support.chains import executor_of

ROWS = 70
SIZES = (ROWS, 1, 2, 9, 1, 65, 0, 1)
EPILOGUES = {"one": "linear", "qkv": "qkv_linear", "gated": "gated_linear"}
RMS_NORM = "et_vk.rms_norm.default"


def adding(made: Layers, x: Any, residual: Any, bias: bool = False, of_bytes: bool = False) -> Any:
    """x + residual: the layer's weight is one, and so is its scale."""
    width, group = x.max_shape[-1], 16 if of_bytes else 32
    ones = np.full((width, width), 8, np.uint8)
    np.fill_diagonal(ones, 9)
    nibbles, whole = ones[:, ::2] | ones[:, 1::2] << 4, (ones - 8).reshape(width, width // group, group)
    weight = made.chain.constant(whole if of_bytes else nibbles)
    scales = made.chain.constant(np.ones((width // group, width), np.float32))
    offset = made.chain.constant(np.full(width, 2.0, np.float32)) if bias else None
    product = made.chain.tensor(x.max_shape)
    made.chain.node("et_vk.linear_q4gsw.default", x, weight, scales, group, offset, product)
    return made.add(residual, product)


def program(
    epilogue: str, depth: int, width: int, bias: bool = False, weights: Weights = PLAIN
) -> tuple[Layers, list[Any]]:
    """The layers of the norm of a sum, and the sum; if some weights are of bytes, so is that of the sum."""
    made = Layers(group=weights.group, weights=weights.kind)
    x, residual = (made.chain.input((1, ROWS, depth)) for _ in range(2))
    total = adding(made, x, residual, bias, "8" in (weights.kind, weights.last[0]))
    rows = made.norm(total)
    if epilogue == "gated":
        outputs = [made.gated(rows, width, bias)]
    else:
        own = ((), (), weights.last)[: 3 if epilogue == "qkv" else 1]
        outputs = [made.layer(rows, width * (index + 1), bias, *each) for index, each in enumerate(own)]
    powers_of_two(made)
    return made, [*outputs, total]


def device_of(**changes: int) -> Device:
    limits = replace(open_device().limits, **{"max_invocations": 256, "max_cooperating_threads": 256} | changes)
    return open_device(limits=limits)


def check(graph: Graph, made: Layers, outputs: list[Any], device: Device, bias: bool = False) -> None:
    executor, depth = executor_of(graph, device), made.chain.inputs[0].max_shape[-1]
    for size in SIZES:
        random = np.random.default_rng(size)
        x = rows_of_integers(random, (1, size, depth)).astype(np.float32)
        total = rows_of_integers(random, (1, size, depth)).astype(np.float32)
        inputs = [x, total - x - (2 if bias else 0)]
        executor.poison()
        for got, wanted in zip(executor.execute(inputs), golden(made, inputs, outputs), strict=True):
            most = np.abs(wanted).max(initial=0) * 4e-6
            np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=most, err_msg=f"at {size}")


def kernels_at(executor: Executor, rows: int, depth: int) -> set[str]:
    executor.execute([np.zeros((1, rows, depth), np.float32)] * 2)
    commands = executor.encoder.commands(executor.live, 0, len(executor.graph.nodes))
    return {command.label.partition(", kernel ")[2] for command in commands}


@pytest.mark.parametrize("alone", [False, True], ids=["norm in the layers", "norm alone"])
@pytest.mark.parametrize(
    ("epilogue", "depth", "width", "bias"),
    [
        ("one", 64, 7, False),
        pytest.param("qkv", 96, 36, False, marks=pytest.mark.slow),
        pytest.param("gated", 64, 64, False, marks=pytest.mark.slow),
        pytest.param("gated", 1056, 32, False, marks=pytest.mark.slow),
        pytest.param("one", 576, 130, True, marks=pytest.mark.slow),
    ],
)
def test_layers_apply_the_deferred_rms_norm_scale(
    epilogue: str, depth: int, width: int, bias: bool, alone: bool
) -> None:
    made, outputs = program(epilogue, depth, width, bias)
    device = device_of()
    # Where the row does not fit workgroup memory, the norm is not fused into the layers.
    less = replace(device.limits, max_workgroup_bytes=depth * 4) if alone else device.limits
    fused = fuse(made.chain.graph(*outputs), less)
    assert operators(fused)[RMS_NORM] == alone
    deferred = with_activations(fused, "int8", device.limits)
    assert operators(deferred) == Counter(
        {"residual_quantized_linear_q4gsw": 1, f"rms_norm_{EPILOGUES[epilogue]}_q4gsw": 1}
    )
    check(deferred, made, outputs, device, bias)
    names = kernels_at(executor_of(deferred, device), 1, depth)
    assert len(names) == 2, "one dispatch for each"
    assert any("sums_and_squares" in name for name in names)
    assert not any("rms_norm" in name for name in names)


@pytest.mark.parametrize(
    ("epilogue", "weights", "dispatches"),
    [
        pytest.param("qkv", Weights("minima", 32, ("8", 16)), 3, marks=pytest.mark.slow),
        pytest.param("qkv", Weights("8", 16), 2, marks=pytest.mark.slow),
        pytest.param("gated", Weights("8", 32), 2, marks=pytest.mark.slow),
    ],
)
def test_other_weights_apply_it_too(epilogue: str, weights: Weights, dispatches: int) -> None:
    """As in files of Q4_K_M and Q8_0: where values have more bits, they are a dispatch of their own."""
    made, outputs = program(epilogue, 96, 36, True, weights)
    device = device_of()
    deferred = with_activations(fuse(made.chain.graph(*outputs), device.limits), "int8", device.limits)
    names = {"residual_quantized_linear_q4gsw": 1, f"rms_norm_{EPILOGUES[epilogue]}_q4gsw": 1}
    assert operators(deferred) == Counter(names)
    check(deferred, made, outputs, device, True)
    executor = executor_of(deferred, device)
    executor.execute([np.zeros((1, 1, 96), np.float32)] * 2)
    assert len(executor.encoder.commands(executor.live, 0, len(deferred.nodes))) == dispatches


@pytest.mark.slow
@pytest.mark.parametrize(
    "limits",
    [
        {"max_invocations": 64},
        {"max_invocations": 100},
        {"max_cooperating_threads": 32},
        {"subgroup": 4},
        {"max_cooperating_threads": 16},
    ],
    ids=str,
)
def test_other_limits(limits: dict[str, int]) -> None:
    made, outputs = program("one", 576, 50)
    device = device_of(**limits)
    graph = with_activations(fuse(made.chain.graph(*outputs), device.limits), "int8", device.limits)
    assert operators(graph)["residual_quantized_linear_q4gsw"] == (device.limits.max_cooperating_threads >= 32)
    check(graph, made, outputs, device)


def test_nan_and_infinity_reach_what_reads_them() -> None:
    made, outputs = program("one", 64, 36)
    device = device_of()
    executor = executor_of(with_activations(fuse(made.chain.graph(*outputs), device.limits), "int8"), device)
    clean = np.random.default_rng(5).standard_normal((1, 1, 64)).astype(np.float32)
    for bad in (np.nan, np.inf, -np.inf):
        spoiled = clean.copy()
        spoiled[0, 0, 40] = bad
        out, total = executor.execute([clean, spoiled])
        assert not np.isfinite(out).any()
        assert np.isfinite(total).sum() == 63
    assert all(np.isfinite(each).all() for each in executor.execute([clean, clean]))


def test_an_rms_norm_with_another_consumer_is_not_deferred() -> None:
    made, outputs = program("one", 64, 36)
    norm = next(node for node in made.chain.nodes if node.name == RMS_NORM)
    graph = with_activations(fuse(made.chain.graph(*outputs, norm.args[-1]), Limits()), "int8")
    assert operators(graph)["residual_quantized_linear_q4gsw"] == 0


def test_the_norm_of_a_sum_that_is_written_twice_is_not_deferred() -> None:
    made, (out, total) = program("one", 64, 36)
    made.chain.node("aten.add.Tensor", total, total, 1, total)
    graph = with_activations(fuse(made.chain.graph(out, total), Limits()), "int8")
    assert operators(graph)["residual_quantized_linear_q4gsw"] == 0


def test_too_few_bindings_do_not_defer_the_norm() -> None:
    made, outputs = program("one", 64, 36)
    limits = Limits(max_bindings=7)
    graph = with_activations(fuse(made.chain.graph(*outputs), limits), "int8", limits)
    assert operators(graph)["residual_quantized_linear_q4gsw"] == 0
