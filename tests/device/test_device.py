"""The device: choosing it, its errors, and that limits of other devices change nothing but speed."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from liveshape.device.adapters import usable_adapters
from liveshape.device.backends import choose_adapter, list_adapters, open_device
from liveshape.device.protocol import Adapter, Command
from liveshape.device.webgpu import WebGpuDevice
from liveshape.errors import DeviceError, InputError, ShapeError
from liveshape.graph import Tensor
from liveshape.graph.live import LiveTensor
from liveshape.kernels import Kernel, specialize
from liveshape.plan.params import Slot
from liveshape.run.executor import Executor
from tests.device.library import LIBRARY
from tests.support.chains import Chain, executor_of


def adapter(index: int, name: str, kind: str = "DiscreteGPU") -> Adapter:
    return Adapter(index, name, kind, "Vulkan", f"{name} driver", kind == "CPU", True, 1 << 30, 1 << 27)


ADAPTERS = [adapter(0, "NVIDIA H200"), adapter(1, "Intel Arc"), adapter(2, "llvmpipe", "CPU")]


@pytest.mark.parametrize(("asked", "index"), [(None, 0), ("", 0), (1, 1), ("2", 2), ("arc", 1), ("cpu", 2)])
def test_adapters_are_chosen_by_index_or_name(asked: Any, index: int) -> None:
    assert choose_adapter(asked, ADAPTERS) == index


@pytest.mark.parametrize(
    ("asked", "message"), [("7", "no adapter 7; this machine has NVIDIA"), ("amd", "is called 'amd'")]
)
def test_a_wrong_choice_lists_what_there_is(asked: str, message: str) -> None:
    with pytest.raises(DeviceError, match=message):
        choose_adapter(asked, ADAPTERS)


def test_the_environment_chooses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LIVESHAPE_DEVICE", "no such thing")
    with pytest.raises(DeviceError, match="no such thing"):
        open_device()
    monkeypatch.setenv("LIVESHAPE_DEVICE", "0")
    assert open_device() is open_device(0)


def test_what_an_adapter_lacks_is_not_told_in_twenty_lines() -> None:
    """The first thing a newcomer saw of a software adapter was a dump of its capabilities."""
    command = "from liveshape.device.backends import open_device; open_device()"
    done = subprocess.run([sys.executable, "-c", command], capture_output=True, text=True, check=True)
    assert "ownlevel" not in done.stderr
    # That there is no GPU.
    assert all("software" in line for line in done.stderr.splitlines())
    assert len(done.stderr.splitlines()) <= 1


def test_no_opengl_adapter_is_listed() -> None:
    assert {entry.backend for entry in list_adapters()} <= {"Vulkan", "Metal", "D3D12"}


def small(dtype: str = "float32") -> tuple[Any, Any]:
    """rms_norm(x) + x with a weight, as (graph, torch-free golden)."""
    chain = Chain()
    x = chain.input((43, 48), dtype)
    weight = np.random.default_rng(0).standard_normal(48).astype(dtype)
    norm = chain.node("et_vk.rms_norm.default", x, chain.constant(weight), 1e-6, chain.tensor((43, 48), dtype))
    out = chain.node("aten.add.Tensor", norm, x, 1, chain.tensor((43, 48), dtype))

    def golden(array: np.ndarray) -> np.ndarray:
        wide = array.astype(np.float64)
        return wide / np.sqrt((wide * wide).mean(-1, keepdims=True) + 1e-6) * weight + wide

    return chain.graph(out), golden


def run(executor: Executor, golden: Any, dtype: str = "float32", tolerance: float = 1e-5) -> list[np.ndarray]:
    results = []
    for size in (43, 1, 7, 40, 2):
        x = np.random.default_rng(size).standard_normal((size, 48)).astype(dtype)
        executor.poison()
        (out,) = executor.execute([x])
        np.testing.assert_allclose(out.astype(np.float64), golden(x), tolerance, tolerance)
        results.append(out)
    return results


@pytest.mark.parametrize(
    "changes",
    [
        {"max_groups": 4},
        {"max_groups": 5, "max_invocations": 8},
        {"max_invocations": 1},
        {"max_binding_bytes": 4096},
        {"max_binding_bytes": 4096, "max_buffer_bytes": 4096},
        {"max_binding_bytes": 2048, "max_groups": 6, "max_invocations": 16},
    ],
    ids=str,
)
def test_results_do_not_depend_on_the_limits(changes: dict[str, int]) -> None:
    device = WebGpuDevice(LIBRARY, usable_adapters(LIBRARY)[0], 0, limits=replace(open_device().limits, **changes))
    graph, golden = small()
    executor = executor_of(graph, device)
    if "max_binding_bytes" in changes:
        assert max(max(kernel.segments) for kernel in executor.plan.kernels) > 1, "nothing was split or tested"
    run(executor, golden)


def test_devices_without_f16_run_f16_programs_in_f32() -> None:
    device = WebGpuDevice(LIBRARY, usable_adapters(LIBRARY)[0], 0, limits=replace(open_device().limits, half=False))
    graph, golden = small("float16")
    outputs = run(executor_of(graph, device), golden, "float16", 2e-3)
    assert outputs[0].dtype == np.float16


def test_raw_calls_and_public_calls_give_the_same_bytes() -> None:
    results = []
    for raw in (True, False):
        device = WebGpuDevice(LIBRARY, usable_adapters(LIBRARY)[0], 0, raw=raw)
        assert device.raw is raw
        graph, golden = small()
        results.append(run(executor_of(graph, device), golden))
    for one, other in zip(*results, strict=True):
        assert one.tobytes() == other.tobytes()


def test_a_shader_that_does_not_compile_names_the_kernel() -> None:
    device = open_device()
    broken = Kernel.parse(
        "broken",
        "@group(0) @binding(0) var<storage, read_write> out: array<f32>;\n"
        "@compute @workgroup_size(1) fn main() { out[0] = nonsense; }",
    )
    dispatch = broken(LiveTensor(Tensor("x", "float32", (4,)), bytearray()), groups=1)
    with pytest.raises(DeviceError, match=r"(?s)kernel broken<.*does not compile on .*nonsense"):
        device.pipeline(specialize(dispatch, device.limits))


@pytest.mark.parametrize("raw", [True, False])
def test_a_refused_dispatch_names_node_and_kernel(raw: bool) -> None:
    device = WebGpuDevice(LIBRARY, usable_adapters(LIBRARY)[0], 0, raw=raw)
    graph, golden = small()
    executor = executor_of(graph, device)
    x = np.zeros((43, 48), np.float32)
    executor.execute([x])
    good = executor.encoder.commands(executor.live, 0, 2)
    slot = Slot(good[1].slot.offset)
    slot.grid = (1 << 20, 1, 1)
    bad = Command(good[1].bound, slot, good[1].label)
    with pytest.raises(DeviceError, match=r"aten.add.Tensor \(node 1\), kernel pointwise/add"):
        device.submit([good[0], bad])
    run(executor, golden)


def test_too_much_memory_is_refused_with_the_numbers() -> None:
    device = open_device()
    with pytest.raises(DeviceError, match=r"could not allocate .* bytes for huge"):
        device._create(1 << 60, 0x80, "huge")


def test_steady_state_creates_nothing() -> None:
    device = open_device()
    graph, golden = small()
    executor = executor_of(graph, device)
    before = device.counters.buffers, device.counters.pipelines, device.counters.bind_groups
    submits = device.counters.submits
    run(executor, golden)
    assert before == (device.counters.buffers, device.counters.pipelines, device.counters.bind_groups)
    assert device.counters.submits == submits + 5


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ([], InputError, "takes 1 input, 0 given"),
        (
            [np.zeros((3, 48))],
            InputError,
            r"input 0 is float32, float64 was given; convert it with .astype\('float32'\)",
        ),
        ([np.zeros((44, 48), np.float32)], ShapeError, r"live shape \(44, 48\) does not fit the allocated \(43, 48\)"),
        ([np.zeros((3, 47), np.float32)], ShapeError, r"weight \(48,\) does not match the last dimension of \(3, 47\)"),
        ([np.zeros(48, np.float32)], ShapeError, "rank 1 was given, 2 is needed"),
    ],
)
def test_bad_inputs_are_refused_and_leave_the_graph_right(given: Any, error: Any, message: str) -> None:
    device = open_device()
    graph, golden = small()
    executor = executor_of(graph, device)
    for _ in range(2):
        with pytest.raises(error, match=message):
            executor.execute(given)
        run(executor, golden)


def test_zero_size_inputs_give_zero_size_outputs() -> None:
    device = open_device()
    graph, golden = small()
    executor = executor_of(graph, device)
    (out,) = executor.execute([np.zeros((0, 48), np.float32)])
    assert out.shape == (0, 48)
    run(executor, golden)


def test_inputs_come_from_dlpack_buffers_and_lists() -> None:
    import torch

    device = open_device()
    chain = Chain()
    x = chain.input((4,))
    out = chain.node("aten.add.Tensor", x, x, 1, chain.tensor((4,)))
    executor = executor_of(chain.graph(out), device)
    strided = np.arange(8, dtype=np.float32)[::2]
    for given in (torch.arange(4.0), torch.arange(4.0, requires_grad=True), memoryview(np.arange(4, dtype=np.float32))):
        np.testing.assert_array_equal(executor.execute([given])[0], [0, 2, 4, 6])
    np.testing.assert_array_equal(executor.execute([[0, 1, 2, 3]])[0], [0, 2, 4, 6])
    np.testing.assert_array_equal(executor.execute([strided])[0], [0, 4, 8, 12])
    np.testing.assert_array_equal(executor.execute([torch.ones(4)[:2]])[0], [2, 2])


def test_int64_inputs_outside_32_bits_are_refused() -> None:
    device = open_device()
    chain = Chain()
    x = chain.input((2,), "int64")
    out = chain.node("aten.add.Tensor", x, x, 1, chain.tensor((2,), "int64"))
    executor = executor_of(chain.graph(out), device)
    np.testing.assert_array_equal(executor.execute([np.array([1, -5])])[0], [2, -10])
    with pytest.raises(InputError, match="64-bit values are kept in 32 bits"):
        executor.execute([np.array([1 << 40, 0])])
