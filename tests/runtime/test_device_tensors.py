"""Tensors that stay on the device: of one call, of an upload, as inputs of the next call and of another model."""

from __future__ import annotations

import gc
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import liveshape
from liveshape import DeviceTensor, InputError, ShapeError
from liveshape.device.backends import open_device
from liveshape.errors import FormatError
from liveshape.shipped import shipped_model
from tests.support.chains import Chain, executor_of

X = np.random.default_rng(0).standard_normal((1, 128, 64)).astype(np.float32)


def test_outputs_are_inputs_of_the_next_call_and_of_another_model() -> None:
    first, second = liveshape.load("demo"), liveshape.load("demo")
    assert first.device is second.device
    for rows in (7, 128, 1):
        x = X[:, :rows]
        one = first(x)
        two = first(one)
        y = first.on_device(x)
        assert (type(y), y.shape, y.dtype) == (DeviceTensor, x.shape, "float32")
        z = second.on_device(y)
        again = first.on_device(y)  # the memory of y is its own
        np.testing.assert_array_equal(np.asarray(y), one)
        np.testing.assert_array_equal(z.numpy(), two)
        np.testing.assert_array_equal(again.numpy(), two)
        np.testing.assert_array_equal(second(y), two)


def test_an_upload_is_an_input_of_many_calls() -> None:
    model = liveshape.load("demo")
    for given in (X[:, :5], torch.from_numpy(X[:, :5].copy()), X[:, :10][:, ::2]):
        on_device = model.upload(given)
        np.testing.assert_array_equal(on_device.numpy(), np.asarray(given))
        for _ in range(2):
            np.testing.assert_array_equal(model(on_device), model(np.ascontiguousarray(given)))


def test_memory_comes_back() -> None:
    model = liveshape.load("demo")
    y = model.upload(X)
    gc.collect()
    before = model.device.counters.live_bytes
    for _ in range(20):
        y = model.on_device(y)
    gc.collect()
    assert model.device.counters.live_bytes == before
    model.close()
    np.testing.assert_array_equal(y.shape, y.numpy().shape)  # it outlives its model


def test_what_does_not_fit_is_refused() -> None:
    model = liveshape.load("demo")
    with pytest.raises(ShapeError, match="128"):
        model(model.upload(np.zeros((1, 129, 64), np.float32)))
    with pytest.raises(InputError, match="int64"):
        model(model.upload(np.zeros((1, 7, 64), np.int64)))
    with pytest.raises(InputError, match="no tensors of <U1"):
        model.upload(np.array(["x"]))
    other = open_device(limits=replace(open_device().limits, max_groups=1000))
    with pytest.raises(InputError, match=r"lies on another device, .* runs on .*give its \.numpy\(\)"):
        model(liveshape.load("demo", device=other).upload(X))


def test_rows_of_a_table_are_checked_on_the_device_as_well() -> None:
    chain = Chain()
    ids = chain.input((4,), "int64")
    table = chain.constant(np.arange(12, dtype=np.float32).reshape(6, 2))
    graph = chain.graph(chain.node("aten.embedding.default", table, ids, -1, False, False, chain.tensor((4, 2))))
    executor = executor_of(graph, open_device())
    from liveshape.run.device_arrays import uploaded

    (rows,) = executor.start([uploaded(executor.device, [5, 0, 3])], wanted=()).kept()
    np.testing.assert_array_equal(rows.numpy(), [[10, 11], [0, 1], [6, 7]])
    with pytest.raises(InputError, match="6 is outside of a table of 6 rows"):
        executor.execute([uploaded(executor.device, [5, 6])])
    executor.close()


@pytest.mark.parametrize("name", ["folder", "short name", "file"])
def test_a_runtime_loads_what_load_does(name: str) -> None:
    source = {"folder": shipped_model(), "short name": "story", "file": next(shipped_model().glob("*.pte"))}[name]
    with liveshape.Runtime().load_program(source) as program:
        assert "get_vocab_size" in program.method_names


def test_a_folder_without_a_program_is_named(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match=r"must hold a model.pte or a single .pte"):
        liveshape.Runtime().load_program(tmp_path)
