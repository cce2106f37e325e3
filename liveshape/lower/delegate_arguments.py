"""Which arguments of a delegate's call its graph reads: the exporter leaves out inputs that nothing inside reads.

A call names them all. The order stays, so shapes and dtypes tell most of them. Of several choices those are dropped
under which an operator of the graph fails at the bounds of the program's inputs, where every program is legal, or gives
another bound than the file has. Numbers that still are several must be one and the same at every call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from liveshape.errors import LiveshapeError
from liveshape.formats import VkGraph, VkTensor
from liveshape.graph import Node, SymInt, Tensor, Value
from liveshape.graph.elements import prod
from liveshape.graph.traits import Role
from liveshape.lower.shape_inference import ShapeInference

MAX_CHOICES = 64  # of arguments that are tried

Inlined = Callable[[Sequence[Any]], Sequence[Node]]  # the nodes of a graph, for a choice of arguments


@dataclass(frozen=True)
class ReadArguments:
    """The arguments that a graph reads. Where the file leaves several numbers, all of them, by the input."""

    values: tuple[Any, ...]
    alike: Mapping[int, tuple[SymInt, ...]]


def read_arguments(graph: VkGraph, given: Sequence[Any], bounds: AtBounds, inlined: Inlined) -> ReadArguments | str:
    """The arguments that the inputs of a graph are, or what the file leaves open.

    Example: `read_arguments(graph, [mask, x], AtBounds(), inlined)` where the graph reads `x` alone.
    """
    windows = _windows(graph, given)
    if windows is None:
        return f"its graph has {len(graph.input_ids)} inputs, and no such arguments are among them in that order"
    choices = list(islice(_choices(windows), MAX_CHOICES + 1))
    if len(choices) > MAX_CHOICES:  # too many to try: each place by itself
        several = [list(dict.fromkeys(given[place] for place in window)) for window in windows]
    else:
        if len(choices) > 1:
            choices = [
                each for each in choices if _allows(bounds, inlined, [given[place] for place in each])
            ] or choices
        several = [list(dict.fromkeys(given[place] for place in column)) for column in zip(*choices, strict=True)]
    alike: dict[int, tuple[SymInt, ...]] = {}
    for position, candidates in enumerate(several):
        if len(candidates) == 1:
            continue
        numbers = tuple(each for each in candidates if isinstance(each, SymInt) and each.kind is int)
        if len(numbers) < len(candidates) or bounds.differ(numbers):
            names = ", ".join(_described(each) for each in candidates)
            return f"the file does not say which of these is input {position} of its graph: {names}"
        alike[position] = numbers
    return ReadArguments(tuple(candidates[0] for candidates in several), alike)


class AtBounds:
    """Live shapes and numbers of a program at the bounds of its inputs, as far as these follow from sizes alone."""

    def __init__(self) -> None:
        self._inference = ShapeInference(0)
        self._unknown: set[Value] = set()
        self._sizes: dict[Value, int] = {}  # the bounds of numbers that are sizes
        self._followed = 0
        self._straight = True  # what a jump leaves out has not the shapes of a straight walk

    def follow(self, nodes: Sequence[Node]) -> None:
        """Take what was added to the program since."""
        for node in nodes[self._followed :]:
            self._straight = self._straight and not node.control
            try:
                ran = self._run(node, self._unknown)
            except LiveshapeError:
                ran = False
            if not ran:
                self._unknown.update(node.written)
            tensor, axis = node.args[:2] if node.traits.role is Role.SIZE else (None, None)
            if isinstance(tensor, Tensor) and isinstance(axis, int) and -tensor.rank <= axis < tensor.rank:
                self._sizes |= dict.fromkeys(node.outputs, tensor.max_shape[axis])
        self._followed = len(nodes)

    def allow(self, nodes: Sequence[Node]) -> bool:
        """Whether these nodes may follow, as far as is known."""
        unknown = set(self._unknown)
        for node in nodes:
            if not self._gives_its_bound(node):
                return False
            try:
                if not self._straight or not self._run(node, unknown):
                    unknown.update(node.written)
                    continue
                for value in node.written:
                    if isinstance(value, Tensor):
                        value.check(self._inference.of(value).shape)
            except LiveshapeError:
                return False
        return True

    def differ(self, numbers: Sequence[SymInt]) -> bool:
        """Whether numbers are known to be others at the bounds."""
        known = {self._inference.of(each).value for each in numbers if each not in self._unknown}
        return self._straight and len(known) > 1

    def _run(self, node: Node, unknown: set[Value]) -> bool:
        """Run a node; False where its outputs do not follow from sizes."""
        if node.reads_data or node.host or node.control or not unknown.isdisjoint(node.inputs):
            return False
        self._inference.run(node)
        return True

    def _gives_its_bound(self, node: Node) -> bool:
        """Whether the sizes that an operator is given have the bounds of its output, where the file says both."""
        sizes, out = node.named.get("size"), node.args[-1]
        if not isinstance(sizes, tuple) or not isinstance(out, Tensor) or len(sizes) != out.rank:
            return True
        bounds = [self._sizes.get(size) if isinstance(size, SymInt) else None for size in sizes]
        return all(bound in (None, most) for bound, most in zip(bounds, out.max_shape, strict=True))


def _allows(bounds: AtBounds, inlined: Inlined, chosen: Sequence[Any]) -> bool:
    try:
        return bounds.allow(inlined(chosen))
    except LiveshapeError:  # an operator does not take such arguments
        return False


def _windows(graph: VkGraph, given: Sequence[Any]) -> list[list[int]] | None:
    """The places that each input may have and leave the others theirs; None if there are none."""
    wanted = graph.input_ids
    first, last = _matched(graph, given, wanted), _matched(graph, given[::-1], wanted[::-1])[::-1]
    if len(first) < len(wanted):
        return None
    last = [len(given) - 1 - place for place in last]
    return [
        [place for place in range(low, high + 1) if _fits(graph, index, given[place])]
        for index, low, high in zip(wanted, first, last, strict=True)
    ]


def _matched(graph: VkGraph, given: Sequence[Any], wanted: Sequence[int]) -> list[int]:
    """The first places in the order of `given` that fit the wanted inputs, one after another."""
    left, found = iter(wanted), []
    index = next(left, None)
    for place, outer in enumerate(given):
        if index is None:
            break
        if _fits(graph, index, outer):
            found.append(place)
            index = next(left, None)
    return found


def _fits(graph: VkGraph, index: int, outer: Any) -> bool:
    inner = graph.values[index]
    if not isinstance(inner, VkTensor):  # a tensor of one integer may be a number inside
        return prod(outer.max_shape) == 1 if isinstance(outer, Tensor) else isinstance(outer, (SymInt, int, float))
    if not isinstance(outer, Tensor) or inner.shape != outer.max_shape:
        return False
    return _kind(inner.staging_dtype or inner.dtype) == _kind(outer.dtype)


def _kind(dtype: str) -> str:
    """What a dtype keeps where exporters narrow 64 bits to 32 and float32 to float16."""
    return "integer" if dtype in ("int32", "int64") else "float" if dtype.startswith("float") else dtype


def _choices(windows: Sequence[Sequence[int]], start: int = 0) -> Iterator[tuple[int, ...]]:
    """Every choice of a place from each window, in ascending order."""
    if not windows:
        yield ()
        return
    for place in windows[0]:
        if place >= start:
            for rest in _choices(windows[1:], place + 1):
                yield (place, *rest)


def _described(value: Any) -> str:
    if isinstance(value, Tensor):
        return f"{value.name} ({value.dtype} {value.max_shape})"
    return f"{value.name} (a number)" if isinstance(value, SymInt) else repr(value)
