"""rms_norm and its kin."""

from __future__ import annotations

import numpy as np
import torch

from tests.support.graphs import Const, In, OpCase, Out


def _rms(dtype: str, width: int) -> OpCase:
    weight = np.random.default_rng(1).standard_normal(width).astype(dtype)

    def golden(x: torch.Tensor, size: int) -> torch.Tensor:
        wide = x.double()
        scale = torch.rsqrt((wide * wide).mean(-1, keepdim=True) + 1e-6)
        return wide * scale * torch.from_numpy(weight).double()

    tolerance = 2e-3 if dtype == "float16" else 1e-5
    return OpCase(
        name=f"rms_norm {dtype} {width}",
        op="et_vk.rms_norm.default",
        args_at=lambda s: [In(dtype, (1, s, width)), Const(weight), 1e-6, Out(dtype, (1, s, width))],
        golden=golden,
        atol=tolerance,
        rtol=tolerance,
    )


CASES = [_rms(dtype, width) for dtype in ("float32", "float16") for width in (64, 63, 1, 300)]
