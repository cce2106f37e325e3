"""Submits that are left to a thread: in order with everything else, and what goes wrong in them is told."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from liveshape.device.adapters import usable_adapters
from liveshape.device.library import SubmitHeuristics
from liveshape.device.webgpu import WebGpuDevice
from liveshape.device.worker import Job, Worker
from liveshape.errors import DeviceError
from liveshape.run.executor import Executor
from tests.device.library import LIBRARY
from tests.support.chains import Chain, executor_of


@pytest.fixture
def device() -> WebGpuDevice:
    """A device that leaves every submit to its thread while it is at work, as only a GPU does."""
    made = WebGpuDevice(LIBRARY, usable_adapters(LIBRARY)[0], 0)
    made.adapter = replace(made.adapter, software=False)
    made._submitter.recorder.heuristics = SubmitHeuristics(deferred=1, pieces=160, first_piece=32)
    return made


class Counted:
    """A recorder that counts on which thread it finishes an encoder, and may refuse to."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self.threads: list[str] = []
        self.refuses = False
        self.refusing: Iterator[bool] = iter(())  # of the next ones, each
        self.gate = threading.Event()
        self.gate.set()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def finish(self, encoder: Any) -> Any:
        self.gate.wait(1800)
        self.threads.append(threading.current_thread().name)
        if next(self.refusing, self.refuses):
            raise ValueError("the end is refused")
        return self._inner.finish(encoder)


def counted(device: WebGpuDevice) -> Counted:
    recorder = Counted(device._submitter.recorder)
    device._submitter.recorder = recorder
    return recorder


def doubling(device: WebGpuDevice, rows: int = 9) -> Executor:
    """x -> 2x"""
    chain = Chain()
    x = chain.input((rows, 3))
    return executor_of(chain.graph(chain.node("aten.add.Tensor", x, x, 1, chain.tensor((rows, 3)))), device)


