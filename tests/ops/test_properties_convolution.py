"""Convolutions of any shape against torch, several live sizes on one graph each; and what is refused."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from liveshape.device.backends import open_device
from liveshape.errors import ShapeError, UnsupportedError
from liveshape.plan.compiling import compile
from liveshape.run.executor import Executor
from tests.support.graphs import In, OpCase, Out, build


@dataclass(frozen=True)
class Convolution:
    """One convolution and the live sizes it is run at, the bound first: batch, then the sizes of an image."""

    channels: int
    outputs: int
    groups: int
    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    transposed: bool
    output_padding: tuple[int, ...]
    bias: bool
    clamp: tuple[float, float] | None
    dtype: str
    live: tuple[tuple[int, ...], ...]

    @property
    def weight(self) -> tuple[int, ...]:
        pair = (self.channels, self.outputs // self.groups)
        return (*(pair if self.transposed else (self.outputs, self.channels // self.groups)), *self.kernel)

    @property
    def numbers(self) -> tuple[Any, ...]:
        return self.stride, self.padding, self.dilation, self.transposed, self.output_padding, self.groups

    def golden(self, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        wide = None if bias is None else bias.double()
        result = torch.convolution(x.double(), weight.double(), wide, *self.numbers)
        return result if self.clamp is None else result.clamp(*self.clamp)

    def shape(self, live: tuple[int, ...]) -> tuple[int, ...] | None:
        """The shape of torch's result, None where it has none."""
        x = torch.empty((live[0], self.channels, *live[1:]), dtype=torch.float64)
        try:
            return tuple(torch.convolution(x, x.new_empty(self.weight), None, *self.numbers).shape)
        except RuntimeError:
            return None


@st.composite
def convolutions(draw: st.DrawFn) -> Convolution:
    rank = draw(st.integers(1, 3))
    transposed = draw(st.booleans())
    groups = draw(st.sampled_from((1, 1, 2, 3, 6)))

    def each(strategy: st.SearchStrategy[int]) -> tuple[int, ...]:
        return tuple(draw(strategy) for _ in range(rank))

    stride, dilation = each(st.integers(1, 3)), each(st.integers(1, 3))
    more = tuple(draw(st.integers(0, max(pair) - 1)) for pair in zip(stride, dilation, strict=True))
    bound = (draw(st.integers(1, 3)), *each(st.integers(1, (0, 70, 19, 8)[rank])))
    smaller = st.tuples(st.integers(0, bound[0]), *(st.integers(1, size) for size in bound[1:]))
    return Convolution(
        channels=groups * draw(st.sampled_from((1, 1, 2, 3, 8, 70))),
        outputs=groups * draw(st.sampled_from((1, 1, 2, 5, 12, 33))),
        groups=groups,
        kernel=each(st.integers(1, 5)),
        stride=stride,
        padding=each(st.integers(0, 3)),
        dilation=dilation,
        transposed=transposed,
        output_padding=more if transposed else (0,) * rank,
        bias=draw(st.booleans()),
        clamp=draw(st.sampled_from((None, None, (-1.0, 0.5)))),
        dtype=draw(st.sampled_from(("float32", "float32", "float16"))),
        live=(bound, *draw(st.lists(smaller, min_size=1, max_size=3)), bound),
    )


def check(made: Convolution) -> None:
    shape = made.shape(made.live[0])
    if shape is None:
        return
    dtype = made.dtype

    def args_at(size: int) -> list[Any]:
        # At zero everything that may be live is nothing, which tells the graph what is not static.
        batch, *image = (size * extent for extent in made.live[0])
        return [
            In(dtype, (batch, made.channels, *image)),
            In(dtype, made.weight),
            In(dtype, (made.outputs,)) if made.bias else None,
            *made.numbers,
            *(made.clamp or ()),
            Out(dtype, shape),
        ]

    op = "aten::convolution.out" if made.clamp is None else "et_vk.conv_with_clamp.default"
    device = open_device()
    graph = build(OpCase("convolution", op, args_at, made.golden, sizes=(0, 1)), 1)
    executor = Executor(compile(graph, device.limits), device)
    generator = np.random.default_rng(0)
    scale = np.sqrt(np.prod(made.weight[1:]))
    weight = (generator.standard_normal(made.weight) / scale).astype(dtype)
    bias = generator.standard_normal(made.outputs).astype(dtype) if made.bias else None
    for live in made.live:
        x = generator.standard_normal((live[0], made.channels, *live[1:])).astype(dtype)
        given = [array for array in (x, weight, bias) if array is not None]
        executor.poison()
        if made.shape(live) is None:
            with pytest.raises(ShapeError, match="finds no place"):
                executor.execute(given)
            continue
        tensors = map(torch.from_numpy, given)
        golden = made.golden(next(tensors), next(tensors), next(tensors, None)).numpy()
        (got,) = executor.execute(given)
        assert got.shape == golden.shape
        tolerance = 5e-3 if dtype == "float16" else 2e-5
        np.testing.assert_allclose(got.astype(np.float64), golden, tolerance, 2 * tolerance, err_msg=f"at {live}")


@settings(max_examples=10, deadline=None, derandomize=True)
@given(convolutions())
def test_some_convolutions(made: Convolution) -> None:
    check(made)


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(convolutions())
def test_any_convolution(made: Convolution) -> None:
    check(made)


@pytest.mark.slow
def test_tiles_of_every_height() -> None:
    """So many pixels that tiles have 64 rows, then 32, then 16."""
    lengths = ((1, 32780), (1, 16400), (1, 10))
    check(Convolution(2, 64, 1, (1,), (2,), (0,), (1,), False, (0,), True, None, "float32", lengths))


@pytest.mark.parametrize(
    ("x", "weight", "groups", "bias", "error", "message"),
    [
        ((1, 4, 9), (6, 3, 3), 1, None, ShapeError, r"\(6, 3, 3\) in 1 groups does not fit an input \(1, 4, 9\)"),
        ((1, 4, 9), (5, 2, 3), 2, None, ShapeError, r"\(5, 2, 3\) in 2 groups"),
        ((1, 4, 9), (6, 4, 3), 1, (4,), ShapeError, r"bias \(4,\) .* should be \(6,\)"),
        ((1, 4, 9), (6, 4, 3, 3), 1, None, ShapeError, r"does not fit"),
        ((1, 4, 2), (6, 4, 3), 1, None, ShapeError, r"kernel of \(3,\) .* live sizes \(2,\)"),
        ((4, 9), (6, 4), 1, None, UnsupportedError, r"\(4, 9\)"),
    ],
)
def test_what_does_not_fit_is_refused(
    x: tuple[int, ...], weight: tuple[int, ...], groups: int, bias: Any, error: type[Exception], message: str
) -> None:
    offset = None if bias is None else In("float32", bias)
    args = [In("float32", x), In("float32", weight), offset, (1,), (0,), (1,), False, (0,), groups]
    case = OpCase("refused", "aten.convolution.default", lambda _: [*args, Out("float32", (1, 6, 7))], lambda *_: None)
    with pytest.raises(error, match=message):
        compile(build(case, 1))
