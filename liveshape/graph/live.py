"""Values as an operator sees them: the tensors and scalars of one user of a plan, at their live shape and value.

Setting a shape or a value marks what reads it for planning. Operators touch nothing but these.
"""

from __future__ import annotations

from typing import Any

from liveshape.graph.constants import Constant
from liveshape.graph.elements import prod
from liveshape.graph.graph import Shape, SymInt, Tensor


class LiveTensor:
    """A tensor at its live shape. `storage` numbers the memory that it may share, `bindings` counts its segments."""

    __slots__ = (
        "_shape",
        "bindings",
        "consumers",
        "dtype",
        "kind",
        "max_shape",
        "name",
        "pending",
        "storage",
        "tensor",
    )

    def __init__(self, tensor: Tensor, pending: bytearray, consumers: tuple[int, ...] = ()) -> None:
        self.tensor = tensor
        self.name = tensor.name
        self.dtype = tensor.dtype
        self.max_shape = tensor.max_shape
        self._shape = tensor.max_shape
        self.pending = pending
        self.consumers = consumers  # the nodes to plan again when the shape changes
        self.storage = -1
        self.bindings = 1
        self.kind = -1  # dtype and bindings as one number: what a kernel's variant depends on

    @property
    def shape(self) -> Shape:
        return self._shape

    @shape.setter
    def shape(self, shape: Shape) -> None:
        if shape == self._shape:
            return
        self.tensor.check(shape)
        self._shape = shape
        pending = self.pending
        for consumer in self.consumers:
            pending[consumer] = 1

    @property
    def numel(self) -> int:
        return prod(self._shape)

    @property
    def rank(self) -> int:
        return len(self.max_shape)

    @property
    def constant(self) -> Constant | None:
        """What it holds from load on."""
        return self.tensor.constant

    def __repr__(self) -> str:
        return f"LiveTensor({self.name}, {self.dtype}, {self._shape} of {self.max_shape})"


class LiveScalar:
    """A live scalar: an int, or in outer programs a float or a bool."""

    __slots__ = ("_value", "consumers", "name", "pending", "symint")

    def __init__(self, symint: SymInt, pending: bytearray) -> None:
        self.symint = symint
        self.name = symint.name
        self._value: Any = symint.initial
        self.pending = pending
        self.consumers: list[int] = []  # the nodes to plan again when the value moves: one of each class

    @property
    def value(self) -> Any:
        return self._value

    @value.setter
    def value(self, value: Any) -> None:
        # 1, 1.0 and True are equal, and so are 0.0 and -0.0: to a kernel they are not the same.
        if value is self._value or (identity(value) == identity(self._value)):
            return
        self._value = value
        pending = self.pending
        for consumer in self.consumers:
            pending[consumer] = 1

    def __repr__(self) -> str:
        return f"LiveScalar({self.name}={self._value})"


def identity(value: Any) -> Any:
    """What tells scalars apart that Python calls equal.

    >>> identity(0.0) == identity(-0.0), identity(1) == identity(True), identity(2) == identity(2)
    (False, False, True)
    """
    return (float, value.hex()) if type(value) is float else (type(value), value)
