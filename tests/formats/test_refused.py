"""Files that are well formed and make no sense: refused when they are loaded, with an error of ours, never answered."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from liveshape.errors import FormatError, ShapeError, UnsupportedError
from liveshape.formats import open_program
from liveshape.lower.lowering import lower
from liveshape.ops import OPS
from liveshape.plan.compiling import compile
from liveshape.plan.plan import Choices
from tests.formats.golden import golden_of, written

PathOf = Callable[[str], Path]
# Of the portable program: what its mean gives is an output, what its jump asks is an input.
MEAN, MEAN_CALL, WEIGHT, JUMP = 28, 13, 0, 3


def load(data: bytes) -> None:
    """Everything of a load that needs no device."""
    with open_program(data) as program:
        compile(lower(program, "forward", {}), choices=Choices(warm=False))


def calls_of(file: Any) -> list[Any]:
    return [instruction.instr_args for instruction in file.program.execution_plan[0].chains[0].instructions]


@pytest.fixture
def portable(program_path: PathOf) -> Any:
    return golden_of(program_path("portable").read_bytes())


def test_the_program_itself_is_right(portable: Any) -> None:
    load(written(portable))


def test_an_output_that_nobody_writes(portable: Any) -> None:
    """It was answered with whatever memory held."""
    values = portable.program.execution_plan[0].values
    other = copy.deepcopy(values[MEAN])
    other.val.allocation_info = None
    values.append(other)
    call = calls_of(portable)[MEAN_CALL]
    call.args = [len(values) - 1 if index == MEAN else index for index in call.args]
    with pytest.raises(FormatError, match=r"output 1 reads output 1 \(float32 \(\)\), which nothing writes"):
        load(written(portable))


def test_a_weight_that_nobody_writes(portable: Any) -> None:
    portable.program.execution_plan[0].values[WEIGHT].val.data_buffer_idx = 0
    with pytest.raises(FormatError, match=r"aten::mm.out .*reads value 0 .*which nothing writes"):
        load(written(portable))


def test_a_jump_onto_itself(portable: Any) -> None:
    calls_of(portable)[JUMP].destination_instruction = JUMP
    with pytest.raises(FormatError, match=f"instruction {JUMP}"):
        load(written(portable))


@pytest.mark.parametrize("target", [-1, 20, 999, 2**31 - 1])
def test_a_jump_to_the_outside(portable: Any, target: int) -> None:
    calls_of(portable)[JUMP].destination_instruction = target
    with pytest.raises(FormatError, match="destination_instruction"):
        load(written(portable))


@pytest.mark.parametrize("name", sorted(name for name in OPS if name.startswith("liveshape.")))
def test_operators_of_ours_cannot_be_named(portable: Any, name: str) -> None:
    for operator in portable.program.execution_plan[0].operators:
        operator.name, operator.overload = name, ""
    with pytest.raises(UnsupportedError, match=rf"x {name} \(.*\): no kernel"):
        load(written(portable))


def test_any_number_of_arguments(portable: Any) -> None:
    """Too few were an IndexError."""
    for call in calls_of(portable):
        if not hasattr(call, "args"):
            continue
        whole = list(call.args)
        for args in (*(whole[:count] for count in range(len(whole))), whole + whole[-1:], whole * 3):
            call.args = args
            if len(args) < len(whole) - 1:
                with pytest.raises((FormatError, UnsupportedError)):
                    load(written(portable))
            else:  # a result is named as an argument and again behind them
                _load_or_refuse(written(portable))
        call.args = whole


def test_any_number_of_arguments_of_a_delegate(program_path: PathOf) -> None:
    file = golden_of(program_path("split").read_bytes())
    for call in calls_of(file):
        if hasattr(call, "delegate_index"):
            whole = list(call.args)
            for args in (*(whole[:count] for count in range(len(whole))), [*whole, whole[-1]]):
                call.args = args
                with pytest.raises((FormatError, UnsupportedError)):
                    load(written(file))
            call.args = whole


@pytest.mark.parametrize(
    "number", [math.inf, -math.inf, math.nan, 1e300, 2.5, -(2**62), 2**40, "Bool", "Null", "String"]
)
def test_any_scalar(portable: Any, number: Any) -> None:
    """An infinite one was an OverflowError."""
    from executorch.exir import schema

    made = {
        "Bool": lambda: schema.Bool(True),
        "Null": lambda: schema.Null(),
        "String": lambda: schema.String("a"),
    }
    values = portable.program.execution_plan[0].values
    changed = 0
    for value in values:
        before = value.val
        if type(before).__name__ in ("Int", "Double", "Bool"):
            kind = schema.Double if isinstance(number, float) else schema.Int
            value.val = made[number]() if isinstance(number, str) else kind(number)
            _load_or_refuse(written(portable))
            value.val = before
            changed += 1
    assert changed > 10


def _load_or_refuse(data: bytes) -> None:
    """What makes no sense is refused in our words; a PlanError would be an exception that we did not foresee."""
    with suppress(FormatError, UnsupportedError, ShapeError):
        load(data)
