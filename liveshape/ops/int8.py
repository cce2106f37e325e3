"""int8 operators: add, relu, pixel shuffle and linear of quantized tensors, and linears with int8 weights.

Products accumulate in i32, which is exact; the epilogue requantizes: one multiply by the scales, rounded and clamped to
the output's range as `quantizing` does it. Torch computes the same in floats, so the
two differ only where a sum of floats falls on the other side of a half.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Any, NamedTuple

from liveshape.errors import ShapeError, UnsupportedError
from liveshape.graph import Limits
from liveshape.graph.elements import prod
from liveshape.graph.live import LiveTensor
from liveshape.graph.traits import Product
from liveshape.kernels import Dispatch, Kernel
from liveshape.kernels.requests import GetLimits
from liveshape.ops.matrix_heuristics import byte_matrix_tiles
from liveshape.ops.operations import matrix
from liveshape.ops.pointwise import Build, Term, Viewed, evaluate, pointwise
from liveshape.ops.quantizing import RANGES, codes, values_of
from liveshape.ops.registry import op
from liveshape.ops.row_rules import leading, row_wise
from liveshape.ops.shapes import ceil_div, strides_of

FLOATS = "float32"  # what integers are computed in
INT8_WEIGHT = Kernel.load("int8/linear", OUTPUT="float_output", INPUT="float_input")


class LinearKernels(NamedTuple):
    """The kernels of a linear layer between integers: by threads, and by matrix units."""

    threads: Kernel
    matrices: Kernel

    @classmethod
    def load(cls, output: str) -> LinearKernels:
        """Example: `LinearKernels.load("int8_output")`."""
        matrices = Kernel.load("int8/matrix_tiles", FACTORS="bytes", OUTPUT=output)
        return cls(Kernel.load("int8/linear", OUTPUT=output), matrices)


INT8_LINEAR = LinearKernels.load("int8_output")
INT8_LINEAR_FLOATS = LinearKernels.load("float_output")

DEEPEST = (1 << 31) // (255 * 128)  # that an i32 accumulator surely holds
FEW_UNITS = 4096  # below this a device is better filled by sharing the depth
MAX_UNIT_THREADS = 64

Steps = Generator[Dispatch | GetLimits, Any, None]


# Elements


def _codes(e: Build, values: Term, scale: float, zero_point: int) -> Term:
    return codes(e, values, scale, zero_point, *RANGES["int8"])


@pointwise("et_vk.q8ta_add.default")
def q8ta_add(
    e: Build,
    a: LiveTensor,
    b: LiveTensor,
    a_scale: float,
    a_zero_point: int,
    b_scale: float,
    b_zero_point: int,
    output_scale: float,
    output_zero_point: int,
    alpha: float,
) -> Term:
    left, right = values_of(e, a, a_scale, a_zero_point, FLOATS), values_of(e, b, b_scale, b_zero_point, FLOATS)
    return _codes(e, e.call("add_scaled", left, right, alpha, dtype=FLOATS), output_scale, output_zero_point)


@pointwise("et_vk.q8ta_relu.default")
def q8ta_relu(
    e: Build, x: LiveTensor, scale: float, zero_point: int, output_scale: float, output_zero_point: int
) -> Term:
    shown = e.call("maximum", values_of(e, x, scale, zero_point, FLOATS), 0.0, dtype=FLOATS)
    return _codes(e, shown, output_scale, output_zero_point)


@op("et_vk.q8ta_pixel_shuffle.default", rows=leading("x", own=3))
def q8ta_pixel_shuffle(
    x: LiveTensor,
    scale: float,
    zero_point: int,
    output_inverse_scale: float,
    output_zero_point: int,
    upscale_factor: int,
    out: LiveTensor,
) -> Iterator[Any]:
    """Channels become neighbours: [C * r * r, H, W] to [C, H * r, W * r]."""
    *lead, channels, height, width = x.shape
    square = upscale_factor * upscale_factor
    if upscale_factor < 1 or channels % square:
        raise ShapeError(f"{channels} channels of {x.shape} are no squares of {upscale_factor}")
    planes = prod(lead) * (channels // square)
    strides = strides_of((planes, upscale_factor, upscale_factor, height, width))
    moved = Viewed(
        x,
        (planes, height, upscale_factor, width, upscale_factor),
        tuple(strides[axis] for axis in (0, 3, 1, 4, 2)),
    )
    e = Build(out.dtype)
    # The file gives the inverse of a scale, and torch the inverse of that.
    _codes(e, values_of(e, moved, scale, zero_point, FLOATS), 1.0 / output_inverse_scale, output_zero_point)
    shape = (*lead, channels // square, height * upscale_factor, width * upscale_factor)
    yield from evaluate(e.made(), out, shape=shape)


# Linear layers


@op(
    "et_vk.q8ta_linear.default",
    "et_vk.q8ta_linear_gemv.default",
    rows=row_wise("x"),
    product=Product(matrix(), "x", "weight", linear=True),
)
def q8ta_linear(
    x: LiveTensor,
    input_scale: float,
    input_zero_point: int,
    weight: LiveTensor,
    weight_sums: LiveTensor,
    weight_scales: LiveTensor,
    output_scale: float,
    output_zero_point: int,
    bias: LiveTensor | None,
    activation: str,
    out: LiveTensor,
) -> Steps:
    tensors = _operands(x, weight, weight_sums, weight_scales, bias)
    limits: Limits = yield GetLimits()
    yield _integer_product(
        INT8_LINEAR, out, tensors, limits, x_zero=input_zero_point, x_scale=input_scale, inverse=1.0 / output_scale,
        zero=output_zero_point, BIAS=bias is not None, RELU=is_relu(activation),
    )  # fmt: skip


@op("et_vk.linear_q8ta_q8csw.default", rows=row_wise("x"), product=Product(matrix(), "x", "weight", linear=True))
def linear_q8ta_q8csw(
    x: LiveTensor,
    input_scale: float,
    input_zero_point: int,
    weight: LiveTensor,
    weight_sums: LiveTensor,
    weight_scales: LiveTensor,
    bias: LiveTensor | None,
    out: LiveTensor,
) -> Steps:
    tensors = _operands(x, weight, weight_sums, weight_scales, bias)
    limits: Limits = yield GetLimits()
    yield _integer_product(
        INT8_LINEAR_FLOATS, out, tensors, limits, x_zero=input_zero_point, x_scale=input_scale, inverse=1.0, zero=0,
        BIAS=bias is not None,
    )  # fmt: skip


@op("aten._weight_int8pack_mm.default", rows=row_wise("x"), product=Product(matrix(), "x", "weight", linear=True))
def weight_int8pack_mm(x: LiveTensor, weight: LiveTensor, scales: LiveTensor, out: LiveTensor) -> Steps:
    """x @ (weight * scales).T, where x stays what it is."""
    check_columns(weight.shape[0], scales)
    limits: Limits = yield GetLimits()
    sizes = _sizes(x, weight, out)
    yield INT8_WEIGHT(out, x, weight, scales, VEC=4 if x.shape[-1] % 4 == 0 else 1, **_threads(*sizes, limits))


def _operands(
    x: LiveTensor, weight: LiveTensor, sums: LiveTensor, scales: LiveTensor, bias: LiveTensor | None
) -> tuple[LiveTensor, ...]:
    for given, name in ((x, "x"), (weight, "weight")):
        if given.dtype != "int8":
            raise UnsupportedError(f"{name} of dtype {given.dtype}: it must be int8, as a quantizer leaves it")
    check_columns(weight.shape[0], sums, scales, bias)
    check_depth(x.shape[-1])
    # An absent bias still needs a buffer in its place; the scales are there and only read.
    return x, weight, sums, scales, scales if bias is None else bias


def _integer_product(
    kernels: LinearKernels, out: LiveTensor, tensors: tuple[LiveTensor, ...], limits: Limits, **values: Any
) -> Dispatch:
    """A layer by matrix units where that gains, else by threads: sums are exact, and so the same."""
    x, weight = tensors[:2]
    rows, columns, depth = _sizes(x, weight, out)
    tiles = byte_matrix_tiles(rows, columns, depth, limits)
    if tiles is None:
        return kernels.threads(out, *tensors, **values, **_threads(rows, columns, depth, limits), turns=depth)
    sizes = {"batch": 1, "rows": rows, "columns": columns, "depth": depth, "splits": 1}
    return kernels.matrices(out, *tensors, **values, **sizes, **tiles)


def _sizes(x: LiveTensor, weight: LiveTensor, out: LiveTensor) -> tuple[int, int, int]:
    """Rows, columns and depth of a product, whose output's shape is set."""
    *lead, depth = x.shape
    columns = weight.shape[0]
    if weight.rank != 2 or weight.shape[1] != depth:
        raise ShapeError(f"a product of shapes {x.shape} and {weight.shape} transposed does not exist")
    out.shape = (*lead, columns)
    return prod(lead), columns, depth


