"""liveshape.load and liveshape.runtime, beside executorch.runtime where a program runs on both."""

from __future__ import annotations

import asyncio
import io
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import liveshape
from liveshape.errors import FormatError, InputError, ShapeError, UnsupportedError
from liveshape.runtime import Runtime, Verification
from tests.runtime.files import CONSTANTS, LENGTH, Block, external, portable, several

NO_GPU = {"VK_DRIVER_FILES": "/nonexistent", "VK_ICD_FILENAMES": "/nonexistent"}


@pytest.fixture(scope="module")
def model() -> Any:
    with liveshape.load(several()) as loaded:
        yield loaded


def block_inputs(length: int) -> np.ndarray:
    return np.random.default_rng(length).standard_normal((1, length, 64)).astype(np.float32)


# load and Model


@pytest.mark.parametrize("length", [LENGTH, 1, 7, 29, 2, LENGTH - 1])
def test_one_model_serves_every_length(model: Any, length: int) -> None:
    x = block_inputs(length)
    expected = Block()(torch.from_numpy(x)).detach().numpy()
    np.testing.assert_allclose(model(x), expected, atol=1e-5)


def test_several_outputs_are_a_tuple_and_one_is_itself(model: Any) -> None:
    assert isinstance(model(block_inputs(3)), np.ndarray)
    total, more = model.method("sums")(np.ones((5, 8), np.float32), np.ones((5, 8), np.float32))
    np.testing.assert_array_equal(total, np.full((5, 8), 2, np.float32))
    np.testing.assert_array_equal(more, np.full((5, 8), 2.5, np.float32))


def test_what_a_model_says_about_itself(model: Any) -> None:
    assert model.inputs == (liveshape.TensorInfo("input 0", "float32", (1, LENGTH, 64), True),)
    assert [info.name for info in model.method("sums").outputs] == ["output 0", "output 1"]
    assert set(model.methods) == {"forward", "sums", *CONSTANTS}
    assert model.memory.weights == 64 * 4
    assert model.memory.state == 0
    assert model.memory.total < 1 << 20
    assert model.device.adapter.name
    assert "1x43x64" in repr(model)


def test_torch_tensors_lists_and_other_arrays_are_taken(model: Any) -> None:
    x = block_inputs(2)
    expected = model(x)
    for given in (torch.from_numpy(x), torch.nn.Parameter(torch.from_numpy(x)), x.tolist(), np.asfortranarray(x)):
        np.testing.assert_array_equal(model(given), expected)


@pytest.mark.parametrize(
    ("given", "kind", "message"),
    [
        ((np.zeros((1, LENGTH + 1, 64), np.float32),), ShapeError, "input 0"),
        ((np.zeros((LENGTH, 64), np.float32),), ShapeError, "input 0"),
        ((np.zeros((1, 2, 64)),), InputError, r"input 0.* is float32, float64 was given"),
        ((), InputError, "takes 1 input"),
    ],
)
def test_a_refused_call_says_why_and_harms_nothing(model: Any, given: Any, kind: Any, message: str) -> None:
    before = model(block_inputs(3))
    with pytest.raises(kind, match=message):
        model(*given)
    np.testing.assert_array_equal(model(block_inputs(3)), before)


def test_progress_counts_every_byte_of_weights() -> None:
    seen: list[tuple[int, int]] = []
    with liveshape.load(several(), progress=lambda done, total: seen.append((done, total))):
        assert seen[-1] == (64 * 4, 64 * 4)


def test_a_closed_model_says_so() -> None:
    model = liveshape.load(several())
    model.close()
    with pytest.raises(InputError, match="closed"):
        model(block_inputs(1))
    with pytest.raises(InputError, match="closed"):
        model.method("sums")


def test_bad_files_are_named(tmp_path: Path) -> None:
    path = tmp_path / "notes.pte"
    path.write_bytes(b"these are notes, not a program")
    with pytest.raises(FormatError, match=r"notes\.pte"):
        liveshape.load(path)
    with pytest.raises(FormatError, match=r"notes\.pte"):
        liveshape.load(several(), data_path=[path])


