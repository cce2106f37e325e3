"""Movements by axes: what they are told of is what they read at a call, and no size is known that a call has not."""

from __future__ import annotations

import pytest

from liveshape.errors import LiveshapeError
from liveshape.graph import SymInt, Tensor
from liveshape.lower.live_sizes import LiveSizes
from liveshape.ops import OPS
from liveshape.ops.moved_rows import axis_maps
from liveshape.ops.shapes import Strided, strides_of
from liveshape.plan.compiling import compile
from liveshape.plan.plan import Choices
from liveshape.plan.plan_state import PlanState
from tests.ops.cases import CASES
from tests.support.graphs import OpCase, Sym, build, flat_specs
from tests.support.live_sizes import check_live_sizes

MOVED = [case for case in CASES if OPS[case.op].traits.moves is not None]
CREATED = {name for name, each in OPS.items() if any(own.name == "size" for own in each.parameters)}
# A live scalar says what is read, at every call.
STRIDES = [case for case in MOVED if not any(isinstance(each, Sym) for each in flat_specs(case.args_at(1)))]
KNOWN = [
    pytest.param(case, marks=() if case in MOVED or case.op in CREATED else pytest.mark.slow, id=case.name)
    for case in CASES
]


@pytest.mark.parametrize("case", STRIDES, ids=lambda case: case.name)
def test_strides_by_axes_are_those_that_are_read(case: OpCase) -> None:
    size = max(case.sizes)
    (node,) = build(case, size).nodes
    x = node.args[0]
    layouts = node.traits.moves(Strided.contiguous(x.max_shape)._replace(max_shape=x.max_shape), *node.args[1:])
    own = strides_of(x.max_shape)
    for layout, found in zip(
        layouts if isinstance(node.args[-1], tuple) else (layouts,), axis_maps(node, x.max_shape) or (), strict=True
    ):
        assert found.sizes == layout.shape
        assert layout.start == sum(first * own[axis] for axis, first in found.starts.items())
        assert layout.strides == tuple(sum(step * own[axis] for axis, step in each.items()) for each in found.steps)


@pytest.mark.parametrize("case", KNOWN)
def test_a_size_that_is_known_is_that_of_every_call(case: OpCase) -> None:
    graph = build(case, max(case.sizes))
    sizes = LiveSizes(graph)
    for size in sorted(case.sizes)[:3]:
        live = PlanState(compile(graph, choices=Choices(warm=False)))
        for value, spec in zip(graph.inputs, flat_specs(case.args_at(size)), strict=True):
            if isinstance(value, SymInt):
                live.set(value, spec.value)
            elif isinstance(value, Tensor):
                live.set(value, spec.shape)
        live.begin()
        try:
            live.walk(0, len(graph.nodes), lambda *_: 0)
        except LiveshapeError:
            continue  # a size that it is refused at
        check_live_sizes(graph, sizes, live, f"{case.name} at {size}")
