"""Plans that are computed by a trace: as long as that is of use, and never at the price of a call. No GPU."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from liveshape.errors import PlanError
from liveshape.graph.live import LiveTensor
from liveshape.kernels import Kernel
from liveshape.ops.registry import OPS, op
from liveshape.plan import plan_state as engine
from liveshape.plan.compiling import compile
from liveshape.plan.plan_state import PlanState
from liveshape.plan.tracing import Trace
from tests.plan.test_classes import described, walked
from tests.support.chains import Chain

_KERNEL = Kernel.parse(
    "test/strange",
    """
override WG: u32 = 64;

struct Params {
    count: u32,
}
@group(0) @binding(0) var<storage, read_write> out: array<vec4<T>>;
@group(0) @binding(1) var<storage, read> x: array<vec4<T>>;
@group(0) @binding(2) var<uniform> params: Params;

fn each(i: u32) {
    out[i] = x[i];
}

#include common/each
""",
)
_NAME = "test.strange"


def made(count: Any) -> Any:
    """An operator whose step has a number that a function makes of a live one."""

    @op(_NAME)
    def strange(x: LiveTensor, n: int, out: LiveTensor) -> Any:
        out.shape = x.shape
        yield _KERNEL(out, x, count=count(n), threads=x.numel)

    return strange


@pytest.fixture(autouse=True)
def only_here() -> Iterator[None]:
    yield
    OPS.pop(_NAME, None)


def live_of(count: Any) -> tuple[PlanState, Any, Any]:
    made(count)
    chain = Chain()
    x, n = chain.input((8,)), chain.scalar(given=True)
    return PlanState(compile(chain.graph(chain.node(_NAME, x, n, chain.tensor((8,)))))), x, n


def asked(live: PlanState, n: Any, value: int) -> int:
    """How many operators are asked for a plan."""
    live.set(n, value)
    return walked(live)


@pytest.mark.parametrize("tokens", [4, 3])
def test_prompts_and_tokens_in_turn_are_computed_for_ever(tokens: int) -> None:
    """A trace was given up for good after 32 calls, though each of them had been of use."""
    live, x, n = live_of(lambda n: n + 1)
    position = 100
    for _ in range(100):
        live.set(x, (7,))
        asked(live, n, position := position + 7)
        live.set(x, (1,))
        counts = [asked(live, n, position := position + 1) for _ in range(tokens)]
        assert counts[2:] == [0] * (tokens - 2)


def test_a_long_text_after_many_short_ones_is_computed() -> None:
    """Traces that were never replayed are made more rarely, but not never again."""
    live, x, n = live_of(lambda n: n + 1)
    position = 100
    for _ in range(60):
        live.set(x, (7,))
        asked(live, n, position := position + 7)
        live.set(x, (1,))
        for _ in range(2):
            asked(live, n, position := position + 1)
    counts = [asked(live, n, position := position + 1) for _ in range(2 * engine._PAUSE)]
    assert set(counts[engine._PAUSE :]) == {0}


def test_a_branch_that_differs_at_every_call_is_seldom_traced(monkeypatch: pytest.MonkeyPatch) -> None:
    live, _, n = live_of(lambda n: n + 1 if n % 2 == 0 else n + 2)
    traces: list[Trace] = []

    def counted() -> Trace:
        traces.append(Trace())
        return traces[-1]

    monkeypatch.setattr(engine, "Trace", counted)
    for value in range(300):
        assert asked(live, n, 100 + value) == 1
    assert 0 < len(traces) < 40


OPERATIONS = {
    "bit_length": lambda n: n.bit_length() + 1,
    "shift": lambda n: n << 1,
    "power": lambda n: n**2 % 1000,
    "divmod": lambda n: divmod(n, 3)[0],
    "float": lambda n: int(float(n)),
    "abs": lambda n: abs(n),
    "index": lambda n: [1, 2, 3][n % 3],
    "type": lambda n: n + 1 if type(n) is int else 1 // 0,
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_an_operation_that_no_trace_knows_ends_the_trace_not_the_call(name: str) -> None:
    live, _, n = live_of(OPERATIONS[name])
    plain, _, other = live_of(OPERATIONS[name])
    for value in (5, 6, 7, 8, 21):
        asked(live, n, value)
        plain.invalidate()
        plain.nodes[0].group.cached_plans.clear()
        plain.nodes[0].group.traced = None
        asked(plain, other, value)
        assert described(live) == described(plain)


def test_an_operator_that_fails_is_told_as_itself() -> None:
    """Traced or not: what the plain plan raises is what the caller hears."""
    live, _, n = live_of(lambda n: 100 // (9 - n))
    for value in (5, 6, 7, 8):
        asked(live, n, value)
    with pytest.raises(PlanError, match="ZeroDivisionError"):
        asked(live, n, 9)
    assert asked(live, n, 7) == 1
