"""Random torch modules with branches and loops, nested, as programs carry them: jumps in the stream of instructions."""

from __future__ import annotations

import random
from collections.abc import Callable

import torch
from torch._higher_order_ops.map import map as map_rows
from torch._higher_order_ops.scan import scan

from tests.support.exporting import MethodSource, lower_methods

WIDTH, ROWS = 8, 12  # of what goes from step to step, and the most rows

Step = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]  # (rows, width) and a flag -> (rows, width)


class ControlModule(torch.nn.Module):
    """A few random steps, some of them branches on the flag or on data, some of them loops over the rows."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.chance = random.Random(seed)
        torch.manual_seed(seed)
        self.weights = torch.nn.ParameterList(torch.randn(WIDTH, WIDTH) / 3 for _ in range(3))
        self.written: list[str] = []
        self.maps = seed % 4 == 0  # the exporter makes the rows of a mapped function static
        self.steps = [self._step(2) for _ in range(self.chance.randint(2, 4))]
        if not {"cond", "map", "scan"} & {*self.written}:
            self.steps.append(self._branch(1))

    def forward(self, x: torch.Tensor, flag: torch.Tensor) -> torch.Tensor:
        for step in self.steps:
            x = step(x, flag)
        return x

    def _step(self, depth: int) -> Step:
        makers: list[Callable[[int], Step]] = [self._plain, self._plain]
        if depth:
            makers += [self._branch, self._branch, self._scanned, self._rows if self.maps else self._scanned]
        return self.chance.choice(makers)(depth)

    def _several(self, depth: int) -> list[Step]:
        return [self._step(depth) for _ in range(self.chance.randint(1, 2))]

    def _plain(self, depth: int) -> Step:
        kind, number = self.chance.randrange(6), self.chance.choice((0.5, 1.5, -2.0))
        weight = self.weights[self.chance.randrange(3)]
        self.written.append(f"plain {kind}")
        plain: list[Step] = [
            lambda x, flag: torch.tanh(x) * number,
            lambda x, flag: x @ weight / 3,
            lambda x, flag: x.softmax(-1) + number,
            lambda x, flag: torch.cat((x[:, 3:], x[:, :3].sin()), 1),
            lambda x, flag: x - x.mean(1, keepdim=True) * number,
            lambda x, flag: torch.where(x > number, x * 0.5, x + 1),
        ]
        return plain[kind]

    def _branch(self, depth: int) -> Step:
        sides = [self._several(depth - 1) for _ in range(2)]
        kind = self.chance.randrange(3)
        self.written.append("cond")

        def run(steps: list[Step]) -> Callable[..., torch.Tensor]:
            def side(x: torch.Tensor, flag: torch.Tensor) -> torch.Tensor:
                for step in steps:
                    x = step(x, flag)
                return x * 1.0  # a branch may not return its argument

            return side

        def branch(x: torch.Tensor, flag: torch.Tensor) -> torch.Tensor:
            condition = (flag, x.sum() > 0, torch.logical_not(flag))[kind]
            taken: torch.Tensor = torch.cond(condition, run(sides[0]), run(sides[1]), (x, flag))
            return taken

        return branch

    def _rows(self, depth: int) -> Step:
        number = self.chance.choice((0.5, -1.5))
        weight = self.weights[self.chance.randrange(3)]
        many = self.chance.random() < 0.5
        self.written.append("map")

        def rows(x: torch.Tensor, flag: torch.Tensor) -> torch.Tensor:
            if many:
                return map_rows(lambda row, w: (row[None] @ w)[0].tanh() * number, x, weight)
            return map_rows(lambda row: row.sin() + number, x)

        return rows

    def _scanned(self, depth: int) -> Step:
        number = self.chance.choice((0.5, 0.9))
        self.written.append("scan")

        def combine(carry: torch.Tensor, row: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            total = torch.tanh(carry * number + row)
            return total, total + 0.0

        def scanned(x: torch.Tensor, flag: torch.Tensor) -> torch.Tensor:
            _, found = scan(combine, x.new_zeros(WIDTH), x)
            return found

        return scanned


def exported(seed: int) -> bytes:
    """The program of a seed: in delegates, or operator by operator."""
    rows = torch.export.Dim("rows", min=2, max=ROWS)
    args = (torch.randn(ROWS, WIDTH), torch.tensor(True))
    source = MethodSource(ControlModule(seed), args, {"x": {0: rows}, "flag": None})
    return lower_methods({"forward": source}, delegate=seed % 2 == 1, rare=True)
