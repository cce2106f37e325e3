"""Random numbers: of the right kind, others in every call and for every tensor, the same in a program loaded anew."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from liveshape.device.backends import open_device
from liveshape.graph import Graph
from tests.support.chains import Chain, executor_of

LENGTH = 20000


def drawing(*calls: tuple[str, str, tuple[Any, ...]]) -> Graph:
    """A graph of several draws: operator, dtype and arguments of each."""
    chain = Chain()
    x = chain.input((1,))
    outputs = [chain.node(name, *args, chain.tensor((LENGTH,), dtype)) for name, dtype, args in calls]
    return chain.graph(chain.node("aten.clone.default", x, None, chain.tensor((1,))), *outputs)


def test_uniform_normal_and_whole_numbers() -> None:
    executor = executor_of(
        drawing(
            ("aten::rand.out", "float32", ((LENGTH,),)),
            ("aten::rand.out", "float16", ((LENGTH,),)),
            ("aten::randn.out", "float32", ((LENGTH,),)),
            ("aten::randint.low_out", "int64", (-3, 5, (LENGTH,))),
            ("aten::randperm.out", "int64", (LENGTH,)),
        ),
        open_device(),
    )
    _, uniform, half, normal, whole, order = executor.execute([np.zeros(1, np.float32)])
    for found in (uniform, half.astype(np.float32)):
        assert found.min() >= 0
        assert found.max() < 1
        np.testing.assert_allclose(np.histogram(found, 10, (0, 1))[0] / LENGTH, 0.1, atol=0.01)
    np.testing.assert_allclose([normal.mean(), normal.std(), (normal**3).mean()], [0, 1, 0], atol=0.05)
    np.testing.assert_allclose((np.abs(normal) < 1).mean(), 0.6827, atol=0.015)
    np.testing.assert_allclose(np.bincount(whole + 3, minlength=8) / LENGTH, 1 / 8, atol=0.01)
    np.testing.assert_array_equal(np.sort(order), np.arange(LENGTH))
    assert np.abs(np.corrcoef(order[:-1], order[1:])[0, 1]) < 0.03


def test_every_call_and_every_tensor_draws_others_and_a_new_load_the_same() -> None:
    graph = drawing(("aten::rand.out", "float32", ((LENGTH,),)), ("aten::rand.out", "float32", ((LENGTH,),)))
    nothing = [np.zeros(1, np.float32)]
    runs = []
    for _ in range(2):
        executor = executor_of(graph, open_device())
        runs.append([executor.execute(nothing)[1:] for _ in range(2)])
    np.testing.assert_array_equal(runs[0], runs[1])
    rows = np.concatenate(runs[0])
    correlation = np.corrcoef(rows) - np.eye(len(rows))
    assert np.abs(correlation).max() < 0.03


@pytest.mark.parametrize("p", [0.0, 0.3, 1.0])
def test_dropout_in_training_keeps_what_its_mask_says(p: float) -> None:
    chain = Chain()
    x = chain.input((LENGTH,))
    out, mask = chain.tensor((LENGTH,)), chain.tensor((LENGTH,), "bool")
    chain.node("aten::native_dropout.out", x, p, True, (out, mask))
    executor = executor_of(chain.graph(out, mask), open_device())
    data = np.random.default_rng(0).standard_normal(LENGTH).astype(np.float32)
    got, kept = executor.execute([data])
    np.testing.assert_allclose(kept.mean(), 1 - p, atol=0.02)
    np.testing.assert_allclose(got, np.where(kept, data / (1 - p) if p < 1 else 0, 0), rtol=1e-6)