def _threads(rows: int, columns: int, depth: int, limits: Limits) -> dict[str, Any]:
    """How threads reduce the product."""
    aligned = columns % 4 == 0
    thread_rows = 4 if aligned and (rows > 1 or limits.one_order) else 1
    units = ceil_div(rows, thread_rows) * (columns // 4) if aligned else ceil_div(rows * columns, 4)
    few = (ceil_div(columns, 4) if limits.one_order else units) < FEW_UNITS
    unit_threads = 1
    while few and unit_threads < MAX_UNIT_THREADS and unit_threads * 16 < depth:
        unit_threads = unit_threads * 2
    return {
        "rows": rows,
        "columns": columns,
        "depth": depth,
        "ROWS": thread_rows,
        "ROW_ALIGNED": aligned,
        "ALIGNED": depth % 4 == 0,
        "UNIT_THREADS": unit_threads,
        "cooperative_units": units,
    }


def check_columns(columns: int, *given: LiveTensor | None) -> None:
    """Whether there is an element for each column of a weight; the kernels trust this."""
    for tensor in given:
        if tensor is not None and tensor.numel < columns:
            raise ShapeError(f"{tensor.name} of {tensor.shape} is too short for {columns} columns")


def check_depth(depth: int) -> None:
    """Whether sums of products over this depth fit 32 bits."""
    if depth > DEEPEST:
        raise UnsupportedError(f"sums over {depth} products of eight bits do not fit 32 bits; {DEEPEST} do")


def is_relu(activation: str) -> bool:
    """What the word means that a file has for it."""
    if activation not in ("none", "relu"):
        raise UnsupportedError(f"an activation {activation!r}; there are 'none' and 'relu'")
    return activation == "relu"
