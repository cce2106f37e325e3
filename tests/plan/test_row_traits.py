"""What operators declare of rows is held to the truth: torch computes each case again with rows changed and in another
order, and the plan is made again with fewer of them. No GPU.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from liveshape.errors import ShapeError
from liveshape.graph import Graph, SymInt, Tensor
from liveshape.graph.traits import RowRule
from liveshape.ops import INTERNAL, OPS
from liveshape.ops.row_rules import elementwise, row_wise
from liveshape.plan.compiling import compile
from liveshape.plan.plan import Choices
from liveshape.plan.plan_state import PlanState
from tests.models.test_fused_rows import PATTERNS
from tests.ops.cases import CASES
from tests.support.chains import Chain
from tests.support.graphs import In, OpCase, build, flat_specs

Rows = dict[Tensor, int]


def size_of(case: OpCase) -> int:
    """Small, but more than a pair of rows, and what other dimensions of cases are not."""
    return next((size for size in sorted(case.sizes) if size >= 3), max(case.sizes))


def assignments(tensors: list[Tensor]) -> Iterator[Rows]:
    """Every way in which some of these could carry the same rows."""
    for count in sorted({size for tensor in tensors for size in tensor.max_shape if size > 1}):
        ways = [[None, *(axis for axis, size in enumerate(each.max_shape) if size == count)] for each in tensors]
        for axes in itertools.islice(itertools.product(*ways), 1, 4096):
            yield {tensor: axis for tensor, axis in zip(tensors, axes, strict=True) if axis is not None}


def proved(case: OpCase) -> Iterator[tuple[Graph, Rows, Rows]]:
    """What the operator of a case says of rows, wherever it says anything."""
    graph = build(case, size_of(case))
    (node,) = graph.nodes
    tensors = [value for value in dict.fromkeys(graph.inputs) if isinstance(value, Tensor)]
    for rows in assignments(tensors):
        found = node.carried(rows)
        if found is not None:
            yield graph, rows, dict(found)


def computed(case: OpCase, drawn: list[Any]) -> list[np.ndarray]:
    tensors = [torch.from_numpy(np.ascontiguousarray(array)) for array in drawn if isinstance(array, np.ndarray)]
    golden = case.golden(*tensors, size_of(case))
    results = golden if isinstance(golden, (tuple, list)) else (golden,)
    return [each.detach().numpy() if isinstance(each, torch.Tensor) else np.asarray(each) for each in results]


def compare(got: list[np.ndarray], expected: list[np.ndarray], why: str) -> None:
    for one, other in zip(got, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5, err_msg=why)


def check_values(case: OpCase, graph: Graph, rows: Rows, given: Rows) -> None:
    """A row of a result changes with its own row alone, and rows in another order give these results in that order."""
    generator = np.random.default_rng(3)
    specs = flat_specs(case.args_at(size_of(case)))
    first, second = ([spec.draw(generator) if isinstance(spec, In) else spec.value for spec in specs] for _ in range(2))
    count = next(tensor.max_shape[axis] for tensor, axis in rows.items())
    order = np.roll(np.arange(count), 1)
    changed, moved = list(first), list(first)
    for place, tensor in enumerate(graph.inputs):
        if tensor in rows:
            here = (slice(None),) * rows[tensor] + (count - 1,)
            changed[place] = first[place].copy()
            changed[place][here] = second[place][here]
            moved[place] = np.take(first[place], order, rows[tensor])
    # A row that is written to a slot of its own is in no row of a result, but it is written in any order of rows.
    (node,) = graph.nodes
    written = [value in node.inputs for value in graph.outputs]
    why = f"{case.name}: rows {[rows.get(value) for value in graph.inputs]} to {[*given.values()]}"
    before = computed(case, first)
    axes = [given.get(value) for value in graph.outputs]
    for each, axis in zip(before, axes, strict=True):
        assert axis is None or each.shape[axis] == count, why
    others, unchanged = (
        [
            each if axis is None else np.delete(each, count - 1, axis)
            for each, axis, mutated in zip(found, axes, written, strict=True)
            if not mutated
        ]
        for found in (computed(case, changed), before)
    )
    compare(others, unchanged, why)
    turned = [each if axis is None else np.take(each, order, axis) for each, axis in zip(before, axes, strict=True)]
    compare(computed(case, moved), turned, why)


def shapes(case: OpCase, graph: Graph, rows: Rows, followed: bool) -> list[Any]:
    """The shapes of results with one row less; live scalars that are as many are `followed`, or something else."""
    count = next(tensor.max_shape[axis] for tensor, axis in rows.items())
    live = PlanState(compile(graph, choices=Choices(warm=False)))
    for value, spec in zip(graph.inputs, flat_specs(case.args_at(size_of(case))), strict=True):
        if isinstance(value, SymInt):
            live.set(value, count - 1 if spec.value == count and followed else spec.value)
        elif isinstance(value, Tensor):
            axis = rows.get(value)
            live.set(value, tuple(size - (place == axis) for place, size in enumerate(value.max_shape)))
    live.begin()
    live.walk(0, len(graph.nodes), lambda *_: 0)
    return [live.tensor(value).shape for value in graph.outputs]


def check_shapes(case: OpCase, graph: Graph, rows: Rows, given: Rows) -> None:
    """One row less gives one row less, and no other size moves."""
    expected = [
        tuple(size - (place == given.get(value)) for place, size in enumerate(value.max_shape))
        for value in graph.outputs
    ]
    found = shapes(case, graph, rows, followed=True)
    if found != expected and any(isinstance(value, SymInt) for value in graph.inputs):
        found = shapes(case, graph, rows, followed=False)
    assert found == expected, f"{case.name}: {rows}"


def check(cases: list[OpCase]) -> int:
    """Hold an operator to what it says of rows; how often it said something."""
    found = 0
    for case in cases:
        for graph, rows, given in proved(case):
            check_values(case, graph, rows, given)
            check_shapes(case, graph, rows, given)
            found += 1
    return found


BY_OPERATOR: dict[Any, list[OpCase]] = {}
for _case in CASES:
    if OPS[_case.op].traits.rows is not None:
        BY_OPERATOR.setdefault(OPS[_case.op].run, []).append(_case)


@pytest.mark.parametrize("cases", [pytest.param(cases, id=cases[0].op) for cases in BY_OPERATOR.values()])
def test_rows_are_what_an_operator_says(cases: list[OpCase]) -> None:
    check(cases)


def kind_of(run: Any) -> tuple[str, str]:
    """Operators of one file with one kind of rule are forms of each other."""
    rules = [entry.traits.rows for entry in OPS.values() if entry.run is run]
    return run.__module__, getattr(rules[0], "__qualname__", "")


def test_every_kind_of_rule_is_proved() -> None:
    told = {kind_of(run) for run, cases in BY_OPERATOR.items() if any(True for case in cases for _ in proved(case))}
    unproved = [
        name
        for name, entry in OPS.items()
        if entry.traits.rows is not None and kind_of(entry.run) not in told and name not in PATTERNS
    ]
    assert not unproved, "a case of rows is missing"


def test_patterns_are_proved_on_the_device() -> None:
    known = {case.op for case in CASES}
    ours = {name for name, entry in OPS.items() if name.startswith(INTERNAL) and entry.traits.rows is not None}
    assert ours - known <= set(PATTERNS) <= ours


@pytest.mark.parametrize(
    ("operator", "wrong"),
    [
        ("aten._softmax.default", elementwise()),
        ("aten.cumsum.default", elementwise()),
        ("aten.mm.default", elementwise()),
        ("aten.permute_copy.default", elementwise()),
        ("aten.add.Tensor", row_wise("a", tail=0)),
    ],
)
def test_a_false_declaration_is_found(operator: str, wrong: RowRule, monkeypatch: pytest.MonkeyPatch) -> None:
    entry = OPS[operator]
    for name, each in OPS.items():
        if each.run is entry.run:
            monkeypatch.setitem(OPS, name, replace(each, traits=replace(each.traits, rows=wrong)))
    with pytest.raises((AssertionError, ShapeError)):
        check(BY_OPERATOR[entry.run])


def test_a_tensor_that_is_rows_and_weight_at_once_mixes_rows() -> None:
    chain = Chain()
    x = chain.input((7, 7))
    chain.node("aten.mm.default", x, x, chain.tensor((7, 7)))
    chain.node("aten.linear.default", x, x, None, chain.tensor((7, 7)))
    assert [node.carried({x: 0}) for node in chain.nodes] == [None, None]


def test_a_view_keeps_rows_whose_size_it_does_not_fix() -> None:
    chain = Chain()
    x, length = chain.input((1, 6, 8)), chain.scalar()
    views: list[tuple[Any, tuple[int, ...], int | None]] = [
        ((1, length, 2, 4), (1, 6, 2, 4), 1),
        ((-1, 8), (6, 8), 0),
        ((length, 8), (6, 8), 0),
        ((1, 6, 2, 4), (1, 6, 2, 4), None),
        ((3, -1, 8), (3, 2, 8), None),
        ((-1,), (48,), None),
    ]
    for sizes, shape, axis in views:
        out = chain.node("aten.view_copy.default", x, sizes, chain.tensor(shape))
        assert chain.nodes[-1].carried({x: 1}) == (None if axis is None else {out: axis}), sizes
