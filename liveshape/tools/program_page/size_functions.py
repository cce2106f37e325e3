"""Sizes as functions of the inputs' sizes: affine, divided and rounded down, or a product; verified at every sample.

A function is given only where no other one of its kind agrees with all samples; elsewhere the samples stand alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import product

Column = Sequence[int | None]  # a size at each sample, None where the program refuses the sample

_MAX_DIVISOR, _MAX_FACTOR = 1024, 4


def size_function(symbols: Sequence[str], points: Sequence[Sequence[int]], column: Column) -> str | None:
    """The size as an expression of the symbols that is right at every point, or None.

    >>> size_function(["S"], [[1], [2], [7]], [3, 5, 15])
    '2*S + 1'
    >>> size_function(["S"], [[size] for size in range(9)], [size // 4 for size in range(9)])
    'S // 4'
    >>> size_function(["S"], [[size] for size in range(2, 40, 2)], [size // 2 for size in range(2, 40, 2)])
    'S // 2'
    >>> size_function(["S", "start"], [[1, 0], [1, 5], [3, 0]], [1, 6, 3])
    'S + start'
    >>> size_function(["S"], [[1], [2], [3], [4]], [1, 2, 4, 9]) is None
    True
    """
    rows = [(tuple(point), size) for point, size in zip(points, column, strict=True) if size is not None]
    if not rows:
        return None
    sizes = [size for _, size in rows]
    if len(set(sizes)) == 1:
        return str(sizes[0])
    affine = _affine(symbols, rows)
    if affine is not None:
        return affine
    for place, symbol in enumerate(symbols):
        divided = _divided(symbol, [(point[place], size) for point, size in rows])
        if divided is not None:
            return divided
    return next(_products(symbols, rows), None)


def _affine(symbols: Sequence[str], rows: Sequence[tuple[tuple[int, ...], int]]) -> str | None:
    slopes = []
    for place in range(len(symbols)):
        slope = _slope(place, rows)
        if slope is None:
            return None
        slopes.append(slope)
    offsets = {size - sum(slope * at for slope, at in zip(slopes, point, strict=True)) for point, size in rows}
    if len(offsets) != 1:
        return None
    terms = [(slope, symbol) for slope, symbol in zip(slopes, symbols, strict=True) if slope]
    return _sum(terms, offsets.pop())


def _slope(place: int, rows: Sequence[tuple[tuple[int, ...], int]]) -> int | None:
    """How much a size grows with one symbol, from two points that differ in nothing else; None if by no integer."""
    seen: dict[tuple[int, ...], tuple[int, int]] = {}
    for point, size in rows:
        others = (*point[:place], *point[place + 1 :])
        at, before = seen.setdefault(others, (point[place], size))
        if at != point[place]:
            rise, run = size - before, point[place] - at
            return None if rise % run else rise // run
    return 0


def _sum(terms: Sequence[tuple[int, str]], offset: int) -> str:
    text = ""
    for factor, symbol in terms:
        sign = (" + " if factor > 0 else " - ") if text else ("" if factor > 0 else "-")
        text += sign + (symbol if abs(factor) == 1 else f"{abs(factor)}*{symbol}")
    return text + (f" {'+' if offset > 0 else '-'} {abs(offset)}" if offset else "")


def _divided(symbol: str, rows: Sequence[tuple[int, int]]) -> str | None:
    """`scale * ((factor * symbol + inner) // divisor) + outer`, where the samples leave one choice."""
    sizes = [size for _, size in rows]
    scale = math.gcd(*(size - sizes[0] for size in sizes))
    outer = sizes[0] % scale
    quotients = [(at, (size - outer) // scale) for at, size in rows]
    (low, least), (high, most) = min(quotients), max(quotients)
    if most <= least:
        return None
    for factor in range(1, _MAX_FACTOR + 1):
        near = round(factor * (high - low) / (most - least))
        fitting = []
        for divisor in range(max(2, near - 2), min(near + 3, _MAX_DIVISOR)):
            begin = max(divisor * quotient - factor * at for at, quotient in quotients)
            end = min(divisor * quotient + divisor - 1 - factor * at for at, quotient in quotients)
            fitting += [(divisor, inner) for inner in range(begin, end + 1)]
        step = math.gcd(*(factor * (at - low) for at, _ in quotients))
        if len(fitting) > 1 and not _same(fitting, step, factor * low):
            return None  # more samples would tell which
        if fitting:
            divisor, inner = min(fitting, key=lambda each: abs(each[1]))
            inside = _sum([(factor, symbol)], inner)
            text = f"{f'({inside})' if ' ' in inside else inside} // {divisor}"
            text = text if scale == 1 else f"{scale}*({text})"
            return text + (f" + {outer}" if outer else "")
    return None


def _same(fitting: Sequence[tuple[int, int]], step: int, at: int) -> bool:
    """Whether functions are equal at all sizes that go in steps: no multiple of the step lies between their sums."""
    divisors, sums = {divisor for divisor, _ in fitting}, [at + inner for _, inner in fitting]
    return len(divisors) == 1 and divisors.pop() % step == 0 and min(sums) // step == max(sums) // step


def _products(symbols: Sequence[str], rows: Sequence[tuple[tuple[int, ...], int]]) -> Iterator[str]:
    for powers in product(range(3), repeat=len(symbols)):
        if sum(powers) < 2:
            continue
        factors = [math.prod(at**power for at, power in zip(point, powers, strict=True)) for point, _ in rows]
        largest = max(factors)
        whole, rest = divmod(rows[factors.index(largest)][1], largest) if largest else (0, 1)
        if not rest and all(whole * factor == size for factor, (_, size) in zip(factors, rows, strict=True)):
            names = [symbol for symbol, power in zip(symbols, powers, strict=True) for _ in range(power)]
            yield "*".join(names if whole == 1 else [str(whole), *names])


__all__ = ["size_function"]
