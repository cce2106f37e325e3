"""Normalizations: over the last dimensions, over groups of channels, and by running statistics."""

from __future__ import annotations

from typing import Any

from liveshape.errors import ShapeError, UnsupportedError
from liveshape.graph import Limits
from liveshape.graph.elements import prod
from liveshape.graph.live import LiveTensor
from liveshape.kernels import Kernel
from liveshape.kernels.requests import GetLimits, Scratch
from liveshape.ops.pointwise import Build, Viewed, evaluate
from liveshape.ops.quantized_rows import QUANTIZED_DTYPES, quantized_shape
from liveshape.ops.reduction import MEAN, Steps, reduce, var
from liveshape.ops.registry import Ints, Tensors, exported, op, register_first_alone
from liveshape.ops.row_rules import by_channel, first_axis, normalized, row_wise
from liveshape.ops.shapes import ceil_div
from liveshape.ops.stages import (
    GROUP_THREADS,
    Units,
    is_long,
    most_threads,
    partials_of,
    reduction_threads,
    share_of,
)

RMS_NORM = Kernel.load("normalization/rms_norm")
RMS_NORM_QUANTIZED = Kernel.load("normalization/rms_norm", OUTPUT="quantized")
PART_STATISTICS = Kernel.load("normalization/layer_norm", STAGE="parts")
# By whether their statistics are results, too.
LAYER_NORMS, LAYER_NORMS_BY_PARTS = (
    [Kernel.load("normalization/layer_norm", STAGE=stage, SAVED=saved) for saved in ("nothing", "statistics")]
    for stage in ("rows", "results")
)

MAX_REGISTER_VECTORS = 4  # vectors of a row in the registers of a thread
THREAD_VECTORS = 4  # those of a layer norm that a thread has at least
ROW_WORKGROUP = 128  # threads of its workgroups at least
SHORT_ROW_THREADS = (8, 64)
# Rows of so many vectors go in parts of a workgroup each, where so few of them leave most of a device idle.
LONG_ROWS = {4096: 64, 8192: 512}
FEW_ROWS = max(LONG_ROWS.values())
PART = GROUP_THREADS * THREAD_VECTORS  # vectors, which lie in registers

Factor = LiveTensor | None  # a weight or a bias


