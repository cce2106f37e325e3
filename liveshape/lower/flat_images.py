"""Convolutions along one dimension as those of images one pixel high, with the expressions between them: chains of
these may then have their channels last, as `image_layout.py` chooses.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from liveshape import ops
from liveshape.graph import Graph, Node, Tensor, Value
from liveshape.graph.elements import prod
from liveshape.lower.def_use import DefUse
from liveshape.lower.image_chains import is_convolution
from liveshape.lower.pattern_operators import SQUEEZE, UNSQUEEZE
from liveshape.lower.pointwise_fusion import expression_of
from liveshape.lower.rewriting import renamed, rewritten
from liveshape.ops.windows import for_each

_RANK, _HEIGHT = 3, 2  # of what is lifted; where images have their height


def with_flat_images(graph: Graph) -> tuple[Graph, Collection[Tensor]]:
    """The graph with such images, and those that its convolutions give.

    Example: `lifted, images = with_flat_images(graph)`.
    """
    uses = DefUse(graph)
    known: set[Value] = set()
    nodes: set[Node] = set()
    for node in graph.nodes:
        if _is_flat(uses, node) or _goes_along(uses, node, known):
            nodes.add(node)
            known.add(node.args[-1])
    if not nodes:
        return graph, ()
    high: dict[Value, Value] = {}
    made: list[Tensor] = []
    rows: list[tuple[int, Node]] = []

    def lifted(tensor: Any, shape: tuple[int, ...], constant: Any = None) -> Tensor:
        made.append(Tensor(f"{tensor.name}, one pixel high", tensor.dtype, shape, constant=constant))
        return made[-1]

    def image_of(tensor: Any) -> Tensor:
        batch, channels, length = tensor.max_shape
        high[tensor] = image = lifted(tensor, (batch, channels, 1, length))
        return image

    for node in graph.nodes:
        if node not in nodes:
            rows.append((node.index, node))
            continue
        out = node.args[-1]
        args = node.args[:-1]
        if is_convolution(node):
            x, weight, *rest = args
            if x not in high:
                bound = ops.OPS[UNSQUEEZE].bind(node.index, node.label, (x, _HEIGHT, image_of(x)), node.sources)
                rows.append((node.index, bound))
            outputs, channels, taps = weight.max_shape
            kernel = lifted(weight, (outputs, channels, 1, taps), weight.constant)
            args = (x, kernel, rest[0], *_windows(rest[1:4]), rest[4], (0, 0), *rest[6:])
        args = renamed(args, high)
        rows.append((node.index, ops.OPS[node.name].bind(node.index, node.label, (*args, image_of(out)), node.sources)))
        if not uses.used_only_by([*nodes], out):
            bound = ops.OPS[SQUEEZE].bind(node.index, node.label, (high[out], _HEIGHT, out), node.sources)
            rows.append((node.index, bound))
    images = {high[node.args[-1]] for node in nodes if is_convolution(node)}
    return rewritten(graph, rows, made), [image for image in images if isinstance(image, Tensor)]


def _windows(given: Any) -> tuple[tuple[int, int], ...]:
    """Strides, paddings and dilations along one dimension as those of images."""
    return tuple(
        (none, for_each(name, each, 1)[0])
        for name, none, each in zip(("stride", "padding", "dilation"), (1, 0, 1), given, strict=True)
    )


def _is_flat(uses: DefUse, node: Node) -> bool:
    """Whether a node is a convolution of one group along one dimension, of a weight that nothing writes."""
    if not is_convolution(node):
        return False
    x, weight, _, _, _, _, transposed, _, groups = node.args[:9]
    constant = weight.constant is not None and not uses.writes[weight]
    floats = all(each.dtype == "float32" for each in (x, weight, node.args[-1]))
    once = uses.single_assignment(node.args[-1]) and (not uses.writes[x] or uses.single_assignment(x))
    return x.rank == _RANK and constant and floats and once and not transposed and groups == 1


def _goes_along(uses: DefUse, node: Node, known: Collection[Value]) -> bool:
    """Whether a node is an expression of lifted images, and of single numbers."""
    out = node.args[-1] if node.args else None
    if not isinstance(out, Tensor) or out.rank != _RANK or not uses.single_assignment(out):
        return False
    made = expression_of(node)
    if made is None or not any(each in known for each in made.tensors):
        return False
    return all(each in known or (prod(each.max_shape) == 1 and each.rank <= 1) for each in made.tensors)
