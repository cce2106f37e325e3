"""Attention of many sequences over one pool of pages, against float64, sequence by sequence.

One graph at its bounds serves every mix of decode rows and prompts. Slots that no query may see hold NaN, and so do the
pages that the unused part of every table points to.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from liveshape.device.backends import open_device
from liveshape.device.protocol import Device
from liveshape.errors import ShapeError
from liveshape.graph import Limits
from liveshape.graph.elements import prod
from liveshape.ops import attention_heuristics as heuristics
from liveshape.ops import paged_attention
from liveshape.plan.compiling import compile
from liveshape.plan.cost import costs
from liveshape.plan.plan import Choices
from liveshape.plan.plan_state import PlanState
from liveshape.run.executor import Executor
from tests.graphs.running import device_of as device_of_limits
from tests.ops.test_attention_subgroups import by_memory
from tests.support.chains import Chain

Sequence = tuple[int, int]  # keys before this call, and new queries

SEQUENCES = 6  # lines of the block table, one more than are ever live


@dataclass(frozen=True)
class Form:
    """One operator with its bounds."""

    name: str
    heads: tuple[int, int] = (4, 2)
    size: int = 16
    page: int = 16
    dtype: str = "float32"
    longest: int = 320  # keys of a sequence
    rows: int = 48
    window: int = 0
    softcap: float = 0.0
    scale: float | None = None
    sharpness: float = 1.0
    sinks: str | None = None  # their dtype

    @property
    def of_heads(self) -> np.ndarray | None:
        """A sink for each head: one that no key is heard beside, one that is nothing, and some like keys."""
        if self.sinks is None:
            return None
        return np.array([0.5, -1.25, -np.inf, 40.0, 1.5, 0.0, 3.0, -7.0] * 2, self.sinks)[: self.heads[0]]

    def kernel(self, name: str) -> str:
        return f"attention/{name}+paged" + ("" if self.sinks is None else "+with_sinks")

    @property
    def pages(self) -> int:
        """Of a sequence."""
        return -(-self.longest // self.page)

    @property
    def slots(self) -> int:
        """One page is nobody's."""
        return (SEQUENCES * self.pages + 1) * self.page

    @property
    def tolerance(self) -> dict[str, float]:
        return {"atol": 2e-5 * self.sharpness, "rtol": 2e-5 * self.sharpness}


# Decode rows alone, with prompts, prompts alone, nothing at all; contexts short, split, and at their bound.
MIXES: tuple[tuple[Sequence, ...], ...] = (
    ((5, 1),),
    ((0, 1), (70, 1), (17, 1)),
    ((300, 1), (3, 1), (12, 17), (40, 2)),
    ((0, 29),),
    (),
    ((280, 30), (319, 1), (16, 1)),
    ((15, 1), (16, 1), (0, 1), (290, 1), (1, 1)),
)


def lines_of(form: Form, mix: tuple[Sequence, ...], limits: Limits) -> tuple[list[list[int]], list[list[int]], int]:
    """Lines of few rows, lines of tiles, and the rows of all of them."""
    few: list[list[int]] = []
    tiles: list[list[int]] = []
    shape = (*form.heads, form.size, limits)
    row = 0
    for place, (start, count) in enumerate(mix):
        is_few = count <= heuristics.few_queries(*shape)
        most = heuristics.few_queries(*shape) if is_few else heuristics.tile_queries(*shape)
        for first in range(0, count, most):
            line = [row + first, min(most, count - first), start + first, place]
            (few if is_few else tiles).append(line)
        row += count
    return few, tiles, row


