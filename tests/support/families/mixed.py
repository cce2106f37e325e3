"""Files that are more than one delegate: portable operators between, control flow, state, several methods."""

import torch
import torch.nn.functional as F
from torch import nn

from tests.support.programs import MAX, Input, MethodsProgram, TestProgram, integers, positive


class LibraryNorm(nn.Module):
    """F.rms_norm is not fused, and its addition of eps runs outside: two delegates and a portable operator."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(16))
        self.project = nn.Linear(16, 16)

    def forward(self, x):
        return x + self.project(F.rms_norm(x, (16,), self.weight, 1e-5))


class Portable(nn.Module):
    """Operators the partitioner refuses, between operators it takes."""

    def forward(self, x, y):
        positive = torch.exp(x)
        log = torch.log(positive + 1.0)
        peak = torch.maximum(log, y * 2.0)
        return torch.relu(peak) * 0.5, torch.floor(peak * 3.0) + x, torch.erf(log).sum(), (peak + y).argmax(-1)


class PortableReductions(nn.Module):
    """Reductions that drop a dim other than the last, or reduce everything."""

    def forward(self, x):
        doubled = x * 2.0
        return doubled.sum(1), doubled.mean(0), doubled.sum(), doubled.amax((0, 1)), doubled.mean(0).exp() + 1.0


class PortableLogic(nn.Module):
    """ne of two tensors, bool cat, int where, any: refused by type or by name."""

    def forward(self, x, y, flag):
        different = x != y
        return (
            x + y,
            torch.logical_and(different, flag),
            different,
            torch.cat((different, flag), -1),
            torch.where(flag, x, y),
            torch.logical_xor(flag, different),
            x.cumsum(0),
        )


class Branch(nn.Module):
    """torch.cond over a flag, with a delegate on each side."""

    def forward(self, flag, x):
        def then(x):
            return torch.relu(x) * 2.0

        def otherwise(x):
            return x - torch.sigmoid(x)

        return torch.cond(flag, then, otherwise, (x * 1.5,)) + 1.0


class SumBranch(nn.Module):
    """The condition is computed from the data."""

    def forward(self, x):
        def then(x):
            return x + 3.0

        def otherwise(x):
            return torch.exp(x)

        return torch.cond(x.sum() > 0, then, otherwise, (x,))


class Counter(nn.Module):
    """State that grows at every call; only the aliased export says which constant a new value replaces."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros(1))
        self.register_buffer("total", torch.ones(4))

    def forward(self, x):
        self.calls.add_(1.0)
        self.total.add_(x.sum(0, keepdim=True).squeeze(0))
        return x * self.calls, self.total + 0.0


class SameTwice(nn.Module):
    """Two outputs that become one value inside: the delegate lists it once, the outer call expects it twice."""

    def forward(self, x):
        doubled = x + x
        return doubled, doubled.clone(), doubled * x


class RowCache(nn.Module):
    """A cache written in place at a live position and read back whole."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("cache", torch.zeros(64, 4))

    def forward(self, x, rows):
        self.cache.index_copy_(0, rows, x)
        return self.cache * 1.0, x + 1.0


class Undelegated(nn.Module):
    """Exported without a partitioner: views and arithmetic on sizes happen in the outer program."""

    def forward(self, x):
        live = x.shape[0]
        doubled = x + x
        return (
            doubled.view(live * 2, 2),
            doubled.view(-1),
            doubled.view(1, live, 4).permute(0, 2, 1),
            torch.zeros(live + 1, 2, dtype=torch.float64),
            doubled.unsqueeze(0).squeeze(0)[: live - 1],
            torch.cat((x, doubled), 0),
        )


class ScalarInput(nn.Module):
    """A length that is a tensor of rank zero: read outside, it enters the delegate as a number."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("table", torch.randn(96, 4))

    def forward(self, x, length):
        count = length.item()
        torch._check(count >= 2)
        torch._check(count <= 96)
        return self.table[:count] * 2.0, x + self.table.narrow(0, count - 1, 1)


class Reciprocal(nn.Module):
    """A number divided by a tensor."""

    def forward(self, x):
        return 2.0 / x, torch.reciprocal(x) + 1.0


