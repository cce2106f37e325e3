"""Which nodes take and give images with their channels last: chains of convolutions by matrix units, and what lies
between them. `image_layout.py` has what becomes of these."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import Any, TypeGuard

from liveshape.graph import Limits, Node, Tensor, Value
from liveshape.graph.elements import prod, storage_bytes
from liveshape.graph.traits import Role
from liveshape.kernels.roofline import Cost
from liveshape.lower.def_use import DefUse
from liveshape.lower.fusion_costs import FusionCosts
from liveshape.lower.pattern_operators import (
    CLAMPED_CONVOLUTION,
    CONCATENATIONS,
    CONVOLUTION,
    GROUP_NORMS,
    MEANS,
    PERMUTES,
    SQUEEZE,
    TRANSPOSES,
    VIEWS,
)
from liveshape.lower.pointwise_fusion import expression_of
from liveshape.ops.convolution import MAX_QUOTIENT
from liveshape.ops.matrix_heuristics import gains_by_matrices, halving_threads
from liveshape.ops.moved_rows import order_of
from liveshape.ops.pointwise import Pointwise
from liveshape.ops.shapes import axis_of, ceil_div

PIXELS = (2, 3)  # the dimensions of an image that are no channels
RANK, EIGHT = 4, 8
_MAX_NORM_GROUP = 64  # vectors of eight channels that whole groups of a norm are


class ImageChains:
    """Which nodes take and give images with their channels last.

    Example: `ImageChains(DefUse(graph), device.limits).chosen()`.
    """

    def __init__(self, uses: DefUse, limits: Limits) -> None:
        self._uses, self._limits = uses, limits
        self.costs = FusionCosts(limits)
        self._turned: set[Value] = set()
        self._read: set[Value] = set()  # images from elsewhere that convolutions take
        # Of pixels as rows, and of an image of such: the view or the permute before, which that does, too.
        self.between: dict[Node, Node] = {}

    def chosen(self) -> set[Node]:
        """Those of chains with convolutions that take less time so, images from elsewhere and back counted."""
        found: list[Node] = []
        for node in self._uses.graph.nodes:
            before = self._before(node)
            if before is not None:
                self.between[node] = before
                found += [before, node]
            elif self._takes(node) or _is_size(node, self._turned):
                found.append(node)
            else:
                continue
            if is_image(node.outputs[0]):
                self._turned.add(node.outputs[0])
        return self._in_chains(found)

    def _before(self, node: Node) -> Node | None:
        """What lies between an image and its pixels as rows, or the other way round, where both are one view then."""
        uses = self._uses
        middle = node.args[0] if node.args else None
        if not isinstance(middle, Tensor):
            return None
        before = uses.producer.get(middle)
        if before is None or before in self.between or uses.only_consumer(middle) is not node:
            return None
        to_image = node.name in VIEWS
        view, swap = (node, before) if to_image else (before, node)
        if not (view.name in VIEWS or (not to_image and _is_flattened(view))) or not _swaps_rows(swap):
            return None
        image: Any = node.outputs[0] if to_image else view.args[0]
        rows: Any = swap.args[0] if to_image else node.outputs[0]
        if not (to_image or image in self._turned) or not uses.single_assignment(node.outputs[0], middle):
            return None
        fits = is_image(image) and rows.rank == RANK - 1 and rows.dtype == "float32" and self._stays(rows)
        # Of rows, the rewrite has sizes checked that are equal only where those are that meet.
        sizes = uses.sizes if to_image else uses.met_sizes
        alike = fits and sizes.of(image)[:2] == sizes.of(middle)[:2]
        return before if alike and has_eights(image) and self._fits(image) else None

    def _takes(self, node: Node) -> bool:
        out = node.outputs[0] if node.outputs else None
        if not isinstance(out, Tensor) or not is_image(out) or not self._fits(out):
            return False
        others = node.outputs[1:]
        if not self._uses.single_assignment(out) or not all(self._uses.used_only_by((), each) for each in others):
            return False
        if is_convolution(node):
            return self._gains(node, out)
        if node.name in MEANS:
            return self._are_images(node.args[:1]) and _over_pixels(node)
        if node.name in GROUP_NORMS:
            own = math.lcm(out.max_shape[1] // node.args[6], EIGHT) // EIGHT
            return self._are_images(node.args[:1]) and own <= min(_MAX_NORM_GROUP, halving_threads(self._limits))
        if node.name in CONCATENATIONS:
            images = all(is_image(each) and self._fits(each) and self._stays(each) for each in node.args[0])
            turned = any(each in self._turned for each in node.args[0])
            return images and turned and all(map(has_eights, node.args[0])) and axis_of(node.args[1], RANK) == 1
        if node.traits.channels_last:
            return self._are_images(node.args[:1])
        made = expression_of(node)
        return made is not None and self._carries(made, out)

    def _are_images(self, tensors: Sequence[Tensor]) -> bool:
        """Whether all of these are turned, and whole vectors of channels."""
        return all(each in self._turned and has_eights(each) for each in tensors)

    def _carries(self, made: Pointwise, out: Tensor) -> bool:
        """Whether an expression has operands that are turned, and others that go along."""
        return any(each in self._turned for each in made.tensors) and all(
            each in self._turned or (_by_channel(each) and self._stays(each)) for each in made.tensors
        )

    def _stays(self, tensor: Tensor) -> bool:
        """Whether what a tensor holds when it is read first is what it holds later."""
        return not self._uses.writes[tensor] or self._uses.single_assignment(tensor)

    def _gains(self, node: Node, out: Tensor) -> bool:
        """Whether a convolution takes matrix units: of turned images at any size, else where its bound is worth it."""
        x, weight, bias, _, _, _, transposed, _, groups = node.args[:9]
        uses = self._uses
        constant = weight.constant is not None and not uses.writes[weight]
        floats = all(each is None or each.dtype == "float32" for each in (weight, bias))
        if not (constant and floats and is_image(x) and self._stays(x)) or transposed or groups != 1:
            return False
        rows, channels, *kernel = weight.max_shape
        pixels = out.max_shape[0] * prod(out.max_shape[2:])
        depth = EIGHT * ceil_div(channels, EIGHT) * prod(kernel)
        if depth >= MAX_QUOTIENT or 2 * rows * depth > self._limits.max_binding_bytes or not self._fits(x):
            return False
        if (x in self._turned and has_eights(x)) or x in self._read:
            return True
        gains = gains_by_matrices(1, pixels, rows, depth)
        self._read |= {x} if gains else set()
        return gains

    def _fits(self, image: Tensor) -> bool:
        """Whether one binding holds an image, as float32 or as halves whose channels are filled up."""
        nbytes = max(_floats(image), _halves(image))
        return nbytes <= min(self._limits.max_binding_bytes, self._limits.max_buffer_bytes)

    def _in_chains(self, found: list[Node]) -> set[Node]:
        """Those of these nodes that images connect with two convolutions."""
        part = {node: node for node in found}

        def first(node: Node) -> Node:
            while part[node] is not node:
                part[node] = part[part[node]]
                node = part[node]
            return node

        for node in found:
            for value in node.inputs:
                producer = self._uses.producer.get(value)
                if producer in part:
                    part[first(node)] = first(producer)
        chains: dict[Node, list[Node]] = {}
        for node in found:
            chains.setdefault(first(node), []).append(node)
        return {node for chain in chains.values() if self._pays(chain) for node in chain}

    def _pays(self, chain: Sequence[Node]) -> bool:
        """Whether a chain has convolutions, and its images take less time as halves with their channels last.

        Else each convolution makes such halves of what it reads; here that is done of images from elsewhere, once.
        """
        nodes = [node for node in chain if is_image(node.outputs[0])]
        if not any(map(is_convolution, nodes)):
            return False
        made = {node.outputs[0] for node in nodes}
        apart, together, entering = [], [], dict[Any, None]()
        for node in nodes:
            read, out = self._images_of(node), node.outputs[0]
            entering |= dict.fromkeys(value for value in read if value not in made)
            turned = is_convolution(node)
            apart += [_turning(value) for value in read if turned]
            apart.append(Cost(sum(map(_halves if turned else _floats, read)), _floats(out)))
            together.append(Cost(sum(map(_halves, read)), _halves(out)))
            if not self._uses.used_only_by(chain, out):
                together.append(Cost(_halves(out), _floats(out)))
        together += map(_turning, entering)
        return self.costs.pays("images with their channels last", nodes, apart, together)

    def _images_of(self, node: Node) -> list[Any]:
        """What a node of a chain reads with its channels last."""
        if is_convolution(node):
            return [node.args[0]]
        return [value for value in node.inputs if value in self._turned or node.name in CONCATENATIONS]


def _turning(image: Any) -> Cost:
    """What makes halves of an image, with its channels last."""
    return Cost(_floats(image), _halves(image))


def _floats(image: Any) -> int:
    return storage_bytes("float32", prod(image.max_shape))


def _halves(image: Any) -> int:
    """The bytes of an image as halves, its channels filled up."""
    channels = EIGHT * ceil_div(image.max_shape[1], EIGHT)
    return storage_bytes("float16", image.max_shape[0] * channels * prod(image.max_shape[2:]))


def is_convolution(node: Node) -> bool:
    """Whether a node is a convolution, whatever is done to its result.

    Example: `is_convolution(node)`.
    """
    return node.name in CONVOLUTION or node.name in CLAMPED_CONVOLUTION


def is_pointwise(node: Node) -> bool:
    """Whether a node is an expression that a kernel computes.

    Example: `is_pointwise(node)`.
    """
    return node.traits.pointwise is not None and not node.alias


def has_eights(image: Tensor) -> bool:
    """Whether the channels of an image are whole vectors.

    >>> has_eights(Tensor("x", "float32", (1, 24, 5, 5)))
    True
    """
    return image.max_shape[1] % EIGHT == 0


def is_image(value: Any) -> TypeGuard[Tensor]:
    """Whether a value is images of float32.

    Example: `is_image(tensor)`.
    """
    return isinstance(value, Tensor) and value.rank == RANK and value.dtype == "float32"


def _is_size(node: Node, images: Collection[Value]) -> bool:
    """Whether a node asks for a size of one of these images."""
    return node.traits.role is Role.SIZE and node.args[0] in images and isinstance(node.args[1], int)


def is_expression(node: Node) -> bool:
    """Whether a node is an expression when it is turned.

    Example: `is_expression(node)`.
    """
    return is_pointwise(node) or node.name in VIEWS


def _swaps_rows(node: Node) -> bool:
    """Whether a node swaps the last two of three dimensions."""
    return node.name in PERMUTES | TRANSPOSES and order_of(node) == (0, 2, 1)


def _is_flattened(node: Node) -> bool:
    """Whether a node is an image one pixel high without its height."""
    return node.name == SQUEEZE and is_image(node.args[0]) and axis_of(node.args[1], RANK) == PIXELS[0]


def _over_pixels(node: Node) -> bool:
    """Whether a mean is that of all pixels of an image, and keeps their dimensions."""
    dims: Any = node.named["dim"]
    whole = isinstance(dims, tuple) and sorted(axis_of(dim, RANK) for dim in dims) == [*PIXELS]
    return whole and node.named["keepdim"] is True


def _by_channel(tensor: Tensor) -> bool:
    """Whether an operand is the same for all pixels of an image, so that it lies alike with the channels last."""
    if prod(tensor.max_shape) == 1:
        return True
    return 2 < tensor.rank <= RANK and tensor.max_shape[-2:] == (1, 1)
