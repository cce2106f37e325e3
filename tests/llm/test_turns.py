"""Turns are fair, may be taken again, and are given back whatever interrupts them."""

from __future__ import annotations

import signal
import threading
import time
from typing import Any

import pytest

from liveshape.device.worker import Worker
from liveshape.errors import InputError
from liveshape.llm.engine.fair_lock import FairLock, _Ticket, in_turn

HANGS = 120  # seconds after which a test of locks is taken to hang, on a machine however busy


def started(target: Any) -> threading.Thread:
    thread = threading.Thread(target=target, daemon=True)
    thread.start()
    return thread


def ended(*threads: threading.Thread) -> None:
    for thread in threads:
        thread.join(HANGS)
    assert not any(thread.is_alive() for thread in threads)


def comes_through(turn: FairLock) -> None:
    """It is free: another thread has its turn."""
    ended(started(lambda: turn.run(lambda: None)))


def waiting(turn: FairLock, count: int) -> None:
    """Wait until so many are in the line, the one whose turn it is included."""
    until = time.monotonic() + HANGS
    while len(turn._line) < count and time.monotonic() < until:
        time.sleep(0.001)
    assert len(turn._line) == count


def test_first_come_first_served() -> None:
    turn, order = FairLock(), []
    leave = threading.Event()
    threads = [started(lambda: turn.run(leave.wait, HANGS))]
    waiting(turn, 1)
    for number in range(8):
        threads.append(started(lambda number=number: turn.run(order.append, number)))
        waiting(turn, number + 2)
    assert order == []
    leave.set()
    ended(*threads)
    assert order == list(range(8))


def test_nobody_is_in_at_the_same_time_and_everybody_gets_their_share() -> None:
    turn, inside, most = FairLock(), 0, 0
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
            turn.run(step, number)

    threads = [started(lambda number=number: work(number)) for number in range(3)]
    ended(*threads)
    assert most == 1
    assert max(shares) - min(shares) < 30, shares


class Counter:
    def __init__(self) -> None:
        self.turn, self.value = FairLock(), 0

    @in_turn
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
    assert not counter.turn._line


def test_an_error_gives_the_turn_back() -> None:
    turn = FairLock()
    with pytest.raises(ZeroDivisionError):
        turn.run(lambda: 1 / 0)
    comes_through(turn)
    assert turn.run(lambda: 5) == 5


def test_who_is_interrupted_while_waiting_leaves_the_line() -> None:
    turn, leave, after = FairLock(), threading.Event(), threading.Event()
    first = started(lambda: turn.run(leave.wait, HANGS))
    waiting(turn, 1)
    signal.signal(signal.SIGALRM, _interrupt)
    third = None
    try:
        with pytest.raises(KeyboardInterrupt):
            _ = signal.setitimer(signal.ITIMER_REAL, 0.2), turn.run(lambda: None)
        third = started(lambda: turn.run(after.set))
        waiting(turn, 2)
        leave.set()
        assert after.wait(HANGS)
    finally:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        leave.set()
        ended(first)
    assert third is not None
    ended(third)
    assert not turn._line


# What finalizers leave


def test_what_is_left_is_called_at_once_if_nobody_has_the_turn() -> None:
    turn, called = FairLock(), []
    turn.leave(lambda: called.append(1))
    assert (called, len(turn._line), len(turn._left)) == ([1], 0, 0)


def test_what_is_left_in_anybodys_turn_is_called_by_whoever_has_it() -> None:
    turn, called, inside, leave = FairLock(), [], threading.Event(), threading.Event()

    def hold() -> None:
        turn.leave(lambda: called.append("own"))  # in the middle of something
        assert not called
        turn.run(lambda: called.append("again"))
        inside.set()
        leave.wait(HANGS)

    holder = started(lambda: turn.run(hold))
    assert inside.wait(HANGS)
    turn.leave(lambda: called.append("other"))
    leave.set()
    ended(holder)
    assert called == ["own", "again", "other"]
    assert not turn._left


def test_what_is_left_is_called_again_if_it_was_interrupted() -> None:
    turn, called = FairLock(), []

    def left() -> None:
        called.append(1)
        if len(called) == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        turn.leave(left)
    assert turn.run(lambda: len(called)) == 2
    assert not turn._left


def test_a_thread_of_the_device_never_waits_for_a_turn() -> None:
    """Whoever has the turn waits for that thread."""
    turn, called, worker = FairLock(), [], Worker("test")

    def collected() -> None:
        turn.leave(lambda: called.append("left"))
        turn.run_or_leave(lambda: called.append("closed"))
        with pytest.raises(InputError, match="in no finalizer"):
            turn.run(lambda: None)

    job = turn.run(lambda: _ended(worker.start(collected)))
    assert job.error is None
    assert turn.run(lambda: list(called)) == ["left", "closed"]


def _ended(job: Any) -> Any:
    job.end()
    return job


def test_a_finalizer_of_a_thread_that_waits_does_not_wait_behind_it(monkeypatch: pytest.MonkeyPatch) -> None:
    turn, called, leave = FairLock(), [], threading.Event()
    holder = started(lambda: turn.run(leave.wait, HANGS))
    waiting(turn, 1)
    wait = _Ticket.wait

    def collecting(ticket: _Ticket, line: Any) -> None:
        monkeypatch.setattr(_Ticket, "wait", wait)
        turn.run_or_leave(lambda: called.append("closed"))
        with pytest.raises(InputError, match="in no finalizer"):
            turn.run(lambda: None)
        leave.set()
        wait(ticket, line)

    monkeypatch.setattr(_Ticket, "wait", collecting)
    assert turn.run(lambda: list(called)) == ["closed"]
    ended(holder)


def _interrupt(number: int, frame: Any) -> None:
    raise KeyboardInterrupt


def test_hundreds_of_interrupts_lose_no_turn() -> None:
    """Real timers, at any bytecode of the main thread, while two other threads take turns as well."""
    turn, over = FairLock(), threading.Event()
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
            turn.run(step, number)
            shares[number] += 1

    threads = [started(lambda number=number: work(number)) for number in range(2)]
    signal.signal(signal.SIGALRM, _interrupt)
    interrupts = 0
    try:
        while interrupts < 500:
            try:
                signal.setitimer(signal.ITIMER_REAL, 0.0004 + interrupts % 97 * 1e-6)
                while True:
                    turn.run(len, shares)
            except KeyboardInterrupt:
                interrupts += 1
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
    before = list(shares)
    until = time.monotonic() + HANGS
    while any(now < then + 3 for now, then in zip(shares, before, strict=True)) and time.monotonic() < until:
        time.sleep(0.01)
    assert all(now >= then + 3 for now, then in zip(shares, before, strict=True)), "the others still get their turns"
    over.set()
    ended(*threads)
    comes_through(turn)
    assert not turn._line
    assert not broken