def rows_of(x: LiveTensor, weight: LiveTensor, eps: float) -> dict[str, Any]:
    """The params, width of vectors and grid of an RMS norm of x: one workgroup per row."""
    *lead, width = x.shape
    if weight.shape != (width,):
        raise ShapeError(f"weight {weight.shape} does not match the last dimension of {x.shape}")
    vector = 4 if width % 4 == 0 else 1
    rows = prod(lead)
    return {"rows": rows, "width": width // vector, "eps": eps, "VEC": vector, "groups": rows}


@op("et_vk.rms_norm.default", rows=row_wise("x"), epilogues=True, loads="x", load_times=2)
def rms_norm(x: LiveTensor, weight: LiveTensor, eps: float, out: LiveTensor) -> Steps:
    """`out` is floats, or quantized for the layers that read it: see `lower/activations.py`."""
    row = rows_of(x, weight, eps)
    if out.dtype in QUANTIZED_DTYPES:
        out.shape = quantized_shape(x.shape)
        yield RMS_NORM_QUANTIZED(out, weight, x, **row)
        return
    out.shape = x.shape
    limits: Limits = yield GetLimits()
    threads = 1 << min(RMS_NORM.group_size, limits.max_invocations).bit_length() - 1
    vectors = ceil_div(x.max_shape[-1] // row["VEC"], threads)
    registers = vectors if vectors <= MAX_REGISTER_VECTORS else 0
    yield RMS_NORM(out, weight, x, **row, REGISTER_VECTORS=registers, turns=2 * ceil_div(row["width"], threads))


def _normalize_rows(
    x: LiveTensor,
    weight: Factor,
    bias: Factor,
    eps: float,
    outputs: Tensors,
    rows: int,
    bound: int,
    span: int = 0,
    groups: int = 1,
) -> Steps:
    """A weight per element of a row; or, given a span, one per `span` neighbours, in a list shared by `groups` rows."""
    limits: Limits = yield GetLimits()
    largest = Units(bound, prod(x.max_shape) // bound if bound else 0, inner=True)
    fills = most_threads(limits) == GROUP_THREADS and not limits.one_order  # a device that should have enough to do
    statistics: LiveTensor | None = yield from partials_of(largest, limits)
    if statistics is None and fills and largest.length >= min(LONG_ROWS):
        statistics = yield Scratch("float32", (2 * min(bound, FEW_ROWS) * ceil_div(largest.length, PART),))
    width = x.numel // rows if rows else 0
    vector = 4 if (span or width) % 4 == 0 else 1
    units = Units(rows, width // vector, inner=True)
    saved = outputs[1:]
    tensors = (outputs[0], x, x if weight is None else weight, x if bias is None else bias, *saved)
    values: dict[str, Any] = {
        "span": span // vector if span else 1,
        "channel_groups": groups,
        "eps": eps,
        "WEIGHT": weight is not None,
        "BIAS": bias is not None,
        "CHANNELS": span > 0,
        "VEC": vector,
    }
    few = fills and any(units.length >= length and rows <= most for length, most in LONG_ROWS.items())
    if statistics is None or not (few or is_long(units, limits)):
        yield LAYER_NORMS[len(saved) > 0](*tensors, **values, **row_threads(units, limits))
        return
    share = share_of(units, limits, PART if few else 0)
    values |= reduction_threads(units, limits, share)
    yield PART_STATISTICS(statistics, x, **values, REGISTER_VECTORS=THREAD_VECTORS if few and share == PART else 0)
    yield LAYER_NORMS_BY_PARTS[len(saved) > 0](*tensors, statistics, **values)


def row_threads(rows: Units, limits: Limits) -> dict[str, Any]:
    """How many threads normalize a row, and how many vectors of it each holds: few kernels for all lengths."""
    if not limits.has_many_threads:
        return reduction_threads(rows, limits)
    most = most_threads(limits)
    threads = next((each for each in SHORT_ROW_THREADS if each * THREAD_VECTORS >= rows.length and each < most), most)
    held = next((each for each in (THREAD_VECTORS, 2 * THREAD_VECTORS) if threads * each >= rows.length), 0)
    unit = {"UNIT_THREADS": threads, "REGISTER_VECTORS": held, "WG": max(threads, ROW_WORKGROUP)}
    return reduction_threads(rows, limits) | unit


def check_affine(shape: Ints, *factors: Factor) -> None:
    """Raise unless the weight and the bias of a norm are of this shape.

    Example: `check_affine((channels,), weight, bias)`.
    """
    for factor in factors:
        if factor is not None and factor.shape != shape:
            raise ShapeError(f"a weight or bias of shape {factor.shape} was given, {shape} is expected")


@op(*exported("native_layer_norm"), rows=normalized, first_alone="liveshape.layer_norm")
def native_layer_norm(
    x: LiveTensor, normalized_shape: Ints, weight: Factor, bias: Factor, eps: float, out: Tensors
) -> Steps:
    lead, tail = x.shape[: x.rank - len(normalized_shape)], x.shape[x.rank - len(normalized_shape) :]
    if tail != normalized_shape:
        raise ShapeError(f"shape {x.shape} does not end in the normalized {normalized_shape}")
    check_affine(tail, weight, bias)
    out[0].shape = x.shape
    for saved in out[1:]:
        saved.shape = lead + (1,) * len(tail)
    most = prod(x.max_shape[: len(lead)])
    yield from _normalize_rows(x, weight, bias, eps, out, prod(lead), most)


register_first_alone("aten.native_layer_norm.default", loads="x", load_times=2)


@op(
    *exported("native_group_norm"),
    schema="x weight bias n c hxw group eps out",
    rows=first_axis("x"),
    first_alone="liveshape.group_norm",
)
def native_group_norm(x: LiveTensor, weight: Factor, bias: Factor, group: int, eps: float, out: Tensors) -> Steps:
    batch, channels = x.shape[:2]
    if channels % group:
        raise ShapeError(f"{channels} channels of {x.shape} do not divide into {group} groups")
    check_affine((channels,), weight, bias)
    out[0].shape = x.shape
    for saved in out[1:]:
        saved.shape = (batch, group)
    most = x.max_shape[0] * group
    yield from _normalize_rows(x, weight, bias, eps, out, batch * group, most, prod(x.shape[2:]), group)


register_first_alone("aten.native_group_norm.default", loads="x", load_times=2)


@op(
    *exported("_native_batch_norm_legit_no_training"),
    schema="x weight bias mean variance momentum eps out",
    rows=by_channel,
    first_alone="liveshape.batch_norm",
)
def batch_norm_no_training(
    x: LiveTensor, weight: Factor, bias: Factor, mean: LiveTensor, variance: LiveTensor, eps: float, out: Tensors
) -> Steps:
    """The two saved statistics are empty: nothing was measured."""
    channels = x.shape[1]
    check_affine((channels,), weight, bias, mean, variance)
    centre, spread, factor, term = (
        None if each is None else Viewed(each, (channels, 1)) for each in (mean, variance, weight, bias)
    )
    e = Build(out[0].dtype)
    scale = e.exact("rsqrt", e.exact("add", spread, eps))
    scale = scale if factor is None else e.exact("mul", scale, factor)
    image = Viewed(x, (x.shape[0], channels, prod(x.shape[2:])))
    value = e.call("mul", e.exact("sub", image, centre), scale, dtype=e.out if term is None else "float32")
    if term is not None:
        e.call("add", value, term)
    yield from evaluate(e.made(), out[0], shape=x.shape)


register_first_alone("aten._native_batch_norm_legit_no_training.default")


@op(*exported("_native_batch_norm_legit"), rows=by_channel)
def batch_norm_legit(
    x: LiveTensor, weight: Factor, bias: Factor, mean: LiveTensor, variance: LiveTensor, training: bool,
    momentum: float, eps: float, out: Tensors,
) -> Steps:  # fmt: skip
    """By what was measured before: ExecuTorch's own kernel has nothing else either."""
    if training:
        raise UnsupportedError("batch norm that updates its running statistics is not supported; export in eval mode")
    yield from batch_norm_no_training(x, weight, bias, mean, variance, eps, out)


@op(*exported("_native_batch_norm_legit", "no_stats"), schema="x weight bias training momentum eps out")
def batch_norm_no_stats(x: LiveTensor, weight: Factor, bias: Factor, eps: float, out: Tensors) -> Steps:
    """By the mean and variance of x itself, which are saved: the mean, and one over the deviation."""
    result, mean, scale = out
    variance: LiveTensor = yield Scratch(mean.dtype, (x.max_shape[1],))
    dims = (0, *range(2, x.rank))
    yield from reduce(MEAN, x, dims, False, mean)
    yield from var(x, dims, 0, False, variance)
    yield from batch_norm_no_training(x, weight, bias, mean, variance, eps, (result,))
    e = Build(scale.dtype)
    e.call("rsqrt", e.exact("add", variance, eps))
    yield from evaluate(e.made(), scale)
