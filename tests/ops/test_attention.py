"""What attention refuses and what it never needs; its arithmetic is in the sweep."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from liveshape.device.backends import open_device
from liveshape.errors import ShapeError, UnsupportedError
from liveshape.graph import Limits
from liveshape.ops import attention_heuristics as heuristics
from liveshape.plan.compiling import compile
from liveshape.plan.plan_state import PlanState
from tests.ops.cases import attention as cases
from tests.support.graphs import In, InOut, OpCase, Out, Sym, build, sweep


def planned(op: str, args: list[Any], limits: Limits | None = None) -> PlanState:
    live = PlanState(compile(build(OpCase(op, op, lambda size: args, lambda *_: None, sizes=(1,)), 1), limits))
    live.begin()
    live.walk(0, 1, lambda node, request: 0)
    return live


def cached(
    rows: int = 8,
    capacity: int = 64,
    position: int = 0,
    heads: tuple[int, int] = (4, 2),
    size: int = 16,
    mask: Any = None,
    dropout: float = 0.0,
    cache_heads: int = 2,
) -> list[Any]:
    given = [In("float32", (1, rows, count, size)) for count in (heads[0], heads[1], heads[1])]
    caches = [InOut("float32", (1, capacity, cache_heads, size))] * 2
    out = Out("float32", (1, rows, heads[0], size))
    return [*given, *caches, Sym(position), 1, mask, dropout, mask is None, None, out]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"position": 60}, "position 60 and 8 new rows need 68 rows, the cache holds 64"),
        ({"position": -1}, "position -1"),
        ({"heads": (4, 4)}, r"rows \(1, 8, 4, 16\) do not fit a cache \(1, 64, 2, 16\)"),
        ({"heads": (5, 2)}, "heads must divide that of the queries"),
        ({"mask": In("float32", (8, 7))}, "a mask of 7 keys: position 0 and 8 rows make 8, the cache holds 64"),
        ({"mask": In("float32", (5, 64))}, "do not broadcast together"),
    ],
)
def test_what_does_not_fit_is_named(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ShapeError, match=message):
        planned("sdpa_with_kv_cache.default", cached(**given))


def test_dropout_is_refused_at_load() -> None:
    with pytest.raises(UnsupportedError, match=r"dropout 0\.1 is for training"):
        planned("sdpa_with_kv_cache.default", cached(dropout=0.1))


def test_an_update_beyond_the_cache_is_refused() -> None:
    rows, cache = In("float32", (1, 8, 2, 16)), InOut("float32", (1, 64, 2, 16))
    with pytest.raises(ShapeError, match="position 57 and 8 new rows need 65 rows, the cache holds 64"):
        planned("update_cache.default", [rows, cache, Sym(57), Out("float32", (1,))])


# With and without subgroup shuffles.
of_roads = pytest.mark.parametrize(
    "limits", [Limits(), Limits(subgroup=32), Limits(subgroup=8)], ids=lambda limits: f"subgroups of {limits.subgroup}"
)


@of_roads
def test_memory_does_not_grow_with_the_context(limits: Limits) -> None:
    def scratch(rows: int, capacity: int) -> int:
        args = cached(rows, capacity, heads=(32, 8), size=64, cache_heads=8)
        live = planned("sdpa_with_kv_cache.default", args, limits)
        (asked,) = live.plan.scratch
        assert asked
        return sum(live.plan.memory.storages[tensor].nbytes for tensor in asked)

    assert scratch(64, 4096) == scratch(2048, 131072) < 1 << 21


@of_roads
@pytest.mark.parametrize("rows", [1, 2, 4, 5, 6, 43, 64, 130, 512])
def test_scratch_holds_every_split(rows: int, limits: Limits) -> None:
    """The scratch at the bound holds what any smaller number of rows leaves in it."""
    live = planned("sdpa_with_kv_cache.default", cached(512, 9000, heads=(12, 4), cache_heads=4), limits)
    graph = live.plan.graph
    for value, width in zip(graph.inputs[:3], (12, 4, 4), strict=True):
        live.set(value, (1, rows, width, 16))
    live.set(graph.inputs[5], 9000 - rows)
    live.walk(0, 1, lambda node, request: 0)
    ((split_results,),) = live.plan.scratch
    route = live.nodes[0].group.route
    found: list[int] = []
    for (variant, _), slot in zip(route.dispatched, route.slots, strict=True):
        if variant.kernel.name == "attention/combine_splits":
            block = int(dict(variant.constants)["ROWS"].rstrip("u"))
            assert found[-1] * block <= split_results.max_shape[0]
        found.append(slot.grid[0])
    assert len(found) == (2 if rows == 512 else 3)


# Rows of a tile, keys and vec4s at a time, threads, size of a head: whole heads, slices of them, the last one short.
FORMS = [
    pytest.param(64, (64, 8), 128, 32, id="whole heads"),
    pytest.param(64, (64, 8), 128, 80, marks=pytest.mark.slow, id="slices"),
    pytest.param(64, (32, 4), 128, 128, marks=pytest.mark.slow, id="small slices"),
    pytest.param(64, (32, 4), 64, 6, marks=pytest.mark.slow, id="small heads"),
    pytest.param(32, (64, 16), 128, 64, marks=pytest.mark.slow, id="half of a tile"),
    pytest.param(32, (32, 8), 64, 256, marks=pytest.mark.slow, id="large heads"),
]


@pytest.mark.parametrize(("rows", "form", "threads", "size"), FORMS)
def test_tiles_of_every_shape(
    rows: int, form: tuple[int, int], threads: int, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What large problems take on devices with much memory of a workgroup, in small."""
    monkeypatch.setattr(heuristics, "TILE_SHAPES", (form,))
    for name in ("ENOUGH_TILES", "ENOUGH_LARGE_TILES"):
        monkeypatch.setattr(heuristics, name, 1 if rows == heuristics.LARGE_TILE else 8)
    monkeypatch.setattr(heuristics, "LARGE_HEAD", 1024 if rows == heuristics.LARGE_TILE else 0)
    heuristics.split_results_shape.cache_clear()
    limits = replace(open_device().limits, max_invocations=threads, max_cooperating_threads=256)
    device = open_device(limits=limits)
    for cache in ("float32", "float16"):
        case = cases.cached("tiles", cache=cache, heads=(6, 2), size=size, capacity=300, sizes=(11, 43, 150, 29))
        sweep(case, limits, device, rounds=1)
    heuristics.split_results_shape.cache_clear()


