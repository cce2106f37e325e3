"""Normalizations over the last dimensions."""

from __future__ import annotations

from collections.abc import Iterator

from liveshape.dtypes import prod
from liveshape.errors import ShapeError
from liveshape.graph import Tensor
from liveshape.kernel import Dispatch, Kernel
from liveshape.ops.registry import op

RMS_NORM = Kernel.load("rms_norm")


@op("et_vk.rms_norm.default")
def rms_norm(x: Tensor, weight: Tensor, eps: float, out: Tensor) -> Iterator[Dispatch]:
    *lead, width = x.shape
    if weight.shape != (width,):
        raise ShapeError(f"weight {weight.shape} does not match the last dimension of {x.shape}")
    out.shape = x.shape
    vector = 4 if width % 4 == 0 else 1
    yield RMS_NORM(out, x, weight, rows=prod(lead), width=width // vector, eps=eps, VEC=vector, groups=prod(lead))
