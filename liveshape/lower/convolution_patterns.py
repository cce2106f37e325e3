"""The batch norm of a convolution, folded into its weight and its bias: a factor and an addend of each output channel.

ExecuTorch folds those that are in a delegate with their convolution, and it leaves convolutions of a batch outside.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from liveshape.graph import Limits, Node, Tensor
from liveshape.graph.constants import Constant, ScaledConstant, all_bytes
from liveshape.graph.elements import prod
from liveshape.lower.def_use import DefUse
from liveshape.lower.pattern import Fusion, Replacement, exact
from liveshape.lower.pattern_operators import BATCH_NORM, CONVOLUTION

_LARGEST = 3.4e38  # of float32


def _folded_norm(uses: DefUse, norm: Node, limits: Limits) -> Sequence[Replacement]:
    """y = convolution(x, weight, bias); out = batch_norm(y): one convolution, at its place."""
    y, gain, shift, mean, variance, _, eps, outs = norm.args
    layer = uses.producer.get(y)
    if layer is None or layer.name not in CONVOLUTION or uses.only_consumer(y) is not norm:
        return ()
    x, weight, bias, *window, transposed, output_padding, groups, _ = layer.args
    out = outs[0]
    whole = uses.single_assignment(y, out) and all(uses.used_only_by((), saved) for saved in outs[1:])
    if not whole or y.max_shape != out.max_shape or not exact(x, weight, y, out) or (transposed and groups != 1):
        return ()
    channels = y.max_shape[1]
    data = _of_file(uses, weight)
    given = [_numbers(uses, each, channels, default) for each, default in ((gain, 1.0), (shift, 0.0), (bias, 0.0))]
    means, variances = (_numbers(uses, each, channels, None) for each in (mean, variance))
    if data is None or means is None or variances is None or None in given:
        return ()
    gains, shifts, biases = (each for each in given if each is not None)
    deviations = [value + eps for value in variances]
    if not all(value > 0 for value in deviations):
        return ()
    factors = tuple(one / math.sqrt(value) for one, value in zip(gains, deviations, strict=True))
    addends = [
        begin + (own - middle) * factor
        for begin, own, middle, factor in zip(shifts, biases, means, factors, strict=True)
    ]
    if not all(abs(value) < _LARGEST for value in (*factors, *addends)):
        return ()
    # An output channel is the first axis of a weight, and the second of a transposed one.
    run = prod(weight.max_shape[2:] if transposed else weight.max_shape[1:])
    made = (
        _constant(f"{weight.name} times its batch norm", weight.max_shape, ScaledConstant(data, factors, run)),
        _constant(f"{weight.name}'s bias after its batch norm", (channels,), _floats(addends)),
    )
    args = (x, *made, *window, transposed, output_padding, groups, out)
    return [Replacement(layer, layer.name, (layer, norm), args, made)]


def _of_file(uses: DefUse, tensor: Tensor) -> memoryview | None:
    """The bytes of a constant of float32 that the host has and that nothing writes."""
    data = tensor.constant
    known = isinstance(data, memoryview) and not uses.writes[tensor] and tensor.dtype == "float32"
    return data if known and isinstance(data, memoryview) and len(data) == 4 * prod(tensor.max_shape) else None


def _numbers(uses: DefUse, tensor: Tensor | None, channels: int, absent: float | None) -> list[float] | None:
    """A number for each channel; None where they are not known."""
    if tensor is None:
        return None if absent is None else [absent] * channels
    data = _of_file(uses, tensor)
    if data is None or tensor.max_shape != (channels,):
        return None
    return [float(each) for each in memoryview(bytes(all_bytes(data))).cast("f")]


def _floats(values: Sequence[float]) -> memoryview:
    data = memoryview(bytearray(4 * len(values))).cast("f")
    for place, value in enumerate(values):
        data[place] = value
    return data.cast("B")


def _constant(name: str, shape: tuple[int, ...], data: Constant) -> Tensor:
    return Tensor(name, "float32", shape, constant=data)


FOLDED_NORMS = Fusion(
    "batch norm in the weight and the bias of its convolution",
    BATCH_NORM,
    _folded_norm,
    reorders=True,
)
