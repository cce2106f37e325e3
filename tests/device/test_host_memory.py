"""Host memory of results: used again once nobody holds it, and never before."""

from __future__ import annotations

import gc
import random
import threading
import time

import numpy as np
import pytest

from liveshape.device import host_memory
from liveshape.device.host_memory import BY_THREADS, KEPT, LARGE, HostMemory


def filled(number: int, nbytes: int) -> bytes:
    return bytes([number]) * nbytes


def test_memory_is_used_again_once_nobody_holds_it() -> None:
    memory = HostMemory()
    first = np.frombuffer(memory.copied(filled(1, LARGE), LARGE), np.uint8)
    address = first.ctypes.data
    part = first[7:9]
    del first
    second = np.frombuffer(memory.copied(filled(2, LARGE), LARGE), np.uint8)
    assert second.ctypes.data != address, "a part of the first is held"
    assert part.tolist() == [1, 1]
    del part
    gc.collect()
    third = np.frombuffer(memory.copied(filled(3, LARGE), LARGE), np.uint8)
    assert third.ctypes.data == address
    assert (second == 2).all()
    assert (third == 3).all()


def test_other_sizes_leave_little_behind() -> None:
    memory = HostMemory()
    for size in (LARGE, 5 * LARGE, LARGE // 2, 20 * LARGE, 9 * LARGE):
        memory.copied(filled(5, size), size)
    assert sum(map(len, memory._blocks)) <= 20 * LARGE
    held = [memory.copied(filled(number, LARGE), LARGE) for number in range(9)]
    assert len(memory._blocks) <= KEPT
    assert [view[0] for view in held] == list(range(9))


def test_threads_never_share_what_one_of_them_holds() -> None:
    memory, wrong = HostMemory(), []

    def run(seed: int) -> None:
        chance = random.Random(seed)
        held: list[tuple[int, np.ndarray]] = []
        for _ in range(60):
            number, size = chance.randrange(256), chance.choice((LARGE, LARGE + 99, 2 * LARGE))
            held.append((number, np.frombuffer(memory.copied(filled(number, size), size), np.uint8)))
            if chance.random() < 0.6:
                kept, array = held.pop(chance.randrange(len(held)))
                wrong.extend([kept] if not (array == kept).all() else [])

    threads = [threading.Thread(target=run, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.parametrize("cores", [1, 2, 3, 64])
def test_threads_copy_every_byte_once(cores: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_memory.os, "cpu_count", lambda: cores)
    memory, draw = HostMemory(), np.random.default_rng(cores)
    for nbytes in (BY_THREADS - 1, BY_THREADS, BY_THREADS + 1, BY_THREADS + 4099, 2 * BY_THREADS + 3):
        source = draw.integers(0, 256, nbytes + 5, np.uint8)
        copied = memory.copied(source, nbytes)
        assert len(copied) == nbytes
        np.testing.assert_array_equal(np.frombuffer(copied, np.uint8), source[:nbytes])
    assert len(memory._helpers) == min(cores, 4) - 1


def test_an_error_of_a_thread_is_raised_when_all_are_done(monkeypatch: pytest.MonkeyPatch) -> None:
    """The source is there until then."""
    monkeypatch.setattr(host_memory.os, "cpu_count", lambda: 4)
    inner, done = np.copyto, list[str]()

    def copyto(target: np.ndarray, source: np.ndarray) -> None:
        name = threading.current_thread().name
        if name == "liveshape copies" and not done:
            done.append("failed")
            raise MemoryError("of a thread")
        time.sleep(0.02)
        inner(target, source)
        done.append(name)

    monkeypatch.setattr(host_memory.np, "copyto", copyto)
    with pytest.raises(MemoryError, match="of a thread"):
        HostMemory().copied(bytes(BY_THREADS), BY_THREADS)
    assert len(done) == 4
