"""A builder for graphs that move elements between live sizes: numpy finds the bound of each result."""

from __future__ import annotations

from typing import Any

import numpy as np

from liveshape.graph import SymInt, Tensor
from tests.support.chains import Chain


class Movements(Chain):
    """A chain that knows its live sizes at their bounds."""

    def __init__(self) -> None:
        super().__init__()
        self.bounds: dict[Any, int] = {}

    def live(self, shape: tuple[int, ...], count: int, dtype: str = "float32") -> tuple[Tensor, tuple[SymInt, ...]]:
        """An input whose first dimensions are live, and these as scalars."""
        x = self.input(shape, dtype)
        sizes = tuple(self.scalar() for _ in range(count))
        for axis, size in enumerate(sizes):
            self.bounds[size] = shape[axis]
            self.node("sym_size.int", x, axis, size)
        return x, sizes

    def times(self, one: Any, other: Any) -> SymInt:
        """A product of live sizes."""
        made = self.scalar()
        self.bounds[made] = self._bound(one) * self._bound(other)
        self.node("mul", one, other, made)
        return made

    def moved(self, operator: str, x: Tensor, *rest: Any) -> Tensor:
        """A node of one result."""
        args = tuple(tuple(map(self._bound, arg)) if isinstance(arg, tuple) else arg for arg in rest)
        return self.node(operator, x, *rest, self.tensor(_shape(operator, x.max_shape, args), x.dtype))

    def view(self, x: Tensor, *sizes: Any) -> Tensor:
        return self.moved("aten.view_copy.default", x, sizes)

    def permute(self, x: Tensor, *dims: int) -> Tensor:
        return self.moved("aten.permute_copy.default", x, dims)

    def expand(self, x: Tensor, *sizes: Any) -> Tensor:
        return self.moved("aten.expand_copy.default", x, sizes, False)

    def select(self, x: Tensor, dim: int, index: int) -> Tensor:
        return self.moved("aten.select_copy.int", x, dim, index)

    def slice(self, x: Tensor, dim: int, start: int, end: int) -> Tensor:
        return self.moved("aten.slice_copy.Tensor", x, dim, start, end, 1)

    def unsqueeze(self, x: Tensor, dim: int) -> Tensor:
        return self.moved("aten.unsqueeze_copy.default", x, dim)

    def broadcast(self, operator: str, *args: Any, dtype: str = "") -> Tensor:
        """An elementwise node."""
        tensors = [each for each in args if isinstance(each, Tensor)]
        shape = np.broadcast_shapes(*(tensor.max_shape for tensor in tensors))
        return self.node(operator, *args, self.tensor(shape, dtype or tensors[-1].dtype))

    def product(self, x: Tensor, other: Tensor, operator: str = "aten.bmm.default") -> Tensor:
        return self.node(operator, x, other, self.tensor((*x.max_shape[:-1], other.max_shape[-1]), x.dtype))

    def _bound(self, size: Any) -> Any:
        return self.bounds.get(size, size)


def _shape(operator: str, shape: tuple[int, ...], args: tuple[Any, ...]) -> tuple[int, ...]:
    array = np.broadcast_to(np.zeros(()), shape)
    kind = operator.split(".")[1]
    if kind == "view_copy":
        return np.empty(shape).reshape(args[0]).shape
    if kind == "permute_copy":
        return array.transpose(args[0]).shape
    if kind == "expand_copy":
        sizes = (1,) * (len(args[0]) - len(shape)) + shape
        return tuple(have if size == -1 else size for have, size in zip(sizes, args[0], strict=True))
    if kind == "unsqueeze_copy":
        return np.expand_dims(array, args[0]).shape
    if kind == "slice_copy":
        return array[(slice(None),) * args[0] + (slice(*args[1:4]),)].shape
    if kind == "select_copy":
        return array.take(0, args[0]).shape
    return shape
