"""The device with matrix units that these tests need, through Dawn: a GPU, or the software driver that has some."""

from __future__ import annotations

from dataclasses import replace

from liveshape.device.backends import open_device
from liveshape.device.protocol import Device
from liveshape.graph import Limits


def with_matrices() -> tuple[Device, Limits]:
    """The device, and its limits where inputs of products may be rounded to float16."""
    device = open_device(backend="dawn")
    limits = replace(device.limits, half_inputs=True)
    assert limits.matrices_of("float16"), (
        f"{device.name} offers no matrices to Dawn: `make test-matrices` runs these tests where a device does"
    )
    return device, limits


def kernels_of(device: Device) -> set[str]:
    """The kernels that were compiled."""
    return {variant.kernel.name for variant in device._pipelines}  # type: ignore[attr-defined]