def test_calls_keep_their_order_and_their_errors() -> None:
    worker, seen = Worker("test"), list[int]()
    gate = threading.Event()
    jobs = [worker.start(lambda: gate.wait(1800))] + [worker.start(lambda n=n: seen.append(n)) for n in range(50)]
    assert worker.busy
    assert not seen
    gate.set()
    worker.drain()
    assert not worker.busy
    assert seen == list(range(50))
    assert jobs[0].wait() is True
    failing = worker.start(lambda: 1 // 0)
    for _ in range(2):  # as often as it is asked for
        with pytest.raises(ZeroDivisionError):
            failing.wait()
    assert worker.start(lambda: 7).wait() == 7


def test_one_who_was_not_woken_is_woken_by_who_waits() -> None:
    """An interrupt between putting a call and waking the thread."""
    worker = Worker("test")
    worker.start(lambda: None).wait()
    wake = worker._line.wake
    worker._line.wake = type("Lost", (), {"put": lambda self, value: None})()
    job = worker.start(lambda: 3)
    worker._line.wake = wake
    assert job.wait() == 3


def test_a_second_thread_makes_no_call_twice() -> None:
    """An interrupt between the start of the thread and the note of it."""
    worker, seen = Worker("test"), list[int]()
    worker.start(lambda: None).wait()
    worker._line.thread = None
    for n in range(500):
        worker.start(lambda n=n: seen.append(n))
    worker.drain()
    assert seen == list(range(500))


LATE = """
import atexit
from liveshape.device.worker import Worker
from tests.device.library import LIBRARY

class Last:
    def __init__(self, worker): self.worker = worker
    def __del__(self): print("at the end", self.worker.start(lambda: 4).wait(), flush=True)

def late():  # registered before the worker's own end, so called after it
    print("late", worker.start(lambda: 2).wait(), worker.start(lambda: 3).wait(), flush=True)

atexit.register(late)
worker = Worker("test")
print(worker.start(lambda: 1).wait())
last = Last(worker)
"""


def test_calls_end_however_late_they_are_put() -> None:
    """After the finalizer of the worker, and when the interpreter has no threads any more."""
    done = subprocess.run([sys.executable, "-c", LATE], capture_output=True, text=True, timeout=1800, check=False)
    assert (done.returncode, done.stdout.split("\n")) == (0, ["1", "late 2 3", "at the end 4", ""]), done.stderr


def test_a_worker_that_was_collected_and_lives_on_makes_calls() -> None:
    """In a garbage cycle its finalizer may come before a destructor that still reads."""
    worker = Worker("test")
    for turn in range(3):
        assert worker.start(lambda turn=turn: turn).wait() == turn
        worker._line.stop()
    job = worker.start(lambda: 1)
    worker._line.stop()
    assert job.wait() == 1


def test_a_call_is_made_by_whoever_puts_it_where_no_thread_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    """As at the end of a process, from Python 3.12 on."""

    def refused(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread at interpreter shutdown")

    worker = Worker("test")
    monkeypatch.setattr(threading.Thread, "start", refused)
    assert [worker.start(lambda n=n: n).wait() for n in range(3)] == [0, 1, 2]


def test_several_wait_for_one() -> None:
    worker, gate, found = Worker("test"), threading.Event(), list[int]()
    job = worker.start(lambda: gate.wait(1800) and 5)
    threads = [threading.Thread(target=lambda: found.append(job.wait())) for _ in range(4)]
    for thread in threads:
        thread.start()
    gate.set()
    for thread in threads:
        thread.join(1800)
    assert found == [5] * 4


def test_steps_that_are_left_to_the_thread_keep_the_order_of_writes(device: WebGpuDevice) -> None:
    """Inputs and params of a step must not arrive before the step before it is submitted."""
    executor, recorder = doubling(device), counted(device)
    for turn in range(20):
        inputs = [np.full((size, 3), size + turn, np.float32) for size in (1, 9, 2, 8)]
        recorder.threads.clear()
        calls = [executor.start([inputs[0]])]
        recorder.gate.clear()
        threading.Timer(0.005, recorder.gate.set).start()
        calls += [executor.start([x]) for x in inputs[1:]]
        for x, call in zip(inputs, calls, strict=True):
            np.testing.assert_array_equal(call.result()[0], 2 * x)
        assert "liveshape submits" in recorder.threads, "at work, the device leaves the end to its thread"
    executor.execute([inputs[0]])
    recorder.threads.clear()
    executor.execute([inputs[0]])
    assert recorder.threads == [threading.main_thread().name], "who finds the device idle ends it at once"


def test_what_is_freed_was_submitted_before(device: WebGpuDevice) -> None:
    """wgpu-native ends the process over a submit of memory that was destroyed."""
    recorder = counted(device)
    for _ in range(5):
        executor = doubling(device)
        call, x = executor.start([np.ones((4, 3), np.float32)]), np.full((9, 3), 3, np.float32)
        recorder.gate.clear()
        left = executor.start([x])
        threading.Timer(0.02, recorder.gate.set).start()
        executor.close()
        assert recorder.gate.is_set()
        assert isinstance(call, type(left))


def test_an_error_of_the_thread_is_told_by_the_one_who_reads(device: WebGpuDevice) -> None:
    executor, recorder = doubling(device), counted(device)
    x = np.ones((4, 3), np.float32)
    first = executor.start([x])
    recorder.refuses = True
    second = executor.start([x])
    with pytest.raises(DeviceError, match=r"aten.add.Tensor \(node 0\).*the end is refused"):
        second.result()
    recorder.refuses = False
    np.testing.assert_array_equal(first.result()[0], 2 * x)
    np.testing.assert_array_equal(executor.execute([x])[0], 2 * x)


def test_an_error_that_nobody_reads_is_told_to_the_next(device: WebGpuDevice) -> None:
    executor, recorder = doubling(device), counted(device)
    x = np.ones((4, 3), np.float32)
    first = executor.start([x])
    recorder.refuses = True
    executor.start([x], wanted=[])
    device._submitter.drain()
    recorder.refuses = False
    with pytest.raises(DeviceError, match="the end is refused"):
        executor.start([x])
    np.testing.assert_array_equal(first.result()[0], 2 * x)
    np.testing.assert_array_equal(executor.execute([x])[0], 2 * x)


def test_an_error_that_nobody_reads_is_told_by_a_read_that_began_before_it(device: WebGpuDevice) -> None:
    """Of three calls the second fails, whose results nobody wants; the third lacks what it would have written."""
    executor, recorder = doubling(device), counted(device)
    x = np.ones((4, 3), np.float32)
    first = executor.start([x])
    device._submitter.drain()
    recorder.gate.clear()
    recorder.refusing = iter([True, False])
    executor.start([x], wanted=[])
    third = executor.start([2 * x])
    threading.Timer(0.1, recorder.gate.set).start()
    with pytest.raises(DeviceError, match="the end is refused"):
        third.result()
    np.testing.assert_array_equal(third.result()[0], 4 * x)
    np.testing.assert_array_equal(first.result()[0], 2 * x)
    np.testing.assert_array_equal(executor.execute([x])[0], 2 * x)


@pytest.mark.parametrize("wanted", [[], [0]])
def test_an_error_is_told_though_memory_is_read_that_is_to_be_reused(wanted: list[int], device: WebGpuDevice) -> None:
    """Of three calls the last fails; the fourth first reads the results of the second, whose memory it takes."""
    executor, recorder = doubling(device), counted(device)
    x = np.ones((4, 3), np.float32)
    commands = executor.encoder.commands(executor.live, 0, 1)
    (out,) = executor.graph.outputs
    rows = [(out, (4, 3), executor.buffer_of(out))]
    pending = [executor.start([number * x]) for number in (1, 2)]
    device._submitter.drain()
    recorder.refuses = True
    failing = executor.start([x], wanted=wanted)
    device._submitter.drain()
    recorder.refuses = False
    with pytest.raises(DeviceError, match="the end is refused"):
        executor._staging.start(commands, rows, "the next")
    if wanted:
        with pytest.raises(DeviceError, match="the end is refused"):
            failing.result()
    for number, each in enumerate(pending, 1):
        np.testing.assert_array_equal(each.result()[0], 2 * number * x)
    np.testing.assert_array_equal(executor.execute([x])[0], 2 * x)


def test_results_that_could_not_be_read_in_time_are_an_error_and_no_others(
    device: WebGpuDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a page that cannot wait, where more calls are ahead than there is memory for their results."""

    def never(self: Any, staging: Any, nbytes: int) -> bytearray:
        raise DeviceError("this browser cannot wait")

    executor, x = doubling(device), np.ones((4, 3), np.float32)
    with monkeypatch.context() as page:
        page.setattr(WebGpuDevice, "read", never)
        pending = [executor.start([number * x]) for number in range(1, 6)]
    told = 0
    for number, each in enumerate(pending, 1):
        try:
            np.testing.assert_array_equal(each.result()[0], 2 * number * x)
        except DeviceError as error:
            assert "was freed" in str(error)  # noqa: PT017
            told += 1
    assert 0 < told < len(pending)
    np.testing.assert_array_equal(executor.execute([x])[0], 2 * x)


@pytest.fixture
def in_pieces(device: WebGpuDevice) -> WebGpuDevice:
    """A device that has the first commands of a call while the others are recorded."""
    device._submitter.recorder.heuristics = SubmitHeuristics(deferred=1, pieces=6, first_piece=2)
    return device


def growing(device: WebGpuDevice, steps: int, rows: int = 9, stateful: bool = False) -> Executor:
    """x -> 2^steps x; it may also count its calls, which takes two steps of these."""
    chain = Chain()
    x = chain.input((rows, 3))
    if stateful:
        calls, one = (chain.constant(np.full((1, 3), number, np.float32)) for number in (0, 1))
        more = chain.node("aten.add.Tensor", calls, one, 1, chain.tensor((1, 3)))
        chain.node("aten.copy_.default", calls, more, False, calls)
    for _ in range(steps):
        x = chain.node("aten.add.Tensor", x, x, 1, chain.tensor((rows, 3)))
    return executor_of(chain.graph(x), device)


@pytest.mark.parametrize("stateful", [False, True])
@pytest.mark.parametrize(("steps", "pieces"), [(5, 1), (6, 2), (9, 2), (10, 3), (14, 3), (30, 4)])
def test_a_long_call_goes_in_pieces(steps: int, pieces: int, stateful: bool, in_pieces: WebGpuDevice) -> None:
    """By the caller, or where its state must not be torn by the worker."""
    count = steps - 2 * stateful
    executor, recorder = growing(in_pieces, count, stateful=stateful), counted(in_pieces)
    for size in (9, 1, 4, 8, 2):
        x = np.full((size, 3), 1 + size, np.float32)
        executor.poison()
        in_pieces.flush()
        recorder.threads.clear()
        submits = in_pieces.counters.submits
        np.testing.assert_array_equal(executor.execute([x])[0], 2**count * x)
        by_worker = stateful and pieces > 1
        assert [thread == "liveshape submits" for thread in recorder.threads] == [by_worker] * pieces
        assert in_pieces.counters.submits == submits + 1


@pytest.mark.parametrize("place", range(3))
def test_an_interrupt_between_pieces_without_state_leaves_nothing_to_the_next_call(
    place: int, in_pieces: WebGpuDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    executor, recorder = growing(in_pieces, 14), counted(in_pieces)
    finish = recorder.finish

    def interrupted(encoder: Any) -> Any:
        if len(recorder.threads) == place:
            monkeypatch.setattr(recorder, "finish", finish)
            raise KeyboardInterrupt
        return finish(encoder)

    for size in (9, 2, 7):
        x = np.full((size, 3), size, np.float32)
        in_pieces.flush()
        recorder.threads.clear()
        monkeypatch.setattr(recorder, "finish", interrupted)
        with pytest.raises(KeyboardInterrupt):
            executor.start([x])
        other = np.full((size - 1, 3), -size, np.float32)
        np.testing.assert_array_equal(executor.execute([other])[0], 2**14 * other)


def test_a_long_call_whose_memory_was_freed_is_not_begun(in_pieces: WebGpuDevice) -> None:
    executor, recorder = growing(in_pieces, 14), counted(in_pieces)
    x = np.ones((4, 3), np.float32)
    executor.execute([x])
    commands = executor.encoder.commands(executor.live, 0, 14)
    recorder.threads.clear()
    executor.close()
    with pytest.raises(DeviceError, match="its memory was freed"):
        in_pieces.submit(commands)
    assert not recorder.threads


def test_a_piece_that_is_refused_is_told_at_once(in_pieces: WebGpuDevice) -> None:
    executor, recorder = growing(in_pieces, 14), counted(in_pieces)
    x = np.ones((4, 3), np.float32)
    recorder.refuses = True
    with pytest.raises(DeviceError, match=r"aten.add.Tensor \(node 0\).*the end is refused"):
        executor.start([x])
    recorder.refuses = False
    np.testing.assert_array_equal(executor.execute([x])[0], 2**14 * x)


def test_an_interrupt_while_pieces_with_state_are_recorded_leaves_them_whole(
    in_pieces: WebGpuDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The call that was cut short ends behind its caller's back, and not between two pieces; the next one is right."""
    executor, recorder = growing(in_pieces, 14, stateful=True), counted(in_pieces)
    wait = Job.end

    def interrupted(job: Job) -> None:
        monkeypatch.setattr(Job, "end", wait)
        raise KeyboardInterrupt

    for size in (9, 2, 7):
        x = np.full((size, 3), size, np.float32)
        in_pieces.flush()
        recorder.threads.clear()
        recorder.gate.clear()
        threading.Timer(0.02, recorder.gate.set).start()
        monkeypatch.setattr(Job, "end", interrupted)
        with pytest.raises(KeyboardInterrupt):
            executor.start([x])
        other = np.full((size - 1, 3), -size, np.float32)
        np.testing.assert_array_equal(executor.execute([other])[0], 2**14 * other)
        assert recorder.threads.count("liveshape submits") >= 3


def test_threads_share_a_device_that_leaves_submits_to_its_own(device: WebGpuDevice) -> None:
    wrong: list[str] = []

    def work(number: int) -> None:
        executor = doubling(device)
        for turn in range(15):
            inputs = [np.full((size, 3), number * 100 + turn + size, np.float32) for size in (2, 7, 1)]
            calls = [executor.start([x]) for x in inputs]
            for x, call in zip(inputs, calls, strict=True):
                if not np.array_equal(call.result()[0], 2 * x):
                    wrong.append(f"{number} {turn}")
        executor.close()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(1800)
    assert not any(thread.is_alive() for thread in threads)
    assert not wrong
