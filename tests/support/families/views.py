"""Operators that keep the elements in order: view, reshape, squeeze, unsqueeze, clone, alias."""

import torch
from torch import nn

from tests.support.programs import MAX, Input, TestProgram


class Views(nn.Module):
    """Merge and split the live dim, with -1 and with symbolic sizes; heads first and heads last."""

    def forward(self, x, heads, flat):
        live = x.shape[1]
        return (
            x.view(live, 12),
            x.view(-1),
            x.reshape(1, live, 3, 4),
            x.reshape(live * 3, 4),
            x.reshape(-1, 2),
            heads.view(8, live, 16),
            heads.reshape(8 * live, 16),
            heads.reshape(2, 4, live, 16),
            heads.reshape(1, 8, live * 16),
            flat.view(live, 2, 5),
            flat.view(1, -1),
        )


class Squeezes(nn.Module):
    """Drop and add dims of size one anywhere, with a live dim that may itself be one."""

    def forward(self, x, flat):
        return (
            x.squeeze(0),
            x.squeeze(2),
            x.squeeze(-1),
            x.squeeze((0, 2)),
            flat.unsqueeze(0),
            flat.unsqueeze(1),
            flat.unsqueeze(-1),
            flat.unsqueeze(0).unsqueeze(-2),
            flat[None, :, None],
        )


class Copies(nn.Module):
    """Copies that change nothing, on their own and between two operators; one output is an input of the delegate."""

    def forward(self, x):
        doubled = x + x
        return x.clone(), doubled.clone(), torch.ops.aten.alias(doubled) + x, x.contiguous() + doubled


class ViewChain(nn.Module):
    """Views of views around arithmetic: the live shape must survive a chain of aliases."""

    def forward(self, x):
        live = x.shape[1]
        heads = x.view(1, live, 3, 4) * 2.0
        joined = heads.view(live, 12).unsqueeze(0)
        again = (joined + x).view(-1).view(live, 3, 4)
        return again, again.view(3 * live, 4) - 1.0, joined.squeeze(0) * 0.5


class TwoLive(nn.Module):
    """Two live dims joined into one and split again."""

    def forward(self, grid):
        rows, columns = grid.shape[0], grid.shape[1]
        return grid.view(rows * columns, 4), grid.reshape(rows, columns * 4), grid.view(-1), grid.unsqueeze(1)


def shaped(dtype: torch.dtype, *shapes: tuple[int | str, ...]) -> tuple[Input, ...]:
    return tuple(Input(shape, dtype) for shape in shapes)


def view_inputs(dtype: torch.dtype) -> tuple[Input, ...]:
    return shaped(dtype, (1, "S", 12), (1, 8, "S", 16), ("S", 10))


def squeeze_inputs(dtype: torch.dtype) -> tuple[Input, ...]:
    return shaped(dtype, (1, "S", 1, 6, 1), ("S", 5))


EXACT = {"double": False, "atol": 0.0, "rtol": 0.0}

PROGRAMS = [
    TestProgram("views", Views, view_inputs(torch.float32), **EXACT),
    TestProgram("views_f16", Views, view_inputs(torch.float16), **EXACT),
    TestProgram("views_i32", Views, view_inputs(torch.int32), **EXACT),
    TestProgram("views_bool", Views, view_inputs(torch.bool), **EXACT),
    TestProgram("squeezes", Squeezes, squeeze_inputs(torch.float32), **EXACT),
    TestProgram("squeezes_bool", Squeezes, squeeze_inputs(torch.bool), **EXACT),
    TestProgram("copies", Copies, (Input((2, "S", 5)),)),
    TestProgram("copies_i64", Copies, (Input((2, "S", 5), torch.int64),), **EXACT),
    TestProgram("view_chain", ViewChain, (Input((1, "S", 12)),)),
    TestProgram("two_live_views", TwoLive, (Input(("S", "T", 4)),), dims={"S": (1, MAX), "T": (1, 31)}, **EXACT),
]
