"""What a device lives through: signals, fork, its own loss, threads, and tasks that wait for it."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from liveshape.device import dawn_futures
from liveshape.device.adapters import usable_adapters
from liveshape.device.backends import open_device
from liveshape.device.webgpu import WebGpuDevice
from liveshape.errors import DeviceError
from liveshape.runtime import Runtime
from tests.device.interrupts import Doubling, at_work
from tests.device.library import LIBRARY

ROOT = Path(__file__).parents[2]
BLOCK = ROOT / "liveshape/demo/block.pte"
X = np.ones((64, 64), np.float32)


def apart(code: str, seconds: float = 600) -> str:
    """What a program prints; one that hangs or aborts fails."""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, timeout=seconds, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{done.returncode}: {done.stderr[-3000:]}"
    return done.stdout


def fresh(raw: bool = True) -> WebGpuDevice:
    return WebGpuDevice(LIBRARY, usable_adapters(LIBRARY)[0], 0, raw=raw)


# Signals


@pytest.mark.parametrize("way", ["raw", "threads", pytest.param("public", marks=pytest.mark.slow)])
def test_timer_signals_at_any_moment_of_reading(way: str) -> None:
    printed = apart(f"from tests.device.interrupts import main; main({way!r}, 60)")
    seen = eval(printed)  # a dictionary that our own program printed
    assert seen["interrupted"] >= (50 if way == "public" else 60)
    assert seen["waited again"] > 0


class SignalInside(dict[int, int]):
    """Statuses that are interrupted while a callback writes them, as often as is wanted."""

    left = 1

    def __setitem__(self, key: int, value: int) -> None:
        if self.left:
            self.left -= 1
            os.kill(os.getpid(), signal.SIGINT)
            sum(range(1000))  # the handler runs here
        super().__setitem__(key, value)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # cffi tells of the second one
@pytest.mark.parametrize("signals", [1, 2])
def test_a_signal_inside_the_callback_comes_through(signals: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a second one while the first is kept nobody hears of the callback; the device is idle, so it is no hang."""
    statuses = SignalInside()
    statuses.left = 0  # until everything is there: the callback of Dawn is made with the device
    monkeypatch.setattr(dawn_futures, "_ignore", lambda *_: statuses.__setitem__(0, 0))
    device = fresh()
    doubling = Doubling(device)
    events: Any = device._reader._events  # type: ignore[attr-defined]
    events._statuses = statuses
    transfer = doubling.start(X)
    statuses.left = signals
    with pytest.raises(KeyboardInterrupt):
        transfer.wait()
    statuses.left = 0  # a callback of Dawn writes once, so that the second one would come through by itself
    for _ in range(4):
        np.testing.assert_array_equal(transfer.wait()[0], 2 * X)
        np.testing.assert_array_equal(doubling.start(X + 1).wait()[0], 2 * X + 2)


def test_a_signal_between_map_and_unmap_leaves_no_dead_buffer(monkeypatch: pytest.MonkeyPatch) -> None:
    device = fresh()
    doubling = Doubling(device)
    events = device._reader._events  # type: ignore[attr-defined]
    forget = events.forget

    def interrupted(ticket: int) -> None:  # called when the memory is mapped
        monkeypatch.setattr(events, "forget", forget)
        raise KeyboardInterrupt

    transfer = doubling.start(X)
    monkeypatch.setattr(events, "forget", interrupted)
    with pytest.raises(KeyboardInterrupt):
        transfer.wait()
    staging = transfer._source[0]  # type: ignore[index]
    with pytest.raises(DeviceError, match="being read"):  # submitting it would end the process
        device.submit((), [(doubling.executor.buffer_of(doubling.out), 0, 64, staging, 0)])
    for step in range(5):
        np.testing.assert_array_equal(doubling.start(X * step).wait()[0], 2 * X * step)
    np.testing.assert_array_equal(transfer.wait()[0], 2 * X)


@pytest.mark.parametrize("raw", [True, False])
def test_a_signal_comes_through_while_the_device_computes(raw: bool) -> None:
    """There is more work from turn to turn, until the signal is there before the results are."""
    doubling = Doubling(fresh(raw))

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    came, turns = False, 200
    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        while not came and turns < 200 << 10:
            transfer = doubling.start(X, turns)
            try:
                signal.setitimer(signal.ITIMER_REAL, 0.1)
                transfer.wait()
            except KeyboardInterrupt:
                came = at_work(doubling.device)
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
            np.testing.assert_array_equal(transfer.wait()[0], 2 * X)
            turns *= 2
    finally:
        signal.signal(signal.SIGALRM, before)
    assert came or not doubling.device.adapter.software, "every signal came through after the work alone"