def golden(form: Form, q: Any, keys: list[Any], values: list[Any], mix: tuple[Sequence, ...]) -> np.ndarray:
    """Every query on its own, in float64, over the keys of its sequence."""
    group = form.heads[0] // form.heads[1]
    out = np.zeros(q.shape)
    row = 0
    for (start, count), key, value in zip(mix, keys, values, strict=True):
        for position in range(start, start + count):
            first = max(position + 1 - form.window, 0) if form.window else 0
            for head in range(form.heads[0]):
                seen = slice(first, position + 1), head // group
                scores = key[seen].astype(np.float64) @ q[0, row, head].astype(np.float64)
                scores *= form.size**-0.5 if form.scale is None else form.scale
                if form.softcap:
                    scores = form.softcap * np.tanh(scores / form.softcap)
                sink = -np.inf if form.of_heads is None else float(form.of_heads[head])
                weights = np.exp(scores - max(scores.max(), sink))
                total = weights.sum() + np.exp(sink - max(scores.max(), sink))
                out[0, row, head] = weights @ value[seen].astype(np.float64) / total
            row += 1
    return out


class Call:
    """What a call with a mix of sequences is given, and what must come out."""

    def __init__(self, form: Form, mix: tuple[Sequence, ...], lines: int, limits: Limits, draw: Any) -> None:
        few, tiles, rows = lines_of(form, mix, limits)
        width = (form.heads[1], form.size)
        q = draw.standard_normal((1, rows, form.heads[0], form.size)).astype(np.float32) * form.sharpness
        caches = np.full((2, 1, form.slots, *width), np.nan, form.dtype)
        physical = draw.permutation(form.slots // form.page)
        nobody = physical[-1]
        table = np.full((SEQUENCES, form.pages), nobody, np.int32)
        new: list[list[Any]] = [[], []]
        for place, (start, count) in enumerate(mix):
            first = max(start + 1 - form.window, 0) if form.window else 0  # what is before it nobody sees again
            used = range(first // form.page, -(-(start + count) // form.page))
            table[place, used] = physical[place * form.pages :][list(used)]
            positions = np.arange(first, start + count)
            slots = table[place, positions // form.page] * form.page + positions % form.page
            for cache, given in zip(caches, new, strict=True):
                whole = draw.standard_normal((start + count, *width)).astype(form.dtype)
                cache[0, slots] = whole[positions]
                given.append(whole)
        # A line that is not live, if it were run, would write the row of another.
        units = np.array([*few, *tiles, *([[0, 1, 0, SEQUENCES - 1]] * (lines - len(few) - len(tiles)))], np.int32)
        contexts = [max((line[2] + line[1] for line in kind), default=0) for kind in (few, tiles)]
        self.inputs = [
            q,
            *caches,
            units,
            table,
            len(few),
            len(tiles),
            *(-(-context // 32) * 32 for context in contexts),
        ]
        self.expected = golden(form, q, *new, mix)


def graph_of(form: Form, lines: int) -> tuple[Any, list[Any]]:
    """The operator at its bounds, and its live scalars."""
    chain = Chain()
    shape = (1, form.rows, form.heads[0], form.size)
    q = chain.input(shape)
    caches = [chain.input((1, form.slots, form.heads[1], form.size), form.dtype, static=True) for _ in "kv"]
    units = chain.input((lines, 4), "int32", static=True)
    table = chain.input((SEQUENCES, form.pages), "int32", static=True)
    scalars = [chain.scalar(given=True) for _ in range(4)]
    sinks = None if form.of_heads is None else chain.constant(form.of_heads)
    masks = form.scale, form.window, form.softcap, sinks
    given = (q, *caches, units, table, form.page, *scalars, *masks, chain.tensor(shape))
    return chain.graph(chain.node("liveshape.paged_attention", *given)), scalars


def check(form: Form, device: Device, mixes: Iterable[tuple[Sequence, ...]] = MIXES, lines: int = 24) -> set[str]:
    """Every mix on one graph, up, down and up: nothing is made anew; the names of the kernels come back."""
    graph, scalars = graph_of(form, lines)
    draw = np.random.default_rng(len(form.name))
    calls = [Call(form, mix, lines, device.limits, draw) for mix in mixes]
    settings = tuple(tuple(zip(scalars, call.inputs[5:], strict=True)) for call in calls)
    device._pipelines.clear()  # what another test compiled does not count
    executor = Executor(compile(graph, device.limits, Choices(settings=settings)), device)
    kernels = {variant.kernel.name for variant in device._pipelines}
    created = device.counters.buffers, device.counters.pipelines
    for call in (*calls, *reversed(calls)):
        executor.poison()
        (got,) = executor.execute(call.inputs)
        assert got.shape == call.expected.shape
        np.testing.assert_allclose(got, call.expected, **form.tolerance, err_msg=f"{form.name}: {call.inputs[5:]}")
        assert created == (device.counters.buffers, device.counters.pipelines)
    executor.close()
    return kernels


FORMS = [
    Form("group of 4", (8, 2), 64),
    Form("one head each, pages of one, window", (2, 2), 32, page=1, window=70),
    Form("group of 7, pages of 5, half, softcap", (7, 1), 80, page=5, dtype="float16", softcap=2.0, scale=0.5),
    Form("sinks", sinks="float32"),
]
MORE = [
    Form("group of 16", (16, 1), 128),
    Form("group of 4, half", (8, 2), 64, page=3, dtype="float16", window=40),
    Form("odd head, window of one page", (6, 3), 7, window=16, softcap=2.0),
    Form("sharp", sharpness=30.0),
    Form("window of one", window=1, page=3, dtype="float16"),
    Form("window of all but one", window=319, page=7),
    Form("softcap", softcap=0.5, page=128),
    Form("window, softcap", window=33, softcap=5.0, scale=1.0),
    Form("window, sinks of halves", (4, 2), 20, page=5, window=40, sinks="float16"),
    Form("group of 4, sinks", (8, 2), 64, sinks="float32"),
    Form("sharp, sinks", (16, 1), 32, sharpness=30.0, sinks="float32"),
]


def quick(count: int) -> list[Any]:
    """The first forms, and all others in `make test-all`."""
    return [*FORMS[:count], *(pytest.param(form, marks=pytest.mark.slow) for form in (*FORMS[count:], *MORE))]


@pytest.mark.parametrize("form", quick(4), ids=lambda form: form.name)
def test_mixes_of_sequences(form: Form) -> None:
    check(form, open_device())


def device_of(threads: int, subgroup: int) -> Device:
    """A device with as many threads as a GPU has."""
    limits = replace(
        open_device().limits,
        max_invocations=threads,
        max_cooperating_threads=256,
        max_workgroup_bytes=16384,
        subgroup=subgroup,
    )
    return open_device(limits=limits)


@pytest.mark.parametrize("form", quick(1), ids=lambda form: form.name)
def test_many_threads(form: Form) -> None:
    """Splits of few rows and of tiles, and lines of several queries."""
    kernels = check(form, device_of(128, 0))
    assert {form.kernel("few_rows"), form.kernel("tiled")} <= kernels
    assert ("attention/combine_splits+paged" in kernels) is (form.window in (0, 319)), "a window is not split"


@pytest.fixture
def short_of_room(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Contexts of these tests are short: they are unsplit up to a hundred keys."""
    monkeypatch.setattr(heuristics, "ROW_WORKGROUP_VEC4S", 400)
    heuristics.line_results_shape.cache_clear()
    yield
    heuristics.line_results_shape.cache_clear()


@pytest.mark.usefixtures("short_of_room")
@pytest.mark.parametrize("form", quick(1), ids=lambda form: form.name)
def test_subgroups_of_this_device(form: Form) -> None:
    """Four lanes, which have no registers for heads above 64."""
    kernels = check(form, device_of(64, 4), MIXES[1:4])
    assert (form.kernel("few_rows_subgroups") in kernels) is (form.size <= 64)
    assert (form.kernel("few_rows") in kernels) is (form.size > 64)


@pytest.mark.usefixtures("short_of_room")
@pytest.mark.parametrize("form", quick(2)[1:], ids=lambda form: form.name)
def test_many_lanes(form: Form, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PAGED", "PAGED_WITH_SINKS"):
        kernels = getattr(paged_attention, name)
        monkeypatch.setattr(paged_attention, name, kernels._replace(few=by_memory(kernels.few)))
    # Tiles of prompts shuffle among as many lanes as the device is said to have, which it has not.
    monkeypatch.setattr(heuristics, "reduces_by_shuffles", lambda *given: False)
    assert form.kernel("few_rows_subgroups") in check(form, device_of(64, 16), MIXES[1:4])


@pytest.mark.parametrize(
    "limits", ["small", "plain", *(pytest.param(name, marks=pytest.mark.slow) for name in ("narrow", "split"))]
)
def test_odd_limits(limits: str) -> None:
    """Pools of several bindings, folded grids, no halves."""
    form = Form(limits, (4, 2), 8, page=3, longest=31, rows=40, dtype="float16" if limits == "narrow" else "float32")
    device = device_of_limits(limits)
    if device.limits.max_bindings <= 16:  # Dawn's: pools of more need larger ones
        device = open_device(limits=replace(device.limits, max_binding_bytes=2 * device.limits.max_binding_bytes))
    check(form, device, [((5, 1), (30, 1)), ((9, 22), (0, 1), (17, 2)), ((30, 1),)])


def planned(form: Form, lines: int = 24, limits: Limits | None = None, **live: Any) -> PlanState:
    graph, scalars = graph_of(form, lines)
    state = PlanState(compile(graph, limits))
    state.begin()
    for scalar, value in zip(scalars, live.get("scalars", (0, 0, 0, 0)), strict=True):
        state.set(scalar, value)
    state.walk(0, 1, lambda node, request: 0)
    return state


@pytest.mark.parametrize(
    ("form", "scalars", "message"),
    [
        (Form(""), (20, 5, 9, 9), "20 lines of few rows and 5 of tiles are not in a table of 24 lines"),
        (Form(""), (-1, 5, 9, 9), "-1 lines of few rows"),
        (Form(""), (1, 0, 0, 9), "1 lines with a context of 0 keys"),
        (Form("", heads=(5, 2)), (1, 0, 9, 9), "heads must divide that of the queries"),
    ],
)
def test_what_does_not_fit_is_named(form: Form, scalars: tuple[int, ...], message: str) -> None:
    with pytest.raises(ShapeError, match=message):
        planned(form, scalars=scalars)


def test_a_pool_of_broken_pages_is_refused() -> None:
    chain = Chain()
    q, pool = chain.input((1, 4, 2, 8)), chain.input((1, 50, 2, 8), static=True)
    tables = chain.input((4, 4), "int32"), chain.input((2, 3), "int32")
    chain.node(
        "liveshape.paged_attention",
        q,
        pool,
        pool,
        *tables,
        16,
        1,
        0,
        9,
        0,
        None,
        0,
        0.0,
        None,
        chain.tensor((1, 4, 2, 8)),
    )
    with pytest.raises(ShapeError, match="50 rows of a cache are not whole pages of 16"):
        compile(chain.graph(*chain.values[-1:]))


def test_sinks_are_one_for_each_head() -> None:
    chain = Chain()
    q, pool = chain.input((1, 4, 2, 8), static=True), chain.input((1, 48, 2, 8))
    tables = chain.input((4, 4), "int32"), chain.input((2, 3), "int32")
    sinks, out = chain.input((3,), static=True), chain.tensor((1, 4, 2, 8))
    chain.node("liveshape.paged_attention", q, pool, pool, *tables, 16, 1, 0, 9, 0, None, 0, 0.0, sinks, out)
    with pytest.raises(ShapeError, match=r"sinks \(3,\) of queries with 2 heads"):
        compile(chain.graph(out))


@pytest.mark.parametrize("limits", [Limits(), Limits(subgroup=32)], ids=["memory", "shuffles"])
def test_scratch_holds_every_split(limits: Limits) -> None:
    """What any number of lines leaves in it; with the lines and the context it stays bounded."""
    form = Form("", (32, 8), 64, longest=9000)
    ((split_results,),) = planned(form, 512, limits).plan.scratch
    ((more,),) = planned(replace(form, longest=90000), 4096, limits).plan.scratch
    assert more.max_shape == split_results.max_shape
    assert 4 * prod(more.max_shape) < 1 << 22
    splits = set()
    for lines in (1, 2, 3, 5, 8, 17, 31, 32, 33, 64, 65, 66, 67, 100, 512):
        for scalars in ((lines, 0, 9000, 0), (0, lines, 0, 9000)):
            state = planned(form, 512, limits, scalars=scalars)
            route = state.nodes[0].group.route
            if len(route.slots) == 2:
                (_, _), (combine, _) = route.dispatched
                block = int(dict(combine.constants)["ROWS"].rstrip("u"))
                assert route.slots[0].grid[0] * block <= split_results.max_shape[0]
                splits.add(scalars)
    assert {(1, 0, 9000, 0), (0, 1, 0, 9000), (31, 0, 9000, 0)} <= splits, "few lines are split"
    assert (512, 0, 9000, 0) not in splits
    assert (0, 512, 0, 9000) not in splits


def test_the_work_of_a_window_does_not_grow_with_the_context() -> None:
    def grids(longest: int) -> list[Any]:
        form = Form("", (32, 8), 64, longest=9000, window=128)
        state = planned(form, scalars=(3, 5, longest, longest))
        return [(slot.params, slot.grid) for slot in state.nodes[0].group.route.slots]

    assert grids(1024) == grids(9000)
    assert len(grids(1024)) == 2, "few rows, then tiles, and nothing to combine"


def test_no_line_of_a_kind_is_no_dispatch() -> None:
    def kernels(few: int, tiles: int) -> list[str]:
        state = planned(Form(""), scalars=(few, tiles, 9, 9))
        return [variant.kernel.name for variant, _ in state.nodes[0].group.route.dispatched]

    assert kernels(0, 0) == []
    assert kernels(3, 0) == ["attention/few_rows+paged"]
    assert kernels(0, 3) == ["attention/tiled+paged"]
    assert kernels(3, 3) == ["attention/few_rows+paged", "attention/tiled+paged"]


@pytest.mark.parametrize("size", [1, 64, 80, 128, 256, 300])
@pytest.mark.parametrize("group", [1, 2, 3, 4, 5, 7, 8, 16, 48, 100])
def test_lines_are_tiles(group: int, size: int) -> None:
    """As many queries as fill the largest tile that lines of this shape may take, or one."""
    for limits in (Limits(), Limits(max_cooperating_threads=4), Limits(max_workgroup_bytes=49152)):
        queries = heuristics.tile_queries(group * 4, 4, size, limits)
        tile = heuristics.tile_of(1000, queries * group, size, 9000, limits)
        assert queries == 1 or queries * group <= tile.rows < (queries + 1) * group
        assert heuristics.few_queries(group * 4, 4, size, limits) <= queries


def test_operations_are_those_of_the_longest_context() -> None:
    def operations(scalars: tuple[int, ...], window: int = 0) -> int:
        state = planned(Form("", (4, 2), 16, rows=40, window=window), scalars=scalars)
        return sum(cost.operations for cost in costs(state.nodes[0], half=True))

    query = 4 * 4 * 16  # a multiply and an add for keys and for values, 4 heads of 16
    assert operations((24, 0, 100, 0)) == query * 40 * 100
    assert operations((8, 2, 100, 64)) == query * (8 * 100 + 32 * 64)
    assert operations((8, 2, 100, 64), window=10) == query * 40 * 10
