"""Loops that a driver cuts short: they are found when a device is opened, and told."""

from __future__ import annotations

import logging
from dataclasses import replace

import pytest

from liveshape.device import webgpu
from liveshape.device.adapters import usable_adapters
from liveshape.device.backends import open_device
from liveshape.device.probes import max_turns, run_probe
from liveshape.kernels import Kernel
from tests.device.library import LIBRARY


def test_a_loop_makes_all_its_turns_or_the_driver_is_known_for_it() -> None:
    device = open_device(limits=replace(open_device().limits))
    turns = max_turns(LIBRARY, device._device)
    # Both software drivers that tests run on: the stable one ends loops, the newest does not.
    old = device.adapter.software and "Mesa 22." in device.adapter.driver
    assert turns == (65535 if old else None)
    assert run_probe(LIBRARY, device._device, Kernel.load("measure/loops"), (60000, 0)) == (60000, 60000)


@pytest.mark.parametrize(("turns", "told"), [(65535, "after 65,535 turns"), (None, "")])
def test_a_device_that_cuts_loops_short_is_told(
    turns: int | None, told: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    describe = webgpu.describe
    monkeypatch.setattr(webgpu, "describe", lambda *given: replace(describe(*given), software=True))
    monkeypatch.setattr(webgpu, "max_turns", lambda library, device: turns)
    with caplog.at_level(logging.WARNING, logger="liveshape"):
        webgpu.WebGpuDevice(LIBRARY, usable_adapters(LIBRARY)[0], 0)
    assert told in caplog.text
    assert bool(caplog.records) is bool(told)
