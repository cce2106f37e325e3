"""Host fallback: an operator without a kernel, computed by a function of arrays between two submits of the graph.

It is slow, since the device waits for the host and the host for the device, and it is right. Which functions there are
is known above (`run/host.py`); a node of one looks like any other, so memory, jumps and planning need no second rule.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from liveshape.errors import FormatError
from liveshape.graph import Node, Value
from liveshape.graph.live import LiveTensor
from liveshape.graph.sources import NodeSource
from liveshape.kernels.requests import HostFunction, OnHost
from liveshape.ops.registry import is_live


@dataclass(frozen=True, eq=False)
class HostOperator:
    """An operator under its exported name: `inputs` arguments, then its results, a list of them where `many`."""

    name: str
    inputs: int
    many: bool
    mutates: tuple[int, ...]
    function: HostFunction  # its results, then what it made of the arguments that it mutates
    library: str  # that computes it

    @property
    def arity(self) -> int:
        """How many arguments a call has, the output counted as one."""
        return self.inputs + 1

    def bind(self, index: int, label: str, args: tuple[Any, ...], sources: tuple[NodeSource, ...] = ()) -> Node:
        """A node of this operator, from `sources` of a file."""
        if len(args) != self.arity:
            raise FormatError(f"{label}: {len(args)} arguments given, {self.name} takes {self.arity} with its output")
        outputs = args[-1] if isinstance(args[-1], tuple) else (args[-1],)
        if not all(isinstance(value, Value) for value in outputs):
            raise FormatError(f"{label}: the outputs must be tensors or live numbers")
        live = tuple(position for position, argument in enumerate(args[:-1]) if is_live(argument))
        return Node(
            index, label, self.name, self.run, args, live, reads_data=True, mutates=self.mutates, host=True,
            sources=sources,
        )  # fmt: skip

    def run(self, *args: Any) -> Iterator[OnHost]:
        """Run on the host, and set the shapes and scalars that it found."""
        *inputs, output = args
        outputs = output if isinstance(output, tuple) else (output,)
        written = (*outputs, *(inputs[position] for position in self.mutates))
        found = yield OnHost(self.function, tuple(inputs), written)
        if found is None:
            _guess(inputs, [value for value in outputs if isinstance(value, LiveTensor)])
            return
        for value, result in zip(written, found, strict=True):
            if isinstance(value, LiveTensor):
                value.shape = result
            else:
                value.value = result


def _guess(inputs: list[Any], outputs: list[LiveTensor]) -> None:
    """Shapes to look for kernels at before anything ran: dimensions of equal bound most likely are one."""
    tensors = [item for each in inputs for item in (each if isinstance(each, tuple) else (each,))]
    sizes = {
        most: size
        for tensor in tensors
        if isinstance(tensor, LiveTensor)
        for most, size in zip(tensor.max_shape, tensor.shape, strict=True)
    }
    for output in outputs:
        output.shape = tuple(sizes.get(most, most) for most in output.max_shape)


# By the exported name: the operator, or why the host has none.
FindOnHost = Callable[[str], HostOperator | str]
