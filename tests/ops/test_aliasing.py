"""Random programs of views, arithmetic and writes in place give the same results with aliased views and without."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from liveshape import ops
from liveshape.device.backends import open_device
from liveshape.graph import Graph, Tensor
from liveshape.graph.elements import prod
from liveshape.plan.compiling import compile
from liveshape.plan.plan import Choices
from liveshape.run.executor import Executor

BOUND, WIDTH = 9, 12
LIVE = ((-1, WIDTH), (-1, 3, 4), (1, -1, WIDTH), (-1,))  # forms of the same elements, of any live length
ROWS = ((WIDTH,), (3, 4), (1, WIDTH))  # forms of one row, which a state can hold
Recipe = list[tuple[str, list[int]]]

STEPS = (
    "view",
    "view",
    "clone",
    "add",
    "copy",
    "transpose",
    "split",
    "last",
    "add row",
    "view row",
    "copy row",
    "write state",
)


@st.composite
def recipes(draw: Callable[[Any], Any]) -> Recipe:
    """Steps, each with numbers that choose among what is there when it is built."""
    step = st.tuples(st.sampled_from(STEPS), st.lists(st.integers(0, 99), min_size=3, max_size=3))
    return draw(st.lists(step, min_size=3, max_size=14))


class Builder:
    """The graph of a recipe; `live` and `rows` are the tensors that later steps may use."""

    def __init__(self, recipe: Recipe) -> None:
        self.values: list[Tensor] = []
        self.nodes: list[Any] = []
        x, y = self.tensor((BOUND, WIDTH)), self.tensor((BOUND, WIDTH))
        data: Any = np.arange(WIDTH, dtype=np.float32)
        self.state = self.tensor((WIDTH,), memoryview(data).cast("B"))
        self.live, self.rows = [x, y], [self.state]
        for name, choices in recipe:
            self.step(name, choices)
        outputs = [*self.live[-2:], *self.rows[-2:], x, self.state]
        self.graph = Graph("random", tuple(self.nodes), tuple(self.values), (x, y), tuple(outputs))

    def tensor(self, shape: tuple[int, ...], data: memoryview | None = None) -> Tensor:
        made = Tensor(f"t{len(self.values)}", "float32", shape, constant=data)
        self.values.append(made)
        return made

    def call(self, name: str, *args: Any) -> None:
        index = len(self.nodes)
        self.nodes.append(ops.OPS[name].bind(index, f"{name} (node {index})", args))

    def made(self, name: str, form: tuple[int, ...], *args: Any) -> Tensor:
        """Call an operator whose output has `form` at the bound."""
        rest = prod(size for size in form if size != -1)
        full = BOUND * WIDTH // rest
        out = self.tensor(tuple(full if size == -1 else size for size in form))
        self.call(name, *args, out)
        return out

    def step(self, name: str, choices: list[int]) -> None:
        first, second, third = choices
        x = self.live[first % len(self.live)]
        row = self.rows[first % len(self.rows)]
        other_row = self.rows[second % len(self.rows)]
        if name == "view":
            form = LIVE[third % len(LIVE)]
            self.live.append(self.made("aten.view_copy.default", form, x, form))
        elif name == "clone":
            self.live.append(self.made("aten.clone.default", x.max_shape, x, None))
        elif name == "view row":
            form = ROWS[third % len(ROWS)]
            self.rows.append(self.made("aten.view_copy.default", form, row, form))
        elif name in ("add", "copy"):
            peers = [each for each in self.live if each.max_shape == x.max_shape and each is not x]
            if peers and name == "add":
                self.live.append(self.made("aten.add.Tensor", x.max_shape, x, peers[second % len(peers)], 1))
            elif peers:
                self.call("aten::copy_", x, peers[second % len(peers)], False, x)
        elif name == "transpose":
            flat = self.made("aten.view_copy.default", LIVE[0], x, LIVE[0])
            transposed = self.made("aten.permute_copy.default", (WIDTH, BOUND), flat, (1, 0))
            self.live.append(self.made("aten.view_copy.default", LIVE[0], transposed, LIVE[0]))
        elif name == "split":
            flat = self.made("aten.view_copy.default", LIVE[0], x, LIVE[0])
            parts = self.tensor((BOUND, 5)), self.tensor((BOUND, 7))
            self.call("aten.split_with_sizes_copy.default", flat, (5, 7), -1, parts)
            self.live.append(self.made("aten.cat.default", LIVE[0], (parts[1], parts[0]), 1))
        elif name == "last":
            flat = self.made("aten.view_copy.default", LIVE[0], x, LIVE[0])
            self.rows.append(self.made("aten.select_copy.int", ROWS[0], flat, 0, -1))
        elif name == "add row":
            flat = self.made("aten.view_copy.default", LIVE[0], x, LIVE[0])
            one = self.made("aten.view_copy.default", ROWS[0], row, ROWS[0])
            self.live.append(self.made("aten.add.Tensor", (BOUND, WIDTH), flat, one, 2))
        elif name == "copy row" and row.max_shape == other_row.max_shape and row is not other_row:
            self.call("aten::copy_", row, other_row, False, row)
        elif name == "write state" and other_row is not self.state:
            one = self.made("aten.view_copy.default", ROWS[0], other_row, ROWS[0])
            self.call("aten::copy_", self.state, one, False, self.state)


EAGER: dict[str, Callable[..., Any]] = {
    "aten.view_copy.default": lambda x, form: x.reshape(form),
    "aten.clone.default": lambda x, _: x,
    "aten.add.Tensor": lambda a, b, alpha: a + alpha * b,
    "aten::copy_": lambda x, source, _: source,
    "aten.permute_copy.default": lambda x, order: x.transpose(order),
    "aten.split_with_sizes_copy.default": lambda x, sizes, dim: np.split(x, [sizes[0]], dim),
    "aten.cat.default": lambda parts, dim: np.concatenate(parts, dim),
    "aten.select_copy.int": lambda x, dim, index: x.take(index, dim),
}


def eager(graph: Graph, state: Tensor, kept: Any, inputs: list[Any]) -> list[Any]:
    """The program in NumPy, every tensor an array of its own."""
    memory: dict[Tensor, Any] = {state: kept, **dict(zip(graph.inputs, inputs, strict=True))}

    def value(argument: Any) -> Any:
        if isinstance(argument, tuple):
            return tuple(value(item) for item in argument)
        return memory[argument] if isinstance(argument, Tensor) else argument

    for node in graph.nodes:
        found = EAGER[node.name](*(value(argument) for argument in node.args[:-1]))
        memory.update(zip(node.outputs, found if len(node.outputs) > 1 else [found], strict=True))
    return [memory[tensor] for tensor in graph.outputs]


@settings(max_examples=40, deadline=None)
@given(recipes(), st.lists(st.integers(1, BOUND), min_size=2, max_size=5))
def test_aliasing_is_never_observable(recipe: Recipe, sizes: list[int]) -> None:
    device = open_device()
    plain = Builder(recipe)
    kept: Any = np.arange(WIDTH, dtype=np.float32)
    plans = [compile(plain.graph, device.limits, Choices(aliasing=aliasing)) for aliasing in (True, False)]
    executors = [Executor(plan, device) for plan in plans]
    generator = np.random.default_rng(0)
    for size in sizes:
        inputs = [generator.integers(-4, 5, (size, WIDTH)).astype(np.float32) for _ in range(2)]
        expected = eager(plain.graph, plain.state, kept, inputs)
        kept = expected[-1]
        for executor in executors:
            executor.poison()
            for got, want in zip(executor.execute(inputs), expected, strict=True):
                np.testing.assert_array_equal(got, want)
