"""Operators that move elements: permute, slice, select, cat, expand, split."""

import torch
from torch import nn

from tests.support.programs import MAX, Input, TestProgram


class Permutes(nn.Module):
    def forward(self, flat, x, heads, five):
        return (
            flat.permute(1, 0),
            flat.t(),
            x.permute(2, 0, 1),
            x.transpose(0, 1),
            x.permute(0, 2, 1),
            heads.permute(0, 2, 1, 3),
            heads.permute(3, 1, 0, 2),
            heads.transpose(-1, -2),
            heads.permute(-1, 0, -2, 1),
            five.permute(4, 2, 0, 3, 1),
            flat.permute(0, 1),
        )


class Slices(nn.Module):
    """Starts, ends and steps of fixed dims, counted from either side; the live dim rides along or is cut at its end."""

    def forward(self, x):
        live = x.shape[1]
        return (
            x[:, :, 2:5],
            x[:, :, -3:],
            x[:, :, :-2],
            x[:, :, ::2],
            x[:, :, 1:6:3],
            x[:, :, -5:-1:2],
            x[:, :, 3:100],
            x[1:],
            x[:, :live],
            x[:, :live, 1:2],
        )


class LiveSlices(nn.Module):
    """Slices of the live dim itself, which must then be long enough that none is empty or of size one at the bound."""

    def forward(self, x):
        live = x.shape[1]
        return (
            x[:, 2:],
            x[:, :3],
            x[:, -2:],
            x[:, :-1],
            x[:, 1:-1],
            x[:, ::2],
            x[:, 1::3],
            x[:, 1:live],
            x[:, -4 : live - 1],
            x[:, -5:-2],
        )


class Selects(nn.Module):
    def forward(self, x, flat):
        return (
            x[0],
            x[-1],
            x[:, 0],
            x[:, -1],
            x[:, 2],
            x[:, -2],
            x[:, :, 3],
            x[..., -1],
            flat[0],
            flat[-1],
            torch.select(x, 1, -1).select(1, 2),
        )


class Cats(nn.Module):
    """Two, three and four inputs; along the live dim, a fixed one, and both kinds at once."""

    def forward(self, x, y, more, flat):
        return (
            torch.cat((x, y), 1),
            torch.cat((x, y), -1),
            torch.cat((x, more), 1),
            torch.cat((more, x, y), 1),
            torch.cat((x, y, x, y), 0),
            torch.cat((flat, flat, flat)),
            torch.cat((flat, flat), 1),
            torch.stack((flat, flat)),
            torch.stack((flat, flat, flat), 1),
        )


class Expands(nn.Module):
    """Copy a size-1 dim, add a leading dim, and keep the live dim with -1 and with its symbolic size."""

    def forward(self, x, column, row):
        live = x.shape[1]
        return (
            x.expand(3, -1, 5),
            x.expand(2, 1, live, 5),
            column.expand(-1, 6),
            column.expand(live, 4),
            column.unsqueeze(0).expand(2, live, 7),
            row.expand(live, 5),
            row.unsqueeze(0).expand(2, live, 5),
            row.expand(3, 1, 5),
        )


class Splits(nn.Module):
    """split, chunk and unbind of a fixed dim; the live dim rides along."""

    def forward(self, x, heads):
        return (
            *x.split((2, 3, 7), -1),
            *x.chunk(3, -1),
            *x.split(5, 2),
            *x.split((1, 1), 0),
            *heads.chunk(2, 1),
            *heads.unbind(1),
            *torch.tensor_split(heads, 2, -1),
        )


class Rotate(nn.Module):
    """The halves of a head swapped and one negated: slice, neg and cat, as in rotary embeddings."""

    def forward(self, x):
        half = x.shape[-1] // 2
        return torch.cat((-x[..., half:], x[..., :half]), -1), x.transpose(1, 2).reshape(1, 4, -1)


def shaped(dtype: torch.dtype, *shapes: tuple[int | str, ...]) -> tuple[Input, ...]:
    return tuple(Input(shape, dtype) for shape in shapes)


def permute_inputs(dtype: torch.dtype) -> tuple[Input, ...]:
    return shaped(dtype, ("S", 5), (2, "S", 3), (1, 3, "S", 4), (2, 1, "S", 3, 2))


def cat_inputs(dtype: torch.dtype) -> tuple[Input, ...]:
    return shaped(dtype, (1, "S", 5), (1, "S", 5), (1, 3, 5), ("S", 2))


def expand_inputs(dtype: torch.dtype) -> tuple[Input, ...]:
    return shaped(dtype, (1, "S", 5), ("S", 1), (1, 5))


def split_inputs(dtype: torch.dtype) -> tuple[Input, ...]:
    return shaped(dtype, (2, "S", 12), (1, 4, "S", 6))


EXACT = {"double": False, "atol": 0.0, "rtol": 0.0}
AT_LEAST_FOUR = {"S": (4, MAX)}
KINDS = {"": torch.float32, "_f16": torch.float16, "_i32": torch.int32, "_bool": torch.bool}

PROGRAMS = [
    *(TestProgram(f"permutes{suffix}", Permutes, permute_inputs(kind), **EXACT) for suffix, kind in KINDS.items()),
    *(TestProgram(f"slices{suffix}", Slices, (Input((2, "S", 8), kind),), **EXACT) for suffix, kind in KINDS.items()),
    *(
        TestProgram(f"live_slices{suffix}", LiveSlices, (Input((2, "S", 8), kind),), {"S": (7, MAX)}, **EXACT)
        for suffix, kind in KINDS.items()
    ),
    *(
        TestProgram(f"selects{suffix}", Selects, shaped(kind, (2, "S", 5), ("S", 3)), AT_LEAST_FOUR, **EXACT)
        for suffix, kind in KINDS.items()
    ),
    *(
        TestProgram(f"cats{suffix}", Cats, cat_inputs(kind), **EXACT)
        for suffix, kind in KINDS.items()
        if kind is not torch.bool
    ),
    *(TestProgram(f"expands{suffix}", Expands, expand_inputs(kind), **EXACT) for suffix, kind in KINDS.items()),
    *(TestProgram(f"splits{suffix}", Splits, split_inputs(kind), **EXACT) for suffix, kind in KINDS.items()),
    TestProgram("rotate", Rotate, (Input((1, "S", 4, 6)),), **EXACT),
]
