"""Images between convolutions by matrix units as halves with their channels last: for whole chains, where
that takes less time.

A convolution that may round its images takes them as halves with their channels last, and gives such images. What lies
between two of them follows: pointwise operators, and those that have a form for channels last (`Traits.channels_last`).
Anything else that reads such an image gets it back as the file has it, once; images from elsewhere are turned, once.
Each is stored as it is read: one that a single pointwise operator reads stays float32, in the registers of a fused
kernel. Numbers that halves cannot hold become NaN, which nothing hides.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from liveshape import ops
from liveshape.graph import Graph, Limits, Node, SymInt, Tensor, Value
from liveshape.graph.elements import prod
from liveshape.graph.expression import Applied, Expression
from liveshape.graph.traits import Role
from liveshape.lower.def_use import DefUse
from liveshape.lower.flat_images import with_flat_images
from liveshape.lower.half_results import WIDENED
from liveshape.lower.image_chains import (
    EIGHT,
    PIXELS,
    RANK,
    ImageChains,
    has_eights,
    is_convolution,
    is_expression,
    is_pointwise,
)
from liveshape.lower.pattern_operators import (
    CHANNELS_LAST,
    CONCATENATIONS,
    CONVOLUTION_CHANNELS_LAST,
    GROUP_NORM_CHANNELS_LAST,
    GROUP_NORMS,
    LINEAR,
    MEANS,
    PATCHES,
    PERMUTE,
    PERMUTED_VIEW,
    POINTWISE,
    SIZE,
    SQUEEZE,
    VIEW,
    VIEWS,
)
from liveshape.lower.pointwise_fusion import expression_of
from liveshape.lower.rewriting import rewritten
from liveshape.ops.matrix_heuristics import matrix_shape
from liveshape.ops.shapes import axis_of, ceil_div
from liveshape.ops.windows import for_each

_Kept = TypeVar("_Kept", Tensor, SymInt)
_LAST, _FIRST = (0, 2, 3, 1), (0, 3, 1, 2)  # orders of dimensions
_NARROW = Expression(("float32",), (), (Applied("narrow", (0,), "float16"),))
_CLAMP = Expression(("float32",), ("float32", "float32"), (Applied("clamp", (0, 1, 2), "float32"),))


def with_channels_last(graph: Graph, limits: Limits) -> Graph:
    """The graph with the images of its chains of convolutions as halves, channels last.

    Example: `with_channels_last(graph, device.limits)`.
    """
    if graph.controls or not limits.half or matrix_shape(limits) is None:
        return graph
    lifted, flat = with_flat_images(graph)
    chains = ImageChains(DefUse(lifted), limits)
    chosen = chains.chosen()
    if flat and not any(node.outputs[0] in flat for node in chosen):
        lifted, chains = graph, ImageChains(DefUse(graph), limits)
        chosen = chains.chosen()
    made = _Rewrite(lifted, chosen, chains.between).graph() if chosen else graph
    return chains.costs.noted_on(made)


@dataclass
class _Image:
    """An image with its channels last, as it is stored."""

    halves: Tensor | None = None
    wide: Tensor | None = None

    @property
    def stored(self) -> Tensor:
        kept = self.halves or self.wide
        assert kept is not None
        return kept


class _Rewrite:
    """The nodes of a graph, those that are chosen with their channels last."""

    def __init__(self, graph: Graph, chosen: set[Node], between: dict[Node, Node]) -> None:
        self._graph, self._chosen, self._uses = graph, chosen, DefUse(graph)
        self._between = {node: before for node, before in between.items() if node in chosen}
        self._absorbed = {*self._between.values()}
        self._rows: list[tuple[int, int, Node]] = []  # each with the node that it stands at or behind
        self._made: list[Value] = []
        self._images: dict[Value, _Image] = {}
        self._turned: dict[Value, Tensor] = {}  # operands by channels, and images from elsewhere

    def graph(self) -> Graph:
        for node in self._graph.nodes:
            if node in self._absorbed:
                continue
            if node in self._chosen:
                self._convert(node)
            else:
                self._rows.append((node.index, 0, node))
        rows = sorted(self._rows, key=lambda row: row[:2])
        made = rewritten(self._graph, [(index, node) for index, _, node in rows], self._made)
        used = {value for node in made.nodes for value in (*node.inputs, *node.outputs)} | made.given | {*made.outputs}
        return replace(made, values=tuple(value for value in made.values if value in used))

    def _convert(self, node: Node) -> None:
        out = node.outputs[0]
        if not isinstance(out, Tensor):
            axis = _LAST.index(axis_of(node.args[1], RANK))
            self._node(node, node.name, self._images[node.args[0]].stored, axis, out)
            return
        if out.rank != RANK:
            self._as_rows(node)
            return
        readers = self._uses.consumers.get(out, [])
        chosen = [each for each in readers if each in self._chosen and (has_eights(out) or not is_convolution(each))]
        elsewhere = not self._uses.used_only_by(chosen, out)
        inside = [each for each in chosen if each.traits.role is not Role.SIZE]
        in_registers = not elsewhere and self._in_registers(node, inside)
        halved = bool(inside) and not in_registers and (elsewhere or not self._are_rows_of_floats(inside))
        last = node.traits.channels_last
        moves = node.name in CONCATENATIONS or (last != "" and ops.OPS[last].traits.moves_images)
        image = self._images[out] = _Image()
        if moves or (halved and node in self._between):
            image.halves = self._like(out, "float16")
            self._place(node, image.halves)
        else:
            image.wide = self._like(out, "float32")
            self._place(node, image.wide)
        if halved and image.wide is not None:
            image.halves = self._like(out, "float16")
            self._node(node, POINTWISE, _NARROW, (image.wide,), (), image.halves)
        if elsewhere:
            self._give_back(node, image.stored, out)

    def _in_registers(self, node: Node, readers: Sequence[Node]) -> bool:
        """Whether a fused kernel has what a node gives: an expression, or the last operand of one to be computed."""
        inner = (each.outputs[0] for each in readers[:-1])
        if not all(map(is_pointwise, readers)) or not all(self._uses.used_only_by(readers, each) for each in inner):
            return False
        computed = [self._uses.producer.get(each) for reader in readers for each in reader.inputs]
        others = [each.index for each in computed if each in self._chosen and not is_expression(each)]
        return is_expression(node) or node.index >= max(others, default=-1)

    def _place(self, node: Node, out: Tensor) -> None:
        """The operator itself, of an image that it gives."""
        if is_convolution(node):
            clamp = tuple(node.args[9:-1])
            if all(limit is None for limit in clamp):
                self._node(node, CONVOLUTION_CHANNELS_LAST, *self._windows(node), out)
                return
            low, high = clamp
            sums = self._like(node.outputs[0], "float32")
            self._node(node, CONVOLUTION_CHANNELS_LAST, *self._windows(node), sums)
            numbers = (float("-inf") if low is None else low, float("inf") if high is None else high)
            self._node(node, POINTWISE, _CLAMP, (sums,), numbers, out)
        elif node.name in MEANS:
            halves = self._image(node, node.args[0])
            mean = self._like(node.outputs[0], halves.dtype)
            self._node(node, node.name, halves, (1, 2), *node.args[2:-1], mean)
            self._node(node, POINTWISE, WIDENED, (mean,), (), out)
        elif node.name in GROUP_NORMS:
            x, weight, bias, _, _, _, group, eps = node.args[:8]
            self._node(node, GROUP_NORM_CHANNELS_LAST, self._image(node, x), weight, bias, group, eps, out)
        elif node.name in CONCATENATIONS:
            self._node(node, node.name, tuple(self._image(node, each) for each in node.args[0]), RANK - 1, out)
        elif node in self._between:
            rows, sizes = self._between[node].args[0], node.args[1]
            if out.dtype == "float16":  # in the epilogue of what gives the rows
                halves = self._keep(Tensor(f"{rows.name} in float16", "float16", rows.max_shape))
                self._node(node, POINTWISE, _NARROW, (rows,), (), halves)
                rows = halves
            self._node(node, VIEW, rows, tuple(sizes[axis] for axis in _LAST), out)
        elif node.traits.channels_last:
            self._node(node, node.traits.channels_last, self._image(node, node.args[0]), *node.args[1:-1], out)
        else:
            made = expression_of(node)
            assert made is not None
            tensors = tuple(self._operand(node, each) for each in made.tensors)
            expression = replace(made.expression, operands=tuple(each.dtype for each in tensors))
            self._node(node, POINTWISE, expression, tensors, made.numbers, out)

    def _windows(self, node: Node) -> tuple[Any, ...]:
        """The arguments of a convolution. Windows side by side over few channels, as the patches of a ViT, are pixels
        with all of these as their channels: zeros up to whole vectors would be most of what is multiplied."""
        x, weight, bias, stride, padding, dilation, *others = node.args[:9]
        rows, channels, *kernel = weight.max_shape
        depth = channels * prod(kernel)
        beside = for_each("stride", stride, 2) == tuple(kernel) and not any(padding) and set(dilation) == {1}
        if x in self._images or channels % EIGHT == 0 or depth % EIGHT or not beside or prod(kernel) == 1:
            return self._image(node, x), weight, bias, stride, padding, dilation, *others
        down, across = (extent // size for extent, size in zip(x.max_shape[2:], kernel, strict=True))
        shape = (x.max_shape[0], down, across, depth)
        halves = self._keep(Tensor(f"{x.name}, patches in float16", "float16", shape))
        self._node(node, PATCHES, x, tuple(kernel), halves)
        flat = self._keep(replace(weight, name=f"{weight.name}, a pixel", max_shape=(rows, depth, 1, 1)))
        return halves, flat, bias, (1, 1), (0, 0), (1, 1), *others

    def _as_rows(self, node: Node) -> None:
        """The pixels of an image as rows, a view of it; `half_results.py` gives these to products as they are."""
        view, rows = self._between[node], node.outputs[0]
        assert isinstance(rows, Tensor)
        x = view.args[0]
        floats = self._images[x].halves is None
        image = self._images[x].stored if floats else self._image(node, x)
        halves = rows if floats else self._keep(Tensor(f"{rows.name} in float16", "float16", rows.max_shape))
        if view.name == SQUEEZE:
            self._node(node, SQUEEZE, image, 1, halves)
        else:
            images, channels, pixels = view.args[1]
            if self._uses.sizes.of(x)[0] != self._uses.sizes.of(view.args[-1])[0]:
                image = self._of_images(node, image, images)
            self._node(node, VIEW, image, (images, pixels, channels), halves)
        if not floats:
            self._node(node, POINTWISE, WIDENED, (halves,), (), rows)

    def _are_rows_of_floats(self, readers: Sequence[Node]) -> bool:
        """Whether an image is read as rows alone, and these by others than products, too, which take floats."""
        rows = [node.outputs[0] for node, before in self._between.items() if before in readers]
        others = (each for row in rows for each in self._uses.consumers.get(row, []))
        return len(rows) == len(readers) == 1 and any(each.name not in LINEAR | VIEWS for each in others)

    def _of_images(self, node: Node, image: Tensor, images: Any) -> Tensor:
        """A view of so many images, which fails at a call that has another number of them."""
        sides = tuple(self._keep(SymInt(f"{name} of {image.name}")) for name in ("height", "width"))
        for axis, side in enumerate(sides, 1):
            self._node(node, SIZE, image, axis, side)
        viewed = self._keep(replace(image, name=f"{image.name}, of as many images"))
        self._node(node, VIEW, image, (images, *sides, image.max_shape[-1]), viewed)
        return viewed

    def _image(self, node: Node, x: Tensor) -> Tensor:
        """An image that is read as halves."""
        if x in self._images and has_eights(x):
            halves = self._images[x].halves
            assert halves is not None
            return halves
        if x not in self._turned:
            batch, channels, *sizes = x.max_shape
            shape = (batch, *sizes, EIGHT * ceil_div(channels, EIGHT))
            self._turned[x] = self._keep(Tensor(f"{x.name} in float16, channels last", "float16", shape))
            self._node(node, CHANNELS_LAST, x, self._turned[x])
        return self._turned[x]

    def _operand(self, node: Node, tensor: Tensor) -> Tensor:
        """An operand of an expression: an image, or numbers of its channels as they lie then."""
        if tensor in self._images:
            return self._images[tensor].stored
        if prod(tensor.max_shape) == 1 or tensor.rank <= 1:
            return tensor
        if tensor not in self._turned:
            order = tuple(axis_of(axis - RANK, tensor.rank) for axis in _LAST if axis >= RANK - tensor.rank)
            shape = tuple(tensor.max_shape[axis] for axis in order)
            self._turned[tensor] = self._keep(Tensor(f"{tensor.name}, channels last", tensor.dtype, shape))
            # Behind what computes it, so that nothing is written between the operators of an expression.
            producer = self._uses.producer.get(tensor)
            view = ops.OPS[PERMUTED_VIEW].bind(
                node.index, node.label, (tensor, order, self._turned[tensor]), node.sources
            )
            self._rows.append((-1 if producer is None else producer.index, 1, view))
        return self._turned[tensor]

    def _give_back(self, node: Node, image: Tensor, out: Tensor) -> None:
        """An image as the file has it, for those who read it so."""
        order = PERMUTED_VIEW if all(out.max_shape[axis] == 1 for axis in PIXELS) else PERMUTE
        if image.dtype == out.dtype:
            self._node(node, order, image, _FIRST, out)
            return
        halves = self._keep(Tensor(f"{out.name} in float16", image.dtype, out.max_shape))
        self._node(node, order, image, _FIRST, halves)
        self._node(node, POINTWISE, WIDENED, (halves,), (), out)

    def _like(self, tensor: Any, dtype: str) -> Tensor:
        """A tensor for an image with its channels last."""
        shape = tuple(tensor.max_shape[axis] for axis in _LAST)
        return self._keep(Tensor(f"{tensor.name} in {dtype}, channels last", dtype, shape))

    def _keep(self, value: _Kept) -> _Kept:
        self._made.append(value)
        return value

    def _node(self, place: Node, operator: str, *args: Any) -> None:
        made = ops.OPS[operator].bind(place.index, place.label, args, place.sources)
        self._rows.append((place.index, 0, made))