@pytest.mark.parametrize("several_paths", [False, True])
def test_weights_come_from_a_ptd(several_paths: bool) -> None:
    program, weights = external()
    with liveshape.load(program, data_path=[weights, str(weights)] if several_paths else weights) as model:
        np.testing.assert_array_equal(model(np.ones((2, 8), np.float32)), np.tile(np.arange(8, dtype="f4") + 1, (2, 1)))


def test_a_missing_ptd_is_asked_for() -> None:
    with pytest.raises(FormatError, match=r"'bias'.*\.ptd"):
        liveshape.load(external()[0])


# The calls of executorch.runtime


def both(name: str) -> Any:
    if name == "liveshape":
        return Runtime.get()
    executorch_runtime = pytest.importorskip("executorch.runtime")
    return executorch_runtime.Runtime.get()


@pytest.mark.parametrize("name", ["liveshape", "executorch"])
def test_the_same_code_runs_on_both(name: str) -> None:
    runtime = both(name)
    program = runtime.load_program(portable(), enable_etdump=False, debug_buffer_size=0, data_path=None)
    assert program.method_names == {"forward", *CONSTANTS}
    forward = program.load_method("forward")
    assert program.load_method("forward") is forward
    for length in (LENGTH, 1, 7):
        x, y = torch.randn(length, 8), torch.randn(length, 8)
        total, more = (np.asarray(each) for each in forward.execute((x, y)))
        np.testing.assert_array_equal(total, (x + y).numpy())
        np.testing.assert_array_equal(more, (y + 1.5).numpy())
    for metadata in (forward.metadata, program.metadata("forward")):
        assert metadata.name() == "forward"
        assert (metadata.num_inputs(), metadata.num_outputs(), metadata.num_attributes()) == (2, 2, 0)
        first = metadata.input_tensor_meta(0)
        assert (tuple(first.sizes()), first.dtype(), first.nbytes()) == ((LENGTH, 8), 6, LENGTH * 8 * 4)
        assert first.is_memory_planned()
        assert metadata.output_tensor_meta(1).dtype() == 6
        with pytest.raises(IndexError):
            metadata.input_tensor_meta(2)
    with pytest.raises(KeyError):
        program.load_method("backward")
    with pytest.raises(IndexError):
        program.metadata("get_scale").output_tensor_meta(0)
    assert "aten::add.out" in runtime.operator_registry.operator_names
    assert not runtime.backend_registry.is_available("NoSuchBackend")


@pytest.mark.parametrize("name", ["liveshape", "executorch"])
def test_constant_methods_return_their_values(name: str) -> None:
    program = both(name).load_program(portable())
    assert program.load_method("get_max_seq_len").execute(()) == [LENGTH]
    assert program.load_method("use_kv_cache").execute([]) == [True]
    assert program.load_method("get_scale").execute([]) == [0.5]
    assert program.load_method("get_eos_ids").execute([]) == [1, 2]
    table = np.asarray(program.load_method("get_table").execute([])[0])
    np.testing.assert_array_equal(table, CONSTANTS["get_table"].numpy())
    assert program.metadata("get_table").output_tensor_meta(0).dtype() == 4


def test_a_program_comes_from_a_path_bytes_or_a_file() -> None:
    content = several().read_bytes()
    for source in (several(), str(several()), content, bytearray(content), io.BytesIO(content)):
        program = Runtime.get().load_program(source, verification=Verification.Minimal)
        assert program.load_method("get_max_seq_len")() == [LENGTH]


def test_the_registries() -> None:
    runtime = Runtime.get()
    assert runtime is Runtime.get()
    assert runtime.backend_registry.registered_backend_names == ["VulkanBackend"]
    assert runtime.backend_registry.is_available("VulkanBackend")
    assert not any(name.startswith("liveshape.") for name in runtime.operator_registry.operator_names)


def test_etdump_is_refused_in_words() -> None:
    with pytest.raises(UnsupportedError, match="ETDump"):
        Runtime.get().load_program(several()).write_etdump_result_to_file("a", "b")


