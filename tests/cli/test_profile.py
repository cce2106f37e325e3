"""`liveshape profile` and `liveshape devices --measure`: what they print adds up, and rates are remembered."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from liveshape.cache_folder import cache_folder
from liveshape.device.backends import list_adapters, open_device
from liveshape.device.protocol import Clock, Command, Watched
from liveshape.plan.compiling import compile
from liveshape.run.executor import Executor
from liveshape.tools.commands import devices
from liveshape.tools.commands.profile import _print, _time
from liveshape.tools.measuring import rates
from liveshape.tools.measuring.profiling import PHASES, Profile, profiled, without_ticks
from liveshape.tools.measuring.rates import MEASURED, Rates, measure, rates_of
from liveshape.tools.measuring.remembered import recall, remember
from liveshape.tools.measuring.subject import Subject, Work, do, go_to_depth
from liveshape.tools.measuring.trace import trace
from tests.cli.calls import Capture, call
from tests.support.chains import Chain
from tests.support.paper import PaperDevice
from tests.survival.subjects import live_bytes

BLOCK = Path(__file__).parents[2] / "liveshape/demo/block.pte"
TOKENS = 3


@pytest.fixture(autouse=True)
def known_rates(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """A cache of its own, and nothing is measured; what would be comes back."""
    asked: list[str] = []

    def instead(device: Any, begin: Any) -> Rates:
        asked.append(device.name)
        return Rates(1e9, 2e9, None, 3e9, "2026-01-01")

    monkeypatch.setenv("LIVESHAPE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(rates, "measure", instead)
    return asked


@pytest.fixture(scope="module")
def generation() -> Profile:
    work = Work(tokens=TOKENS, depth=4)
    with Subject(shape="tiny").open([work], open_device()) as model:
        executor = model.engine.executor
        return profiled(
            executor, work.name, TOKENS, lambda: go_to_depth(model, work.depth), lambda: do(model, work), repeats=2
        )  # fmt: skip


def test_the_lines_add_up_to_the_time_of_the_device(generation: Profile) -> None:
    profile = generation
    for what in (lambda each: each.kernel, lambda each: each.operator, lambda each: each.layer):
        lines = profile.by(what)
        assert sum(line.seconds for line in lines) == pytest.approx(profile.device)
        assert sum(line.times for line in lines) == profile.dispatches
        assert sum(line.cost.nbytes for line in lines) == profile.cost.nbytes
    # Another run, with the clock around all commands at once: as near as a busy machine allows.
    assert 0.2 < profile.device / profile.whole < 5
    each = profile.dispatches // TOKENS
    ends = [command.end for command in profile.executed]
    assert ends == sorted(ends)
    for start in range(0, profile.dispatches, each):
        commands = profile.executed[start : start + each]
        span = commands[-1].end - commands[0].begin
        spent = sum(command.seconds for command in commands)
        assert spent <= span * (1 + 1e-9), "no two at once"
        if not profile.tick:
            assert spent == pytest.approx(span, rel=0.1), "nothing in between"


class ClockedDevice(PaperDevice):
    """Every command takes its place in the step in microseconds, and reading the clock takes `tick`."""

    def __init__(self, tick: float) -> None:
        super().__init__()
        self.tick = tick

    @contextmanager
    def watched(
        self, clock: Clock = Clock.NOTHING, note: Callable[[Sequence[Command]], None] | None = None
    ) -> Iterator[Watched]:
        submits: list[Sequence[Command]] = []

        def both(commands: Sequence[Command]) -> None:
            submits.append(commands)
            if note is not None:
                note(commands)

        with super().watched(clock, both) as watched:
            yield watched
        begin = 0.0
        for commands in submits if clock is not Clock.NOTHING else ():
            lengths = [1e-6 * (place + 1) for place in range(len(commands))]
            lengths = [sum(lengths)] if clock is Clock.SUBMITS else [length + self.tick for length in lengths]
            ends = list(accumulate(lengths, initial=begin))
            begin = ends[-1]
            watched.submits.append((commands, list(pairwise(ends))))


@pytest.mark.parametrize("tick", [0.0, 5e-6])
def test_the_time_of_the_clock_itself_is_taken_off(tick: float) -> None:
    chain = Chain()
    out = x = chain.input((4, 5))
    for _ in range(6):
        out = chain.node("aten.add.Tensor", out, x, 1, chain.tensor((4, 5)))
    device = ClockedDevice(tick)
    executor = Executor(compile(chain.graph(out)), device)
    profile = profiled(executor, "call", 1, device.flush, lambda: executor.execute([np.zeros((4, 5), np.float32)]))
    assert profile.tick == pytest.approx(tick)
    assert profile.device == pytest.approx(profile.whole) == pytest.approx(21e-6)
    assert [command.seconds for command in profile.executed] == pytest.approx([1e-6 * (n + 1) for n in range(6)])


def test_a_command_is_never_shorter_than_nothing() -> None:
    seconds, tick = without_ticks([1e-6, 2e-6, 9e-6], 6e-6)
    assert tick == pytest.approx(2e-6)
    assert seconds == pytest.approx([0.0, 0.0, 6e-6])
    assert without_ticks([1.0, 2.0], 0.0) == ([1.0, 2.0], 0.0), "a clock that says nothing takes nothing off"


def test_what_was_taken_off_is_said(capsys: Capture, generation: Profile) -> None:
    count = len(generation.executed)
    _print(replace(generation, tick=5e-6), open_device(), Rates(1e9, 2e9, None, 3e9, "2026-01-01"))
    out = capsys.readouterr().out
    assert f"without 5.0 us for each command, {_time(5e-6 * count / TOKENS)} in all" in out


def test_the_host_is_told_by_phases_and_counts(generation: Profile) -> None:
    profile = generation
    assert set(profile.host) == set(PHASES)
    assert all(seconds > 0 for seconds in profile.host.values())
    assert sum(profile.host.values()) < profile.seconds
    assert profile.dispatches % TOKENS == 0
    assert profile.param_bytes > 0
    assert profile.submits >= TOKENS


def test_a_trace_has_the_host_and_every_command(generation: Profile) -> None:
    events = [event for event in json.loads(trace([generation]))["traceEvents"] if event["ph"] == "X"]
    on_device = [event for event in events if event["pid"] == 2]
    assert len(on_device) == generation.dispatches
    assert sum(event["dur"] for event in on_device) == pytest.approx(1e6 * generation.device)
    host = {event["name"] for event in events if event["pid"] == 1}
    assert host == {*PHASES, "tg3 @ d4"}
    submitted = min(event["ts"] + event["dur"] for event in events if event["name"] == "submit")
    assert min(event["ts"] for event in on_device) == pytest.approx(submitted)


def test_a_program_is_profiled_and_traced(capsys: Capture, tmp_path: Path, known_rates: list[str]) -> None:
    file = tmp_path / "trace.json"
    code, out, err = call(capsys, "profile", "demo", "--input-shapes", "1x7x64", "--json", "--trace", file)
    document = json.loads(out)
    (profile,) = document["profiles"]
    assert code == 0
    assert profile["name"] == "forward 1x7x64"
    assert sum(line["seconds"] for line in profile["by_kernel"]) == pytest.approx(profile["device_seconds"])
    nodes = profile["by_node"]
    assert sum(line["seconds"] for line in nodes) == pytest.approx(profile["device_seconds"])
    assert all(line["sources"] and "(forward, instruction" in line["sources"][0] for line in nodes), "of the file"
    assert document["rates"]["copy"] == 1e9
    assert len(known_rates) == 1
    assert "ui.perfetto.dev" in err
    assert json.loads(file.read_text())["traceEvents"]


def test_without_timestamps_the_host_is_all_there_is(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_device(), "has_clock", False)
    code, out, _ = call(capsys, "profile", BLOCK, "--input-shapes", "1x7x64")
    assert code == 0
    assert "no timestamps" in out
    assert "plan" in out
    assert "by kernel" not in out


def test_every_line_says_how_near_it_is(capsys: Capture) -> None:
    code, out, _ = call(capsys, "profile", BLOCK, "--input-shapes", "1x7x64")
    assert code == 0
    for word in ("by kernel", "by operator", "share", "of copy", "of f32", "dispatches", "bytes of params written"):
        assert word in out


# Rates


def test_an_adapter_is_measured_once_and_again_if_asked(capsys: Capture, known_rates: list[str]) -> None:
    count = len(list_adapters())
    for expected, option in ((1, "--measure"), (1, "--measure"), (2, "--remeasure")):
        code, out, _ = call(capsys, "devices", option)
        assert code == 0
        assert "1.00 GB/s" in out
        assert "3.00 Gop/s" in out
        assert len(known_rates) == expected * count
    _, out, _ = call(capsys, "devices", "--measure", "--json")
    assert json.loads(out)["adapters"][0]["rates"]["f32"] == 2e9


def test_a_damaged_memory_is_none(known_rates: list[str]) -> None:
    device = open_device()
    remember(device.adapter, "rates", {"copy": 1.0, "of another version": 2.0})
    assert recall(device.adapter, "rates")["copy"] == 1.0
    assert rates_of(device).copy == 1e9
    (cache_folder() / "rates.json").write_text("{")
    assert recall(device.adapter, "rates") is None
    assert rates_of(device).copy == 1e9
    assert len(known_rates) == 2


def test_a_folder_that_cannot_be_written_costs_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("LIVESHAPE_CACHE", str(tmp_path / "file" / "folder"))
    assert rates_of(open_device()).copy == 1e9


def test_rates_are_measured_and_leave_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rates, "_COPIED_BY_SOFTWARE", 1 << 20)
    monkeypatch.setattr(rates, "_ENOUGH", 1e-4)
    device = open_device()
    before, told = live_bytes(device), []
    found = measure(device, told.append)
    assert found.copy > 0
    assert found.f32 > 0
    assert (found.f16 is not None) == device.limits.half
    assert found.int8 is None or found.int8 > 0
    assert tuple(told) == MEASURED
    assert live_bytes(device) == before
    assert devices.rate_text(found.copy, "B/s").endswith("B/s")
