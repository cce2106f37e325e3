"""Attention that a program spells out: two products with a softmax between them, as one operator.

The scores are walked back from the second product: through views and conversions, the guard of rows that see nothing,
the softmax, and then masks and factors in any order, to the first product. Its operands are followed back to the
tensors that were split into heads (`index_maps.py`). Between the products nothing is rounded any more, and no score is
in memory; a program that reads any of them elsewhere keeps them all.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import product as combinations
from typing import Any

from liveshape.graph import Limits, Node, Tensor
from liveshape.lower.attention_operands import AttentionResult, geometry_of, results_of
from liveshape.lower.def_use import DefUse
from liveshape.lower.index_maps import Axis, Digit, IndexMap, IndexMaps
from liveshape.lower.live_sizes import NOTHING, ONE
from liveshape.lower.numbers import is_true, number_of
from liveshape.lower.pattern import Fusion, Replacement, fit
from liveshape.lower.pattern_operators import (
    ADDED_PRODUCTS,
    ADDITIONS,
    ALL,
    ANY,
    ARANGE,
    AT_MOST,
    COMPARISONS,
    CONJUNCTIONS,
    DIVISIONS,
    EXPANDS,
    MASKED_FILLS,
    MATRIX_PRODUCTS,
    MULTIPLICATIONS,
    NEGATIONS,
    SOFTMAXES,
    SPELLED_ATTENTION,
    SUBTRACTIONS,
    WHERES,
)
from liveshape.ops.shapes import axis_of
from liveshape.ops.strided_attention import ADDED, HIDDEN, NO_MASK, SEEN

_FLOATS = ("float32", "float16", "bfloat16")


@dataclass(frozen=True)
class _Scores:
    """What is known of scores on the way from the softmax to their product."""

    scale: float = 1.0
    mask: Tensor | None = None
    masking: int = NO_MASK
    masked: float = -math.inf
    shaped: Tensor | None = None  # the scores as the mask meets them
    bias: Tensor | None = None  # added before the mask
    biased: Tensor | None = None  # the scores as the bias meets them
    causal: bool = False  # a query sees the keys up to its own, whose number it has
    nodes: tuple[Node, ...] = ()  # what was walked through, from the last on
    product: Node | None = None


@dataclass
class _Spelling:
    """Attention that ends in a product with values."""

    uses: DefUse
    last: Node
    nodes: list[Node] = field(default_factory=list)  # between the products
    guarded: bool = False

    def scores(self, shares: Tensor) -> _Scores | None:
        """What the shares of a product with values are the softmax of."""
        guard: Tensor | None = None
        node = self._maker(shares)
        while node is not None:
            if node.name in WHERES and not self.guarded:
                found = self._guarded(node)
                if found is None:
                    return None
                shares, guard = found
                self.guarded = True
            elif self._passes(node):
                shares = node.args[0]
            else:
                break
            self.nodes.append(node)
            node = self._maker(shares)
        if node is None or node.name not in SOFTMAXES:
            return None
        x = node.args[0]
        if axis_of(node.args[1], x.rank) != x.rank - 1 or (
            guard is not None and self._source(guard) is not self._source(x)
        ):
            return None
        self.nodes.append(node)
        return self._walked(x, _Scores())

    def _walked(self, scores: Tensor, known: _Scores) -> _Scores | None:
        """From scores back to their product."""
        node = self._maker(scores)
        if node is None:
            return None
        known = replace(known, nodes=(*known.nodes, node))
        if self._passes(node):
            return self._walked(node.args[0], known)
        if node.name in MATRIX_PRODUCTS:
            return replace(known, product=node)
        if node.name in ADDED_PRODUCTS:
            addend, *_, beta, alpha, _ = node.args
            found = known if beta == 0 else self._added(addend, node.args[-1], known) if beta == 1 else None
            return None if found is None else replace(found, product=node, scale=found.scale * alpha)
        factor = factor_of(node, self.uses)
        if factor is not None:
            return self._walked(factor[0], replace(known, scale=known.scale * factor[1]))
        return self._masked(node, known)

    def _masked(self, node: Node, known: _Scores) -> _Scores | None:
        """Scores that a mask is added to, or which it replaces by a number."""
        if node.name in ADDITIONS and len(node.args) == 4 and node.args[2] == 1:
            for scores, mask in (node.args[:2], node.args[1::-1]):
                if isinstance(mask, Tensor) and isinstance(scores, Tensor) and self._from_product(scores):
                    met = self._added(mask, node.args[-1], known)
                    found = None if met is None else self._walked(scores, met)
                    if found is not None:
                        return found  # else both come from products, as a bias of places may
            return None
        if known.scale != 1:
            return None
        if node.name in WHERES:
            mask, *sides = node.args[:3]
            for scores, other, masking in ((*sides, SEEN), (*reversed(sides), HIDDEN)):
                number = number_of(other, self.uses)
                if number is not None and isinstance(scores, Tensor):
                    found = self._hidden(node.args[-1], known, mask, masking, number)
                    return None if found is None else self._walked(scores, found)
        if node.name in MASKED_FILLS:
            scores, mask, value = node.args[:3]
            number = number_of(value, self.uses)
            if number is not None:
                found = self._hidden(node.args[-1], known, mask, HIDDEN, number)
                return None if found is None else self._walked(scores, found)
        return None

    def _added(self, mask: Tensor, scores: Tensor, known: _Scores) -> _Scores | None:
        if known.scale != 1:
            return None
        where = self._maker(mask)
        if where is not None and where.name in WHERES:
            # What is zero where a condition says so, and hides a key elsewhere.
            condition, *sides = where.args[:3]
            numbers = [number_of(side, self.uses) for side in sides]
            for pair, masking in (([0, -math.inf], SEEN), ([-math.inf, 0], HIDDEN)):
                if numbers == pair and isinstance(condition, Tensor) and condition.dtype == "bool":
                    causal = masking == SEEN and is_causal(condition, self.uses)
                    if causal:
                        return replace(known, causal=True)
                    return self._hidden(scores, known, condition, masking, -math.inf)
        if known.mask is None:
            return replace(known, mask=mask, masking=ADDED, shaped=scores)
        return None if known.bias is not None else replace(known, bias=mask, biased=scores)

    def _hidden(self, scores: Tensor, known: _Scores, mask: Tensor, masking: int, number: float) -> _Scores | None:
        """A mask that hides keys; what is added behind it changes no score of -inf, so that it may be added before."""
        found = replace(known, mask=mask, masking=masking, masked=number, shaped=scores)
        if known.mask is None:
            return found
        if known.masking != ADDED or known.bias is not None or number != -math.inf:
            return None
        return replace(found, bias=known.mask, biased=known.shaped)

    def _from_product(self, tensor: Tensor) -> bool:
        """Whether a tensor is scores of a product, and not what is added to them: either may come first."""
        left: list[Any] = [tensor]
        seen: set[Any] = set()
        while left:
            each = left.pop()
            node = self._maker(each) if isinstance(each, Tensor) and each not in seen else None
            seen.add(each)
            if node is None:
                continue
            if node.name in MATRIX_PRODUCTS | ADDED_PRODUCTS:
                return True
            if node.name in ADDITIONS:
                left += node.args[:2]
            elif node.name in WHERES:
                left.append(node.args[1])
            elif self._passes(node) or node.name in MULTIPLICATIONS | DIVISIONS | MASKED_FILLS:
                left.append(node.args[0])
        return False

    def _guarded(self, node: Node) -> tuple[Tensor, Tensor] | None:
        """The shares and the scores of where(all(scores == -inf), 0, shares)."""
        condition, zeros, shares = node.args[:3]
        if number_of(zeros, self.uses) != 0 or not isinstance(shares, Tensor):
            return None
        inverted = False
        compared = self._maker(condition)
        if compared is not None and compared.name in NEGATIONS:
            inverted = True
            self.nodes.append(compared)
            compared = self._maker(compared.args[0])
        if compared is None or compared.name not in (ANY if inverted else ALL):
            return None
        x, dims, keepdim = (compared.named.get(name) for name in ("x", "dim", "keepdim"))
        last = dims[0] if isinstance(dims, tuple) and len(dims) == 1 else dims
        if not isinstance(x, Tensor) or not isinstance(last, int) or axis_of(last, x.rank) != x.rank - 1 or not keepdim:
            return None
        self.nodes.append(compared)
        infinite = self._maker(x)
        if inverted and infinite is not None:
            if infinite.name not in NEGATIONS:
                return None
            self.nodes.append(infinite)
            infinite = self._maker(infinite.args[0])
        if infinite is None or infinite.name not in COMPARISONS or number_of(infinite.args[1], self.uses) != -math.inf:
            return None
        self.nodes.append(infinite)
        filling = self.uses.producer.get(zeros) if isinstance(zeros, Tensor) else None
        if filling is not None and any(isinstance(value, Tensor) for value in filling.inputs):
            self.nodes.append(filling)  # it reads the shares for their shape
        return shares, infinite.args[0]

    def _source(self, tensor: Tensor) -> Tensor:
        """What scores are a view or a wider conversion of."""
        node = self._maker(tensor)
        while node is not None and self._passes(node):
            tensor = node.args[0]
            node = self._maker(tensor)
        return tensor

    def _passes(self, node: Node) -> bool:
        """Whether a node is a view of scores, or converts them, and leaves the rows and the keys what they are."""
        x, out = node.args[0] if node.args else None, node.args[-1]
        if not isinstance(x, Tensor) or not isinstance(out, Tensor) or min(x.rank, out.rank) < 2:
            return False
        if x.dtype not in _FLOATS or out.dtype not in _FLOATS:
            return False
        before, after = self.uses.met_sizes.of(x), self.uses.met_sizes.of(out)
        return before == after if node.name in EXPANDS else node.alias and before[-2:] == after[-2:]

    def _maker(self, tensor: Any) -> Node | None:
        node = self.uses.producer.get(tensor) if isinstance(tensor, Tensor) else None
        if node is None or not self.uses.single_assignment(tensor) or not self.uses.in_basic_block((node, self.last)):
            return None
        return node


def is_causal(seen: Tensor, uses: DefUse) -> bool:
    """Whether booleans are tril(ones(rows, keys)), as torch decomposes it: places of keys - places of rows <= 0."""
    node = _written_once(uses, seen)
    while node is not None and node.name in CONJUNCTIONS:
        sides = [side for side in node.args[:2] if not is_true(side, uses)]
        node = _written_once(uses, sides[0]) if len(sides) == 1 else None
    if node is None or node.name not in AT_MOST or number_of(node.args[1], uses) != 0:
        return False
    difference = _written_once(uses, node.args[0])
    if difference is None or difference.name not in SUBTRACTIONS or difference.args[2] != 1:
        return False
    places = [_counted(side, uses) for side in difference.args[:2]]
    return places == [1, 0] and difference.args[-1].rank == 2


def _counted(value: Any, uses: DefUse) -> int | None:
    """The dimension of a matrix along which a tensor counts from zero."""
    view = _written_once(uses, value)
    count = None if view is None or not view.alias else _written_once(uses, view.args[0])
    counts = count is not None and count.name == ARANGE and (count.args[0], count.args[2]) == (0, 1)
    if not counts or value.rank != 2 or view is None or view.args[0].rank != 1:
        return None
    sizes = uses.met_sizes.of(value)
    return 1 if sizes[0] == ONE else 0 if sizes[1] == ONE else None


def _written_once(uses: DefUse, value: Any) -> Node | None:
    """The node that gives a value, which is never written again."""
    return uses.producer.get(value) if isinstance(value, Tensor) and uses.single_assignment(value) else None


def factor_of(node: Node, uses: DefUse) -> tuple[Tensor, float] | None:
    """The tensor and the number that a node is the product of, or the quotient."""
    if node.name in MULTIPLICATIONS:
        for x, other in (node.args[:2], node.args[1::-1]):
            number = number_of(other, uses)
            if number is not None and isinstance(x, Tensor) and x.rank == node.args[-1].rank:
                return x, number
    if node.name in DIVISIONS:
        x, other = node.args[:2]
        number = number_of(other, uses)
        if number and x.rank == node.args[-1].rank:
            return x, 1 / number
    return None


@dataclass(frozen=True)
class _Way:
    """A way to read an operand of a product: its map, what it is multiplied by, and the nodes that this leaves out."""

    layout: IndexMap
    scale: float
    nodes: tuple[Node, ...]


def _operands(uses: DefUse, tensor: Tensor, reader: Node, *, scaled: bool) -> list[_Way]:
    """All ways to read an operand of a product, the farthest first."""

    def through(node: Node) -> Tensor | None:
        """What is made wider, or multiplied by a number."""
        x, out = node.args[0] if node.args else None, node.args[-1]
        if node.alias and isinstance(x, Tensor) and isinstance(out, Tensor):
            return x if x.dtype in ("float16", "bfloat16") and out.dtype == "float32" and x.rank == out.rank else None
        factor = factor_of(node, uses) if scaled else None
        alike = factor is not None and uses.met_sizes.of(factor[0]) == uses.met_sizes.of(out)
        return factor[0] if factor is not None and alike and factor[0].dtype == out.dtype else None

    layouts = IndexMaps(uses, uses.met_sizes, through)
    nodes = layouts.chain(tensor, reader)
    found = []
    for layout, count in layouts.numbered_bases(tensor, reader):
        passed = tuple(nodes[:count])
        factors = [factor[1] for node in passed if not node.alias and (factor := factor_of(node, uses)) is not None]
        found.append(_Way(layout, math.prod(factors), passed))
    return found


def _masks(uses: DefUse, mask: Tensor | None, shaped: Tensor | None, reader: Node) -> list[_Way | None]:
    """All ways to read a mask as if it had the shape of the scores; None of them where there is no mask."""
    if mask is None or shaped is None:
        return [None]
    target = uses.met_sizes.of(shaped)
    lead = len(target) - mask.rank
    found: list[_Way | None] = []
    for way in _operands(uses, mask, reader, scaled=False):
        axes: list[Axis] = [(Digit(size, NOTHING),) for size in target[:lead]]
        alike = lead >= 0
        for have, size, axis in zip(uses.met_sizes.of(mask), target[max(lead, 0) :], way.layout.axes, strict=False):
            if have == ONE and size != ONE:
                axes.append((Digit(size, NOTHING),))
            else:
                # What is met by scores has their size, whatever it is called.
                axes.append((Digit(size, axis[0].stride),) if len(axis) == 1 and axis[0].size == have else axis)
                alike = alike and (len(axis) == 1 or have == size)
        if alike:
            found.append(replace(way, layout=way.layout._replace(axes=tuple(axes))))
    return found


def _attention(uses: DefUse, last: Node, limits: Limits) -> Sequence[Replacement]:
    """shares = softmax(q @ k * scale + mask); out = shares @ v."""
    shares, values = last.args[:2]
    spelling = _Spelling(uses, last)
    scores = spelling.scores(shares) if isinstance(shares, Tensor) and shares.rank > 2 else None
    if scores is None or scores.product is None:
        return ()
    between = (*spelling.nodes, *scores.nodes)
    if not all(uses.used_only_by((*between, last), value) for node in between for value in node.outputs):
        return ()
    first = 1 if scores.product.name in ADDED_PRODUCTS else 0
    queries, keys = scores.product.args[first : first + 2]
    if not queries.rank == keys.rank > 2 or values.rank != shares.rank:
        return ()
    for result in results_of(uses, last):
        reader = result.moves[-1] if result.moves else last
        for q, k, v, mask, bias in combinations(
            _operands(uses, queries, reader, scaled=True),
            _operands(uses, keys, reader, scaled=True),
            _operands(uses, values, reader, scaled=False),
            _masks(uses, scores.mask, scores.shaped, reader),
            _masks(uses, scores.bias, scores.biased, reader),
        ):
            masks = [each.layout for each in (mask, bias) if each is not None]
            if not _alike(q.layout, k.layout, v.layout, masks, scores, result, limits):
                continue
            geometry = geometry_of(uses.met_sizes, q.layout, k.layout, v.layout, masks, result)
            if geometry is None:
                continue
            *laid_out, of_bias = geometry.encoded()
            mask_tensor, bias_tensor = (None if each is None else each.layout.base for each in (mask, bias))
            given = (
                q.layout.base, k.layout.base, v.layout.base, mask_tensor,
                scores.masking, scores.masked, spelling.guarded, scores.scale * q.scale * k.scale,
                *laid_out, scores.causal, bias_tensor, of_bias, result.tensor,
            )  # fmt: skip
            passed = [node for each in (q, k, v, mask, bias) if each is not None for node in each.nodes]
            nodes = (last, *result.moves)
            absorbed = (*reversed(between), *passed)
            return [Replacement(reader, SPELLED_ATTENTION, nodes, given, absorbed=absorbed)]
    return ()


def _alike(
    q: IndexMap,
    k: IndexMap,
    v: IndexMap,
    masks: Sequence[IndexMap],
    scores: _Scores,
    result: AttentionResult,
    limits: Limits,
) -> bool:
    """Whether kernels take tensors of these dtypes, each in one binding."""
    tensors = (q.base, k.base, v.base, result.tensor, *(mask.base for mask in masks))
    floats = q.base.dtype == result.tensor.dtype and k.base.dtype == v.base.dtype
    kinds = (_FLOATS if scores.masking == ADDED else ("bool",), _FLOATS)
    alike = all(mask.base.dtype in kind for mask, kind in zip(masks, kinds, strict=False))
    return floats and alike and all(each.dtype in _FLOATS for each in tensors[:4]) and fit(tensors, limits)


ATTENTIONS = (
    Fusion(
        "attention that is spelled out: two products and a softmax",
        MATRIX_PRODUCTS,
        _attention,
        reorders=True,
    ),
)