def test_unsupported_parts_are_all_named_at_load(monkeypatch: pytest.MonkeyPatch) -> None:
    from liveshape.ops import OPS

    monkeypatch.delitem(OPS, "aten.add.Tensor")
    monkeypatch.delitem(OPS, "et_vk.rms_norm.default")
    program = Runtime(strict=True).load_program(several())
    with pytest.raises(UnsupportedError, match=r"rms_norm[\s\S]*aten\.add"):
        program.load_method("forward")
    assert program.load_method("get_max_seq_len")() == [LENGTH]


def test_constant_methods_need_no_gpu_and_no_wgpu() -> None:
    code = (
        "import sys, liveshape\n"
        f"value = liveshape.load({str(several())!r}, method='get_max_seq_len')()\n"
        "assert 'wgpu' not in sys.modules\n"
        f"try: liveshape.load({str(several())!r})\n"
        "except liveshape.NoAdapterError as error: assert 'driver' in str(error)\n"
        "else: raise AssertionError('an adapter was found')\n"
        "print(value)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, **NO_GPU})
    assert result.stdout.strip() == str(LENGTH), result.stderr


def test_threads_share_a_method_and_a_device(model: Any) -> None:
    inputs = [block_inputs(length) for length in (1, 7, 29, LENGTH)]
    expected = [model(x) for x in inputs]
    sums = model.method("sums")
    ones = np.ones((3, 8), np.float32)
    wrong: list[Any] = []

    def work(position: int) -> None:
        try:
            for _ in range(5):
                np.testing.assert_array_equal(model(inputs[position]), expected[position])
                np.testing.assert_array_equal(sums(ones, ones)[0], 2 * ones)
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=work, args=(position,)) for position in range(len(inputs))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_places_of_metadata_that_are_none() -> None:
    metadata = Runtime().load_program(several()).metadata("forward")
    assert metadata.input_tensor_meta(np.int64(0)).dtype() == 6  # type: ignore[arg-type]
    for place in ("0", None, 0.0, -1, [0]):
        with pytest.raises(InputError, match="there is no input"):
            metadata.input_tensor_meta(place)  # type: ignore[arg-type]


@pytest.mark.parametrize("given", [None, 5, "abc", {"x": 1}])
def test_inputs_that_are_no_list_are_refused(model: Any, given: Any) -> None:
    with pytest.raises(InputError, match="takes a list of 1 input,"):
        model._method.execute(given)


@pytest.mark.parametrize("name", [[1], None, 3, "nothing"])
def test_methods_that_there_are_none_of(model: Any, name: Any) -> None:
    with pytest.raises(InputError, match="has no method"):
        model._program.load_method(name)


def test_results_can_be_awaited(model: Any) -> None:
    async def all_of_them() -> list[Any]:
        calls = [model._method.execute_async([block_inputs(length)]) for length in (1, 5, 3, 7, 2)]
        return await asyncio.gather(*calls)

    for (result,), length in zip(asyncio.run(all_of_them()), (1, 5, 3, 7, 2), strict=True):
        np.testing.assert_array_equal(result, model(block_inputs(length)))


def test_a_lost_device_is_said_and_the_next_load_opens_another() -> None:
    """In a process of its own: the device of the others must live."""
    code = (
        "import numpy as np\n"
        "from liveshape.errors import DeviceError\n"
        "from liveshape.runtime import Runtime\n"
        f"path, x = {str(several())!r}, np.ones((1, 4, 64), np.float32)\n"
        "runtime = Runtime.get()\n"
        "method = runtime.load_program(path).load_method('forward')\n"
        "expected = method.execute([x])[0]\n"
        "runtime.device._device.destroy()\n"
        "for _ in range(2):\n"
        "    try:\n"
        "        method.execute([x])\n"
        "        print('no error')\n"
        "    except DeviceError as error:\n"
        "        print('new Runtime' in str(error))\n"
        "for again in (runtime, Runtime()):\n"
        "    print((again.load_program(path).load_method('forward').execute([x])[0] == expected).all())\n"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=1800, check=False)
    assert run.stdout.split() == ["True"] * 4, run.stderr
