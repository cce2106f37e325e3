"""4-bit layers as operators: what all of them read, and each once more with the RMSNorm of its rows."""

from __future__ import annotations

import functools
import inspect
import typing
from collections.abc import Callable, Generator
from dataclasses import replace
from typing import Any, NamedTuple

from liveshape.graph import Limits, Shape
from liveshape.graph.elements import prod
from liveshape.graph.live import LiveTensor
from liveshape.graph.traits import Product, RowRule
from liveshape.kernels import Dispatch
from liveshape.kernels.requests import GetLimits, Scratch
from liveshape.ops.normalization import rms_norm, rows_of
from liveshape.ops.operations import packed_weight
from liveshape.ops.q4_heuristics import MIN_MATRIX_ROWS, defers_norm, is_gemv, takes_matrices
from liveshape.ops.quantized_rows import SYMMETRIC_INT8, quantized_shape, quantizes_rows
from liveshape.ops.registry import op

Steps = Generator[Dispatch | Scratch | GetLimits, Any, None]
Define = Callable[..., Steps]

# A 4-bit linear that may take int8 activations; one that is fused with others or with an epilogue; with its RMSNorm.
LAYER = Product(packed_weight, "x", "weight", linear=True, int8_rows=True)
FUSED_LAYER = replace(LAYER, linear=False)
NORMED_LAYER = replace(FUSED_LAYER, normed=True)

# The parameters of operators of a layer, behind x.
_NORM = {"norm_weight": LiveTensor, "terms": LiveTensor, "eps": float, "quantized": LiveTensor | None}
_WEIGHT = {"weight": LiveTensor, "scales": LiveTensor, "group_size": int, "bias": LiveTensor | None}
_VALUES = {"value_weight": LiveTensor | None, "value_scales": LiveTensor | None, "value_group": int}


class Norm(NamedTuple):
    """The RMSNorm of rows; `terms` are the bias of the layer, if it has one, and then the weight of the norm.

    Both are None where a row was quantized with that weight, and only the RMSNorm scale is still to be applied.
    """

    weight: LiveTensor | None
    terms: LiveTensor | None
    eps: float


class Weight(NamedTuple):
    """The packed weight of a layer, its scales, and how many neighbours of the depth share one."""

    codes: LiveTensor
    scales: LiveTensor
    group: int

    def fits_matrices(self, x: LiveTensor, limits: Limits) -> bool:
        """Whether matrix units may multiply rows of floats by it."""
        vectors = prod(self.codes.shape[1:]) % 16 == 0
        rows, columns = prod(x.max_shape[:-1]), self.codes.shape[0]
        return vectors and takes_matrices(rows, columns, x.shape[-1], self.group, limits)


class Q4Layer(NamedTuple):
    """Rows, their weights, the bias of all columns, and the RMSNorm of the rows before.

    There is one weight, or a second one of the values of a QKV projection, in a format of its own.
    """

    x: LiveTensor
    weights: tuple[Weight, ...]
    bias: LiveTensor | None = None
    norm: Norm | None = None

    @property
    def shape(self) -> Shape:
        """That of the product."""
        return (*self.x.shape[:-1], sum(weight.codes.shape[0] for weight in self.weights))

    def quantizes(self) -> bool:
        """Whether rows of floats are to be quantized."""
        return quantizes_rows(self.x, *self.weights[0])

    def rounds_normed(self, limits: Limits) -> bool:
        """Whether the RMSNorm of many rows is applied where these are rounded to halves for matrix units."""
        many = prod(self.x.shape[:-1]) >= MIN_MATRIX_ROWS
        return many and all(weight.fits_matrices(self.x, limits) for weight in self.weights)


def q4_layer(
    name: str, *, values_apart: bool = False, normed: RowRule | None = None, **traits: Any
) -> Callable[[Define], Define]:
    """Register an operator of a layer and what else it takes; the values of a QKV projection may have a weight apart.

    With a row rule `normed` there is a second operator, of the RMSNorm of x: of one row every workgroup recomputes it,
    of several it is a dispatch before, or in the one that rounds them for matrix units. One row may have been
    `quantized` by the epilogue that produced it.

    >>> @q4_layer("liveshape.residual_linear_q4gsw", rows=row_wise("x", "residual"))
    ... def residual_linear_q4gsw(layer: Q4Layer, residual: LiveTensor, out: LiveTensor): ...  # doctest: +SKIP
    """
    of_layer = _WEIGHT | (_VALUES if values_apart else {})

    def register(run: Define) -> Define:
        def of_rows(x: LiveTensor, *rest: Any) -> Steps:
            yield from run(_layer(x, *rest[: len(of_layer)]), *rest[len(of_layer) :])

        def of_norm(
            x: LiveTensor, weight: LiveTensor, terms: LiveTensor, eps: float, quantized: Any, *rest: Any
        ) -> Steps:
            layer, others = _layer(x, *rest[: len(of_layer)]), rest[len(of_layer) :]
            int8 = layer.quantizes()
            dtype, shape = (SYMMETRIC_INT8, quantized_shape(x.max_shape)) if int8 else (x.dtype, x.max_shape)
            before: LiveTensor = yield Scratch(dtype, shape)
            limits: Limits = yield GetLimits()
            rows = rows_of(x, weight, eps)["rows"]
            if quantized is not None and defers_norm(rows, limits):
                yield from run(layer._replace(x=quantized, norm=Norm(None, None, eps)), *others)
            elif quantized is None and (is_gemv(rows, limits) or (not int8 and layer.rounds_normed(limits))):
                yield from run(layer._replace(norm=Norm(weight, terms, eps)), *others)
            else:
                yield from rms_norm(x, weight, eps, before)
                yield from run(layer._replace(x=before), *others)

        hints = typing.get_type_hints(run)
        given = list(inspect.signature(run).parameters.values())[1:]
        own = of_layer | {each.name: hints[each.name] for each in given if each.kind != each.KEYWORD_ONLY}
        op(name, **{"product": FUSED_LAYER} | traits)(_declared(of_rows, run, own))
        if normed is not None:
            of = {"rows": normed, "product": NORMED_LAYER, "fused_from": ("et_vk.rms_norm.default", name)}
            op(f"liveshape.rms_norm_{name.split('.')[1]}", **traits | of)(_declared(of_norm, run, _NORM | own))
        return run

    return register


def _layer(x: LiveTensor, codes: Any, scales: Any, group: int, bias: Any, *values: Any) -> Q4Layer:
    apart = (Weight(*values),) if values and values[0] is not None and values[1] is not None else ()
    return Q4Layer(x, (Weight(codes, scales, group), *apart), bias)


def _declared(called: Define, run: Define, parameters: dict[str, Any]) -> Define:
    """A function with x and these parameters, by name and type, that is otherwise known as another one."""
    functools.update_wrapper(called, run)
    called.__annotations__ = {"x": LiveTensor, **parameters}
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    signature = inspect.Signature([inspect.Parameter(each, kind) for each in called.__annotations__])
    called.__signature__ = signature  # type: ignore[attr-defined]
    return called
