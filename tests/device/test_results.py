"""Results that stay on the device, and calls that do not wait."""

from __future__ import annotations

import threading
from dataclasses import replace

import numpy as np
import pytest

from liveshape.device.backends import open_device
from liveshape.errors import InputError, ShapeError
from liveshape.run.executor import Executor
from tests.support.chains import Chain, executor_of


def doubling(rows: int = 9) -> Executor:
    """x -> (2x, rows of x)"""
    device = open_device()
    chain = Chain()
    x = chain.input((rows, 3))
    out = chain.node("aten.add.Tensor", x, x, 1, chain.tensor((rows, 3)))
    return executor_of(chain.graph(out, chain.node("sym_size.int", x, 0, chain.scalar())), device, resident=(0,))


def test_an_output_feeds_the_next_call_without_leaving_the_device() -> None:
    executor = doubling()
    for size in (9, 1, 4):
        x = np.random.default_rng(size).standard_normal((size, 3)).astype(np.float32)
        pending = executor.start([x], wanted=[])
        assert pending.result() == []
        for _ in range(5):
            pending = executor.start([pending.on_device(0)])
        result, rows = pending.result()
        np.testing.assert_array_equal(result, 64 * x)
        assert rows == size
        np.testing.assert_array_equal(pending.on_device(0).numpy(), 64 * x)
        np.testing.assert_array_equal(np.asarray(pending.on_device(0)), 64 * x)


def test_calls_under_way_keep_their_results() -> None:
    executor = doubling()
    inputs = [np.full((size, 3), size, np.float32) for size in (1, 2, 3, 4, 5, 6, 7)]
    pending = [executor.start([x]) for x in inputs]
    for x, call in reversed(list(zip(inputs, pending, strict=True))):
        got, rows = call.result()
        np.testing.assert_array_equal(got, 2 * x)
        assert rows == len(x)


def test_a_tensor_that_was_overwritten_is_refused() -> None:
    executor = doubling()
    stale = executor.start([np.ones((2, 3), np.float32)]).on_device(0)
    executor.execute([np.ones((3, 3), np.float32)])
    with pytest.raises(InputError, match="was overwritten"):
        executor.execute([stale])
    with pytest.raises(InputError, match="was overwritten"):
        stale.numpy()


def test_tensors_of_another_shape_or_kind_are_refused() -> None:
    large, small = doubling(9), doubling(4)
    with pytest.raises(ShapeError, match=r"\(9, 3\) does not fit the allocated \(4, 3\)"):
        small.execute([large.start([np.ones((9, 3), np.float32)]).on_device(0)])
    with pytest.raises(InputError, match="output 1 is a number"):
        large.start([np.ones((9, 3), np.float32)]).on_device(1)
    moved, _ = small.execute([large.start([np.ones((3, 3), np.float32)]).on_device(0)])
    np.testing.assert_array_equal(moved, np.full((3, 3), 4, np.float32))


def test_an_output_shares_no_memory_with_another_input_of_the_next_call() -> None:
    device = open_device()
    chain = Chain()
    x, y = chain.input((9, 3)), chain.input((9, 3))
    both = chain.node("aten.add.Tensor", x, y, 1, chain.tensor((9, 3)))
    more = chain.node("aten.mul.Tensor", both, both, chain.tensor((9, 3)))
    executor = executor_of(
        chain.graph(chain.node("aten.sub.Tensor", more, both, 1, chain.tensor((9, 3)))), device, resident=(0,)
    )
    x, y = (np.full((9, 3), value, np.float32) for value in (2, 1))
    pending = executor.start([x, y], wanted=[])
    np.testing.assert_array_equal(executor.start([pending.on_device(0), y]).result()[0], 42 * np.ones((9, 3)))


def test_threads_read_at_the_same_time() -> None:
    failures: list[int] = []

    def work(value: int) -> None:
        executor = doubling()
        for turn in range(40):
            x = np.full((9, 3), value + turn, np.float32)
            ahead = executor.start([x]), executor.start([x + 1])
            if any((call.result()[0] != 2 * (x + more)).any() for more, call in enumerate(ahead)):
                failures.append(value)

    threads = [threading.Thread(target=work, args=(1000 * number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(1800)
    assert not failures
    assert not any(thread.is_alive() for thread in threads)


def test_only_resident_outputs_stay() -> None:
    device = open_device()
    chain = Chain()
    x = chain.input((3,))
    executor = executor_of(chain.graph(chain.node("aten.add.Tensor", x, x, 1, chain.tensor((3,)))), device)
    with pytest.raises(InputError, match=r"resident=\(0,\)"):
        executor.start([np.ones(3, np.float32)]).on_device(0)


def test_the_smaller_memory_is_taken_where_sharing_exceeds_the_plan_of_the_file() -> None:
    device = open_device()
    chain = Chain()
    x = chain.input((6, 4))
    seen = chain.node("aten.view_copy.default", x, (24,), chain.tensor((24,)))
    graph = chain.graph(chain.node("aten.add.Tensor", seen, seen, 1, chain.tensor((24,))))
    for allowed in (1 << 20, 1):
        executor = executor_of(replace(graph, file_bytes=allowed), device)
        copies = executor_of(graph, device, aliasing=False)
        assert executor.plan.memory.activation_bytes <= copies.plan.memory.activation_bytes
        assert executor.execute([np.ones((6, 4), np.float32)])[0].sum() == 48
