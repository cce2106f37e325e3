"""The live-shape engine: one walk in program order that plans a node again only if something it reads moved."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import GeneratorType
from typing import Any

from liveshape.errors import LiveshapeError, PlanError, UnsupportedError
from liveshape.graph import Graph, Node, Shape, Tensor
from liveshape.kernel import Dispatch, Variant, segments


@dataclass(frozen=True)
class Scratch:
    """Yielded by an operator that needs temporary memory; it gets a tensor back. Ask before any routing."""

    dtype: str
    max_shape: Shape


@dataclass(frozen=True)
class Read:
    """Yielded by an operator whose plan depends on data: one element of a tensor comes back as a number."""

    tensor: Tensor
    element: int


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
        self._build()

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
        self.planned += 1
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


class Arena:
    """Lays the params of a row of steps into one uniform buffer; equal params share a slot."""

    def __init__(self, alignment: int) -> None:
        self.alignment = alignment

    def lay(self, steps: list[Step]) -> tuple[bytes, list[int]]:
        """The bytes to upload and each step's offset in them."""
        slots: dict[bytes, int] = {}
        offsets: list[int] = []
        pieces: list[bytes] = []
        cursor, alignment = 0, self.alignment
        for step in steps:
            params = step.params
            offset = slots.get(params)
            if offset is None:
                size = -(-len(params) // alignment) * alignment
                offset = slots[params] = cursor
                pieces.append(params.ljust(size, b"\0"))
                cursor += size
            offsets.append(offset)
        return b"".join(pieces), offsets
