"""The sizes and strides of attention, from the index maps of its operands and of its result.

Axes before rows and columns are taken apart until those of all operands have the same digits. The last ones that
neither keys nor values move along are queries that share a head of keys; what is left are batches and heads. A mask may
be repeated after some of the batches, as that of shifted windows is for every image.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from liveshape.graph import Node, Tensor
from liveshape.lower.def_use import DefUse
from liveshape.lower.index_maps import Axis, Digit, IndexMap, IndexMaps, contiguous, joined
from liveshape.lower.live_sizes import NOTHING, ONE, LiveSize, LiveSizes, Sizes, product
from liveshape.ops.strided_attention import Extent, Stride, Strides, encoded

_BATCH, _HEAD, _ROW, _COLUMN = range(4)
_BREAK = -1  # between the axes of a result


class AttentionResult(NamedTuple):
    """What attention writes: the last of the nodes that move the product, and how its elements lie there."""

    tensor: Tensor
    moves: tuple[Node, ...]
    outer: Axis
    row: Digit
    column: Digit
    axes: tuple[Axis, ...]  # of the tensor, with the strides of the product


@dataclass(frozen=True)
class Geometry:
    """The arguments of the operator that say how its tensors lie."""

    sizes: tuple[Extent, ...]
    strides: tuple[Strides, ...]  # of queries, keys, values and perhaps a mask and a bias
    axes: tuple[int, ...]

    def encoded(self) -> tuple[tuple[int, ...], ...]:
        """Sizes, strides of queries, keys, values and the mask, axes; those of the bias."""
        operands = [encoded(each) for each in self.strides] + [()] * (5 - len(self.strides))
        return encoded(self.sizes), *operands[:4], self.axes, operands[4]


class _Outer(NamedTuple):
    """A digit before rows and columns: its size, and the strides of all operands and of the result.

    `repeats` has the sizes after which masks are repeated; None where they are not.
    """

    size: LiveSize
    strides: Sizes
    repeats: tuple[LiveSize | None, LiveSize | None] = (None, None)


def results_of(uses: DefUse, last: Node) -> Iterator[AttentionResult]:
    """What may be written instead of a product, the farthest first: where nothing else reads it, as it is moved."""
    layouts = IndexMaps(uses, uses.met_sizes)
    product_out: Tensor = last.args[-1]
    layout: IndexMap | None = contiguous(product_out, uses.met_sizes.of(product_out))
    found: list[tuple[Tensor, tuple[Node, ...], IndexMap]] = []
    tensor, moves = product_out, ()  # type: tuple[Tensor, tuple[Node, ...]]
    while layout is not None:
        found.append((tensor, moves, layout))
        node = uses.only_consumer(tensor)
        if node is None or layouts.source(node) is not tensor or not uses.single_assignment(tensor, node.args[-1]):
            break
        if not isinstance(node.args[-1], Tensor) or not uses.in_basic_block((last, node)):
            break
        tensor, moves = node.args[-1], (*moves, node)
        layout = layouts.moved(layout, node, tensor)
    for tensor, moves, layout in reversed(found):
        result = _result(tensor, moves, layout, uses.met_sizes.of(product_out))
        if result is not None:
            yield result


def _result(tensor: Tensor, moves: tuple[Node, ...], layout: IndexMap, sizes: Sizes) -> AttentionResult | None:
    """The digits of a product in its own order, with the strides of where they are written."""
    if layout.offset or product(sizes) != product(tuple(digit.size for digit in layout.digits)):
        return None
    strides: dict[LiveSize, Digit] = {}  # by the stride in the product
    lasting = ONE
    for digit in reversed(layout.digits):
        strides[digit.stride] = Digit(digit.size, lasting)
        lasting = lasting.times(digit.size)
    ordered: list[Digit] = []
    reached = ONE
    while reached in strides:
        ordered.insert(0, strides.pop(reached))
        reached = reached.times(ordered[0].size)
    *_outer, rows, columns = sizes
    if strides:
        return None
    column, rest = _taken(ordered, columns)
    row, rest = _taken(rest, rows)
    if column is None or row is None:
        return None
    return AttentionResult(tensor, moves, tuple(rest), row, column, layout.axes)


def _taken(digits: list[Digit], size: LiveSize) -> tuple[Digit | None, list[Digit]]:
    """The last digits that make a size, as one digit if they are."""
    if size == ONE:
        return Digit(ONE, NOTHING), digits
    taken: list[Digit] = []
    left = list(digits)
    while left and product(tuple(digit.size for digit in taken)) != size:
        taken.insert(0, left.pop())
    whole = joined(tuple(taken))
    return (whole[0] if len(whole) == 1 and whole[0].size == size else None), left


def geometry_of(
    sizes: LiveSizes, q: IndexMap, k: IndexMap, v: IndexMap, masks: Sequence[IndexMap], result: AttentionResult
) -> Geometry | None:
    """How attention reads q [.., rows, size], k [.., size, keys], v [.., keys, size] and masks, and writes a result."""
    (q_row, q_column), (k_column, k_row), (v_row, v_column) = (map(_digit, each.axes[-2:]) for each in (q, k, v))
    seen = [[_digit(axis) for axis in mask.axes[-2:]] for mask in masks]
    digits = (q_row, q_column, k_column, k_row, v_row, v_column, *(digit for each in seen for digit in each))
    if any(digit is None for digit in digits):
        return None
    for column, other in ((q_column, q_column), (k_column, q_column), (v_column, result.column)):
        if column is None or other is None or column.size != other.size or column.stride not in (ONE, NOTHING):
            return None
        if column.stride == NOTHING and column.size != ONE:
            return None
    if result.column.stride == NOTHING and result.column.size != ONE:
        return None
    layouts = (q, k, v, *masks)
    outer = _refined([*(tuple(d for axis in each.axes[:-2] for d in axis) for each in layouts), result.outer])
    if outer is None:
        return None
    inner, group = _grouped(outer)
    merged = next((pair for pair in _two(inner) if _follows(pair[1], group)), None)
    if merged is None:
        return None
    batch, head = merged
    count = product(tuple(each.size for each in group))
    assert q_row is not None
    assert k_row is not None
    assert q_column is not None
    repeats = [batch.size if each is None else each for each in batch.repeats]
    whole = (
        batch.size, head.size, count, q_row.size, k_row.size, q_column.size, result.column.size, *repeats
    )  # fmt: skip
    extents = [_extent(size, [each.base for each in layouts], sizes) for size in whole]
    heads = group[-1].strides if group else head.strides
    rows = (q_row, k_row, v_row, *(row for row, _ in seen))
    columns = (q_column, k_column, v_column, *(column for _, column in seen))
    strides = []
    for place, layout in enumerate(layouts):
        own_head = head.strides if place in (1, 2) else heads
        row, column = rows[place], columns[place]
        if row is None or column is None:
            return None
        steps = (batch.strides[place], own_head[place], row.stride, column.stride)
        strides.append(_strides(layout, steps, sizes))
    axes = _axes(result, batch, head, count)
    if axes is None or None in extents or None in strides:
        return None
    return Geometry(
        tuple(each for each in extents if each is not None), tuple(each for each in strides if each is not None), axes
    )


def _digit(axis: Axis) -> Digit | None:
    """An axis as one digit; one of no elements beside the first has no stride."""
    whole = joined(tuple(digit for digit in axis if digit.size != ONE))
    return Digit(ONE, NOTHING) if not whole else whole[0] if len(whole) == 1 else None


def _refined(axes: Sequence[Axis]) -> list[_Outer] | None:
    """Digits of the same sizes for all operands, the fewest that there are."""
    left = [[digit for digit in axis if digit.size != ONE] for axis in axes]
    found: list[_Outer] = []
    while any(left):
        if not all(left):
            return None
        least = next(
            (
                digits[-1].size
                for digits in left
                if all(other[-1].size.over(digits[-1].size) is not None for other in left)
            ),
            None,
        )
        if least is None:
            return None
        strides = []
        for digits in left:
            digit = digits.pop()
            rest = digit.size.over(least)
            if rest is not None and rest != ONE:
                digits.append(Digit(rest, digit.stride.times(least)))
            strides.append(digit.stride)
        found.insert(0, _Outer(least, tuple(strides)))
    return found


def _grouped(outer: list[_Outer]) -> tuple[list[_Outer], list[_Outer]]:
    """The digits, and the last ones of them that keys and values are repeated along."""
    place = len(outer)
    while place and outer[place - 1].strides[1:3] == (NOTHING, NOTHING) and outer[place - 1].size.fixed is not None:
        place -= 1
    return outer[:place], outer[place:]


def _follows(head: _Outer, group: list[_Outer]) -> bool:
    """Whether heads of queries, of a mask and of the result are one stride, through those that share a head of keys."""
    chain = [head, *group] if head.size != ONE else group
    for before, after in itertools.pairwise(chain):
        for place, (far, near) in enumerate(zip(before.strides, after.strides, strict=True)):
            if place not in (1, 2) and far != near.times(after.size):
                return False
    return True


def _two(outer: list[_Outer]) -> list[tuple[_Outer, _Outer]]:
    """Batches and heads: neighbours that are one stride everywhere go together where there are more."""
    digits = list(outer)
    place = 0
    while len(digits) > 2 and place + 1 < len(digits):
        whole = _joined(digits[place], digits[place + 1], repeated=False)
        if whole is None:
            place += 1
        else:
            digits[place : place + 2] = [whole]
    while len(digits) > 2 and (whole := _joined(digits[0], digits[1], repeated=True)) is not None:
        digits[:2] = [whole]
    none = _Outer(ONE, (NOTHING,) * (len(outer[0].strides) if outer else 5))
    if len(digits) > 2:
        return []
    if len(digits) == 2:
        return [(digits[0], digits[1])]
    alone = digits[0] if digits else none
    return [(none, alone), (alone, none)]


def _joined(one: _Outer, other: _Outer, *, repeated: bool) -> _Outer | None:
    """Two digits as one; masks may be `repeated` along the first of them."""
    repeats = [None if each is None else each.times(other.size) for each in one.repeats]
    for place, (far, near) in enumerate(zip(one.strides, other.strides, strict=True)):
        if far == near.times(other.size):
            continue
        mask = place - 3
        if not repeated or not 0 <= mask < len(one.strides) - 4 or far != NOTHING or repeats[mask] is not None:
            return None
        repeats[mask] = other.size
    return _Outer(one.size.times(other.size), other.strides, (repeats[0], repeats[1]))


def _axes(result: AttentionResult, batch: _Outer, head: _Outer, group: LiveSize) -> tuple[int, ...] | None:
    """The digits of the axes of a result by their numbers."""
    heads = head.size.times(group)
    known = {_BATCH: batch.size, _HEAD: heads, _ROW: result.row.size, _COLUMN: result.column.size}
    own = {_COLUMN: ONE, _ROW: result.column.size}
    own[_HEAD] = own[_ROW].times(result.row.size)
    own[_BATCH] = own[_HEAD].times(heads)
    numbers: list[int] = []
    for place, axis in enumerate(result.axes):
        if place:
            numbers.append(_BREAK)
        for digit in axis:
            size, far = digit.size, digit.stride.times(digit.size)
            while size != ONE:
                number = next(
                    (each for each in known if known[each] != ONE and own[each].times(known[each]) == far), None
                )
                rest = None if number is None else size.over(known[number])
                if number is None or rest is None:
                    return None
                numbers.append(number)
                size, far = rest, own[number]
    return tuple(numbers)


def _extent(size: LiveSize, bases: Sequence[Tensor], sizes: LiveSizes) -> Extent | None:
    if size.fixed is not None:
        return Extent.literal(size.fixed)
    for operand, base in enumerate(bases):
        for axis, whole in enumerate(sizes.of(base)):
            divisor = whole.over(size)
            if divisor is not None and divisor.fixed:
                return Extent(operand, axis, divisor.fixed)
    return None


def _strides(layout: IndexMap, steps: Sizes, sizes: LiveSizes) -> Strides | None:
    shape = sizes.of(layout.base)
    starts = [_stride(step, shape) for step in layout.offset] or [Stride()]
    found = [_stride(step, shape) for step in steps]
    axes = {each.axis for each in starts if each is not None}
    if None in starts or None in found or len(axes) != 1:
        return None
    start = Stride(axes.pop(), sum(each.times for each in starts if each is not None))
    return Strides(start, *(each for each in found if each is not None))


def _stride(step: LiveSize, shape: Sizes) -> Stride | None:
    if step == NOTHING:
        return Stride()
    for axis in range(len(shape)):
        times = step.over(product(shape[axis + 1 :]))
        if times is not None and times.fixed:
            return Stride(axis, times.fixed)
    return None
