"""Kernels compiled by several threads: each once, whoever needs it first; errors name the node; nothing is left behind,
wherever a load ends."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from types import FrameType
from typing import Any

import numpy as np
import pytest

from liveshape.device import compile_threads
from liveshape.device.compile_threads import CompileThreads
from liveshape.device.pipelines import Pipeline, Pipelines
from liveshape.device.webgpu import WebGpuDevice
from liveshape.errors import DeviceError
from liveshape.kernels import Variant
from liveshape.plan.compiling import compile
from liveshape.run.executor import Executor
from tests.device.test_pipelines import check, device_with, grown, objects, plus, variants
from tests.support.chains import executor_of
from tests.survival.lines import Lines

TERMS = range(8001, 8013)


def living() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name == "liveshape compiles"]


@pytest.fixture(autouse=True)
def four_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compile_threads.os, "cpu_count", lambda: 4)


class Slow:
    """A compiler that waits until so many threads are in it, and counts who is."""

    def __init__(self, together: int) -> None:
        self.meeting = threading.Barrier(together)
        self.counts: Counter[Variant] = Counter()
        self.names: set[str] = set()

    def __call__(self, variant: Variant) -> Pipeline:
        self.counts[variant] += 1
        self.names.add(threading.current_thread().name)
        self.meeting.wait(600)
        return Pipeline(variant, object(), object())


def test_kernels_are_compiled_at_once_and_each_once() -> None:
    slow = Slow(together=4)
    made, wanted = Pipelines(slow, most=0), variants(12)
    threads = CompileThreads(made.get, wanted, most=4)
    threads.start()
    found = [made.get(variant) for variant in wanted]  # a fifth, which waits for those that others have begun
    threads.close()
    assert [each.variant for each in found] == wanted
    assert set(slow.counts.values()) == {1}
    assert slow.names <= {"liveshape compiles", threading.current_thread().name}
    assert not living()
    assert not made._turns


def test_what_loading_waits_for_comes_first_then_the_longest_texts() -> None:
    wanted, begun = variants(6), list[Variant]()
    first = sorted(wanted, key=lambda each: len(each.source))[:2]
    threads = CompileThreads(begun.append, wanted, 1, first)
    threads.start()
    threads._threads[0].join()
    lengths = [len(each.source) for each in begun]
    assert {*begun[:2]} == {*first}
    assert lengths == sorted(lengths[:2], reverse=True) + sorted(lengths[2:], reverse=True)


def test_one_waits_for_the_kernel_that_another_compiles_and_for_no_other() -> None:
    first, second = variants(2)
    begun, gate = threading.Event(), threading.Event()

    def compile(variant: Variant) -> Pipeline:
        if variant is first:
            begun.set()
            assert gate.wait(600)
        return Pipeline(variant, object(), object())

    made, found = Pipelines(compile), list[Pipeline]()
    threads = [threading.Thread(target=lambda: found.append(made.get(first))) for _ in range(3)]
    for thread in threads:
        thread.start()
    assert begun.wait(600)
    assert made.get(second).variant is second
    assert not found
    gate.set()
    for thread in threads:
        thread.join()
    assert len({*found}) == 1


def names_of(device: WebGpuDevice) -> list[str]:
    """The threads in which it compiles from now on."""
    names, inner = list[str](), device._pipelines._compile

    def noted(variant: Variant) -> Pipeline:
        names.append(threading.current_thread().name)
        return inner(variant)

    device._pipelines._compile = noted
    return names


@pytest.mark.parametrize("most", [0, 128])
def test_a_load_compiles_in_threads(most: int) -> None:
    """And the kernels that nobody has bound yet are there when they are, however few are kept."""
    device = device_with(most)
    names = names_of(device)
    executor = executor_of(plus(*TERMS), device)
    assert "liveshape compiles" in names
    assert len(names) == device.counters.pipelines == len(TERMS)
    check(executor, sum(TERMS))
    executor.close()
    del executor
    assert not living()
    assert len(list(device._pipelines)) == min(most, len(TERMS))


def test_one_kernel_is_compiled_by_its_thread_alone() -> None:
    device = device_with(1)
    names = names_of(device)
    check(executor_of(plus(8101), device), 8101)
    assert names == [threading.current_thread().name]


def broken(device: WebGpuDevice, term: int) -> Callable[[], None]:
    """Make one kernel a text that no compiler takes; the result mends it."""
    inner = device._library.compile

    def compile(handle: Any, variant: Variant, native: Any) -> Any:
        if dict(variant.constants).get("TERM") != f"{term}u":
            return inner(handle, variant, native)
        return handle.create_shader_module(code="fn main( {", label=variant.label)

    object.__setattr__(device._library, "compile", compile)
    return lambda: object.__setattr__(device._library, "compile", inner)


@pytest.mark.parametrize("place", [0, 5, 11])
def test_what_does_not_compile_is_named_with_its_node(place: int) -> None:
    device = device_with(4)
    executor_of(plus(*TERMS), device).close()
    before, nbytes = objects(), device.counters.live_bytes
    terms = range(8201, 8213)
    mend = broken(device, terms[place])
    try:
        with pytest.raises(DeviceError, match=rf"plus {terms[place]}: kernel plus<.*TERM={terms[place]}u.* does not"):
            executor_of(plus(*terms), device)
    finally:
        mend()
    assert not living()
    assert not grown(before)
    assert device.counters.live_bytes == nbytes
    check(executor_of(plus(*terms), device), sum(terms))


class LinesOfLoads(Lines):
    """Those of threads, of their pipelines, and of who waits for them."""

    def _calls(self, frame: FrameType, event: str, argument: Any) -> Any:
        ours = frame.f_code.co_filename.endswith(("compile_threads.py", "pipelines.py", "executor.py"))
        return super()._calls(frame, event, argument) if ours else None


def test_an_interrupt_at_any_line_of_a_load_leaves_nothing() -> None:
    device = device_with(0)
    terms = TERMS[:6]
    check(executor_of(plus(*terms), device), sum(terms))
    before, nbytes = objects(), device.counters.live_bytes
    plan = compile(plus(*terms), device.limits)
    lines = LinesOfLoads()
    lines.over(lambda: Executor(plan, device).close())
    assert lines.count > 100
    for at in range(1, lines.count + 1):
        cut = LinesOfLoads(at)
        cut.over(lambda: Executor(plan, device).close())
        for thread in threading.enumerate():
            if thread.name == "liveshape compiles":
                thread.join(600)  # of an interrupt within `close`, or before it
        assert len(device._pipelines._recent) <= 1, cut.where  # one more than it keeps, until the next
        device._pipelines.clear()
        assert not grown(before), cut.where
        assert device.counters.live_bytes == nbytes, cut.where
    check(executor_of(plus(*terms), device), sum(terms))


def test_threads_of_a_load_that_failed_stop() -> None:
    """What was not begun is compiled by nobody, and what was is let go."""
    slow = Slow(together=5)
    made = Pipelines(slow, most=0)
    threads = CompileThreads(made.get, variants(30), most=4)
    threads.start()
    while sum(slow.counts.values()) < 4:
        time.sleep(1e-3)
    threading.Timer(0.2, slow.meeting.wait).start()
    threads.close()
    assert sum(slow.counts.values()) == 4
    assert not list(made)
    assert not living()


def test_loads_in_several_threads_share_what_they_compile() -> None:
    device, wrong = device_with(64), list[str]()
    terms = range(8301, 8313)

    def load() -> None:
        try:
            check(executor_of(plus(*terms), device), sum(terms))
        except BaseException as error:
            wrong.append(repr(error))

    threads = [threading.Thread(target=load) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert device.counters.pipelines == len(terms)
    assert np.isfinite(device.counters.live_bytes)
