"""Calls at several live shapes: random inputs, sizes from the signature, up and down."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from liveshape.errors import InputError
from liveshape.formats.signature import Signature

MAX = "MAX"
_FEW = (1, 2, 3, 7)

Shapes = list[tuple[int, ...]]


def symbols_of(signature: Signature) -> dict[str, tuple[int, int]]:
    """The symbols of a signature with the range that every dimension allows them."""
    found: dict[str, tuple[int, int]] = {}
    for taken in signature.inputs:
        for size in taken.sizes or ():
            if size.symbol is not None:
                least, most = -((size.offset - size.min) // size.scale), (size.max - size.offset) // size.scale
                before = found.get(size.symbol, (least, most))
                found[size.symbol] = max(least, before[0]), min(most, before[1])
    return found


def parse_sizes(text: str) -> dict[str, list[int | None]]:
    """Sizes of symbols from `rows=1,7,MAX heads=4`; None stands for the bound.

    >>> parse_sizes("rows=1,7,MAX")
    {'rows': [1, 7, None]}
    """
    found: dict[str, list[int | None]] = {}
    for item in text.split():
        name, equals, sizes = item.partition("=")
        try:
            found[name] = [None if size == MAX else int(size) for size in sizes.split(",")]
        except ValueError:
            equals = ""
        if not equals or not name:
            raise InputError(f"--shapes {text!r}: {item!r} is no SYMBOL=SIZE,..; for example: --shapes rows=1,7,{MAX}")
    return found


def shapes_of_calls(
    signature: Signature | None, bounds: Shapes, asked: Mapping[str, Sequence[int | None]] | None = None
) -> Iterator[Shapes]:
    """The input shapes of each call: the bound first, then every symbol at its least, its bound, and some between.

    Without a signature nothing says which dimensions are dynamic, and only the bound is sure to be right.

    >>> list(shapes_of_calls(None, [(3, 8)]))
    [[(3, 8)]]
    """
    symbols = {} if signature is None else symbols_of(signature)
    for name in asked or {}:
        if name not in symbols:
            known = ", ".join(f"{each} from {least} to {most}" for each, (least, most) in symbols.items()) or "none"
            raise InputError(f"--shapes: there is no dimension {name!r}; this method has {known}")
    if signature is None or not symbols:
        yield bounds
        return
    rows = {name: _sizes(least, most, (asked or {}).get(name)) for name, (least, most) in symbols.items()}
    for turn in range(max(len(sizes) for sizes in rows.values())):
        at = {name: sizes[turn % len(sizes)] for name, sizes in rows.items()}
        yield [
            bound
            if taken.sizes is None
            else tuple(
                size.max if size.symbol is None else size.scale * at[size.symbol] + size.offset for size in taken.sizes
            )
            for taken, bound in zip(signature.inputs, bounds, strict=True)
        ]


def _sizes(least: int, most: int, asked: Sequence[int | None] | None) -> list[int]:
    """The bound, the least, the middle, few, and so up and down."""
    if asked is not None:
        return [most if size is None else size for size in asked]
    few = [size for size in _FEW if least <= size <= most]
    return list(dict.fromkeys([most, least, (least + most) // 2, *few, most - 1 if most > least else most]))
