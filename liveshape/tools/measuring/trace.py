"""Profiles as Chrome trace JSON for Perfetto (ui.perfetto.dev) and chrome://tracing: the host above the device.

The two clocks are aligned by starting a workload's first dispatch where the host ended its first submit.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from liveshape.tools.measuring.profiling import Profile

_HOST, _DEVICE = 1, 2


def trace(profiles: Sequence[Profile]) -> str:
    """The trace file as JSON text.

    Example: `Path("trace.json").write_text(trace(profiles))`.
    """
    events: list[dict[str, Any]] = [
        {"ph": "M", "name": "process_name", "pid": pid, "args": {"name": name}}
        for pid, name in ((_HOST, "host"), (_DEVICE, "device"))
    ]
    for profile in profiles:
        events += _events(profile)
    return json.dumps({"displayTimeUnit": "ns", "traceEvents": events})


def _events(profile: Profile) -> Iterator[dict[str, Any]]:
    start = min((begin for _, begin, _ in profile.spans), default=0.0)
    stop = max((end for _, _, end in profile.spans), default=0.0)
    yield _event(_HOST, 0, profile.name, start, stop)
    for name, begin, end in profile.spans:
        yield _event(_HOST, 1, name, begin, end)
    if not profile.executed:
        return
    submitted = next((end for name, _, end in profile.spans if name == "submit"), start)
    ahead = submitted - profile.executed[0].begin
    for command in profile.executed:
        yield _event(
            _DEVICE,
            1,
            command.kernel,
            command.begin + ahead,
            command.end + ahead,
            node=command.label,
            layer=command.layer,
            sources=list(command.sources),
            bytes_read=command.cost.read,
            bytes_written=command.cost.written,
            operations=command.cost.operations,
        )


def _event(pid: int, thread: int, name: str, begin: float, end: float, **more: Any) -> dict[str, Any]:
    """A complete event ("X"), in microseconds."""
    return {
        "ph": "X", "name": name, "pid": pid, "tid": thread, "ts": 1e6 * begin, "dur": 1e6 * (end - begin), "args": more
    }  # fmt: skip
