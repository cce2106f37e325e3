"""The lock is fair and reentrant, and is released whatever interrupts its owner."""

from __future__ import annotations

import signal
import threading
import time
from typing import Any

import pytest

from liveshape.device.worker import Worker
from liveshape.errors import InputError
from liveshape.llm.engine.fair_lock import FairLock, _awaited, _Ticket, synchronized

HANGS = 120  # seconds after which a test of locks is taken to hang, on a machine however busy


def started(target: Any) -> threading.Thread:
    thread = threading.Thread(target=target, daemon=True)
    thread.start()
    return thread


def ended(*threads: threading.Thread) -> None:
    for thread in threads:
        thread.join(HANGS)
    assert not any(thread.is_alive() for thread in threads)


def comes_through(lock: FairLock) -> None:
    """It is free: another thread acquires it."""
    ended(started(lambda: lock.run(lambda: None)))


def waiting(lock: FairLock, count: int) -> None:
    """Wait until so many are in the queue, the owner included."""
    until = time.monotonic() + HANGS
    while len(lock._queue) < count and time.monotonic() < until:
        time.sleep(0.001)
    assert len(lock._queue) == count


def test_first_come_first_served() -> None:
    lock, order = FairLock(), []
    leave = threading.Event()
    threads = [started(lambda: lock.run(leave.wait, HANGS))]
    waiting(lock, 1)
    for number in range(8):
        threads.append(started(lambda number=number: lock.run(order.append, number)))
        waiting(lock, number + 2)
    assert order == []
    leave.set()
    ended(*threads)
    assert order == list(range(8))


def test_nobody_is_in_at_the_same_time_and_everybody_gets_their_share() -> None:
    lock, inside, most = FairLock(), 0, 0
    shares, joined = [0, 0, 0], set[int]()

    def step(number: int) -> None:
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        time.sleep(0.0002)
        joined.add(number)
        shares[number] += len(joined) == len(shares)  # a thread may begin late
        inside -= 1

    def work(number: int) -> None:
        while sum(shares) < 300:
            lock.run(step, number)

    threads = [started(lambda number=number: work(number)) for number in range(3)]
    ended(*threads)
    assert most == 1
    assert max(shares) - min(shares) < 30, shares


class Counter:
    def __init__(self) -> None:
        self.lock, self.value = FairLock(), 0

    @synchronized
    def add(self, amount: int, *, times: int = 1) -> int:
        """Adds."""
        if times > 1:
            self.add(amount, times=times - 1)
        self.value += amount
        return self.value


def test_a_method_may_call_another_and_keeps_its_name() -> None:
    counter = Counter()
    assert counter.add(2, times=5) == 10
    assert (Counter.add.__name__, Counter.add.__doc__) == ("add", "Adds.")
    assert not counter.lock._queue


def test_an_error_releases_the_lock() -> None:
    lock = FairLock()
    with pytest.raises(ZeroDivisionError):
        lock.run(lambda: 1 / 0)
    comes_through(lock)
    assert lock.run(lambda: 5) == 5


def test_who_is_interrupted_while_waiting_leaves_the_queue() -> None:
    lock, leave, after = FairLock(), threading.Event(), threading.Event()
    first = started(lambda: lock.run(leave.wait, HANGS))
    waiting(lock, 1)
    signal.signal(signal.SIGALRM, _interrupt)
    third = None
    try:
        with pytest.raises(KeyboardInterrupt):
            _ = signal.setitimer(signal.ITIMER_REAL, 0.2), lock.run(lambda: None)
        third = started(lambda: lock.run(after.set))
        waiting(lock, 2)
        leave.set()
        assert after.wait(HANGS)
    finally:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        leave.set()
        ended(first)
    assert third is not None
    ended(third)
    assert not lock._queue


# What finalizers leave


def test_a_deferred_call_runs_at_once_if_the_lock_is_free() -> None:
    lock, called = FairLock(), []
    lock.defer(lambda: called.append(1))
    assert (called, len(lock._queue), len(lock._deferred)) == ([1], 0, 0)


def test_a_deferred_call_is_run_by_the_owner_of_the_lock() -> None:
    lock, called, inside, leave = FairLock(), [], threading.Event(), threading.Event()

    def hold() -> None:
        lock.defer(lambda: called.append("own"))  # in the middle of something
        assert not called
        lock.run(lambda: called.append("again"))
        inside.set()
        leave.wait(HANGS)

    holder = started(lambda: lock.run(hold))
    assert inside.wait(HANGS)
    lock.defer(lambda: called.append("other"))
    leave.set()
    ended(holder)
    assert called == ["own", "again", "other"]
    assert not lock._deferred


