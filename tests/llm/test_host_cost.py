"""What a token costs the host, as counts that no machine changes: generators that run, uploads, submits."""

from __future__ import annotations

from bench.host import Decoding, reduced

TOKENS = 100


def planned_by_tokens(layers: int) -> int:
    """Generators that ran; everything else is the same for every token, or fails here."""
    decoding = Decoding(reduced(layers))
    decoding.tokens(5)  # plans at new live shapes, and traces
    executor, device = decoding.engine.executor, decoding.device
    live, counters = executor.live, device.counters
    planned, submits, writes = live.planned, counters.submits, dict(device.writes)
    made = counters.buffers, counters.bind_groups
    decoding.tokens(TOKENS)
    assert live is executor.live, "nothing was thrown away"
    assert counters.submits - submits == TOKENS
    # The token is on the device already, and the position is read on the host alone.
    assert executor.graph.inputs[1] not in executor.plan.memory.storages
    assert {label: count - writes.get(label, 0) for label, count in device.writes.items()} == {
        **dict.fromkeys(writes, 0),
        "params": TOKENS,
    }
    assert (counters.buffers, counters.bind_groups) == made
    return live.planned - planned


def test_a_token_costs_the_same_at_every_depth() -> None:
    counts = {layers: planned_by_tokens(layers) for layers in (4, 16, 64)}
    # Position and length; all that follows from them is computed by what was traced.
    assert max(counts.values()) <= 3 * TOKENS
    assert len(set(counts.values())) == 1, counts
