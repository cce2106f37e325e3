"""Jumps and values that several nodes write: what one call or one iteration of a loop left behind is never seen."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from liveshape import ops
from liveshape.device.backends import open_device
from liveshape.errors import PlanError
from liveshape.graph import Graph, Node, SymInt, Tensor
from liveshape.plan.compiling import compile
from liveshape.run.executor import Executor


def graph(calls: list[tuple[Any, ...]], inputs: list[Any], outputs: list[Any]) -> Graph:
    nodes: list[Node] = []
    for index, (name, *args) in enumerate(calls):
        nodes.append(ops.OPS[name].bind(index, f"{name} (node {index})", tuple(args)))
    values = {value for node in nodes for value in (*node.inputs, *node.written)} | {*inputs, *outputs}
    return Graph("control", tuple(nodes), tuple(values), tuple(inputs), tuple(outputs))


def executor_of(calls: list[tuple[Any, ...]], inputs: list[Any], outputs: list[Any]) -> Executor:
    device = open_device()
    return Executor(compile(graph(calls, inputs, outputs), device.limits), device)


def tensor(*shape: int) -> Tensor:
    return Tensor(f"tensor {shape}", "float32", shape)


def test_a_branch_sets_the_shape_of_its_own_side() -> None:
    x, joined, out = tensor(9, 4), tensor(9, 4), tensor(9, 4)
    flag = SymInt("flag")
    calls = [
        ("liveshape.jump_false", flag, 3, None),
        ("aten.slice_copy.Tensor", x, 0, 0, 2, 1, joined),
        ("liveshape.jump_false", False, 4, None),
        ("liveshape.move", x, joined),
        ("aten.flip.default", joined, (0,), out),
    ]
    executor = executor_of(calls, [flag, x], [out])
    data = np.arange(36, dtype=np.float32).reshape(9, 4)
    for choice in (True, False, True, True, False):
        executor.poison()
        (got,) = executor.execute([choice, data])
        np.testing.assert_array_equal(got, (data[:2] if choice else data)[::-1])


def test_a_value_written_twice_has_both_shapes_in_turn() -> None:
    x, twice, first, second = tensor(9, 4), tensor(9, 4), tensor(9, 4), tensor(9, 4)
    calls = [
        ("aten.slice_copy.Tensor", x, 0, 0, 3, 1, twice),
        ("aten.flip.default", twice, (0,), first),
        ("liveshape.move", x, twice),
        ("aten.flip.default", twice, (0,), second),
    ]
    executor = executor_of(calls, [x], [first, second])
    data = np.arange(36, dtype=np.float32).reshape(9, 4)
    for size in (9, 9, 5, 5, 9):
        executor.poison()
        got = executor.execute([data[:size]])
        np.testing.assert_array_equal(got[0], data[:3][::-1])
        np.testing.assert_array_equal(got[1], data[:size][::-1])


def test_a_mapped_loop_counts_from_zero_in_every_call() -> None:
    x, row, flipped, collected, out = tensor(9, 4), tensor(4), tensor(4), tensor(9, 4), tensor(9, 4)
    counter, rows, done = SymInt("counter"), SymInt("rows"), SymInt("done", False)
    calls = [
        ("sym_size.int", x, 0, rows),
        ("aten.select_copy.int", x, 0, counter, row),
        ("aten.flip.default", row, (0,), flipped),
        ("executorch_prim::et_copy_index.tensor", collected, flipped, counter, ()),
        ("add", counter, 1, counter),
        ("eq", counter, rows, done),
        ("liveshape.jump_false", done, 1, None),
        ("sub", counter, rows, counter),
        ("aten.flip.default", collected, (0,), out),
    ]
    executor = executor_of(calls, [x], [out])
    data = np.arange(36, dtype=np.float32).reshape(9, 4)
    for size in (9, 2, 2, 7, 1, 9):
        executor.poison()
        (got,) = executor.execute([data[:size]])
        np.testing.assert_array_equal(got, data[:size][::-1, ::-1])


@pytest.mark.parametrize("kernels", [True, False], ids=["kernels", "nothing"])
@pytest.mark.parametrize("condition", [False, SymInt("flag")], ids=["constant", "number"])
def test_a_loop_that_makes_no_progress_is_an_error(
    condition: Any, kernels: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kernels that ran are no progress where nothing reads what they left."""
    x, out, flag = tensor(9, 4), tensor(9, 4), condition if isinstance(condition, SymInt) else SymInt("unused")
    calls: list[tuple[Any, ...]] = [("aten.flip.default", x, (0,), out)]
    calls.append(("liveshape.jump_false", condition, 0 if kernels else 1, None))
    executor = executor_of(calls, [flag, x], [out])
    submit, submits = executor.device.submit, []

    def counted(*args: Any, **named: Any) -> Any:
        submits.append(1)
        assert len(submits) < 20, "it would run for ever"
        return submit(*args, **named)

    monkeypatch.setitem(vars(executor.device), "submit", counted)
    with pytest.raises(PlanError, match="makes no progress and would never end"):
        executor.execute([False, np.zeros((9, 4), np.float32)])


def test_what_is_counted_in_a_loop_is_counted_in_every_turn() -> None:
    """x becomes 2 (x - 1) in each of three iterations; what is above zero is selected anew in each."""
    x, smaller, twice, found = tensor(8), tensor(8), tensor(8), tensor(8)
    above = Tensor("above", "bool", (8,))
    turn, done = SymInt("turn"), SymInt("done", False)
    calls = [
        ("aten.sub.Scalar", x, 1.0, 1.0, smaller),
        ("aten.gt.Scalar", smaller, 0.0, above),
        ("aten::masked_select.out", smaller, above, found),
        ("aten.mul.Scalar", smaller, 2.0, twice),
        ("aten::copy_", x, twice, False, x),
        ("add", turn, 1, turn),
        ("eq", turn, 3, done),
        ("liveshape.jump_false", done, 0, None),
    ]
    executor = executor_of(calls, [x], [found])
    for length in (8, 5, 8):
        data = np.linspace(-1, 4, length, dtype=np.float32)
        last = 4 * data - 7  # what the third iteration selects from
        executor.poison()
        np.testing.assert_allclose(executor.execute([data])[0], last[last > 0], rtol=1e-5)