@pytest.mark.parametrize("room", [16384, 32768, 49152, 65536])
@pytest.mark.parametrize("size", [1, 6, 64, 80, 128, 256, 300, 512])
def test_tiles_fit_workgroup_memory(size: int, room: int) -> None:
    for heads, rows in [(1, 20), (8, 300), (8, 8192)]:
        tile = heuristics.tile_of(heads, rows, size, 4096, Limits(max_workgroup_bytes=room))
        assert tile.nbytes <= room
        assert tile.value_keys * -(-size // 4) <= tile.keys * tile.depth
        assert tile.keys % tile.value_keys == 0
        assert 128 // (tile.rows // tile.thread_rows) <= tile.keys


FEW_THREADS = Limits(max_invocations=32, max_cooperating_threads=4, lanes=8)


def test_few_threads_have_one_kernel_without_barriers_for_all_rows() -> None:
    """Compilers of software adapters take seconds for a kernel: a token, a few and a prompt must share one."""
    states = [planned("sdpa_with_kv_cache.default", cached(rows, 512, 100), FEW_THREADS) for rows in (1, 2, 9, 64, 300)]
    (variant,) = {variant for state in states for variant, _ in state.nodes[0].group.route.dispatched[1:]}
    assert variant.kernel.name == "attention/lane_rows"
    assert "workgroupBarrier" not in variant.source


@pytest.mark.parametrize(("lanes", "size"), [(4, 20), (8, 20), (8, 48), (8, 6), (16, 64)])
def test_lanes_of_every_subgroup_and_head(lanes: int, size: int) -> None:
    """Shares of a key that do not fill the lanes, heads that are no whole vectors, rows that do not fill the lanes."""
    config = heuristics.lane_rows_config(size, lanes)
    vec4s = -(-size // 4)
    assert config["SHARES"] * config["SHARE_LANES"] >= vec4s
    assert config["SHARE_LANES"] <= lanes
    assert config["ROWS"] * config["SHARES"] * config["SHARE_LANES"] <= max(2 * heuristics.LANE_ROW_VEC4S, 2 * vec4s)
    own = open_device().limits
    if own.lanes != lanes:
        return  # the device's subgroups have another size; the text is the same
    limits = replace(own, max_cooperating_threads=4)
    for cache in ("float32", "float16"):
        case = cases.cached("lanes", cache=cache, heads=(6, 2), size=size, capacity=150, sizes=(1, 43, 11, 2))
        sweep(case, limits, open_device(limits=limits), rounds=1)


def test_short_contexts_need_one_dispatch() -> None:
    """For the token of a Llama with a billion parameters, where threads are there by the thousand."""
    gpu, cpu = Limits(), Limits(max_cooperating_threads=8)
    assert [heuristics.block_of(8, 4, 64, context, gpu).splits for context in (1, 512, 1024, 1025)] == [1, 1, 1, 17]
    assert heuristics.block_of(8, 4, 64, 512, gpu).rows == 1
    assert heuristics.block_of(8, 4, 64, 512, cpu).rows == 4, "few threads share what they read"
