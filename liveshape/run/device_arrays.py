"""Arrays of the caller, uploaded once to be inputs of many calls."""

from __future__ import annotations

from typing import Any

import numpy as np

from liveshape.device.protocol import Device
from liveshape.errors import InputError
from liveshape.graph import Tensor
from liveshape.graph.elements import padded, prod, storage_bytes, supported
from liveshape.run.arrays import checked, stored
from liveshape.run.results import DeviceTensor


def uploaded(device: Device, array: Any) -> DeviceTensor:
    """An array of numpy, of torch, or a list, on a device.

    Example: `uploaded(model.device, np.ones((1, 7, 64), np.float32)).shape == (1, 7, 64)`.
    """
    if isinstance(array, DeviceTensor):
        raise InputError(f"{array} is on a device; give it to a call as it is, or its .numpy()")
    kind = getattr(array, "dtype", None)
    if kind is None:
        array = np.asarray(array)
        kind = array.dtype
    dtype = str(kind).removeprefix("torch.")
    if not supported(dtype):
        raise InputError(f"there are no tensors of {dtype} on a device; convert the array with .astype()")
    tensor = Tensor("an uploaded array", dtype, tuple(int(size) for size in np.shape(array)))
    half = device.limits.half
    host = checked(tensor, array)
    buffer = device.buffer(padded(storage_bytes(dtype, prod(tensor.max_shape), half)), "an uploaded array")
    if host.size:
        device.write(buffer, 0, stored(host, tensor, half))
    return DeviceTensor(tensor, tensor.max_shape, buffer, device, half)
