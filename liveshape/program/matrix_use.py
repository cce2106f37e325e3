"""What a program whose float32 inputs are not rounded takes matrix units for: float16 and int8 values, which they
multiply as they are, or large products of float32, whose factors are split where that pays."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from liveshape.errors import LiveshapeError
from liveshape.formats import KernelCall, PteFile, TensorSpec, VkTensor, parse_vkgraph
from liveshape.formats.vkgraph import VkGraph
from liveshape.graph.elements import prod
from liveshape.graph.limits import MatrixUse
from liveshape.ops import OPS

_MULTIPLIED = ("float16", "int8")
_LARGE = 1 << 28  # multiply-adds of a product at its bound: 512 x 768 x 768 has a few more
_FACTOR_RANK = 2  # of a factor that all rows are multiplied with


class Call(NamedTuple):
    """An operator call of a file, and its tensors at their upper bounds, the output last."""

    name: str
    tensors: tuple[TensorSpec | VkTensor, ...]


def matrix_use(file: PteFile) -> MatrixUse:
    """What a program computes with, float16 or int8 values before large products of float32.

    Weights alone say nothing: those of 4 and 8 bits are multiplied in float32.

    Example: `matrix_use(open_file("model.pte"))`.
    """
    graphs = tuple(_delegates(file))
    specs = (value for plan in file.plans for value in plan.values if isinstance(value, TensorSpec))
    if any(spec.dtype in _MULTIPLIED and (spec.planned or not spec.data_index) for spec in specs):
        return MatrixUse.PRODUCTS
    values = (value for graph in graphs for value in graph.values if isinstance(value, VkTensor))
    if any(value.dtype in _MULTIPLIED and value.constant_id < 0 for value in values):
        return MatrixUse.PRODUCTS
    return MatrixUse.FLOAT32 if any(map(_is_large_product, _calls(file, graphs))) else MatrixUse.NOTHING


def _delegates(file: PteFile) -> Iterator[VkGraph]:
    blobs = {id(each.blob): each.blob for plan in file.plans for each in plan.delegates}
    for blob in blobs.values():
        try:
            yield parse_vkgraph(blob)
        except (LiveshapeError, ValueError):  # another backend's, damaged, or closed meanwhile: lowering says so
            continue


def _calls(file: PteFile, graphs: tuple[VkGraph, ...]) -> Iterator[Call]:
    for plan in file.plans:
        for each in plan.instructions:
            if isinstance(each, KernelCall):
                given = (plan.values[at] for at in each.args if at < len(plan.values))
                yield Call(each.op, tuple(value for value in given if isinstance(value, TensorSpec)))
    for graph in graphs:
        for call in graph.chain:
            inside = (graph.values[at] for at in call.args if at < len(graph.values))
            yield Call(call.name, tuple(value for value in inside if isinstance(value, VkTensor)))


def _is_large_product(call: Call) -> bool:
    """Whether a call multiplies many rows with a large factor, all of them float32."""
    operator = OPS.get(call.name)
    if operator is None or operator.traits.product is None or any(each.dtype != "float32" for each in call.tensors):
        return False
    *given, out = call.tensors or (None,)
    if out is None or not out.shape:
        return False
    columns = out.shape[-1]
    factors = (prod(each.shape) for each in given if len(each.shape) == _FACTOR_RANK and columns in each.shape)
    return prod(out.shape) * max(factors, default=0) >= _LARGE * max(columns, 1)