class Embed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(19, 8)
        self.head = nn.Linear(8, 19, bias=False)

    def forward(self, tokens):
        hidden = self.table(tokens)
        return self.head(hidden * torch.rsqrt((hidden * hidden).mean(-1, keepdim=True) + 1e-5)), hidden


class Passthrough(nn.Module):
    """Outputs that are an input, a constant and a size."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("constant", torch.arange(5.0))

    def forward(self, x):
        return x, self.constant, x + 1.0, x.shape[0]


class Nested(nn.Module):
    """Inputs and outputs in containers come out flat."""

    def forward(self, x, y):
        return {"sum": x + y, "parts": [x * 2.0, (y, x - y)]}


class RefusedSizes(nn.Module):
    """Two delegates that share a live size through a portable operator between them."""

    def forward(self, x):
        live = x.shape[0]
        first = torch.floor(x * 2.0)
        return first.view(live * 2, 2) + 1.0, torch.zeros(live + 1, 2) + 1.0


class Scale(nn.Module):
    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor
        self.project = nn.Linear(8, 8)

    def forward(self, x):
        return self.project(x) * self.factor

    def extra_repr(self) -> str:
        return str(self.factor)


def some_rows(shape, generator, sizes):
    return torch.randperm(64, generator=generator)[: shape[0]]


MANY = {"one_delegate": False}
STATE = {"stateful": True}

PROGRAMS = [
    TestProgram("library_norm", LibraryNorm, (Input((1, "S", 16)),), **MANY),
    TestProgram("portable", Portable, (Input((2, "S", 5)), Input((2, "S", 5))), **MANY),
    TestProgram("portable_reductions", PortableReductions, (Input((2, "S", 5)),), **MANY),
    TestProgram(
        "portable_logic",
        PortableLogic,
        (
            Input(("S", 5), torch.int32, integers(0, 3)),
            Input(("S", 5), torch.int32, integers(0, 3)),
            Input(("S", 5), torch.bool),
        ),
        double=False,
        **MANY,
    ),
    TestProgram("branch", Branch, (Input((), torch.bool), Input(("S", 4))), **MANY),
    TestProgram("sum_branch", SumBranch, (Input(("S", 4)),), **MANY),
    TestProgram("counter", Counter, (Input(("S", 4), fill=positive),), broken=True, **STATE),
    TestProgram("same_twice", SameTwice, (Input(("S", 4)),), broken=True),
    TestProgram(
        "counter_aliased",
        Counter,
        (Input(("S", 4), fill=positive),),
        options={"compile_options": {"alias_buffer_mutations": True}},
        **STATE,
    ),
    TestProgram("row_cache", RowCache, (Input(("S", 4)), Input(("S",), torch.int64, some_rows)), **MANY, **STATE),
    TestProgram(
        "undelegated",
        Undelegated,
        (Input(("S", 4), torch.float64),),
        {"S": (3, MAX)},
        double=False,
        options={"delegate": False},
        **MANY,
    ),
    TestProgram("scalar_input", ScalarInput, (Input(("S", 4)), Input((), torch.int64, integers(2, 97))), **MANY),
    TestProgram("reciprocal", Reciprocal, (Input(("S", 4), fill=positive),), **MANY),
    TestProgram("embed", Embed, (Input((1, "S"), torch.int64, integers(0, 19)),)),
    TestProgram("passthrough", Passthrough, (Input(("S", 4)),)),
    TestProgram("nested", Nested, (Input(("S", 4)), Input(("S", 4)))),
    TestProgram("refused_sizes", RefusedSizes, (Input(("S", 4)),), double=False, **MANY),
]

METHODS = [
    MethodsProgram(
        "several_methods",
        {
            "prefill": TestProgram("prefill", lambda: Scale(2.0), (Input((1, "S", 8)),)),
            "decode": TestProgram("decode", lambda: Scale(2.0), (Input((1, 1, 8)),), {}),
            "double": TestProgram("double", lambda: nn.ReLU(), (Input(("S", 3)),)),
        },
        {"get_max_seq_len": MAX, "get_eos_ids": [1, 2], "temperature": 0.5, "use_cache": True, "name": "toy"},
    )
]
