"""What a token costs the host, as counts that no machine changes: generators that run, uploads, submits."""

from __future__ import annotations

import pytest

from bench.host import Decoding, reduced

TOKENS = 100


@pytest.fixture(scope="module", params=[4, 16, 64])
def decoding(request: pytest.FixtureRequest) -> Decoding:
    made = Decoding(reduced(request.param))
    made.tokens(5)  # plans at new live shapes, and traces
    return made


def test_a_token_costs_the_same_at_every_depth(decoding: Decoding) -> None:
    live, device = decoding.engine.executor.live, decoding.device
    counters = device.counters
    planned, submits, writes = live.planned, counters.submits, dict(device.writes)
    made = counters.buffers, counters.bind_groups
    decoding.tokens(TOKENS)
    assert live is decoding.engine.executor.live
    # Position and length; all that follows from them is computed by what was traced.
    assert live.planned - planned == 2 * TOKENS
    assert counters.submits - submits == TOKENS
    assert {label: count - writes.get(label, 0) for label, count in device.writes.items()} == {
        **dict.fromkeys(writes, 0),
        "params": TOKENS,
        _position(decoding): TOKENS,
    }
    assert (counters.buffers, counters.bind_groups) == made


def _position(decoding: Decoding) -> str:
    """The buffer of the one input that the host gives; the token is on the device already."""
    executor = decoding.engine.executor
    (_, position) = executor.graph.inputs
    block = executor.plan.memory.storages[position].block  # type: ignore[index]
    return f"{executor.graph.name} block {block}"
