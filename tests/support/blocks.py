"""A builder for blocks of transformers, each with what it gives in torch's float64."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch.nn import functional

from liveshape.graph import Tensor
from tests.support.image_chains import Images


class Blocks(Images):
    """Adds what transformers have."""

    def layer_norm(self, x: Tensor) -> Tensor:
        width = x.max_shape[-1]
        (weight, w), (bias, b) = self.numbers(width), self.numbers(width)

        def function(rows: torch.Tensor) -> torch.Tensor:
            return functional.layer_norm(rows, (width,), weight.to(rows.dtype), bias.to(rows.dtype), 1e-5)

        return self.step("liveshape.layer_norm", function, (x,), x, (width,), w, b, 1e-5)

    def gelu(self, x: Tensor) -> Tensor:
        return self.step("aten.gelu.default", functional.gelu, (x,), x, "none")

    def attention(
        self,
        x: Tensor,
        heads: int,
        attended: Tensor | None = None,
        asking: Tensor | None = None,
        between: Callable[[Tensor, Tensor], object] = lambda rows, projected: None,
    ) -> Tensor:
        """Projections, heads, scores and their softmax, spelled out; values of what is `attended`, queries of what
        is `asking`, or of x, too. What comes `between` is called behind each
        projection and behind its heads."""
        batch, length = (self.node("sym_size.int", x, axis, self.scalar()) for axis in range(2))
        width = x.max_shape[-1]
        size = width // heads

        def parted(rows: Tensor) -> Tensor:
            sizes = (batch, length, heads, size)
            view = self.step("aten.view_copy.default", lambda y: y.unflatten(2, (heads, size)), (rows,), rows, sizes)
            return self.step("aten.permute_copy.default", lambda y: y.transpose(1, 2), (view,), view, (0, 2, 1, 3))

        read = (x if asking is None else asking, x, x if attended is None else attended)
        projections = []
        for each in read:
            projections.append(self.linear(each, width))
            between(each, projections[-1])
        heads_of = []
        for each, projected in zip(read, projections, strict=True):
            heads_of.append(parted(projected))
            between(each, projected)
        q, k, v = heads_of
        turned = self.step("aten.permute_copy.default", lambda y: y.transpose(2, 3), (k,), k, (0, 1, 3, 2))
        scores = self.step("aten.matmul.default", torch.matmul, (q, turned), q, turned)
        scaled = self.step("aten.mul.Scalar", lambda y: y * size**-0.5, (scores,), scores, size**-0.5)
        shares = self.step("aten._softmax.default", lambda y: y.softmax(-1), (scaled,), scaled, -1, False)
        made = self.step("aten.matmul.default", torch.matmul, (shares, v), shares, v)
        rows = self.step("aten.permute_copy.default", lambda y: y.transpose(1, 2), (made,), made, (0, 2, 1, 3))
        return self.step("aten.view_copy.default", lambda y: y.flatten(2), (rows,), rows, (batch, length, width))
