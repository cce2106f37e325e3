"""A program in torch, step by step, and how far a result may lie from it.

The tolerance of a result follows from those of the operators before it: the program is evaluated again with every
inexact result disturbed at random by what its operator is allowed, and what becomes of that is the measure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from tests.graphs.program import JUMP, Program, Ref, Value
from tests.graphs.semantics import KEEPING, MEANING, MOVES, NUDGED

# Of the largest number around, as in the sweeps of operators.
ALLOWED = {
    "float32": 1e-5,
    "float16": 4e-3,
    "bfloat16": 3.2e-2,
}
# Half a unit of the last place: what one rounding may be off.
ROUNDING = {"float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}
# One evaluation each: what a quotient's last bits may be off, which decides where a zero point falls.
NUDGES = (2.0**-22, -(2.0**-22))
_HELD = {"uint8": "int64", "bfloat16": "float32"}
MARGIN = 6.0  # over the largest deviation that these have seen


@dataclass(frozen=True)
class Expected:
    """The results of one call: arrays or numbers, and how far each may be off."""

    arrays: list[Any]
    tolerances: list[float]


def as_torch(value: Value, array: Any) -> torch.Tensor:
    """An array in the width in which it is judged."""
    wide = torch.bool if value.dtype == "bool" else torch.float64 if "float" in value.dtype else torch.int64
    return torch.as_tensor(np.asarray(array).astype(_HELD.get(value.dtype, value.dtype))).to(wide)


class Evaluation:
    """One evaluation of a program, call after call; state goes from one to the next."""

    def __init__(
        self,
        program: Program,
        noise: torch.Generator | None = None,
        nudge: float = 0.0,
        allowed: Mapping[str, float] = ALLOWED,
    ) -> None:
        self.program, self.noise, self.nudge, self.allowed = program, noise, nudge, allowed
        self.kept: dict[int, Any] = {
            number: as_torch(value, value.data)
            for number, value in enumerate(program.values)
            if value.role in ("constant", "state")
        }
        self.seen: dict[int, list[Any]] = {}  # live shapes and numbers, for the listing

    def call(self, turn: int) -> dict[int, Any]:
        """Every value after one call."""
        values = self.program.values
        # A counter begins at zero in every call.
        memory: dict[int, Any] = {number: 0 for number, value in enumerate(values) if not value.dtype}
        memory.update(self.kept)
        for ref in self.program.inputs:
            value = values[ref.number]
            memory[ref.number] = as_torch(value, value.data[turn]) if value.dtype else value.data[turn]
        index = steps = 0
        while index < len(self.program.calls):
            steps += 1
            assert steps < 2000, "a loop that never ends"
            call = self.program.calls[index]
            args = [_read(memory, argument) for argument in call.args[:-1]]
            index += 1
            if call.operator == JUMP:
                condition = args[0].reshape(-1)[0].item() if isinstance(args[0], torch.Tensor) else args[0]
                index = index if condition else args[1]
                continue
            if call.operator in KEEPING:
                args += [memory[ref.number] for ref in call.targets]
            found = MEANING[call.operator](*args, **({"nudge": self.nudge} if call.operator in NUDGED else {}))
            results = found if isinstance(found, tuple | list) else (found,)
            for ref, result in zip(call.targets, results, strict=False):
                memory[ref.number] = self._settle(values[ref.number], call.operator, result, args)
        self.kept = {number: memory[number] for number in self.kept}
        for number, value in memory.items():
            self.seen.setdefault(number, []).append(tuple(value.shape) if isinstance(value, torch.Tensor) else value)
        return memory

    def _settle(self, value: Value, operator: str, result: Any, args: list[Any]) -> Any:
        """A result in the type of its target, disturbed where that may round."""
        if not value.dtype:
            return result
        if value.dtype == "bool":
            return result != 0
        if "float" not in value.dtype:
            return result.to(torch.int64)
        result = result.double()
        if self.noise is None or value.exact or operator in MOVES or not result.numel():
            return result
        floats = [x for x in args if isinstance(x, torch.Tensor) and x.is_floating_point() and x.numel()]
        finite = (x[x.isfinite()] for x in (result, *floats))
        scale = max((float(x.abs().max()) for x in finite if x.numel()), default=0.0)
        offset = 2 * torch.rand(result.shape, dtype=torch.float64, generator=self.noise) - 1
        return result + self.allowed[value.dtype] * scale * offset


def _read(memory: dict[int, Any], argument: Any) -> Any:
    if isinstance(argument, Ref):
        return memory.get(argument.number)  # None: a tensor that a loop is about to collect
    return tuple(_read(memory, item) for item in argument) if isinstance(argument, tuple) else argument


def expected(
    program: Program, allowed: Mapping[str, float] = ALLOWED
) -> tuple[list[Expected], Expected, dict[int, list[Any]]]:
    """What each call must give, what every state must hold at the end, and the live shapes; where every operator is
    `allowed` to be so much off."""
    plain = Evaluation(program)
    others = [
        Evaluation(program, torch.Generator().manual_seed(seed), nudge, allowed) for seed, nudge in enumerate(NUDGES)
    ]
    calls = []
    for turn in range(program.count):
        true, *disturbed = (evaluation.call(turn) for evaluation in (plain, *others))
        calls.append(_expected(program, program.outputs, true, disturbed))
    states = _expected(program, tuple(program.states), plain.kept, [other.kept for other in others])
    return calls, states, plain.seen


def _expected(program: Program, wanted: tuple[Ref, ...], true: dict[int, Any], disturbed: list[Any]) -> Expected:
    tolerances = []
    for ref in wanted:
        value = program.values[ref.number]
        if value.exact or "float" not in value.dtype or not true[ref.number].numel():
            tolerances.append(0.0)
            continue
        off = max(float((other[ref.number] - true[ref.number]).abs().max()) for other in disturbed)
        # What a half rounds on its way out is not in the evaluations, which move it exactly.
        tolerances.append(MARGIN * off)
    return Expected([_array(true[ref.number]) for ref in wanted], tolerances)


def _array(value: Any) -> Any:
    return value.contiguous().numpy() if isinstance(value, torch.Tensor) else value
