"""torch in the place of numpy, for what the table of pointwise functions means."""

from __future__ import annotations

from typing import Any

import torch

Tensor = torch.Tensor


class TorchFunctions:
    """torch's functions for the table of pointwise functions, in the widths in which results are judged."""

    true_divide = torch.true_divide

    def __getattr__(self, name: str) -> Any:
        return getattr(torch, name)

    def floats(self, x: Any) -> Tensor:
        return torch.as_tensor(x).double()

    def wholes(self, x: Any) -> Tensor:
        return torch.as_tensor(x).long()

    def truth(self, x: Any) -> Tensor:
        return torch.as_tensor(x) != 0

    def kept(self, x: Tensor, dtype: str) -> Tensor:
        return x

    def sqrt(self, x: Tensor) -> Tensor:
        return torch.sqrt(x.clamp(min=0))  # a zero that was disturbed stays one
