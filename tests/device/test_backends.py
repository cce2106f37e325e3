"""Backends by name: what plugs in below the protocol, a device on paper as the example. No GPU."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from liveshape.device import backends
from liveshape.device.backends import list_adapters, open_device, register
from liveshape.device.protocol import Offer
from liveshape.errors import InputError, NoAdapterError
from liveshape.graph import Limits
from liveshape.graph.limits import MatrixShape, MatrixUse
from tests.support.chains import Chain, executor_of
from tests.support.paper import PaperDevice


class LosablePaper(PaperDevice):
    gone = False

    @property
    def lost(self) -> bool:
        return self.gone


def paper(index: int, name: str) -> Offer:
    adapter = replace(PaperDevice().adapter, index=index, name=name)
    return Offer(adapter, LosablePaper)


@pytest.fixture
def papers(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(backends, "_backends", dict(backends._backends))
    monkeypatch.setattr(backends, "_open", dict(backends._open))
    monkeypatch.delenv("LIVESHAPE_DEVICE", raising=False)
    register("paper", lambda: [paper(0, "white"), paper(1, "blue")])
    return "paper"


def test_a_backend_lists_its_adapters_and_opens_each_once(papers: str) -> None:
    assert [adapter.name for adapter in list_adapters(papers)] == ["white", "blue"]
    first, second = open_device(backend=papers), open_device("blue", papers)
    assert first is open_device(0, papers) is open_device("whi", papers) is not second
    assert second is open_device(1, papers)


def test_a_device_of_a_backend_runs_a_graph(papers: str) -> None:
    device, chain = open_device(backend=papers), Chain()
    x = chain.input((3, 5))
    executor = executor_of(chain.graph(chain.node("aten.add.Tensor", x, x, 1, chain.tensor((3, 5)))), device)
    assert executor.execute([np.ones((3, 5), np.float32)])[0].shape == (3, 5)
    assert device.counters.submits == 1


def test_a_lost_device_is_opened_again(papers: str) -> None:
    device: Any = open_device(backend=papers)
    device.gone = True
    assert open_device(backend=papers) is not device
    assert open_device(backend=papers) is open_device(backend=papers)


def test_with_limits_it_is_a_device_of_its_own(papers: str) -> None:
    limits = Limits(max_bindings=4)
    device = open_device(backend=papers, limits=limits)
    assert device.limits is limits
    assert device is not open_device(backend=papers)
    assert device is not open_device(backend=papers, limits=limits)


def test_a_backend_that_nobody_registered_is_named(papers: str) -> None:
    with pytest.raises(InputError, match=r"there is no backend 'cuda'; there is wgpu, dawn, paper"):
        open_device(backend="cuda")


def test_an_adapter_that_no_backend_has(papers: str) -> None:
    with pytest.raises(NoAdapterError, match=r"no adapter is called 'green'; this machine has white \(index 0\), blue"):
        open_device("green", papers)
    register("none", list)
    assert list_adapters("none") == []
    with pytest.raises(NoAdapterError, match="no WebGPU adapter was found"):
        open_device(backend="none")


def test_a_library_that_is_missing_is_no_adapter(papers: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "liveshape.device.wgpu_native", None)
    with pytest.raises(NoAdapterError, match="wgpu could not be loaded"):
        open_device(backend="wgpu")
    assert open_device(backend=papers).name == "paper"


def test_what_takes_no_matrices_is_not_given_to_dawn_for_them(monkeypatch: pytest.MonkeyPatch) -> None:
    offered = replace(PaperDevice().adapter, matrices=(MatrixShape("float16", "float32", 16, 16, 16),))
    monkeypatch.delenv("LIVESHAPE_BACKEND", raising=False)
    monkeypatch.delenv("LIVESHAPE_DEVICE", raising=False)
    monkeypatch.setattr(backends, "_dawn_adapters", lambda: [offered])
    uses = (MatrixUse.NOTHING, MatrixUse.FLOAT32, MatrixUse.PRODUCTS)
    assert [backends.default_backend(matrices=lambda use=use: use) for use in uses] == ["wgpu", "wgpu", "dawn"]
    assert backends.default_backend() == "dawn"
    monkeypatch.setattr(backends, "_dawn_adapters", lambda: [replace(offered, fast_matrices=True)])
    assert backends.default_backend(matrices=lambda: MatrixUse.FLOAT32) == "dawn"
    monkeypatch.setattr(backends, "_dawn_adapters", lambda: [replace(offered, software=True)])
    assert backends.default_backend() == "wgpu"
    monkeypatch.setenv("LIVESHAPE_BACKEND", "dawn")
    assert backends.default_backend(matrices=lambda: MatrixUse.NOTHING) == "dawn"
