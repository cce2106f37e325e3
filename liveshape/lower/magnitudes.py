"""How large the numbers of a program may be, whatever its inputs are: from its constants, through norms and products.

A layer norm gives rows of a known length, and a product of such rows is at most that times the longest row of its
weight. Numbers that are not finite stay so; bounds are of the others.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

from liveshape.errors import UnsupportedError
from liveshape.graph import Node, Tensor
from liveshape.graph.elements import is_complex, prod
from liveshape.kernels.pointwise_table import FUNCTIONS
from liveshape.lower.def_use import DefUse
from liveshape.lower.pattern_operators import (
    GROUP_NORM_CHANNELS_LAST,
    LAYER_NORMS,
    LINEAR,
    SPELLED_ATTENTION,
)
from liveshape.ops.pointwise import Pointwise, built


class Magnitude(NamedTuple):
    """The largest element of a tensor at most, and the largest Euclidean norm of a row along its last dimension."""

    largest: float
    row: float


UNKNOWN = Magnitude(math.inf, math.inf)
Measure = Callable[[Tensor], Magnitude | None]  # of a constant; None where its data is not at hand


class Magnitudes:
    """The magnitudes of the tensors of a graph.

    Example: `Magnitudes(uses, measure).of(tensor).largest < 65504`.
    """

    def __init__(self, uses: DefUse, measure: Measure) -> None:
        self._uses, self._measure = uses, measure
        self._known: dict[Tensor, Magnitude] = {}

    def of(self, tensor: Tensor) -> Magnitude:
        """Of what a tensor holds whenever it is read."""
        if tensor not in self._known:
            self._known[tensor] = UNKNOWN  # where a graph reads what it writes later
            self._known[tensor] = self._found(tensor)
        return self._known[tensor]

    def _found(self, tensor: Tensor) -> Magnitude:
        if tensor.constant is not None and not self._uses.writes[tensor]:
            return self._measure(tensor) or UNKNOWN
        node = self._uses.producer.get(tensor)
        if node is None or node.outputs[0] is not tensor or not self._uses.single_assignment(tensor):
            return UNKNOWN
        found = self._made(node, tensor)
        width = tensor.max_shape[-1] if tensor.rank else 1
        return Magnitude(found.largest, min(found.row, math.sqrt(width) * found.largest))

    def _made(self, node: Node, out: Tensor) -> Magnitude:
        if node.name in LAYER_NORMS:
            return self._normalized(node)
        if node.name in LINEAR:
            x, weight, bias = (None if each is None else self.of(each) for each in node.args[:3])
            assert x is not None
            assert weight is not None
            added = 0.0 if bias is None else bias.largest
            depth = node.args[1].max_shape[-1]
            return Magnitude(min(x.row, math.sqrt(depth) * x.largest) * weight.row + added, math.inf)
        if node.name == SPELLED_ATTENTION:  # a mean of values
            return Magnitude(self.of(node.named["v"]).largest, math.inf)
        if node.name == GROUP_NORM_CHANNELS_LAST:
            return self._normalized_groups(node)
        if node.traits.pointwise is not None:
            return Magnitude(self._evaluated(node, out), math.inf)
        if node.alias and isinstance(node.args[0], Tensor) and node.args[0].dtype == out.dtype:
            return self._viewed(node.args[0], out)
        return UNKNOWN

    def _normalized(self, node: Node) -> Magnitude:
        """Rows of a norm have at most the length that as many ones have, and each element at most that."""
        _, shape, weight, bias, *_ = node.args
        if not all(isinstance(size, int) for size in shape):
            return UNKNOWN
        scale = 1.0 if weight is None else self.of(weight).largest
        shift = 0.0 if bias is None else self.of(bias).largest
        length = math.sqrt(prod(shape))
        rows = length * (scale + shift) if len(shape) == 1 else math.inf
        return Magnitude(length * scale + shift, rows)

    def _normalized_groups(self, node: Node) -> Magnitude:
        """A group norm with its channels last is bounded as a layer norm is: by the numbers of a group."""
        x, weight, bias, groups = node.args[:4]
        scale = 1.0 if weight is None else self.of(weight).largest
        shift = 0.0 if bias is None else self.of(bias).largest
        numbers, channels = prod(x.max_shape[1:]), x.max_shape[-1]
        largest = math.sqrt(numbers / groups) * scale + shift
        return Magnitude(largest, math.sqrt(numbers) * scale + math.sqrt(channels) * shift)

    def _evaluated(self, node: Node, out: Tensor) -> float:
        try:
            made: Pointwise = built(node.traits.pointwise, node.args[:-1], out.dtype)  # type: ignore[arg-type]
        except (UnsupportedError, TypeError):
            return math.inf
        if any(is_complex(tensor.dtype) for tensor in (*made.tensors, out)):
            return math.inf
        values = [self.of(tensor).largest for tensor in made.tensors]
        values += [abs(number) if isinstance(number, (int, float)) else math.inf for number in made.numbers]
        for call in made.expression.calls:
            bound = FUNCTIONS[call.function].bound
            found = math.inf if bound is None else bound(*(values[place] for place in call.arguments))
            values.append(math.inf if math.isnan(found) else found)
        return values[-1]

    def _viewed(self, x: Tensor, out: Tensor) -> Magnitude:
        found = self.of(x)
        same = x.rank > 0 and out.rank > 0 and x.max_shape[-1] == out.max_shape[-1]
        sizes = (self._uses.sizes.of(x)[-1], self._uses.sizes.of(out)[-1]) if same else (0, 1)
        return Magnitude(found.largest, found.row if sizes[0] == sizes[1] else math.inf)
