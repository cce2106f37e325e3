"""Operators that only move elements: every result is exact, in every type a delegate may hold."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from tests.support.graphs import SIZES, In, OpCase, Out, Sym

KINDS = ("float32", "float16", "int32", "bool")
EXACT = {"atol": 0.0, "rtol": 0.0}
FAR = 2**63 - 1  # what `x[2:]` is exported with


def moved(
    name: str,
    op: str,
    kinds: Sequence[str],
    shapes: Callable[[int], Sequence[tuple[int, ...]]],
    args: Callable[..., list[Any]],
    golden: Callable[..., Any],
    sizes: tuple[int, ...] = SIZES,
) -> list[OpCase]:
    """A case per type; `args` and `golden` get the inputs and the size, and torch tells the shapes of the outputs."""

    def of(kind: str) -> OpCase:
        def args_at(size: int) -> list[Any]:
            inputs = [In(kind, tuple(shape)) for shape in shapes(size)]
            found = golden(*(torch.empty(each.shape, dtype=getattr(torch, kind)) for each in inputs), size)
            outputs: Any = (
                [Out(kind, tuple(each.shape)) for each in found]
                if isinstance(found, (tuple, list))
                else Out(kind, tuple(found.shape))
            )
            return [*args(*inputs, size), outputs]

        return OpCase(f"{name} {kind}", op, args_at, golden, sizes=sizes, **EXACT)

    return [of(kind) for kind in kinds]


def permute(order: tuple[int, ...], shape: Callable[[int], tuple[int, ...]], kinds: Sequence[str]) -> list[OpCase]:
    return moved(
        f"permute {order} of {shape(7)}",
        "aten.permute_copy.default",
        kinds,
        lambda s: [shape(s)],
        lambda x, s: [x, order],
        lambda x, s: x.permute(order),
    )


PERMUTES = [
    *permute((0, 2, 1, 3), lambda s: (1, s, 3, 4), KINDS),
    *permute((0, 2, 1, 3), lambda s: (1, 3, s, 5), ("float32", "float16")),
    *permute((1, 0), lambda s: (s, 5), KINDS),
    *permute((1, 0), lambda s: (s, 70), KINDS),
    *permute((0, 2, 1), lambda s: (3, 9, s), ("float32", "float16")),
    *permute((0, -1, 1, 2), lambda s: (2, s, 3, 11), ("float32", "bool")),
    *permute((2, 0, 1), lambda s: (2, 3, s), ("float32",)),
    *permute((4, 2, 0, 3, 1), lambda s: (2, 3, s, 2, 9), ("float32", "float16")),
    *permute((), lambda s: (), ("float32",)),
    *moved(
        "transpose",
        "aten.transpose_copy.int",
        ("float32",),
        lambda s: [(2, s, 33)],
        lambda x, s: [x, -1, 1],
        lambda x, s: x.transpose(-1, 1),
    ),
    *moved(
        "t", "aten.t_copy.default", ("float32",), lambda s: [(12, s)], lambda x, s: [x], lambda x, s: x.t().contiguous()
    ),
]


def sliced(
    shape: Callable[[int], tuple[int, ...]],
    dim: int,
    start: Any,
    end: Any,
    step: int,
    kinds: Sequence[str],
    sizes: tuple[int, ...] = SIZES,
) -> list[OpCase]:
    """`start` and `end` are numbers, None, or functions of the size, which then arrive as live scalars."""

    def at(bound: Any, size: int) -> Any:
        return bound(size) if callable(bound) else bound

    def live(bound: Any, size: int) -> Any:
        return Sym(bound(size)) if callable(bound) else bound

    def golden(x: torch.Tensor, size: int) -> torch.Tensor:
        return torch.ops.aten.slice(x, dim, at(start, size), at(end, size), step)

    return moved(
        f"slice {dim} {at(start, 7)}:{at(end, 7)}:{step} of {shape(7)}"
        + (" live" if callable(start) or callable(end) else ""),
        "aten.slice_copy.Tensor",
        kinds,
        lambda s: [shape(s)],
        lambda x, s: [x, dim, live(start, s), live(end, s), step],
        golden,
        sizes,
    )


SLICES = [
    *sliced(lambda s: (2, s, 8), 1, 2, FAR, 1, KINDS),
    *sliced(lambda s: (2, s, 8), 2, 4, 8, 1, KINDS),
    *sliced(lambda s: (2, s, 7), 2, -3, None, 1, ("float32", "float16")),
    *sliced(lambda s: (2, s, 8), -1, 1, 7, 3, KINDS),
    *sliced(lambda s: (s, 5), 0, None, -2, 1, ("float32",)),
    *sliced(lambda s: (s, 5), 0, 3, 2, 1, ("float32",)),
    *sliced(lambda s: (s, 4), 0, None, None, 2, ("float32", "float16")),
    *sliced(lambda s: (s, 5), 0, -4, -1, 2, ("float32",)),
    *sliced(lambda s: (64, 6), 0, lambda s: 43 - s, lambda s: 43, 1, KINDS),
    *sliced(lambda s: (64, 8), 0, lambda s: s, lambda s: s + s, 1, ("float32", "bool"), (1, 5, 29, 32)),
    *sliced(lambda s: (3, s), 1, lambda s: -s // 2, None, 1, ("float32",)),
]


def selected(shape: Callable[[int], tuple[int, ...]], dim: int, index: Any, kinds: Sequence[str]) -> list[OpCase]:
    def at(size: int) -> int:
        return index(size) if callable(index) else index

    return moved(
        f"select {dim} {at(7)} of {shape(7)}" + (" live" if callable(index) else ""),
        "aten.select_copy.int",
        kinds,
        lambda s: [shape(s)],
        lambda x, s: [x, dim, Sym(at(s)) if callable(index) else index],
        lambda x, s: x.select(dim, at(s)),
    )


SELECTS = [
    *selected(lambda s: (1, s, 8), 1, -1, KINDS),
    *selected(lambda s: (2, s, 7), 1, 0, ("float32", "float16")),
    *selected(lambda s: (3, s, 4), 0, 2, ("float32",)),
    *selected(lambda s: (3, s, 4), -1, 1, ("float32", "bool")),
    *selected(lambda s: (s, 5), 0, lambda s: s - 1, ("float32",)),
    *selected(lambda s: (s,), 0, lambda s: -s, ("float32", "float16")),
]


def joined(shapes: Callable[[int], Sequence[tuple[int, ...]]], dim: int, kinds: Sequence[str]) -> list[OpCase]:
    return moved(
        f"cat {dim} of {list(shapes(7))}",
        "aten.cat.default",
        kinds,
        shapes,
        lambda *inputs: [list(inputs[:-1]), dim],
        lambda *inputs: torch.cat(inputs[:-1], dim),
    )


CATS = [
    *joined(lambda s: [(1, s, 5), (1, 3, 5), (1, s, 5)], 1, KINDS),
    *joined(lambda s: [(2, s, 4), (2, s, 8)], -1, KINDS),
    *joined(lambda s: [(2, s, 2), (2, s, 3)], -1, ("float32", "float16")),
    *joined(lambda s: [(s, 4)] * 10, 0, ("float32",)),
    *joined(lambda s: [(s, 3)], 0, ("float32",)),
    *joined(lambda s: [(s - 1, 3), (1, 3)], 0, ("float32", "float16")),
    *joined(lambda s: [(0,), (s, 3), (0,)], 1, ("float32",)),
    *joined(lambda s: [(0,), (s,)], 0, ("float32",)),
    *moved(
        "stack",
        "aten::stack.out",
        ("float32", "bool"),
        lambda s: [(s, 3), (s, 3)],
        lambda a, b, s: [[a, b], -1],
        lambda a, b, s: torch.stack((a, b), -1),
    ),
    OpCase(
        "cat of three types",
        "aten.cat.default",
        lambda s: [[In("int32", (s, 3)), In("float32", (2, 3)), In("bool", (s, 3))], 0, Out("float32", (2 * s + 2, 3))],
        lambda a, b, c, s: torch.cat((a, b, c)),
        **EXACT,
    ),
]


def expanded(
    shape: Callable[[int], tuple[int, ...]],
    size: Callable[[int], tuple[int, ...]],
    kinds: Sequence[str],
    live: int | None = None,
) -> list[OpCase]:
    def sizes(s: int) -> list[Any]:
        return [Sym(value) if axis == live else value for axis, value in enumerate(size(s))]

    return moved(
        f"expand {shape(7)} to {size(7)}",
        "aten.expand_copy.default",
        kinds,
        lambda s: [shape(s)],
        lambda x, s: [x, sizes(s), False],
        lambda x, s: x.expand(size(s)).contiguous(),
    )


EXPANDS = [
    *expanded(lambda s: (1, s, 5), lambda s: (3, -1, 5), KINDS),
    *expanded(lambda s: (1, s, 8), lambda s: (2, 3, s, 8), ("float32", "float16"), 2),
    *expanded(lambda s: (s, 1), lambda s: (s, 6), KINDS, 0),
    *expanded(lambda s: (1, 5), lambda s: (s, 5), ("float32",), 0),
    *expanded(lambda s: (), lambda s: (2, s), ("float32", "int32"), 1),
]

PARTS = [
    *moved(
        "split_with_sizes",
        "aten.split_with_sizes_copy.default",
        KINDS,
        lambda s: [(2, s, 12)],
        lambda x, s: [x, (2, 3, 7), -1],
        lambda x, s: x.split((2, 3, 7), -1),
    ),
    *moved(
        "split_with_sizes live",
        "aten.split_with_sizes_copy.default",
        ("float32",),
        lambda s: [(s + 4, 4)],
        lambda x, s: [x, [Sym(s), 4], 0],
        lambda x, s: x.split((s, 4), 0),
    ),
    *moved(
        "split",
        "aten.split_copy.Tensor",
        ("float32",),
        lambda s: [(2, 12, s)],
        lambda x, s: [x, 5, 1],
        lambda x, s: x.split(5, 1),
    ),
    *moved(
        "unbind",
        "aten.unbind_copy.int",
        ("float32", "bool"),
        lambda s: [(s, 3, 4)],
        lambda x, s: [x, -2],
        lambda x, s: x.unbind(-2),
    ),
]


def repeated(shape: Callable[[int], tuple[int, ...]], times: tuple[int, ...], kinds: Sequence[str]) -> list[OpCase]:
    return moved(
        f"repeat {shape(7)} {times}",
        "aten.repeat.default",
        kinds,
        lambda s: [shape(s)],
        lambda x, s: [x, times],
        lambda x, s: x.repeat(times),
    )


def flipped(shape: Callable[[int], tuple[int, ...]], dims: tuple[int, ...], kinds: Sequence[str]) -> list[OpCase]:
    return moved(
        f"flip {shape(7)} {dims}",
        "aten.flip.default",
        kinds,
        lambda s: [shape(s)],
        lambda x, s: [x, dims],
        lambda x, s: x.flip(dims),
    )


def rolled(shifts: tuple[int, ...], dims: tuple[int, ...]) -> list[OpCase]:
    return moved(
        f"roll {shifts} {dims}",
        "aten.roll.default",
        ("float32",),
        lambda s: [(s, 4)],
        lambda x, s: [x, shifts, dims],
        lambda x, s: x.roll(shifts, dims),
    )


def padded(
    shape: Callable[[int], tuple[int, ...]], pad: tuple[int, ...], value: float, kinds: Sequence[str]
) -> list[OpCase]:
    return moved(
        f"pad {shape(7)} {pad} {value}",
        "aten.constant_pad_nd.default",
        kinds,
        lambda s: [shape(s)],
        lambda x, s: [x, pad, value],
        lambda x, s: torch.constant_pad_nd(x, pad, value),
    )


ARRANGED = [
    *repeated(lambda s: (s, 3), (2, 2), KINDS),
    *repeated(lambda s: (2, s, 4), (3, 1, 2, 1), ("float32", "float16")),
    *repeated(lambda s: (s,), (2, 0), ("float32",)),
    *flipped(lambda s: (2, s, 3), (1,), KINDS),
    *flipped(lambda s: (2, s, 4), (0, -1), ("float32",)),
    *flipped(lambda s: (3, s, 4), (0,), ("float32", "float16")),
    *rolled((1,), (0,)),
    *rolled((-3, 2), (0, 1)),
    *rolled((5,), ()),
    *moved(
        "unfold",
        "aten.unfold_copy.default",
        ("float32", "float16"),
        lambda s: [(2, 9, s)],
        lambda x, s: [x, 1, 4, 2],
        lambda x, s: x.unfold(1, 4, 2).contiguous(),
    ),
    *moved(
        "diagonal",
        "aten.diagonal_copy.default",
        ("float32", "bool"),
        lambda s: [(5, 3, s)],
        lambda x, s: [x, 1, -1, 0],
        lambda x, s: x.diagonal(1, -1, 0),
    ),
    *moved(
        "diagonal below",
        "aten.diagonal_copy.default",
        ("float32",),
        lambda s: [(s, 7)],
        lambda x, s: [x, -2, 0, 1],
        lambda x, s: x.diagonal(-2),
    ),
    *padded(lambda s: (2, s, 3), (1, 2), 0, KINDS),
    *padded(lambda s: (2, s, 4), (0, 0, 2, 1), 1.5, ("float32", "float16")),
    *padded(lambda s: (3, s), (0, -1, 1, -1), -7, ("float32", "int32")),
    *padded(lambda s: (s, 3), (0, 1), -(2**31), ("int32",)),
    *padded(lambda s: (s, 3), (0, 1), float("-inf"), ("float32", "float16")),
]

WRITES = [
    *moved(
        "slice_scatter",
        "aten.slice_scatter.default",
        ("float32", "bool"),
        lambda s: [(50, 4), (s, 4)],
        lambda x, y, s: [x, y, 0, Sym(3), Sym(s + 3), 1],
        lambda x, y, s: x.slice_scatter(y, 0, 3, s + 3),
    ),
    *moved(
        "select_scatter",
        "aten.select_scatter.default",
        ("float32", "float16"),
        lambda s: [(3, s, 4), (3, 4)],
        lambda x, y, s: [x, y, 1, -1],
        lambda x, y, s: x.select_scatter(y, 1, -1),
    ),
    *moved(
        "copy",
        "aten.copy.default",
        KINDS,
        lambda s: [(2, s, 3), (s, 1)],
        lambda x, y, s: [x, y, False],
        lambda x, y, s: y.expand(x.shape).contiguous(),
    ),
    OpCase(
        "copy int32 to float32",
        "aten.copy.default",
        lambda s: [In("float32", (s, 3)), In("int32", (s, 3)), False, Out("float32", (s, 3))],
        lambda x, y, s: y.float(),
        **EXACT,
    ),
]

CASES = [*PERMUTES, *SLICES, *SELECTS, *CATS, *EXPANDS, *PARTS, *ARRANGED, *WRITES]
