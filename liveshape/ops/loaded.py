"""An operator with a prologue: one of its operands is an expression, which is computed where a kernel loads it.

Which kernels an operator takes is its own affair: where one dispatch reads the operand, and its kernel is composable of
it, the kernel loads the expression instead. Else the operand goes through memory, as without a prologue.
"""

from __future__ import annotations

from typing import Any

from liveshape.graph import Limits, Tensor
from liveshape.graph.live import LiveTensor
from liveshape.kernels import Dispatch
from liveshape.kernels.prologues import PROLOGUE, loading
from liveshape.kernels.requests import GetLimits, Scratch
from liveshape.ops.composed import Steps, collected, from_places, like, onto
from liveshape.ops.pointwise import Pointwise, evaluate, laid_out
from liveshape.ops.registry import OPS, op
from liveshape.ops.shapes import broadcast_shapes


@op("liveshape.loaded", epilogues=True)
def load(composition: Any, values: Any, operands: Any, numbers: Any, out: LiveTensor) -> Steps:
    """out = an operator of `values` and of an expression, whose operands broadcast together."""
    made = Pointwise(composition.expression, operands, numbers)
    dtype = composition.expression.dtype
    operand = LiveTensor(Tensor(f"{out.name} before its operator", dtype, composition.max_shape), bytearray())
    memory: Any = yield Scratch(dtype, composition.max_shape)
    limits: Any = yield GetLimits()
    operand.shape = broadcast_shapes(*(tensor.shape for tensor in operands))
    arguments = from_places(composition.anchor.arguments, (*values, operand))
    dispatches = yield from collected(OPS[composition.anchor.name].run(*arguments, out))
    reading = [each for each in dispatches if operand in each.tensors]
    found = _with_prologue(reading[0], made, operand, limits) if len(reading) == 1 else None
    if reading and found is None:
        yield from evaluate(made, memory)
    for each in dispatches:
        if each not in reading:
            yield each
        else:
            yield onto(each, operand, memory) if found is None else found


def _with_prologue(dispatch: Dispatch, made: Pointwise, operand: LiveTensor, limits: Limits) -> Dispatch | None:
    """A dispatch that loads an expression instead of an operand; None where its kernel does not."""
    kernel, (expression, operands, _) = dispatch.kernel, made
    slots = [place for place, tensor in enumerate(dispatch.tensors) if tensor is operand]
    slot = next((place for place in slots if kernel.bindings[place].name == kernel.loads), None)
    # What stands in the place of an absent tensor is any other of its dtype.
    other = next((each for each in operands if each.dtype == operand.dtype), None)
    if slot is None or (len(slots) > 1 and other is None):
        return None
    vector = kernel.bindings[slot].vector
    width = dispatch.values.get("VEC", 1) if vector == "V" else int(vector[3:] or 1)
    tensors: list[Any] = [other if tensor is operand else tensor for tensor in dispatch.tensors]
    tensors = [*tensors[:slot], operands[0], *tensors[slot + 1 :], *operands[1:]]
    bindings = sum(tensor.bindings for tensor in tensors)
    if width not in (1, 4) or any(each.bindings > 1 for each in operands) or bindings > limits.max_bindings:
        return None
    places, values = laid_out(made, operand.shape, PROLOGUE)
    composed = loading(kernel, expression, places, limits.half)
    return like(dispatch, composed, tuple(tensors), dispatch.values | values)
