"""The live-shape engine: one walk in program order that plans a node again only if something it reads moved."""

from __future__ import annotations

from collections.abc import Callable
from types import GeneratorType
from typing import Any

from liveshape.errors import LiveshapeError, PlanError, UnsupportedError
from liveshape.graph import Graph, Node, Shape, SymInt, Tensor, Value
from liveshape.kernels import Dispatch, Variant
from liveshape.kernels.kernel import segments
from liveshape.kernels.requests import Read, Scratch


class Step:
    """One dispatch, ready to encode. `node` and the variant name it in errors and profiles."""

    __slots__ = ("grid", "node", "params", "tensors", "variant")

    def __init__(
        self, node: Node, variant: Variant, tensors: tuple[Tensor, ...], params: bytes, grid: tuple[int, int, int]
    ) -> None:
        self.node = node
        self.variant = variant
        self.tensors = tensors
        self.params = params
        self.grid = grid

    def describe(self) -> tuple[str, tuple[str, ...], bytes, tuple[int, int, int]]:
        """What the step is, comparable across graphs."""
        return self.variant.label, tuple(tensor.name for tensor in self.tensors), self.params, self.grid


_MOST_REMEMBERED = 4096  # plans; a position that only grows would fill any memory

Reader = Callable[[Node, Read], Any]