# Awaiting


@pytest.mark.parametrize("raw", [True, False])
def test_reading_can_be_awaited_while_other_tasks_run(raw: bool) -> None:
    doubling = Doubling(fresh(raw))
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            ticks += 1
            await asyncio.sleep(0)

    async def main() -> list[Any]:
        other = asyncio.create_task(tick())
        transfer = doubling.start(X, 100)
        # Two tasks wait for one transfer, and a call in between reads it out to have its buffer back.
        tasks = [asyncio.create_task(transfer.wait_async()) for _ in range(2)]
        await asyncio.sleep(0)
        later = [doubling.start(X * step) for step in range(2, 5)]
        results = [*await asyncio.gather(*tasks), *[await each.wait_async() for each in later]]
        other.cancel()
        return results

    for (got,), factor in zip(asyncio.run(main()), (1, 1, 2, 3, 4), strict=True):
        np.testing.assert_array_equal(got, 2 * X * factor)
    assert ticks > 1 or not doubling.device.adapter.software  # a GPU may be done before anybody waits


@pytest.mark.parametrize("raw", [True, False])
def test_a_task_that_is_cancelled_leaves_the_results_to_be_read(raw: bool) -> None:
    doubling = Doubling(fresh(raw))

    async def main() -> Any:
        transfer = doubling.start(X, 500)
        task = asyncio.create_task(transfer.wait_async())
        await asyncio.sleep(0)
        task.cancel()
        cancelled = not doubling.device.adapter.software  # a GPU may be done before
        try:
            await task
        except asyncio.CancelledError:
            cancelled = True
        assert cancelled
        return await transfer.wait_async()

    np.testing.assert_array_equal(asyncio.run(main())[0], 2 * X)
    np.testing.assert_array_equal(doubling.start(X).wait()[0], 2 * X)


# Loss


def uses(device: WebGpuDevice, doubling: Doubling) -> list[Any]:
    block, staging = doubling.executor.buffer_of(doubling.x), device.staging(64)
    variant = doubling.executor.plan.routes[0].dispatched[0][0]
    transfer = doubling.start(X)
    return [
        lambda: device.write(block, 0, X),
        lambda: device.buffer(64, "more"),
        lambda: device.staging(64),
        lambda: device.uniforms(64),
        device.flush,
        lambda: device.submit(doubling.commands),
        lambda: device.submit((), [(block, 0, 64, staging, 0)]),
        lambda: device.read(staging, 64),
        lambda: asyncio.run(device.read_async(staging, 64)),
        lambda: device.bind(variant, [(block, 64)] * 3, device.uniforms(256)),
        transfer.wait,
        lambda: doubling.start(X),
    ]


@pytest.mark.parametrize("raw", [True, False])
@pytest.mark.parametrize("first", range(12))
def test_a_lost_device_is_an_error_of_every_method(first: int, raw: bool) -> None:
    device = fresh(raw)
    methods = uses(device, Doubling(device))
    device._device.destroy()
    with pytest.raises(DeviceError, match=r"(?s)device was lost.*open a new Runtime"):
        methods[first]()
    for use in methods:
        with pytest.raises(DeviceError, match="open a new Runtime"):
            use()


def test_after_a_loss_the_next_runtime_works() -> None:
    runtime = Runtime()
    method = runtime.load_program(BLOCK).load_method("forward")
    x = np.ones((1, 4, 64), np.float32)
    expected = method.execute([x])[0]
    lost = open_device()
    lost._device.destroy()
    for _ in range(2):
        with pytest.raises(DeviceError, match="device was lost"):
            method.execute([x])
    assert open_device() is not lost
    np.testing.assert_array_equal(Runtime().load_program(BLOCK).load_method("forward").execute([x])[0], expected)


def test_too_little_memory_comes_with_advice() -> None:
    device = fresh()
    with pytest.raises(DeviceError, match=r"could not allocate 1,152,921,504,606,846,976 bytes for params"):
        device.uniforms(1 << 60)
    error = device._failure.error("writing 4 bytes", MemoryError("full"))
    assert str(error) == ("writing 4 bytes: full; 0 bytes are in use: close() other models, or export a smaller bound")


