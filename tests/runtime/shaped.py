"""Five modules with static, dynamic, shared, derived and minimal dimensions, exported, and torch's verdict on sizes."""

from __future__ import annotations

import functools
import json
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import torch
from torch.export import Dim

from liveshape.export.module.torch_export import ModuleSource, lower
from tests.support.exporting import cached, exporter_sources, quick, quiet

Shapes = tuple[tuple[int, ...], ...]


class Mean(torch.nn.Module):
    """Divides by a size that is static."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.sum(1) / x.shape[1]


class Shared(torch.nn.Module):
    """Three inputs of one symbol that nothing in the graph compares."""

    def forward(self, x: torch.Tensor, y: torch.Tensor, z: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x * 2.0, y + 1.0, torch.relu(z)


class Derived(torch.nn.Module):
    """Sizes that are computed from another."""

    def forward(self, x: torch.Tensor, twice: torch.Tensor, more: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x + 1.0, twice * 2.0, torch.relu(more)


class Blocks(torch.nn.Module):
    """Rows of eight of a size that is a multiple of eight."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.reshape(-1, 8).sum(1)


class Mixed(torch.nn.Module):
    """Two symbols, in another order in the second input, a static last dimension and a number."""

    def forward(self, x: torch.Tensor, weights: torch.Tensor, k: int) -> torch.Tensor:
        return x * weights.t().unsqueeze(-1) * k + x.mean(-1, keepdim=True)


@dataclass(frozen=True)
class Case:
    """A module, its arguments at the bound, its dynamic shapes, all shapes to try, and what torch does not look at."""

    module: type[torch.nn.Module]
    args: Callable[[], tuple[Any, ...]]
    dynamic: Callable[[], Any]
    tried: Sequence[Shapes]
    declared: Callable[[Shapes], bool] = lambda shapes: True

    @property
    def name(self) -> str:
        return self.module.__name__


def _derived() -> Any:
    size = Dim("size", min=3, max=6)
    return {"x": {0: size}, "twice": {0: 2 * size}, "more": {0: size + 1}}


def _mixed() -> Any:
    batch, time = Dim("batch", min=1, max=3), Dim("time", min=3, max=5)
    return {"x": {0: batch, 1: time}, "weights": {0: time, 1: batch}, "k": None}


def _shared() -> Any:
    rows = Dim("rows", min=1, max=4)
    return {name: {0: rows} for name in "xyz"}


CASES = {
    case.name: case
    for case in (
        Case(
            Mean,
            lambda: (torch.zeros(6, 8),),
            lambda: {"x": {0: Dim("rows", min=3, max=6)}},
            [((rows, width),) for rows in range(8) for width in (0, 1, 4, 7, 8, 9)],
        ),
        Case(
            Shared,
            lambda: (torch.zeros(4, 3), torch.zeros(4, 3), torch.zeros(4)),
            _shared,
            [((a, 3), (b, 3), (c,)) for a, b, c in product(range(6), repeat=3)],
            # Torch assumes at least 2 and checks nothing below.
            lambda shapes: shapes[0][0] >= 1,
        ),
        Case(
            Derived,
            lambda: (torch.zeros(6, 4), torch.zeros(12), torch.zeros(7)),
            _derived,
            [((a, 4), (b,), (c,)) for a in range(2, 8) for b in (a, 2 * a - 1, 2 * a, 12) for c in (a, a + 1, 7)],
        ),
        Case(
            Blocks,
            lambda: (torch.zeros(24),),
            lambda: {"x": {0: 8 * Dim("blocks", min=1, max=3)}},
            [((size,),) for size in range(26)],
            # Of a derived size alone torch checks the range.
            lambda shapes: shapes[0][0] % 8 == 0 and shapes[0][0] >= 8,
        ),
        Case(
            Mixed,
            lambda: (torch.zeros(3, 5, 4), torch.zeros(5, 3), 3),
            _mixed,
            [
                ((b, t, w), (t + more, other))
                for b, t, w, more, other in product(range(5), (2, 3, 5, 6), (3, 4), (0, 1), (1, 3))
            ],
            lambda shapes: shapes[0][0] >= 1,
        ),
    )
}


@functools.cache
def exported(name: str) -> Path:
    """The `.pte` as `liveshape export` writes it."""
    case = CASES[name]

    def make() -> bytes:
        with quiet(), quick(), tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "model.pte"
            lower(ModuleSource(case.module(), case.args(), case.dynamic()), path)
            return path.read_bytes()

    return cached(f"shaped_{name}", _sources(), make)


@functools.cache
def verdicts(name: str) -> dict[Shapes, bool]:
    """Whether torch's own exported program takes each of the shapes."""
    case = CASES[name]

    def make() -> bytes:
        with quiet(), quick():
            module = torch.export.export(case.module(), case.args(), dynamic_shapes=case.dynamic()).module()
        return json.dumps([_takes(module, arguments(case, shapes)) for shapes in case.tried]).encode()

    found = json.loads(cached(f"shaped_{name}", _sources(), make, ".json").read_bytes())
    return {shapes: legal and case.declared(shapes) for shapes, legal in zip(case.tried, found, strict=True)}


def _sources() -> tuple[Any, ...]:
    return (sys.modules[__name__], *exporter_sources())


def _takes(module: Any, inputs: Sequence[Any]) -> bool:
    try:
        module(*inputs)
    except Exception:  # torch has several, by what it finds first
        return False
    return True


def arguments(case: Case, shapes: Shapes) -> list[Any]:
    """Inputs of these shapes; numbers are those of the export."""
    random = torch.Generator().manual_seed(7)
    tensors = iter(torch.randn(shape, generator=random) for shape in shapes)
    return [next(tensors) if isinstance(each, torch.Tensor) else each for each in case.args()]
