"""Shape inference over a lowered graph: live shapes of its values for a call of given sizes, without their bounds."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from liveshape.errors import LiveshapeError, PlanError
from liveshape.graph import Graph, Limits, Node, Shape, Tensor, Value
from liveshape.graph.live import LiveScalar, LiveTensor
from liveshape.kernels.requests import GetLimits, Read, Scratch
from liveshape.lower.rewriting import renamed


class _Unbounded(LiveTensor):
    """A live tensor without the check against max_shape, since its bound is being inferred."""

    __slots__ = ()

    @property
    def shape(self) -> Shape:
        return self._shape

    @shape.setter
    def shape(self, shape: Shape) -> None:
        self._shape = shape


class ShapeInference:
    """The live shapes and scalars of a graph for a call at one position, of the longest chunk if none was set."""

    def __init__(self, start: int) -> None:
        self.start = start
        self._live: dict[Value, LiveTensor | LiveScalar] = {}

    def of(self, argument: Any) -> Any:
        """The live value of an argument."""
        if isinstance(argument, tuple):
            return tuple(self.of(item) for item in argument)
        if not isinstance(argument, Value):
            return argument
        if argument not in self._live:
            unread = bytearray()
            live = _Unbounded(argument, unread) if isinstance(argument, Tensor) else LiveScalar(argument, unread)  # type: ignore[arg-type]
            self._live[argument] = live
        return self._live[argument]

    def run(self, node: Node) -> None:
        """Run a node's host function, which sets the live shapes of its outputs."""
        args = [_numbers(self.of(argument)) for argument in node.args[:-1]]
        try:
            generator = node.run(*args, self.of(node.args[-1]))
            reply: Any = None
            while generator is not None:
                request = generator.send(reply)
                reply = None
                if isinstance(request, Scratch):
                    reply = _Unbounded(Tensor("scratch", request.dtype, request.max_shape), bytearray())
                elif isinstance(request, GetLimits):
                    reply = Limits()
                elif isinstance(request, Read):
                    reply = self.start
        except StopIteration:
            return
        except LiveshapeError:
            raise
        except Exception as error:  # as planning does: an operator failed at sizes that it was not written for
            raise PlanError(f"{node.label}: {type(error).__name__}: {error}") from error


def _numbers(argument: Any) -> Any:
    """Live scalars by value."""
    if isinstance(argument, tuple):
        return tuple(_numbers(item) for item in argument)
    return argument.value if isinstance(argument, LiveScalar) else argument


def substituted(graph: Graph, replacements: dict[Value, Value]) -> Graph:
    """The graph with other values in the place of some of its own.

    Example: `substituted(graph, {tokens: replace(tokens, max_shape=(1, 2048))})`.
    """
    return replace(
        graph,
        nodes=tuple(replace(node, args=renamed(node.args, replacements)) for node in graph.nodes),
        values=tuple(replacements.get(value, value) for value in graph.values),
        inputs=renamed(graph.inputs, replacements),
        outputs=renamed(graph.outputs, replacements),
    )
