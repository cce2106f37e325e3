"""The plan of a call after many others, beside that of a fresh build which has seen this call alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from liveshape.errors import PlanError
from liveshape.graph import Node, SymInt, Tensor
from liveshape.kernels.requests import Request
from liveshape.plan.plan_state import PlanState
from liveshape.run.executor import Executor
from liveshape.run.pending import Pending


@dataclass(frozen=True)
class PlanDifference:
    """A node whose plan depends on the calls before: what it is now, and what a fresh build has."""

    node: Node
    what: str
    now: str
    fresh: str


class RecordingExecutor(Executor):
    """An executor that keeps what planning was told during the last call: replies to nodes, and where jumps led.

    Example: `RecordingExecutor(plan, device).execute([x])`, then `plan_differences` of it.
    """

    def start(self, inputs: Sequence[Any], wanted: Sequence[int] | None = None) -> Pending:
        self.replies: list[tuple[int, Any]] = []
        self.targets: list[int] = []
        return super().start(inputs, wanted)

    def _handle_request(self, node: Node, request: Request) -> Any:
        reply = super()._handle_request(node, request)
        self.replies.append((node.index, reply))
        return reply

    def _jump(self, node: Node, iterations: dict[int, Any]) -> int:
        target = super()._jump(node, iterations)
        self.targets.append(target)
        return target


def plan_differences(executor: RecordingExecutor) -> Iterator[PlanDifference]:
    """Nodes whose kernels, tensors, params, workgroups or result shapes are not those of a fresh build, after a call.

    Example: `next(plan_differences(executor), None)`.
    """
    now = executor.live
    try:
        fresh, reached = _fresh(executor)
    except _OutOfStep as error:
        yield PlanDifference(error.node, "what it reads of data", error.now, error.fresh)
        return
    for node in executor.graph.nodes:
        if node.control or node.index not in reached:
            continue
        ours, theirs = now.described(node.index), fresh.described(node.index)
        for what, (one, other) in _rows(ours, theirs):
            yield PlanDifference(node, what, one, other)
            break
        else:
            for value in node.written:
                found, wanted = _live(now, value), _live(fresh, value)
                if found != wanted:
                    yield PlanDifference(node, f"the size of {value.name}", str(found), str(wanted))
                    break


def _rows(ours: list[Any], theirs: list[Any]) -> Iterator[tuple[str, tuple[str, str]]]:
    """What differs between two rows of dispatches, in the order in which one would look for it."""
    if [step[0] for step in ours] != [step[0] for step in theirs]:
        yield "kernels", (", ".join(step[0] for step in ours), ", ".join(step[0] for step in theirs))
        return
    for place, what in ((1, "tensors of"), (3, "workgroups of"), (2, "params of")):
        for one, other in zip(ours, theirs, strict=True):
            if one[place] != other[place]:
                texts = [each[2].hex() if place == 2 else str(each[place]) for each in (one, other)]
                yield f"{what} {one[0]}", (texts[0], texts[1])


class _OutOfStep(PlanError):
    """Raised where a fresh plan asks for data that the call did not read there."""

    def __init__(self, node: Node, now: str, fresh: str) -> None:
        super().__init__(node.label)
        self.node, self.now, self.fresh = node, now, fresh


def _fresh(executor: RecordingExecutor) -> tuple[PlanState, set[int]]:
    """A new plan state, walked through the same call: the inputs' live shapes, the same data, the same jumps; and the
    nodes that it came by."""
    graph, made = executor.graph, PlanState(executor.plan)
    for value in graph.inputs:
        if isinstance(value, (Tensor, SymInt)):
            made.set(value, _live(executor.live, value))
    replies, targets = iter(executor.replies), iter(executor.targets)

    def reply(node: Node, request: Request) -> Any:
        index, found = next(replies, (-1, None))
        if index != node.index:
            asked = "nothing" if index < 0 else graph.nodes[index].label
            raise _OutOfStep(node, f"{asked} asked for data there", f"{node.label} asks")
        return found

    made.begin()
    index, end = 0, len(graph.nodes)
    reached: set[int] = set()
    while index < end:
        stop = next((control for control in graph.controls if control >= index), end)
        reached.update(range(index, stop))
        made.walk(index, stop, reply)
        index = stop if stop == end else next(targets)
    return made, reached


def _live(state: PlanState, value: Any) -> Any:
    return state.tensor(value).shape if isinstance(value, Tensor) else state.scalar(value).value
