"""Running totals."""

from __future__ import annotations

import torch

from tests.support.graphs import In, OpCase, Out


def _cumsum(dtype: str, out: str, dim: int) -> OpCase:
    def golden(x: torch.Tensor, size: int) -> torch.Tensor:
        return torch.cumsum(x.double() if x.is_floating_point() else x, dim)

    tolerance = 1e-2 if dtype == "float16" else 1e-5
    return OpCase(
        name=f"cumsum {dtype} {dim}",
        op="aten::cumsum.out",
        args_at=lambda s: [In(dtype, (2, s, 5)), dim, None, Out(out, (2, s, 5))],
        golden=golden,
        atol=tolerance,
        rtol=tolerance,
    )


CASES = [
    _cumsum(dtype, out, dim)
    for dtype, out in (("float32", "float32"), ("float16", "float16"), ("int32", "int64"), ("bool", "int64"))
    for dim in (0, 1, -1)
]
