"""What follows convolutions, fused, at every live batch: norms as close to float64 as the two operators, residuals and
activations with the very bytes of these."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

from liveshape.device.backends import open_device
from liveshape.graph.constants import ScaledConstant, all_bytes
from liveshape.lower.fusion import fuse
from liveshape.plan.compiling import compile, compile_optimized
from liveshape.run import arrays
from liveshape.run.arrays import stored_pieces
from liveshape.run.executor import Executor
from tests.support.chains import Chain

BATCH, CHANNELS, SIDE = 5, 6, 7
CONVOLUTION = "aten::convolution.out"
NORM = "aten._native_batch_norm_legit_no_training.default"


class Case(NamedTuple):
    transposed: bool = False
    groups: int = 1
    bias: bool = False
    affine: bool = True
    read_twice: bool = False
    variance: float = 1.0
    folds: bool = True


CASES = {
    "plain": Case(),
    "bias": Case(bias=True),
    "groups": Case(groups=3),
    "depthwise": Case(groups=CHANNELS, affine=False),
    "transposed": Case(transposed=True, bias=True),
    "grouped and transposed": Case(transposed=True, groups=2, folds=False),
    "read twice": Case(read_twice=True, folds=False),
    "no deviation": Case(variance=-1.0, folds=False),
}


def built(case: Case) -> tuple[Chain, Any, Any]:
    """The chain with its outputs, and what torch gives for an input in float64."""
    random = np.random.default_rng(0)
    outputs = 2 * CHANNELS

    def numbers(*shape: int) -> Any:
        return random.standard_normal(shape).astype(np.float32)

    chain = Chain()
    x = chain.input((BATCH, CHANNELS, SIDE, SIDE))
    shape = (CHANNELS, outputs // case.groups) if case.transposed else (outputs, CHANNELS // case.groups)
    weight, bias = numbers(*shape, 3, 3), numbers(outputs) if case.bias else None
    gain, shift = (numbers(outputs), numbers(outputs)) if case.affine else (None, None)
    mean, variance = numbers(outputs), np.abs(numbers(outputs)) * np.float32(case.variance)

    def constant(array: Any) -> Any:
        return None if array is None else chain.constant(array)

    y = chain.tensor((BATCH, outputs, SIDE, SIDE))
    more = (1, 1), (1, 1), (1, 1), case.transposed, (0, 0), case.groups
    chain.node(CONVOLUTION, x, constant(weight), constant(bias), *more, y)
    outs = (chain.tensor((BATCH, outputs, SIDE, SIDE)), chain.tensor((0,)), chain.tensor((0,)))
    chain.node(NORM, y, *map(constant, (gain, shift, mean, variance)), 0.1, 1e-5, outs)

    def golden(image: Any) -> Any:
        call = torch.nn.functional.conv_transpose2d if case.transposed else torch.nn.functional.conv2d
        double = [None if each is None else torch.from_numpy(each).double() for each in (weight, bias, mean, variance)]
        affine = [None if each is None else torch.from_numpy(each).double() for each in (gain, shift)]
        made = call(torch.from_numpy(image).double(), double[0], double[1], padding=1, groups=case.groups)
        return torch.nn.functional.batch_norm(made, double[2], double[3], *affine).numpy()

    return chain, (outs[0], y) if case.read_twice else (outs[0],), golden


@pytest.mark.parametrize("name", CASES)
def test_batch_norms_are_folded(name: str) -> None:
    case = CASES[name]
    chain, outs, golden = built(case)
    unfused = chain.graph(*outs)
    fused = fuse(unfused)
    assert len(fused.nodes) == (1 if case.folds else 2)
    if not case.folds:
        return
    assert {str(source) for source in fused.nodes[0].sources} >= {str(each) for each in unfused.nodes[1].sources}
    device = open_device()
    executors = [Executor(compile(graph, device.limits), device) for graph in (unfused, fused)]
    for batch in (BATCH, 1, 3):
        image = np.random.default_rng(batch).standard_normal((batch, CHANNELS, SIDE, SIDE)).astype(np.float32)
        errors = []
        for executor in executors:
            executor.poison()
            errors.append(float(np.square(executor.execute([image])[0] - golden(image)).mean()) ** 0.5)
        assert errors[1] <= 1.25 * errors[0] + 1e-9


@pytest.mark.parametrize("threads", [0, 256], ids=["few threads", "many threads"])
@pytest.mark.parametrize("groups", [1, 2, CHANNELS])
def test_a_residual_and_its_activation_are_the_epilogue(groups: int, threads: int) -> None:
    """out = relu(convolution(x) + residual), with the very bytes of three operators."""
    device = open_device()
    if threads:
        device = open_device(limits=replace(device.limits, max_invocations=threads, max_cooperating_threads=threads))
    chain, shape = Chain(), (BATCH, 36, SIDE, SIDE)
    x, residual = chain.input((BATCH, CHANNELS, SIDE, SIDE)), chain.input(shape)
    weight = np.random.default_rng(0).standard_normal((36, CHANNELS // groups, 3, 3)).astype(np.float32)
    outs = [chain.tensor(shape) for _ in range(3)]
    chain.node(CONVOLUTION, x, chain.constant(weight), None, (1, 1), (1, 1), (1, 1), False, (0, 0), groups, outs[0])
    chain.node("aten.add.Tensor", outs[0], residual, 1, outs[1])
    chain.node("aten.relu.default", *outs[1:])
    graph = chain.graph(outs[2])
    plans = compile(graph, device.limits), compile_optimized(graph, device.limits)
    assert [len(plan.graph.nodes) for plan in plans] == [3, 1]
    executors = [Executor(plan, device) for plan in plans]
    for batch in (BATCH, 1, 3):
        random = np.random.default_rng(batch)
        inputs = [random.standard_normal((batch, *value.max_shape[1:])).astype(np.float32) for value in (x, residual)]
        inputs[0][0, 0, 0, 0] = np.nan
        results = []
        for executor in executors:
            executor.poison()
            results.append(executor.execute(inputs)[0])
        assert results[0].tobytes() == results[1].tobytes()
        assert np.isnan(results[0]).any()


def test_factors_are_those_of_channels_in_pieces_of_any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrays, "_CHUNK", 8)
    numbers = np.random.default_rng(0).standard_normal((4, 3, 5)).astype(np.float32)
    factors = np.array([2.0, -0.3, 7.5, 1e-3])
    # Channels first, and second as in a transposed convolution.
    for run, wanted in ((15, factors[:, None, None]), (5, factors[[0, 1, 2], None])):
        scaled = ScaledConstant(memoryview(numbers).cast("B"), tuple(wanted.ravel()), run)
        tensor = Chain().tensor(numbers.shape)
        tensor = type(tensor)("scaled", "float32", numbers.shape, constant=scaled)
        golden = (numbers * wanted).astype(np.float32).tobytes()
        assert b"".join(bytes(piece) for piece in stored_pieces(tensor, half=False)) == golden
        assert bytes(all_bytes(scaled)) == golden
        assert bytes(scaled[6:27]) == golden[6:27]
