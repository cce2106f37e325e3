"""Every row of a sum has the same bytes, alone or among others, wherever it lies among them (`Limits.one_order`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from liveshape.device.backends import open_device
from liveshape.device.protocol import Device
from liveshape.graph import Graph
from liveshape.ops import attention_heuristics as heuristics
from liveshape.plan.compiling import compile
from liveshape.plan.plan import Choices
from liveshape.run.executor import Executor
from tests.ops.cases.quantized import dq8ca, int8_activations, q4gsw, qcs4w
from tests.ops.test_paged_attention import SEQUENCES, Form, graph_of
from tests.support.chains import Chain
from tests.support.graphs import In, OpCase, build, flat_specs

# Both sides of every boundary between kernels and between shapes of tiles.
SIZES = (1, 2, 5, 8, 9, 17, 33, 65, 130)
MOST = SIZES[-1]
FEW, MANY = 4, 256  # threads that cooperate


def device_of(threads: int, one_order: bool = True, subgroup: int = 0) -> Device:
    given = replace(open_device().limits, max_invocations=256, max_cooperating_threads=threads, subgroup=subgroup)
    return open_device(limits=replace(given, one_order=one_order))


def either(*quick: tuple[Any, int], others: Sequence[Any] = ()) -> Any:
    """What is run on which threads: these, and in `make test-all` everything on both."""
    everything = [(subject, threads) for subject in (*(each for each, _ in quick), *others) for threads in (FEW, MANY)]
    more = [pytest.param(*pair, marks=pytest.mark.slow) for pair in everything if pair not in quick]
    return pytest.mark.parametrize(
        ("subject", "threads"), [*quick, *more], ids=lambda each: getattr(each, "name", None)
    )


def executor_of(graph: Graph, device: Device, **choices: Any) -> Executor:
    return Executor(compile(graph, device.limits, Choices(warm=False, **choices)), device)


def check(run: Callable[[Any], Any], rows: int, sizes: tuple[int, ...] = SIZES) -> None:
    """`run` computes some rows of all, by number: the bytes of each are those that it has alone, in any company."""
    alone = [run(np.array([row]))[0] for row in range(min(rows, 5))]
    draw = np.random.default_rng(1)
    for size in sizes:
        chosen = draw.permutation(rows)[:size]
        chosen[draw.integers(size)] = row = int(draw.integers(len(alone)))
        found = run(chosen)[np.flatnonzero(chosen == row)[-1]]
        assert found.tobytes() == alone[row].tobytes(), f"row {row} among {size}"


SPLIT = q4gsw(1120, 130, 32, bias=True, sizes=SIZES)
MORE = [
    q4gsw(48, 7, 4, dtype="float16", aligned=1, sizes=SIZES),
    q4gsw(64, 16, 2, sizes=SIZES),
    q4gsw(1024, 68, 16, bias=True, minima=True, sizes=SIZES),
    int8_activations(576, 13, 576, between=True, sizes=SIZES),
    dq8ca(320, 13, 64, bias=True, sizes=SIZES),
    dq8ca(1024, 130, 32, sizes=SIZES),
    qcs4w(32, 20, sizes=SIZES),
    int8_activations(1024, 70, 512, sizes=SIZES),
]


@either(
    (SPLIT, MANY),
    (q4gsw(96, 70, 32, bits=8, minima=True, sizes=SIZES), FEW),
    others=MORE,
)
def test_four_bit_layers(subject: OpCase, threads: int) -> None:
    check_layer(subject, device_of(threads))


@pytest.mark.parametrize("threads", [FEW, MANY])
def test_without_it_rows_have_other_bytes(threads: int) -> None:
    with pytest.raises(AssertionError, match="among"):
        check_layer(SPLIT, device_of(threads, one_order=False))


def check_layer(case: OpCase, device: Device) -> None:
    executor = executor_of(build(case, MOST), device)
    draw = np.random.default_rng(len(case.name))
    whole = [spec.draw(draw) for spec in flat_specs(case.args_at(MOST)) if isinstance(spec, In)]
    rows = [next(axis for axis, size in enumerate(array.shape) if size == MOST) for array in whole]

    def run(chosen: Any) -> Any:
        (out,) = executor.execute([array.take(chosen, axis) for array, axis in zip(whole, rows, strict=True)])
        return out.reshape(len(chosen), -1)

    check(run, MOST)


def linear(chain: Chain, draw: Any) -> Any:
    x = chain.input((MOST, 83))
    weight, bias = (chain.constant(draw.standard_normal(shape).astype(np.float32)) for shape in ((37, 83), (37,)))
    return chain.node("aten.linear.default", x, weight, bias, chain.tensor((MOST, 37)))


def of_bytes(chain: Chain, draw: Any) -> Any:
    x = chain.input((MOST, 132))
    weight = chain.constant(draw.integers(-128, 128, (36, 132)).astype(np.int8))
    scales = chain.constant(draw.standard_normal(36).astype(np.float32))
    return chain.node("aten._weight_int8pack_mm.default", x, weight, scales, chain.tensor((MOST, 36)))


def middle_sum(chain: Chain, draw: Any) -> Any:
    x = chain.input((MOST, 11, 300))
    return chain.node("aten.sum.dim_IntList", x, (1,), False, None, chain.tensor((MOST, 300)))


@either((linear, MANY), (of_bytes, FEW), (middle_sum, MANY))
def test_other_sums(subject: Callable[[Chain, Any], Any], threads: int) -> None:
    chain, draw = Chain(), np.random.default_rng(2)
    executor = executor_of(chain.graph(subject(chain, draw)), device_of(threads))
    whole = draw.standard_normal(chain.inputs[0].max_shape).astype(np.float32)
    check(lambda chosen: executor.execute([whole[chosen]])[0], MOST)


FORMS = [
    Form("group of 4", (8, 2), 64, longest=1100),
    Form("window, softcap, sinks", (4, 2), 20, page=5, longest=700, window=600, softcap=3.0, sinks="float32"),
]


@either((FORMS[0], MANY), (FORMS[1], FEW))
def test_attention_of_many_sequences(subject: Form, threads: int) -> None:
    check_attention(subject, device_of(threads))


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.name)
def test_attention_by_shuffles(form: Form) -> None:
    device = device_of(MANY, subgroup=4)
    check_attention(form, device)
    assert form.kernel("few_rows_subgroups") in {variant.kernel.name for variant in device._pipelines}


def check_attention(form: Form, device: Device) -> None:
    """A query that decodes or is of a prompt, beside short sequences and beside the longest."""
    shape = (*form.heads, form.size, device.limits)
    assert heuristics.few_queries(*shape) == heuristics.tile_queries(*shape) == 1
    graph, _ = graph_of(form, form.rows)
    executor = executor_of(graph, device)
    draw = np.random.default_rng(3)
    caches = [draw.standard_normal((1, form.slots, form.heads[1], form.size)).astype(np.float32) for _ in "kv"]
    table = draw.permutation(form.slots // form.page)[: SEQUENCES * form.pages].reshape(SEQUENCES, -1)
    positions = [3, 255, 256, 257, form.longest - 1, *draw.integers(0, form.longest, 40).tolist()]
    queries = draw.standard_normal((1, len(positions), form.heads[0], form.size)).astype(np.float32)

    def run(chosen: Any) -> Any:
        lines = np.zeros((form.rows, 4), np.int32)
        lines[: len(chosen)] = [(place, 1, positions[row], row % SEQUENCES) for place, row in enumerate(chosen)]
        few = int(draw.integers(len(chosen) + 1))
        contexts = [max((positions[row] + 1 for row in kind), default=0) for kind in (chosen[:few], chosen[few:])]
        live = [few, len(chosen) - few, *contexts]
        (out,) = executor.execute([queries[:, chosen], *caches, lines, table.astype(np.int32), *live])
        return out[0]

    check(run, len(positions), (1, 2, 9, 40))


@pytest.mark.parametrize("threads", [pytest.param(FEW, marks=pytest.mark.slow), MANY])
def test_attention_of_one_sequence(threads: int) -> None:
    """A text that is cut anywhere."""
    capacity, heads, size, rows = 600, (6, 2), 16, 40
    chain, draw = Chain(), np.random.default_rng(4)
    q = chain.input((1, rows, heads[0], size))
    caches = [chain.input((1, capacity, heads[1], size), static=True) for _ in "kv"]
    position, out = chain.scalar(given=True), chain.tensor((1, rows, heads[0], size))
    args = (q, *caches, position, None, 0.0, True, None, out)
    executor = executor_of(chain.graph(chain.node("custom_sdpa.default", *args)), device_of(threads))
    given = [draw.standard_normal(tensor.max_shape).astype(np.float32) for tensor in caches]
    queries = draw.standard_normal((1, capacity, heads[0], size)).astype(np.float32)

    def of(start: int, count: int) -> Any:
        return executor.execute([queries[:, start : start + count], *given, start])[0][0]

    for row in (0, 7, 255, 256, 400, 599):
        alone = of(row, 1)[0].tobytes()
        for start, count in ((row, 2), (row - 1, 2), (row - 6, 17), (row - 39, 40)):
            if start >= 0 and start + count <= capacity:
                assert of(start, count)[row - start].tobytes() == alone, f"row {row} in {count} from {start}"
