"""Static views have no instruction: each is found again by its place in the exporter's memory plan. No GPU."""

from __future__ import annotations

from typing import Any

from liveshape.formats import ExecutionPlan, KernelCall, MoveCall, TensorSpec
from liveshape.lower.elision import elided_views


def spec(place: int, *shape: int, data: int = 0) -> TensorSpec:
    return TensorSpec("float32", shape, tuple(range(len(shape))), "static", data_index=data, memory=(1, place))


def plan(
    values: list[Any], instructions: list[Any], inputs: tuple[int, ...], outputs: tuple[int, ...]
) -> ExecutionPlan:
    return ExecutionPlan("forward", tuple(values), inputs, outputs, tuple(instructions), (), ())


def last_argument(instruction: Any) -> list[int]:
    return [instruction.target if isinstance(instruction, MoveCall) else instruction.args[-1]]


def test_a_view_looks_at_what_was_last_written_to_its_place() -> None:
    values = [spec(0, 12), spec(64, 12), spec(128, 12), spec(64, 3, 4), spec(64, 12), spec(64, 4, 3)]
    calls = [
        KernelCall("a", (0, 1)),
        KernelCall("b", (3, 2)),  # value 3 is a view of value 1
        KernelCall("c", (2, 4)),
        KernelCall("d", (5, 0, 2)),  # value 5 is a view of value 4, which took the place of value 1
    ]
    assert elided_views(plan(values, calls, (0,), (2,)), last_argument) == ({}, {1: [3], 4: [5]})


def test_a_view_of_an_input_or_a_state_is_there_at_the_start() -> None:
    values = [spec(0, 12), spec(64, 6), spec(0, 3, 4), spec(64, 2, 3), spec(128, 12)]
    calls = [
        KernelCall("a", (2, 3, 4)),
        KernelCall("copy_", (1, 4, 1)),  # the state changes only after its view was read
    ]
    assert elided_views(plan(values, calls, (0,), (4,)), last_argument) == ({0: [2], 1: [3]}, {})


def test_both_sides_of_a_branch_write_what_a_view_looks_at() -> None:
    values = [spec(0, 12), spec(64, 12), spec(128, 12), spec(128, 3, 4)]
    calls = [MoveCall(0, 2), MoveCall(1, 2)]
    assert elided_views(plan(values, calls, (0, 1), (3,)), last_argument) == ({}, {2: [3]})


def test_constants_and_states_of_their_own_are_no_views() -> None:
    values = [spec(0, 12), spec(0, 12, data=3), spec(64, 12), spec(128, 12)]
    calls = [KernelCall("a", (0, 1, 2, 3))]
    assert elided_views(plan(values, calls, (0,), (3,)), last_argument) == ({}, {})
