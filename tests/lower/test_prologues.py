"""Norms, softmax and reductions load an expression: nobody stores what they alone read, and no bit differs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from liveshape.device.backends import open_device
from liveshape.graph.expression import Applied, Expression
from liveshape.kernels import Kernel
from liveshape.kernels.composition import EPILOGUE, PROLOGUE, composed
from liveshape.kernels.pointwise_operands import Operands
from tests.lower.test_second_results import MAX, compared
from tests.support.chains import Chain

READERS = ("layer_norm", "group_norm", "rms_norm", "_softmax", "_log_softmax", "softmax 1")
SUMS = ("sum.dim_IntList", "mean.dim", "var.correction", "amax.default", "argmax.default", "any.dim", "prod.dim_int")


def reader_of(chain: Chain, reader: str, x: Any, width: int, affine: bool = True) -> Any:
    """A node that loads x, and what it gives."""
    random = np.random.default_rng(0)
    kind = x.dtype if affine else ""

    def factor(size: int) -> Any:
        if not kind or kind == "bfloat16":
            return None
        return chain.constant((random.random(size) + 0.5).astype(kind))

    name, _, dim = reader.partition(" ")
    if name in (
        "sum.dim_IntList",
        "mean.dim",
        "var.correction",
        "amax.default",
        "argmax.default",
        "any.dim",
        "prod.dim_int",
    ):
        arguments: tuple[Any, ...] = {
            "sum.dim_IntList": ((2,), True, None),
            "mean.dim": ((1,), True, None),
            "var.correction": ((2,), 0, True),
            "amax.default": ((0, 2), True),
            "argmax.default": (2, True),
            "any.dim": (2, True),
            "prod.dim_int": (1, True, None),
        }[name]
        shape = {"mean.dim": (MAX, 1, width), "prod.dim_int": (MAX, 1, width), "amax.default": (1, 8, 1)}.get(
            name, (MAX, 8, 1)
        )
        dtype = {"argmax.default": "int64", "any.dim": "bool"}.get(name, x.dtype)
        return chain.node(f"aten.{name}", x, *arguments, chain.tensor(shape, dtype))
    arguments = {
        "layer_norm": lambda: ("liveshape.layer_norm", x, (width,), factor(width), factor(width), 1e-5),
        "group_norm": lambda: ("liveshape.group_norm", x, factor(8), factor(8), MAX, 8, width, 4, 1e-5),
        "rms_norm": lambda: ("et_vk.rms_norm.default", x, factor(width), 1e-5),
        "_softmax": lambda: ("aten._softmax.default", x, -1, False),
        "_log_softmax": lambda: ("aten._log_softmax.default", x, -1, False),
        "softmax": lambda: ("aten._softmax.default", x, int(dim or 0), False),
    }[name]()
    return chain.node(*arguments, chain.tensor(x.max_shape, x.dtype))


CASES = [
    *((reader, "float32", ((4, 12), (64, 7))) for reader in (*READERS, *SUMS)),
    *((reader, "float16", ((64, 12),)) for reader in (*READERS, *SUMS)),
    *((reader, "bfloat16", ((4, 7),)) for reader in ("layer_norm", "_softmax", "sum.dim_IntList", "argmax.default")),
]


@pytest.mark.parametrize(("reader", "dtype", "devices"), CASES)
def test_what_it_alone_reads_is_computed_where_it_is_loaded(reader: str, dtype: str, devices: Any) -> None:
    """The larger of two tensors, times a number of each row: one dispatch less, of threads of all kinds."""
    for cooperating, width in devices:
        device = open_device()
        device = open_device(limits=replace(device.limits, max_cooperating_threads=cooperating))
        chain = Chain()
        x, row = chain.input((MAX, 8, width), dtype), chain.input((MAX, 1, 1), dtype)
        larger = chain.node("aten.maximum.default", x, row, chain.tensor(x.max_shape, dtype))
        negative = chain.node("aten.neg.default", larger, chain.tensor(x.max_shape, dtype))
        fewer, graph = compared(chain.graph(reader_of(chain, reader, negative, width)), device)
        assert [node.name for node in graph.nodes] == ["liveshape.loaded"]
        assert fewer == 2, (cooperating, width)


@pytest.mark.parametrize("reader", ["layer_norm", "_softmax", "sum.dim_IntList", "argmax.default"])
def test_an_expression_before_and_one_behind_are_one_dispatch(reader: str) -> None:
    for cooperating in (4, 64):
        device = open_device()
        device = open_device(limits=replace(device.limits, max_cooperating_threads=cooperating))
        chain = Chain()
        x = chain.input((MAX, 8, 12))
        half = chain.node("aten.abs.default", x, chain.tensor(x.max_shape))
        result = reader_of(chain, reader, half, 12, affine=False)
        out = chain.node("aten.neg.default", result, chain.tensor(result.max_shape, result.dtype))
        fewer, graph = compared(chain.graph(out), device)
        assert [node.name for node in graph.nodes] == ["liveshape.composed"]
        assert fewer == 2


@pytest.mark.parametrize("reader", ["layer_norm", "_softmax", "sum.dim_IntList", "mean.dim"])
def test_operands_of_another_dtype_are_converted_where_they_are_loaded(reader: str) -> None:
    """Halves and whole numbers, a mask among them; the statistics are those of the dtype of the expression."""
    device, chain = open_device(), Chain()
    x, whole = chain.input((MAX, 8, 12), "float16"), chain.input((MAX, 1, 12))
    floats = chain.node("aten._to_copy.default", x, None, None, None, None, False, None, chain.tensor(x.max_shape))
    mask = chain.node("aten.gt.Scalar", whole, 0.0, chain.tensor(whole.max_shape, "bool"))
    low = chain.constant(np.array(-5.0, np.float32))
    chosen = chain.node("aten.where.self", mask, floats, low, chain.tensor(x.max_shape))
    fewer, graph = compared(chain.graph(reader_of(chain, reader, chosen, 12, affine=False)), device)
    assert [node.name for node in graph.nodes] == ["liveshape.loaded"], "a mask of fewer elements, too"
    assert fewer == 3


def test_a_value_that_others_read_is_stored() -> None:
    device, chain = open_device(), Chain()
    x = chain.input((MAX, 8, 12))
    value = chain.node("aten.abs.default", x, chain.tensor(x.max_shape))
    out = reader_of(chain, "_softmax", value, 12)
    _, graph = compared(chain.graph(out, value), device)
    assert [node.name for node in graph.nodes] == ["aten.abs.default", "aten._softmax.default"]


def test_an_expression_stays_in_the_epilogue_of_what_computes_its_operand() -> None:
    """Where it costs no load of its own."""
    device, chain = open_device(), Chain()
    x = chain.input((MAX, 8, 12))
    first = reader_of(chain, "_softmax", x, 12)
    value = chain.node("aten.abs.default", first, chain.tensor(x.max_shape))
    fewer, graph = compared(chain.graph(reader_of(chain, "sum.dim_IntList", value, 12)), device)
    assert [node.name for node in graph.nodes] == ["liveshape.composed", "aten.sum.dim_IntList"]
    assert fewer == 1


@pytest.mark.parametrize(
    ("reader", "cooperating", "count"), [("_softmax", 4, 0), ("_softmax", 64, 1), ("sum.dim_IntList", 4, 1)]
)
def test_a_function_of_many_instructions_is_computed_once(reader: str, cooperating: int, count: int) -> None:
    """A softmax loads an element three times, which costs more than memory where threads are few."""
    device, chain = open_device(), Chain()
    device = open_device(limits=replace(device.limits, max_cooperating_threads=cooperating))
    x = chain.input((MAX, 8, 12))
    value = chain.node("aten.erf.default", x, chain.tensor(x.max_shape))
    fewer, _ = compared(chain.graph(reader_of(chain, reader, value, 12)), device)
    assert fewer == count


@pytest.mark.parametrize("reader", ["layer_norm", "_softmax", "sum.dim_IntList"])
def test_long_rows_load_what_is_stored(reader: str) -> None:
    """In stages, several of which read the operand."""
    device = open_device(limits=replace(open_device().limits, max_cooperating_threads=64, max_turns=64))
    chain = Chain()
    x = chain.input((3, 8, 9000))
    value = chain.node("aten.abs.default", x, chain.tensor(x.max_shape))
    shape = (3, 8, 1) if reader == "sum.dim_IntList" else x.max_shape
    arguments: tuple[Any, ...] = {
        "layer_norm": ("liveshape.layer_norm", value, (9000,), None, None, 1e-5),
        "_softmax": ("aten._softmax.default", value, -1, False),
        "sum.dim_IntList": ("aten.sum.dim_IntList", value, (2,), True, None),
    }[reader]
    graph = chain.graph(chain.node(*arguments, chain.tensor(shape)))
    compared(graph, device, (3, 1, 2, 3))


def test_both_ends_of_a_kernel_have_params_of_their_own() -> None:
    calls = (Applied("mul", (0, 1), "float32"),)
    expression = Expression(("float32",), ("float32",), calls)
    kernel = Kernel.load("reduction/softmax")
    loads = composed(kernel, expression, Operands(("float32",), ("same",), prefix=PROLOGUE), half=True)
    both = composed(loads, expression, Operands(("float32",), ("held",), prefix=EPILOGUE), half=True)
    assert [*both.fields][-2:] == ["prologue_number_0", "epilogue_number_0"]
    assert [binding.name for binding in both.bindings] == ["out", "prologue_operand_0"]