class Planner:
    """Keeps the steps of a graph right for its live shapes and scalars. Needs no device."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.version = 0  # grows whenever the steps of a node were planned again
        self.built = False
        self.planned = 0  # nodes planned since the start, for tests and profiles
        self._kinds: dict[tuple[str, int], int] = {}
        self._variants: dict[tuple[Any, ...], Variant] = {}
        self._remembered: dict[tuple[Any, ...], tuple[Any, ...]] = {}
        self._build()
        find_twins(graph)

    def _build(self) -> None:
        """Plan every node at the bound: learns the scratch and finds every operator that cannot run here.

        Data is not known yet, so a live scalar may contradict the bounds; the first call plans such a node anew.
        """
        troubles: list[tuple[str, str]] = []
        for node in self.graph.nodes:
            for value in (*node.inputs, *node.outputs):
                if isinstance(value, Tensor):
                    self._classify(value)
            try:
                self._plan(node, _nothing_yet)
            except UnsupportedError as error:
                troubles.append((node.label, str(error).removeprefix(f"{node.label}: ")))
            except LiveshapeError:
                if not node.live:
                    raise
            for value in node.outputs:
                if isinstance(value, Tensor):
                    value.shape = value.max_shape
        if troubles:
            raise UnsupportedError("; ".join(f"{label}: {reason}" for label, reason in troubles), tuple(troubles))
        self.graph.invalidate()
        self.built = True

    def begin(self) -> None:
        """Start a call: loop counters are set back, and nodes that look at data are due even if no shape moved."""
        for value, initial in self.graph.carried:
            value.value = initial
        for index in self.graph.data_nodes:
            self.graph.pending[index] = 1

    def walk(self, start: int, stop: int, read: Reader) -> None:
        """Plan every due node from `start` up to `stop`, in program order, each once.

        If an operator raises, every node is due again and the error names the node.
        """
        pending, nodes = self.graph.pending, self.graph.nodes
        for index in self.graph.volatile:
            if start <= index < stop:
                pending[index] = 1
        index = pending.find(1, start, stop)
        if index < 0:
            return
        try:
            while index >= 0:
                # Cleared first: a node that changes what it reads is due again in the next turn of its loop.
                pending[index] = 0
                self._plan(nodes[index], read)
                index = pending.find(1, index + 1, stop)
        except BaseException:
            self.graph.invalidate()
            raise

    def _plan(self, node: Node, read: Reader) -> None:
        """Plan one node. Operators are pure, so what a twin planned at the same live values holds here as well."""
        self.planned += 1
        twin: Twin | None = node.twin
        key: tuple[Any, ...] = ()
        if twin is not None:
            shapes = [tensor._shape for tensor in twin.inputs]  # the property costs more than the rest of this line
            key = (twin.number, *shapes, *[scalar._value for scalar in twin.scalars])
            known = self._remembered.get(key)
            if known is not None:
                self._repeat(node, twin, *known)
                return
        try:
            generator = node.run(*node.arguments())
            steps = tuple(self._collect(node, generator, read)) if isinstance(generator, GeneratorType) else ()
        except LiveshapeError as error:
            if node.label in str(error):
                raise
            raise type(error)(f"{node.label}: {error}{_live(node)}") from error
        except Exception as error:
            raise PlanError(f"{node.label}: {type(error).__name__}: {error}{_live(node)}") from error
        if steps or node.steps:
            node.steps = steps
            self.version += 1
        if twin is not None:
            self._remember(key, node, twin)

    def _remember(self, key: tuple[Any, ...], node: Node, twin: Twin) -> None:
        if len(self._remembered) >= _MOST_REMEMBERED:
            self._remembered.clear()
        places = {tensor: place for place, tensor in reversed(list(enumerate(twin.tensors)))}
        outputs = [tensor.shape for tensor in twin.outputs]
        rows = [
            (step.variant, tuple(places[tensor] for tensor in step.tensors), step.params, step.grid)
            for step in node.steps
        ]
        self._remembered[key] = outputs, rows

    def _repeat(self, node: Node, twin: Twin, outputs: list[Shape], rows: list[tuple[Any, ...]]) -> None:
        for tensor, shape in zip(twin.outputs, outputs, strict=True):
            if tensor._shape != shape:
                tensor.shape = shape
        steps = tuple([Step(node, variant, twin.at(places), params, grid) for variant, places, params, grid in rows])
        if steps or node.steps:
            node.steps = steps
            self.version += 1

    def _collect(self, node: Node, generator: Any, read: Reader) -> list[Step]:
        steps: list[Step] = []
        requested = 0
        reply: Any = None
        while True:
            try:
                request = generator.send(reply)
            except StopIteration:
                break
            reply = None
            if type(request) is Dispatch:
                step = self._step(node, request)
                if step is not None:
                    steps.append(step)
            elif type(request) is Scratch:
                reply = self._scratch(node, requested, request)
                requested += 1
            else:
                reply = read(node, request)
        return steps

    def _classify(self, tensor: Tensor) -> None:
        kind = tensor.dtype, segments(tensor.storage.nbytes, self.graph.limits)
        tensor.kind = self._kinds.setdefault(kind, len(self._kinds))

    def _step(self, node: Node, dispatch: Dispatch) -> Step | None:
        kernel, tensors, values = dispatch.kernel, dispatch.tensors, dispatch.values
        # A lookup in the hot path: the kernel's own is for every graph and device, and costs four times this.
        key = (kernel, *[tensor.kind for tensor in tensors], *[values.get(name) for name in kernel.choices])
        variant = self._variants.get(key)
        if variant is None:
            variant = self._variants[key] = kernel.variant(dispatch, self.graph.limits)
        if dispatch.threads is not None:
            groups = -(-dispatch.threads // variant.group_size)
        elif dispatch.shared is not None:
            groups = -(-dispatch.shared * variant.parts // variant.group_size)
        else:
            groups = dispatch.groups or 0
        if groups == 0:
            return None
        grid = fold(groups, self.graph.limits.max_groups)
        return Step(node, variant, tensors, kernel.pack(values), grid)

    def _scratch(self, node: Node, position: int, request: Scratch) -> Tensor:
        if not self.built and position == len(node.scratch):
            name = f"{node.label} scratch {position}"
            node.scratch.append(Tensor(name, request.dtype, request.max_shape, half=self.graph.limits.half))
            self._classify(node.scratch[-1])
        if position >= len(node.scratch):
            raise PlanError("scratch must be asked for before any routing, sized from max_shape")
        return node.scratch[position]


class Twin:
    """A node's tensors at hand, and the number that it shares with every node that plans alike.

    Equal numbers mean the same operator, constants, dtypes and bounds, and memory shared in the same pattern.
    """

    __slots__ = ("_rows", "inputs", "number", "outputs", "scalars", "tensors")

    def __init__(self, node: Node, numbers: dict[Any, int]) -> None:
        self._rows: dict[tuple[int, ...], tuple[Tensor, ...]] = {}
        self.inputs = tuple(value for value in node.inputs if isinstance(value, Tensor))
        self.scalars = tuple(value for value in node.inputs if isinstance(value, SymInt))
        # An operator may set the shape of what it writes in place, too.
        self.outputs = tuple(value for value in node.written if isinstance(value, Tensor))
        self.tensors = (*self.inputs, *self.outputs, *node.scratch)
        seen: dict[Any, int] = {}
        pattern = [
            (seen.setdefault(tensor, len(seen)), seen.setdefault(tensor.storage, len(seen))) for tensor in self.tensors
        ]
        bounds = [(tensor.kind, tensor.max_shape) for tensor in self.tensors]
        constants = tuple(_constant(argument) for argument in node.args)
        likeness = (node.run, constants, tuple(pattern), tuple(bounds))
        self.number = numbers.setdefault(likeness, len(numbers))

    def at(self, places: tuple[int, ...]) -> tuple[Tensor, ...]:
        """The tensors at these places, always as the same tuple."""
        found = self._rows.get(places)
        if found is None:
            found = self._rows[places] = tuple([self.tensors[place] for place in places])
        return found


def find_twins(graph: Graph) -> None:
    """Let nodes that plan alike know of each other; those that look at data or set scalars stay alone."""
    numbers: dict[Any, int] = {}
    for node in graph.nodes:
        if not (node.reads_data or node.control) and all(isinstance(value, Tensor) for value in node.outputs):
            node.twin = Twin(node, numbers)


def _constant(argument: Any) -> Any:
    if isinstance(argument, tuple):
        return tuple(_constant(item) for item in argument)
    return type(argument) if isinstance(argument, Value) else (type(argument), argument)


def fold(groups: int, limit: int) -> tuple[int, int, int]:
    """Spread a linear number of workgroups over three dimensions with as little overshoot as can be.

    >>> fold(7, 65535), fold(65536, 65535)
    ((7, 1, 1), (32768, 2, 1))
    """
    if groups <= limit:
        return groups, 1, 1
    z = -(-groups // (limit * limit))
    y = -(-groups // (limit * z))
    x = -(-groups // (y * z))
    if z > limit:
        raise PlanError(f"{groups:,} workgroups do not fit a grid of {limit:,} in three dimensions")
    return x, y, z


def _nothing_yet(node: Node, request: Read) -> Any:
    """At build there is no data; zero is a position every program accepts, and the first call plans again."""
    return 0


def _live(node: Node) -> str:
    shapes = [f"{value.name} {value.shape}" for value in node.inputs if isinstance(value, Tensor)]
    return f" (live: {', '.join(shapes)})" if shapes else ""
