"""Host memory of results: used again once nobody holds it, and never before."""

from __future__ import annotations

import gc
import random
import threading

import numpy as np

from liveshape.device.host_memory import KEPT, LARGE, HostMemory


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
