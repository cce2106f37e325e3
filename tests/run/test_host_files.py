"""Exported files with operators that have no kernel: the host fallback, its warning, and what is refused."""

from __future__ import annotations

import logging
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import liveshape
from liveshape.device.backends import open_device
from liveshape.errors import UnsupportedError
from liveshape.plan.compiling import compile
from liveshape.run.executor import Executor
from liveshape.run.host import compile_with_host, find_on_host
from liveshape.runtime import Runtime
from tests.run.test_host import MAX, SIZES
from tests.support.chains import Chain
from tests.support.exporting import MethodSource, cached, lower_methods


class Solved(torch.nn.Module):
    """An inverse between two operators that the partitioner takes."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)
        self.more = torch.nn.Parameter(3 * torch.eye(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.linalg.inv_ex(torch.sigmoid(self.linear(x)) + self.more).inverse * 2


def solved() -> Path:
    torch.manual_seed(0)
    size = torch.export.Dim("s", min=1, max=9)
    source = MethodSource(Solved(), (torch.randn(9, 4, 4),), ({0: size},))
    return cached("host_solved", Solved, lambda: lower_methods({"forward": source}, rare=True))


def test_a_file_with_a_rare_operator_runs_with_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    torch.manual_seed(0)
    golden = Solved().eval()
    with caplog.at_level(logging.WARNING, "liveshape"), liveshape.load(solved()) as model:
        for size in (9, 2, 1, 5, 9):
            x = torch.from_numpy(np.random.default_rng(size).standard_normal((size, 4, 4)).astype(np.float32))
            np.testing.assert_allclose(model(x), golden(x).detach().numpy(), 1e-4, 1e-5)
    told = [record.getMessage() for record in caplog.records if "no kernel" in record.getMessage()]
    assert told == [
        "forward: no kernel computes aten::linalg_inv_ex.inverse (1 x): the host does, and the device waits for it"
    ]


def test_strict_refuses_it() -> None:
    told = r"1 x aten::linalg_inv_ex.inverse \(instruction \d+\): no kernel; the host can compute it, slowly"
    with pytest.raises(UnsupportedError, match=told) as error:
        liveshape.load(solved(), strict=True)
    assert len(error.value.details) == 1
    with pytest.raises(UnsupportedError, match=told):
        Runtime(strict=True).load_program(solved()).load_method("forward")


def test_a_name_of_a_delegate_falls_back_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    from liveshape.ops import OPS

    monkeypatch.delitem(OPS, "aten.sigmoid.default")
    torch.manual_seed(0)
    golden = Solved().eval()
    with liveshape.load(solved()) as model:
        x = torch.randn(7, 4, 4)
        np.testing.assert_allclose(model(x), golden(x).detach().numpy(), 1e-4, 1e-5)


class Custom(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.ops.liveshape_test.twice(x) + 1


def test_an_operator_that_nobody_knows_is_refused() -> None:
    library = torch.library.Library("liveshape_test", "FRAGMENT")
    library.define("twice(Tensor x) -> Tensor")
    library.define("twice.out(Tensor x, *, Tensor(a!) out) -> Tensor(a!)")
    library.impl("twice", lambda x: x * 2, "CompositeExplicitAutograd")
    library.impl("twice.out", lambda x, *, out: out.copy_(x * 2), "CompositeExplicitAutograd")
    path = cached(
        "host_custom",
        Custom,
        lambda: lower_methods({"forward": MethodSource(Custom(), (torch.ones(4),))}, delegate=False),
    )
    find_on_host.cache_clear()
    with liveshape.load(path) as model:
        np.testing.assert_array_equal(model(np.ones(4, np.float32)), np.full(4, 3))
    library._destroy()
    find_on_host.cache_clear()
    with pytest.raises(UnsupportedError, match=r"1 x liveshape_test::twice.out .*no kernel, and torch.*does not know"):
        liveshape.load(path)


def test_what_a_kernel_refuses_runs_on_the_host() -> None:
    chain = Chain()
    x = chain.input((MAX, 3), "uint8")
    largest = chain.node("aten::amax.out", x, (1,), False, chain.tensor((MAX,), "uint8"))
    graph, device = chain.graph(largest), open_device()
    with pytest.raises(UnsupportedError, match=r"1 x aten::amax.out \(node 0\): .*uint8"):
        compile(graph, device.limits)
    executor = Executor(compile_with_host(graph, device.limits), device)
    for size in SIZES:
        given = np.arange(3 * size, dtype=np.uint8).reshape(size, 3)
        executor.poison()
        np.testing.assert_array_equal(executor.execute([given])[0], given.max(1))


def test_where_torch_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    path = solved()
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.delitem(sys.modules, "liveshape.run.torch_host", raising=False)
    find_on_host.cache_clear()
    try:
        found = find_on_host("aten::cumprod.out")
        assert not isinstance(found, str)
        assert found.library == "numpy"
        assert find_on_host("aten::linalg_inv_ex.inverse") == (
            "torch, which could compute it on the host, is not installed: pip install torch"
        )
        assert find_on_host("mine::own.out") == "nothing on the host knows it"
        with pytest.raises(UnsupportedError, match=r"linalg_inv_ex.inverse .*no kernel, and torch, .*is not installed"):
            liveshape.load(path)
    finally:
        find_on_host.cache_clear()


@pytest.mark.parametrize("name", ["aten::from_file.out", "aten.from_file.default"])
def test_no_operator_that_looks_outside_of_the_program(name: str) -> None:
    assert find_on_host(name) == "torch does not compute it from tensors"
