"""What outlives a call, and which of it is rows at positions: as the operators say, whatever the sizes are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from liveshape.errors import UnsupportedError
from liveshape.graph import Limits, Tensor
from liveshape.graph.constants import all_bytes
from liveshape.graph.state import State, states_of
from liveshape.llm.program.half_cache import halve_caches
from liveshape.llm.program.token_graph import at_positions
from tests.support.chains import Chain

ROWS, HEADS, SIZE, CONTEXT = 4, 2, 8, 16


class Attention(Chain):
    """Queries, keys and values that come from outside, two caches, and a position."""

    def __init__(self) -> None:
        super().__init__()
        self.given = [self.input((1, ROWS, HEADS, SIZE)) for _ in range(3)]
        self.position = self.input((1,), "int64")
        self.caches = [self.constant(np.ones((1, CONTEXT, HEADS, SIZE), np.float32)) for _ in range(2)]
        self.begin = self.node("et_vk.select_as_symint.default", self.position, 0, 0, self.scalar())

    def attend(self, begin: Any = None, mask: Any = None, causal: bool | None = None) -> Tensor:
        begin = self.begin if begin is None else begin
        causal = mask is None if causal is None else causal
        out = self.tensor((1, ROWS, HEADS, SIZE))
        args = (*self.given, *self.caches, begin, 1, mask, 0.0, causal, None, out)
        return self.node("sdpa_with_kv_cache.default", *args)  # type: ignore[no-any-return]

    def states(self, *outputs: Any) -> tuple[State, ...]:
        return at_positions(self.graph(*outputs), self.position)

    def axes(self, *outputs: Any) -> list[int | None]:
        return [state.axis for state in self.states(*outputs)]


def test_caches_of_attention_are_kv_caches() -> None:
    chain = Attention()
    states = chain.states(chain.attend())
    assert [(state.tensor, state.axis) for state in states] == [(cache, 1) for cache in chain.caches]
    assert all(state.starts == (chain.begin,) for state in states)


def test_an_update_and_a_reader_behind_it() -> None:
    chain = Attention()
    for cache in chain.caches:
        chain.node("update_cache.default", chain.given[1], cache, chain.begin, cache)
    out = chain.tensor((1, ROWS, HEADS, SIZE))
    chain.node("custom_sdpa.default", chain.given[0], *chain.caches, chain.begin, None, 0.0, True, None, out)
    assert chain.axes(out) == [1, 1]


def test_a_reader_before_the_update_sees_rows_of_another_text() -> None:
    chain = Attention()
    out = chain.tensor((1, ROWS, HEADS, SIZE))
    chain.node("custom_sdpa.default", chain.given[0], *chain.caches, chain.begin, None, 0.0, True, None, out)
    for cache in chain.caches:
        chain.node("update_cache.default", chain.given[1], cache, chain.begin, chain.tensor((1,)))
    assert chain.axes(out) == [None, None]


def test_a_mask_may_look_at_every_row() -> None:
    chain = Attention()
    mask = chain.input((ROWS, CONTEXT))
    assert chain.axes(chain.attend(mask=mask)) == [None, None]


def test_a_mask_of_causal_attention_looks_at_no_row_behind() -> None:
    chain = Attention()
    mask = chain.input((ROWS, CONTEXT))
    assert chain.axes(chain.attend(mask=mask, causal=True)) == [1, 1]


@pytest.mark.parametrize(
    ("sized", "begin", "axis", "found"),
    [
        ("rows", "position", 1, 1),
        ("rows", "elsewhere", 1, None),
        ("others", "position", 1, None),
        ("cache", "position", 1, None),
        ("rows", "position", 2, None),
    ],
)
def test_a_slice_that_ends_with_the_new_rows(sized: str, begin: str, axis: int, found: int | None) -> None:
    """It is known only where its end is the position plus the size of what was written, along the rows."""
    chain = Attention()
    rows, cache = chain.given[0], chain.caches[0]
    chain.node("update_cache.default", rows, cache, chain.begin, chain.tensor((1,)))
    elsewhere = chain.node("add", chain.begin, 1, chain.scalar())
    tensor = {"rows": rows, "others": chain.given[1], "cache": cache}[sized]
    count = chain.node("sym_size.int", tensor, 1, chain.scalar())
    end = chain.node("add", {"position": chain.begin, "elsewhere": elsewhere}[begin], count, chain.scalar())
    out = chain.node("aten.slice_copy.Tensor", cache, axis, 0, end, 1, chain.tensor((1, CONTEXT, HEADS, SIZE)))
    assert chain.axes(out) == [found]


@pytest.mark.parametrize("operator", ["mod", "sub", "add"])
def test_rows_that_begin_elsewhere_are_no_kv_cache(operator: str) -> None:
    chain = Attention()
    moved = chain.node(operator, chain.begin, 3, chain.scalar())
    assert chain.axes(chain.attend(moved)) == [None, None]


def test_rows_that_begin_at_a_constant_are_no_kv_cache() -> None:
    chain = Attention()
    assert chain.axes(chain.attend(0)) == [None, None]


@pytest.mark.parametrize("index", [0, 1])
def test_a_position_through_views(index: int) -> None:
    chain = Attention()
    rows = chain.input((ROWS,), "int64")
    view = chain.node("aten.view_copy.default", rows, (1, ROWS), chain.tensor((1, ROWS), "int64"))
    one = chain.node("aten.select_copy.int", view, 1, index, chain.tensor((1,), "int64"))
    begin = chain.node("aten::_local_scalar_dense", one, chain.scalar())
    states = at_positions(chain.graph(chain.attend(begin)), rows)
    assert [state.axis for state in states] == ([1, 1] if index == 0 else [None, None]), "the first of them alone"


def test_a_view_of_a_cache_makes_it_one_whole() -> None:
    chain = Attention()
    out = chain.attend()
    chain.node("aten.view_copy.default", chain.caches[0], (CONTEXT, -1), chain.tensor((CONTEXT, HEADS * SIZE)))
    assert chain.axes(out) == [None, 1]


def test_a_cache_that_the_caller_gets_is_one_whole() -> None:
    chain = Attention()
    assert chain.axes(chain.attend(), chain.caches[0]) == [None, 1]


def test_a_step_that_may_be_skipped_keeps_no_rows() -> None:
    chain = Attention()
    chain.node("liveshape.jump_false", chain.scalar(given=True), 3, None)
    assert chain.axes(chain.attend()) == [None, None]


def recurrent(shape: tuple[int, ...]) -> tuple[Chain, Tensor, Tensor]:
    chain = Chain()
    x, state = chain.input(shape), chain.constant(np.zeros(shape, np.float32))
    new = chain.node("aten.add.Tensor", state, x, 1, chain.tensor(shape))
    chain.node("liveshape.move", new, state)
    return chain, state, new


@pytest.mark.parametrize("shape", [(CONTEXT,), (1, CONTEXT), (1, CONTEXT, HEADS, SIZE)])
def test_recurrent_state_as_long_as_the_context_is_one_whole(shape: tuple[int, ...]) -> None:
    chain, state, new = recurrent(shape)
    assert states_of(chain.graph(new)) == (State(state),)


def test_what_is_read_first_outlives_a_call_even_if_nobody_marked_it() -> None:
    chain = Chain()
    x, state = chain.input((4,)), chain.tensor((4,))
    new = chain.node("aten.add.Tensor", state, x, 1, chain.tensor((4,)))
    chain.node("liveshape.move", new, state)
    assert states_of(chain.graph(new)) == (State(state),)


def test_inputs_constants_and_results_are_no_state() -> None:
    chain = Chain()
    x, weight = chain.input((4,)), chain.constant(np.ones(4, np.float32))
    total = chain.node("aten.add.Tensor", x, weight, 1, chain.tensor((4,)))
    chain.node("liveshape.move", total, x)
    assert states_of(chain.graph(total)) == ()


def test_halves_are_a_new_graph_and_the_old_one_stays() -> None:
    chain = Attention()
    graph = chain.graph(chain.attend())
    args = [node.args for node in graph.nodes]
    halved = halve_caches(graph)
    assert [(cache.dtype, len(all_bytes(cache.constant))) for cache in chain.caches if cache.constant] == [
        ("float32", 4 * CONTEXT * HEADS * SIZE)
    ] * 2
    assert [node.args for node in graph.nodes] == args
    assert all(cache in graph.values and cache not in halved.values for cache in chain.caches)
    states = at_positions(halved, chain.position)
    assert [(state.tensor.dtype, state.axis) for state in states] == [("float16", 1)] * 2
    for state in states:
        assert state.tensor.constant is not None
        assert (np.frombuffer(all_bytes(state.tensor.constant), np.float16) == 1).all()


def test_halves_without_f16_are_told(caplog: pytest.LogCaptureFixture) -> None:
    chain = Attention()
    graph = chain.graph(chain.attend())
    for limits, told in ((None, 0), (Limits(half=True), 0), (Limits(half=False), 1)):
        caplog.clear()
        halve_caches(graph, limits=limits)
        assert caplog.text.count("saves no memory on this device: it has no f16") == told


def test_state_that_is_no_cache_is_not_halved() -> None:
    chain, _, new = recurrent((1, CONTEXT, HEADS, SIZE))
    with pytest.raises(UnsupportedError, match="has no cache inside of attention"):
        halve_caches(chain.graph(new))


def test_a_pool_of_slots_is_no_cache_of_positions() -> None:
    chain = Attention()
    places = chain.input((ROWS, 2), "int32")
    chain.node("liveshape.update_caches", *chain.given[1:], *chain.caches, places, None)
    out = chain.node(
        "custom_sdpa.default",
        chain.given[0],
        *chain.caches,
        0,
        None,
        0.0,
        True,
        None,
        chain.tensor((1, ROWS, HEADS, SIZE)),
    )
    assert [state.axis for state in states_of(chain.graph(out))] == [None, None]