# Processes and threads

FORK = """
import os, signal, sys
from liveshape.device.backends import open_device
{before}
pid = os.fork()
if pid == 0:
    signal.alarm(300)
    try:
        {child}
        print("child fine", flush=True)
    except Exception as error:
        print(type(error).__name__, error, flush=True)
    sys.exit()  # the destructors run, too
assert os.waitpid(pid, 0)[1] == 0
{after}
print("parent fine")
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork()")
def test_a_child_of_fork_is_told_to_be_spawned() -> None:
    before = (
        "from tests.device.interrupts import Doubling; import numpy as np; device = open_device()\n"
        "X = np.ones((64, 64), np.float32); doubling = Doubling(device)\n"
        "block = doubling.executor.buffer_of(doubling.x); transfer = doubling.start(X)\n"
        "uses = [lambda: doubling.start(X), transfer.wait, device.flush, lambda: device.write(block, 0, X)]\n"
        "uses += [lambda: device.staging(4), lambda: device.free([block]), lambda: device.submit(()), open_device]\n"
        "def refused(use):\n"
        "    try: use()\n"
        "    except Exception as error: return f'{type(error).__name__}: {error}'"
    )
    after = "assert transfer.wait()[0][0, 0] == doubling.start(X).wait()[0][0, 0] == 2"
    printed = apart(FORK.format(before=before, child="print(*map(refused, uses), sep='\\n')", after=after))
    *refusals, child, parent = printed.strip().split("\n")
    assert (child, parent) == ("child fine", "parent fine")
    assert len(refusals) == 8
    assert len(set(refusals)) == 1
    assert refusals[0].startswith("DeviceError: this process was made by fork()")
    assert 'multiprocessing.set_start_method("spawn")' in refusals[0]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork()")
def test_a_child_of_a_parent_without_a_device_opens_its_own() -> None:
    printed = apart(FORK.format(before="", child="open_device().flush()", after="open_device().flush()"))
    assert printed.split("\n")[:2] == ["child fine", "parent fine"]


def test_threads_that_open_the_first_device_get_one() -> None:
    printed = apart(
        "import threading\n"
        "from liveshape.device.backends import open_device\n"
        "start, found = threading.Barrier(6), []\n"
        "threads = [threading.Thread(target=lambda: (start.wait(), found.append(open_device()))) for _ in range(6)]\n"
        "[each.start() for each in threads]; [each.join() for each in threads]\n"
        "print(len(found), len(set(map(id, found))))"
    )
    assert printed.split() == ["6", "1"]


THREADS = """
import random, sys, threading, time
import numpy as np
from liveshape.device import dawn_futures
from liveshape.device.adapters import usable_adapters
from liveshape.device.webgpu import WebGpuDevice
from tests.device.library import LIBRARY
from liveshape.errors import DeviceError
from tests.device.interrupts import Doubling
device = WebGpuDevice(LIBRARY, usable_adapters(LIBRARY)[0], 0, raw={raw})
sys.setswitchinterval(1e-5)
doubling, X, wrong, turn = Doubling(device), np.ones((64, 64), np.float32), [], threading.Lock()
def work(number):
    draw = random.Random(number)
    for step in range({steps}):
        x = X * (1000 * number + step)
        with turn:  # what the input holds is the caller's to guard; everything after it is not
            mine = doubling.start(x)
            other = doubling.staging._slots[draw.randrange(2)].transfer or mine
        for transfer in draw.sample([mine, other], 2):
            got = transfer.wait()[0]
            if transfer is mine and (got != 2 * x).any():
                wrong.append((number, step))
        buffer = device.buffer(256, "passing")
        device.write(buffer, 0, bytes(256))
        device.free([buffer])
threading.excepthook = lambda raised: wrong.append(repr(raised.exc_value))
threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
[each.start() for each in threads]; [each.join() for each in threads]
print(wrong, device.counters.live_bytes < 1 << 20)
"""


@pytest.mark.parametrize("raw", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_threads_share_a_ring_of_staging_memory(raw: bool) -> None:
    assert apart(THREADS.format(raw=raw, steps=60)).split() == ["[]", "True"]
