"""Quantize and dequantize (8 bits, affine), and the choice of scales and zero points (qparams).

All forms are one: a scale and a zero point belong to a block of the tensor, which is all of it, a channel, a row or a
group. They follow torch in float32: a value is multiplied by the inverse of its scale, and ties round to even.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from liveshape.errors import ShapeError, UnsupportedError
from liveshape.graph import Shape
from liveshape.graph.elements import is_packed, prod, storage_type
from liveshape.graph.live import LiveTensor
from liveshape.kernels import Dispatch, Kernel
from liveshape.ops.pointwise import Build, Define, Term, Viewed, pointwise
from liveshape.ops.registry import Ints, Number, Tensors, op
from liveshape.ops.row_rules import block_wise, by_channels, elementwise, qparams_of_blocks, row_wise, with_scales
from liveshape.ops.shapes import axis_of, ceil_div, merge_dims, strides_of
from liveshape.ops.stages import walk_of

CHOOSE_QPARAMS = Kernel.load("quantization/choose_qparams")
CHOOSING_ELEMENTS = 8  # vectors of a block for each turn of a thread of a workgroup, where that is small
CHOOSE_QPARAMS_EACH = Kernel.load("quantization/choose_qparams", ZERO_POINTS="unpacked")

ASYMMETRIC, SYMMETRIC, NO_CLIPPING, CLOSER_END = range(4)
MAPPINGS = {"ASYMMETRIC": ASYMMETRIC, "SYMMETRIC": SYMMETRIC, "SYMMETRIC_NO_CLIPPING_ERR": NO_CLIPPING}
ALL = 1 << 16  # more threads than a workgroup has, so all of them
SMALLEST_NORMAL = {"f32": 1.1754943508222875e-38, "f16": 6.103515625e-05}
FLOAT_EPSILON = 2.0**-23
RANGES = {"int8": (-128, 127), "uint8": (0, 255)}
BYTE = 0  # how a file writes uint8 where it names a dtype


class Blocks(NamedTuple):
    """The shape of a tensor with its blocks as dimensions of their own, and which of these tell blocks apart."""

    sizes: Shape
    kept: tuple[bool, ...]

    def operands(
        self, x: LiveTensor, scale: LiveTensor, zero: LiveTensor | None
    ) -> tuple[Viewed, Viewed, Viewed | None]:
        """A tensor, and the scale and zero point of each block, as they broadcast together."""
        shape = tuple(size if keep else 1 for size, keep in zip(*self, strict=True))
        for factor in (scale,) if zero is None else (scale, zero):
            if factor.numel < prod(shape):
                raise ShapeError(
                    f"{factor.shape} scales or zero points are too few for {prod(shape)} blocks of {x.shape}"
                )
        return Viewed(x, self.sizes), Viewed(scale, shape), None if zero is None else Viewed(zero, shape)


# Quantize and dequantize


def codes(e: Build, x: Any, scale: Any, zero: Any, low: Number, high: Number, *, zero_first: bool = False) -> Term:
    """The integers of floats: as torch casts them, what is no number becomes zero."""
    inverse = 1.0 / scale if isinstance(scale, (int, float)) else e.call("reciprocal", scale, dtype="float32")
    steps = e.call("mul", x, inverse, dtype="float32")
    if not zero_first:
        steps = e.call("round", steps, dtype="float32")
    if zero is not None:
        steps = e.call("add", steps, zero, dtype="float32")
    if zero_first:
        steps = e.call("round", steps, dtype="float32")
    return e.call("code", steps, low, high)


def values_of(e: Build, x: Any, scale: Any, zero: Any, dtype: str | None = None) -> Term:
    """The floats of integers, of the dtype of the result unless another one is said."""
    offset = x if zero is None else e.call("sub", x, zero, dtype="float32")
    return e.call("mul", offset, scale, dtype=dtype)


def _both(direction: str, form: str, tail: str) -> tuple[str, str]:
    """The names of an operator in a delegate and outside."""
    return f"quantized_decomposed.{direction}_{form}", f"quantized_decomposed::{direction}_{tail}"


_RANGE = "quant_min quant_max"
_OUT = f"{_RANGE} dtype out_dtype out"  # of what needs no range


@pointwise(
    *_both("quantize", "per_tensor.default", "per_tensor.out"),
    schema=f"x scale zero_point {_RANGE} dtype out",
    rows=elementwise("x"),
)
def quantize_per_tensor(
    e: Build, x: LiveTensor, scale: float, zero_point: int, quant_min: int, quant_max: int, *_: Any
) -> Term:
    return codes(e, x, scale, zero_point, quant_min, quant_max)


def by_blocks(*names: str, **traits: Any) -> Callable[[Define], Define]:
    """Register an operator on a tensor and what there is of each of its blocks, by its expression; none is fused."""
    return pointwise(*names, shape=lambda x, *_: x.shape, pointwise=None, **traits)


@pointwise(
    *_both("dequantize", "per_tensor.default", "per_tensor.out"),
    schema=f"x scale zero_point {_OUT}",
    rows=elementwise("x"),
)
def dequantize_per_tensor(e: Build, x: LiveTensor, scale: float, zero_point: int, *_: Any) -> Term:
    return values_of(e, x, scale, zero_point)


@by_blocks(
    "torchao.quantize_affine.default",
    schema=f"x block_size scale zero_point output_dtype {_RANGE} out",
    rows=block_wise("scale", "zero_point"),
)
def quantize_affine(
    e: Build,
    x: LiveTensor,
    block_size: Ints,
    scale: LiveTensor,
    zero_point: LiveTensor | None,
    quant_min: Number | None,
    quant_max: Number | None,
) -> Term:
    low, high = _range("uint8" if e.out == "uint8" else "int8", quant_min, quant_max)
    return codes(e, *_split(x, block_size).operands(x, scale, zero_point), low, high)


@by_blocks(
    "torchao.dequantize_affine.default",
    schema=f"x block_size scale zero_point dtype {_RANGE} out_dtype out",
    rows=block_wise("scale", "zero_point"),
)
def dequantize_affine(
    e: Build, x: LiveTensor, block_size: Ints, scale: LiveTensor, zero_point: LiveTensor | None
) -> Term:
    return values_of(e, *_split(x, block_size).operands(x, scale, zero_point))


_FACTORS = {"x": LiveTensor, "scales": LiveTensor, "zero_points": LiveTensor}


def _register(
    form: str, tail: str, rows: Any, blocks: Callable[..., Blocks], by: str = "", *, zero_first: bool = False
) -> None:
    """Both directions, of what has a scale and a zero point for each of these blocks, which an integer may tell."""
    given = _FACTORS | dict.fromkeys(by.split(), int)
    names, limits = _both("quantize", form, tail), dict.fromkeys(_RANGE.split(), int)

    @by_blocks(*names, schema=f"x scales zero_points {by} {_RANGE} dtype out", rows=rows, given=given | limits)
    def quantize(e: Build, *arguments: Any) -> Term:
        x, scales, zeros, *how, low, high = arguments
        return codes(e, *blocks(x, *how).operands(x, scales, zeros), low, high, zero_first=zero_first)

    names, optional = _both("dequantize", form, tail), {"zero_points": LiveTensor | None}

    @by_blocks(*names, schema=f"x scales zero_points {by} {_OUT}", rows=rows, given=given | optional)
    def dequantize(e: Build, *arguments: Any) -> Term:
        x, scales, zeros, *how = arguments
        return values_of(e, *blocks(x, *how).operands(x, scales, zeros))


def _channels(x: LiveTensor, axis: int) -> Blocks:
    place = axis_of(axis, x.rank)
    return Blocks((prod(x.shape[:place]), x.shape[place], prod(x.shape[place + 1 :])), (False, True, False))


def tokens(x: LiveTensor) -> Blocks:
    """The rows of a tensor."""
    return Blocks((prod(x.shape[:-1]), x.shape[-1]), (True, False))


_register("per_tensor.tensor", "per_tensor.Tensor_out", elementwise("x"), lambda x: Blocks(x.shape, (False,) * x.rank))
_register("per_channel.default", "per_channel.out", by_channels, _channels, "axis")
# Here, and only here, torch adds the zero point before it rounds.
_register("per_token.default", "per_token.out", with_scales("x", "scales", "zero_points"), tokens, zero_first=True)


def _range(dtype: str, low: Number | None, high: Number | None) -> tuple[Number, Number]:
    """The range of the integers: as it is given, else all that the dtype has."""
    least, most = RANGES[dtype]
    return least if low is None else low, most if high is None else high


def _split(x: LiveTensor, block_size: Ints) -> Blocks:
    if len(block_size) != x.rank:
        raise ShapeError(f"blocks of {block_size} do not have the rank of {x.shape}")
    sizes: list[int] = []
    kept: list[bool] = []
    for size, block in zip(x.shape, block_size, strict=True):
        if block != size and (block < 1 or size % block):
            raise ShapeError(f"blocks of {block_size} do not divide {x.shape}")
        if block == 1 or block == size:
            sizes, kept = [*sizes, size], [*kept, block == 1]
        else:
            sizes, kept = [*sizes, size // block, block], [*kept, True, False]
    return Blocks(tuple(sizes), tuple(kept))


# The choice of scales


@op("torchao.choose_qparams_affine.default", rows=qparams_of_blocks, cheap_to_keep=True)
def choose_qparams_affine(
    x: LiveTensor,
    mapping_type: str,
    block_size: Ints,
    target_dtype: Any,
    quant_min: Number | None,
    quant_max: Number | None,
    eps: float | None,
    scale_dtype: Any,
    zero_point_dtype: Any,
    keepdim: bool,
    out: Tensors,
) -> Iterator[Dispatch]:
    """Per block, the scale and the zero point that spread its values, zero among them, over the whole range."""
    scale, zero_point = out
    if mapping_type not in MAPPINGS:
        raise UnsupportedError(f"a mapping {mapping_type}; there are {', '.join(MAPPINGS)}")
    unsigned = zero_point.dtype == "uint8" or target_dtype == BYTE
    low, high = _range("uint8" if unsigned else "int8", quant_min, quant_max)
    blocks = _split(x, block_size)
    if keepdim:
        shape = tuple(size // block for size, block in zip(x.shape, block_size, strict=True))
    else:
        shape = _only(*blocks, True)
        # A live size of one is a block of one, which counts as kept; the rank says whether it is.
        while len(shape) > scale.rank and shape[-1] == 1:
            shape = shape[:-1]
    scale.shape = zero_point.shape = shape
    smallest = SMALLEST_NORMAL[storage_type(x.dtype)] if eps is None else eps
    yield _choose(x, blocks, MAPPINGS[mapping_type], low, high, smallest, out)


@op("quantized_decomposed.choose_qparams.tensor", "quantized_decomposed::choose_qparams.Tensor_out")
def choose_qparams(
    x: LiveTensor, quant_min: int, quant_max: int, eps: float, dtype: Any, out: Tensors
) -> Iterator[Dispatch]:
    out[0].shape = out[1].shape = (1,)
    yield _choose(x, Blocks(x.shape, (False,) * x.rank), ASYMMETRIC, quant_min, quant_max, eps, out)


@op(
    "quantized_decomposed.choose_qparams_per_token_asymmetric.default",
    "quantized_decomposed::choose_qparams_per_token_asymmetric.out",
    rows=row_wise("x"),
)
def choose_qparams_per_token_asymmetric(x: LiveTensor, dtype: Any, out: Tensors) -> Iterator[Dispatch]:
    out[0].shape = out[1].shape = (*x.shape[:-1], 1)
    blocks = Blocks(x.shape, (*(True for _ in x.shape[:-1]), False))
    yield _choose(x, blocks, CLOSER_END, *RANGES["int8"], FLOAT_EPSILON, out)


def _choose(
    x: LiveTensor, blocks: Blocks, mapping: int, low: Number, high: Number, eps: float, outputs: Tensors
) -> Dispatch:
    sizes, kept = blocks
    packed = is_packed(outputs[1].dtype)
    steps = strides_of(sizes)
    outer, (outer_steps,) = merge_dims(*(_only(row, kept, True) for row in (sizes, steps)))
    inner, (inner_steps,) = merge_dims(*(_only(row, kept, False) for row in (sizes, steps)))
    vector = 1
    if inner_steps[-1:] == (1,) and all(number % 4 == 0 for number in (*outer_steps, inner[-1], *inner_steps[:-1])):
        vector = 4
        inner = (*inner[:-1], inner[-1] // 4)
        inner_steps = (*(step // 4 for step in inner_steps[:-1]), 1)
        outer_steps = tuple(step // 4 for step in outer_steps)
    walk, units, count = walk_of((outer, outer_steps), (inner, inner_steps)), prod(outer), prod(inner)
    rows = 4 if packed or units >= 4 else 1
    kernel = CHOOSE_QPARAMS if packed else CHOOSE_QPARAMS_EACH
    return kernel(
        *outputs, x, **walk, low=low, high=high, eps=eps, middle=int((high + low + 1) / 2), MAPPING=mapping,
        ROWS=rows, UNIT_THREADS=ALL, VEC=vector, groups=ceil_div(units, rows), units=units, count=count,
        turns=count // CHOOSING_ELEMENTS,
    )  # fmt: skip


def _only(row: Shape, kept: tuple[bool, ...], wanted: bool) -> Shape:
    return tuple(number for number, keep in zip(row, kept, strict=True) if keep == wanted)
