"""Memory of a device: how many bindings it takes, what is skipped, what is freed, and who may use it when."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from liveshape.device.adapters import usable_adapters
from liveshape.device.backends import open_device
from liveshape.device.protocol import Buffer, Command
from liveshape.device.webgpu import WebGpuDevice
from liveshape.errors import DeviceError
from liveshape.graph import Limits
from liveshape.graph.limits import binding_parts, segment_bytes
from liveshape.plan.params import Slot
from liveshape.run.results import Staging
from liveshape.run.upload import stream
from tests.device.interrupts import Doubling
from tests.device.library import LIBRARY
from tests.support.chains import Chain, executor_of


def read(device: WebGpuDevice, buffer: Buffer) -> bytes:
    staging = device.staging(buffer.nbytes)
    device.submit((), [(buffer, 0, buffer.nbytes, staging, 0)])
    data = bytes(device.read(staging, buffer.nbytes))
    device.free([staging])
    return data


@pytest.mark.parametrize(
    ("nbytes", "block", "parts"),
    [
        (2800, 2800, 1),
        (4000, 4000, 1),
        (4004, 4004, 2),
        (2800, 7200, 1),
        (2800, 9000, 2),
        (7200, 7200, 4),
        (0, 9000, 1),
    ],
)
def test_one_function_says_how_many_bindings_a_tensor_takes(nbytes: int, block: int, parts: int) -> None:
    limits = Limits(max_binding_bytes=4000, max_buffer_bytes=8192)
    assert segment_bytes(limits) == 2048
    assert binding_parts(nbytes, block, limits) == parts


@pytest.mark.parametrize("most", [4000, 3000 // 16 * 16, 2816, 1 << 12])
def test_a_binding_limit_that_is_no_power_of_two_changes_nothing(most: int) -> None:
    limits = replace(open_device().limits, max_binding_bytes=most, max_bindings=1 << 8)
    device = WebGpuDevice(LIBRARY, usable_adapters(LIBRARY)[0], 0, limits=limits)
    chain = Chain()
    x, y = chain.input((700,)), chain.input((1800,))
    total = chain.node(
        "aten.mul.Scalar", chain.node("aten.add.Tensor", y, y, 1, chain.tensor((1800,))), 2.0, chain.tensor((1800,))
    )
    total = chain.node("aten.sum.default", total, None, chain.tensor(()))
    twice = chain.node("aten.add.Tensor", x, x, 1, chain.tensor((700,)))
    twice = chain.node("aten.mul.Scalar", twice, 3.0, chain.tensor((700,)))
    out = chain.node("aten.add.Tensor", twice, total, 1, chain.tensor((700,)))
    executor = executor_of(chain.graph(out), device)
    assert max(executor.plan.memory.blocks) > most > 700 * 4, "no small tensor lies in a block above the limit"
    given = np.arange(700, dtype=np.float32)
    np.testing.assert_array_equal(executor.execute([given, np.ones(1800, np.float32)])[0], 6 * given + 7200)


def test_a_buffer_in_parts_holds_what_one_in_a_row_does() -> None:
    limits = replace(open_device().limits, max_binding_bytes=4000, max_buffer_bytes=4096)
    device = WebGpuDevice(LIBRARY, usable_adapters(LIBRARY)[0], 0, limits=limits)
    large, small = device.buffer(9000, "large"), device.buffer(4096, "small")
    assert ([size for _, size in large.parts], len(small.parts)) == ([2048] * 4 + [808], 1)
    data = np.random.default_rng(0).integers(0, 256, 9000, np.uint8).tobytes()
    device.write(large, 0, data)
    device.write(large, 2044, b"01234567")
    device.submit((), input_copies=[(large, 4096, small)])  # split at bytes where the other is not
    assert read(device, small) == data[:2044] + b"01234567" + data[2052:4096]
    with pytest.raises(DeviceError, match="bytes 8,996 to 9,004 are outside a buffer of 9,000"):
        device.write(large, 8996, bytes(8))


def test_a_wrong_number_of_bindings_is_refused() -> None:
    limits = replace(open_device().limits, max_binding_bytes=4000, max_buffer_bytes=4096)
    device = WebGpuDevice(LIBRARY, usable_adapters(LIBRARY)[0], 0, limits=limits)
    chain = Chain()
    x = chain.input((700,))
    executor = executor_of(chain.graph(chain.node("aten.add.Tensor", x, x, 1, chain.tensor((700,)))), device)
    ((variant, _),) = executor.plan.routes[0].dispatched
    with pytest.raises(DeviceError, match=r"2,800 bytes of 9,000 in 5 parts cannot be bound as 1"):
        device.bind(variant, [(device.buffer(9000, "large"), 2800)] * 3, device.uniforms(256))


def test_zeros_are_skipped_only_where_the_caller_says_that_the_buffer_is_new() -> None:
    device = open_device()
    buffer = device.buffer(12, "state")
    device.write(buffer, 0, b"abcdefghijkl")
    stream(device, buffer, [b"wxyz", bytes(4)], fresh=True)
    assert read(device, buffer) == b"wxyzefghijkl"
    stream(device, buffer, [b"wxyz", bytes(4)])
    assert read(device, buffer) == b"wxyz\0\0\0\0ijkl"


def test_reset_brings_back_a_state_of_zeros() -> None:
    from liveshape.graph.state import State
    from liveshape.llm.engine.kv_cache import Cache

    device = open_device()
    chain = Chain()
    x, state = chain.input((4,)), chain.constant(np.zeros(4, np.float32))
    new = chain.node("aten.add.Tensor", state, x, 1, chain.tensor((4,)))
    chain.node("aten.copy_.default", state, new, False, state)
    executor = executor_of(chain.graph(new), device)
    cache, one = Cache(executor, [State(state)]), np.ones(4, np.float32)
    for _ in range(2):
        assert [executor.execute([one])[0][0] for _ in range(3)] == [1, 2, 3]
        cache.clear()


def test_live_bytes_follow_what_is_made_and_freed() -> None:
    device = WebGpuDevice(
        LIBRARY, usable_adapters(LIBRARY)[0], 0, limits=replace(open_device().limits, max_buffer_bytes=1 << 20)
    )
    made = [device.buffer(3 << 20, "three parts"), device.uniforms(512), device.staging(1024)]
    assert device.counters.live_bytes == (3 << 20) + 512 + 1024
    for _ in range(2):  # again is nothing
        device.free(made)
        assert device.counters.live_bytes == 0


@pytest.mark.parametrize("raw", [True, False])
def test_memory_that_was_freed_is_refused_by_every_method(raw: bool) -> None:
    device = WebGpuDevice(LIBRARY, usable_adapters(LIBRARY)[0], 0, raw=raw)
    doubling, x = Doubling(device), np.ones((64, 64), np.float32)
    block = doubling.executor.buffer_of(doubling.x)
    ((variant, _),) = doubling.executor.plan.routes[0].dispatched
    uniforms, staging, target = device.uniforms(256), device.staging(64), device.buffer(64, "target")
    device.free([block, staging])
    uses: list[Any] = [
        lambda: device.write(block, 0, x),
        lambda: device.bind(variant, [(block, 64)] * 3, uniforms),
        lambda: device.submit(doubling.commands),
        lambda: device.submit((), input_copies=[(block, 64, target)]),
        lambda: device.submit((), [(target, 0, 64, staging, 0)]),
        lambda: device.read(staging, 64),
    ]
    for use in uses:
        with pytest.raises(DeviceError, match="was freed"):
            use()
    again = Doubling(device)
    np.testing.assert_array_equal(again.start(x).wait()[0], 2 * x)
    again.staging.free()
    np.testing.assert_array_equal(again.start(x).wait()[0], 2 * x)


def test_results_that_are_freed_before_they_are_read_are_an_error() -> None:
    doubling = Doubling(open_device())
    transfer = doubling.start(np.ones((64, 64), np.float32))
    doubling.staging.free()
    with pytest.raises(DeviceError, match=r"staging .* was freed"):
        transfer.wait()


def test_a_slot_is_read_at_every_submit() -> None:
    device = open_device()
    chain = Chain()
    x = chain.input((8,))
    first = chain.node("aten.mul.Scalar", x, 3.0, chain.tensor((8,)))
    out = chain.node("aten.mul.Scalar", first, 5.0, chain.tensor((8,)))
    executor = executor_of(chain.graph(out), device, aliasing=False)
    executor.execute([np.ones(8, np.float32)])
    three, five = executor.encoder.commands(executor.live, 0, 2)
    for slot, factor in ((five.slot, 15), (three.slot, 9), (five.slot, 15)):
        device.write(executor.buffer_of(x), 0, np.ones(8, np.float32))
        rows = [(out, (8,), executor.buffer_of(out))]
        row = [three, Command(five.bound, slot, five.label)]
        result = Staging(device, device.limits.half).start(row, rows, "slots").wait()[0]
        np.testing.assert_array_equal(result, np.full(8, factor, np.float32))
    with pytest.raises(DeviceError, match=r"mul.Scalar \(node 1\).*: it takes params, and its slot has no place"):
        device.submit([Command(five.bound, Slot(-1), five.label)])