def test_what_is_left_is_called_again_if_it_was_interrupted() -> None:
    lock, called = FairLock(), []

    def left() -> None:
        called.append(1)
        if len(called) == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        lock.defer(left)
    assert lock.run(lambda: len(called)) == 2
    assert not lock._deferred


def test_a_thread_of_the_device_never_waits_for_the_lock() -> None:
    """Whoever has the lock waits for that thread."""
    lock, called, worker = FairLock(), [], Worker("test")

    def collected() -> None:
        lock.defer(lambda: called.append("left"))
        lock.run_or_defer(lambda: called.append("closed"))
        with pytest.raises(InputError, match="in no finalizer"):
            lock.run(lambda: None)

    job = lock.run(lambda: _ended(worker.start(collected)))
    assert job.error is None
    assert lock.run(lambda: list(called)) == ["left", "closed"]


def _ended(job: Any) -> Any:
    job.end()
    return job


def test_a_finalizer_of_a_thread_that_waits_does_not_wait_behind_it(monkeypatch: pytest.MonkeyPatch) -> None:
    lock, called, leave = FairLock(), [], threading.Event()
    holder = started(lambda: lock.run(leave.wait, HANGS))
    waiting(lock, 1)
    wait = _Ticket.wait

    def collecting(ticket: _Ticket, line: Any, is_hopeless: Any) -> bool:
        monkeypatch.setattr(_Ticket, "wait", wait)
        lock.run_or_defer(lambda: called.append("closed"))
        with pytest.raises(InputError, match="in no finalizer"):
            lock.run(lambda: None)
        leave.set()
        return wait(ticket, line, is_hopeless)

    monkeypatch.setattr(_Ticket, "wait", collecting)
    assert lock.run(lambda: list(called)) == ["closed"]
    ended(holder)


def _interrupt(number: int, frame: Any) -> None:
    raise KeyboardInterrupt


def test_hundreds_of_interrupts_leave_the_lock_consistent() -> None:
    """Real timers, at any bytecode of the main thread, while two other threads acquire the lock as well."""
    lock, over = FairLock(), threading.Event()
    shares = [0, 0]
    broken: list[str] = []
    inside: list[int] = []

    def step(number: int) -> None:
        inside.append(number)
        if len(inside) != 1:
            broken.append("two at once")
        inside.remove(number)

    def work(number: int) -> None:
        while not over.is_set():
            lock.run(step, number)
            shares[number] += 1

    threads = [started(lambda number=number: work(number)) for number in range(2)]
    signal.signal(signal.SIGALRM, _interrupt)
    interrupts = 0
    try:
        while interrupts < 500:
            try:
                signal.setitimer(signal.ITIMER_REAL, 0.0004 + interrupts % 97 * 1e-6)
                while True:
                    lock.run(len, shares)
            except KeyboardInterrupt:
                interrupts += 1
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
    before = list(shares)
    until = time.monotonic() + HANGS
    while any(now < then + 3 for now, then in zip(shares, before, strict=True)) and time.monotonic() < until:
        time.sleep(0.01)
    assert all(now >= then + 3 for now, then in zip(shares, before, strict=True)), "the others still get the lock"
    over.set()
    ended(*threads)
    comes_through(lock)
    assert not lock._queue
    assert not broken


def test_threads_that_wait_for_each_other_in_a_circle_go_another_way() -> None:
    """As models do that draft for each other; who only waits for its turn gets it."""
    locks = [FairLock() for _ in range(3)]
    barrier, found = threading.Barrier(3), list[str]()

    def work(place: int) -> None:
        def held() -> None:
            barrier.wait(HANGS)
            found.append(locks[(place + 1) % 3].run_or_else(lambda: "else", lambda: "got"))

        for _ in range(5):
            locks[place].run(held)

    ended(*(started(lambda place=place: work(place)) for place in range(3)))
    assert len(found) == 15
    assert {"else"} <= set(found)
    for lock in locks:
        comes_through(lock)
        assert not lock._queue
    assert not _awaited

    begun, go = threading.Event(), threading.Event()
    holder = started(lambda: locks[0].run(lambda: (begun.set(), go.wait(HANGS))))
    assert begun.wait(HANGS)
    waiter = started(lambda: found.append(locks[0].run_or_else(lambda: "else", lambda: "turn")))
    time.sleep(0.15)
    go.set()
    ended(holder, waiter)
    assert found[-1] == "turn"
