"""Mixture of experts (MoE) in a static graph: every expert computes every token, and the routing weight of those
outside of the top-k is 0. Exact, but as much work as all experts together.
"""

from __future__ import annotations

from collections.abc import Callable

from liveshape.export.decoder.arithmetic import Arithmetic
from liveshape.export.decoder.projections import Projections
from liveshape.export.file.delegate_blob import BlobTensor
from liveshape.export.model.config import Experts


def mixture(
    x: BlobTensor,
    name: str,
    experts: Experts,
    projections: Projections,
    arithmetic: Arithmetic,
    feed_forward: Callable[[BlobTensor, str], BlobTensor],
) -> BlobTensor:
    """MoE feed-forward of x (1, S, hidden): the experts' outputs, weighted by the router.

    Example: `mixture(x, "model.layers.0.mlp", config.experts, projections, arithmetic, feed_forward)`.
    """
    shares = _shares(projections.exact_linear(x, f"{name}.gate"), experts, arithmetic)
    total = None
    for number in range(experts.count):
        share = arithmetic.graph.call(
            "aten.slice_copy.Tensor", shares, 2, number, number + 1, 1, shape=(*shares.shape[:2], 1)
        )
        part = arithmetic.mul(feed_forward(x, f"{name}.experts.{number}"), share)
        total = part if total is None else arithmetic.add(total, part)
    assert total is not None, "a mixture has experts"
    return total


def _shares(scores: BlobTensor, experts: Experts, arithmetic: Arithmetic) -> BlobTensor:
    """Routing weights (1, S, experts) from router logits: softmax, top-k, zero for the other experts."""
    graph = arithmetic.graph
    likely = arithmetic.softmax(scores)
    best = (*scores.shape[:2], experts.used)
    values, indices = graph.call_two(
        "aten.topk.default", likely, experts.used, -1, True, True, first=(best, None), second=(best, "int32")
    )
    if experts.normalized:
        total = graph.call("aten.sum.dim_IntList", values, (-1,), True, None, shape=(*best[:2], 1))
        values = graph.call("aten.div.Tensor", values, total, shape=best)
    none = graph.call("aten.zeros_like.default", likely, None, None, None, None, None, shape=likely.shape)
    return graph.call("aten.scatter.src", none, 2, indices, values, shape=likely.shape)
