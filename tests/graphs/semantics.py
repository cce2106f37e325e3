"""What every operator of a random program means, in torch: floats are float64, whole numbers int64.

Pointwise operators mean what kernels/pointwise_table.py says of their functions, and what torch does not have means
what `liveshape check` says of it.

A function gets the arguments before the output and returns what its node's targets become.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from liveshape.check.meanings import MEANINGS
from liveshape.check.meanings.pointwise_meanings import Operand, evaluated
from liveshape.ops import OPS
from liveshape.ops.pointwise import built
from tests.support.torch_functions import TorchFunctions

Tensor = torch.Tensor
MEANING: dict[str, Callable[..., Any]] = {}
# Operators that bring elements from one place to another and round nothing.
MOVES = {"liveshape.move", "executorch_prim::et_copy_index.tensor", "update_cache.default"}


# Operators that leave a part of their output as it was, and so get it last.
KEEPING = {"liveshape.record"}

# Operators with a quotient whose last bits are seen; they take how far it is off.
NUDGED = {"torchao.choose_qparams_affine.default"}


def _plain() -> None:
    for name in ("clone", "alias_copy", "detach_copy", "_to_copy", "lift_fresh_copy"):
        MEANING[f"aten.{name}.default"] = lambda x, *_: x
    for name in ("mm", "bmm", "matmul"):
        MEANING[f"aten.{name}.default"] = getattr(torch, name)


_KINDS = {torch.float64: "float32", torch.int64: "int64", torch.bool: "bool"}


def _by_table(define: Callable[..., Any], given: str | None = None) -> Callable[..., Tensor]:
    """A pointwise operator as the expression that it declares, of that dtype or of the one that its inputs have."""

    def evaluated_at(*arguments: Any) -> Tensor:
        inputs = [Operand("", _KINDS[x.dtype], x) if isinstance(x, Tensor) else x for x in arguments]
        kinds = {x.dtype for x in inputs if isinstance(x, Operand)}
        out = "float32" if "float32" in kinds else "int64" if "int64" in kinds else "bool"
        made = built(define, inputs, given or out)
        (result,) = evaluated(TORCH, made.expression, [x.array for x in made.tensors], made.numbers)
        return result

    return evaluated_at


def _by_check(function: Callable[..., Any]) -> Callable[..., Any]:
    """An operator as numpy has it, of bytes where whole numbers fit."""

    def evaluated_by_numpy(*arguments: Any) -> Any:
        with np.errstate(all="ignore"):  # shapes are asked for with zeros
            results = function(*(_in_numpy(each) if isinstance(each, Tensor) else each for each in arguments))
        made = [_in_torch(each) if isinstance(each, np.ndarray) else each for each in results if each is not None]
        return made[0] if len(made) == 1 else tuple(made)

    return evaluated_by_numpy


def _in_numpy(x: Tensor) -> Any:
    if x.dtype != torch.int64 or not x.numel():
        return x.numpy()
    fitting = (dtype for dtype in (torch.int8, torch.uint8) if bool((x == x.to(dtype)).all()))
    return x.to(next(fitting, torch.int64)).numpy()


def _in_torch(array: Any) -> Tensor:
    kind = {"f": torch.float64, "b": torch.bool}.get(array.dtype.kind, torch.int64)
    return torch.tensor(array, dtype=kind)


TORCH = TorchFunctions()
MEANING.update({name: _by_check(function) for name, function in MEANINGS.items()})
for _name, _entry in OPS.items():
    if _entry.traits.pointwise is not None and _name.startswith("aten."):
        MEANING[_name] = _by_table(_entry.traits.pointwise)
    elif _entry.traits.pointwise is not None and _name.startswith(("quantized_decomposed.", "et_vk.")):
        MEANING[_name] = _by_table(_entry.traits.pointwise, "float32" if "dequantize" in _name else "int64")


# With the arguments of their schemas.
_SCHEMAS = """
    adaptive_avg_pool1d.default _adaptive_avg_pool2d.default adaptive_max_pool1d.default adaptive_max_pool2d.default
    avg_pool1d.default avg_pool2d.default max_pool1d.default max_pool2d.default max_pool2d_with_indices.default
    upsample_nearest1d.default upsample_nearest2d.default upsample_linear1d.default upsample_bilinear2d.default
    upsample_nearest1d.vec upsample_nearest2d.vec upsample_linear1d.vec upsample_bilinear2d.vec
    reflection_pad1d.default reflection_pad2d.default replication_pad1d.default replication_pad2d.default
    pixel_shuffle.default pixel_unshuffle.default convolution.default glu.default
    scatter.src scatter.value scatter_add.default
    masked_scatter.default masked_select.default nonzero.default tril.default triu.default
"""


def _by_schema() -> None:
    for name in _SCHEMAS.split():
        packet, _, overload = name.partition(".")
        MEANING[f"aten.{name}"] = getattr(getattr(torch.ops.aten, packet), overload)


_plain()
_by_schema()
MEANING.update({
    "aten.view_copy.default": lambda x, size: x.reshape(size),
    "aten.unsqueeze_copy.default": torch.unsqueeze,
    "aten.squeeze_copy.dims": lambda x, dims: x.squeeze(dims),
    "aten.permute_copy.default": torch.permute,
    "aten.transpose_copy.int": torch.transpose,
    "aten.t_copy.default": torch.t,
    "aten.expand_copy.default": lambda x, size, implicit: x.expand(size),
    "aten.slice_copy.Tensor": torch.ops.aten.slice.Tensor,
    "aten.narrow_copy.default": torch.narrow,
    "aten.select_copy.int": torch.select,
    "aten.flip.default": torch.flip,
    "aten.roll.default": torch.roll,
    "aten.repeat.default": lambda x, times: x.repeat(times),
    "aten.constant_pad_nd.default": torch.constant_pad_nd,
    "aten.unfold_copy.default": lambda x, dim, size, step: x.unfold(dim, size, step),
    "aten.diagonal_copy.default": torch.diagonal,
    "aten.cat.default": torch.cat,
    "aten.stack.default": torch.stack,
    "aten.split_with_sizes_copy.default": lambda x, sizes, dim: x.split(list(sizes), dim),
    "aten.unbind_copy.int": torch.unbind,
    "aten.slice_scatter.default": torch.slice_scatter,
    "aten.select_scatter.default": torch.select_scatter,
    "aten.copy.default": lambda x, source, _: source.expand(x.shape),
    "aten.copy_.default": lambda x, source, _: source.expand(x.shape),
    "aten.sum.dim_IntList": lambda x, dim, keepdim, _: torch.sum(x, dim, keepdim),
    "aten.mean.dim": lambda x, dim, keepdim, _: torch.mean(x, dim, keepdim),
    "aten.amax.default": torch.amax,
    "aten.amin.default": torch.amin,
    "aten.any.dim": lambda x, dim, keepdim: torch.any(x, dim[0] if isinstance(dim, tuple) else dim, keepdim),
    "aten.all.dim": lambda x, dim, keepdim: torch.all(x, dim[0], keepdim),
    "aten.argmax.default": lambda x, dim, keepdim: torch.argmax(x, dim[0], keepdim),
    "aten.max.dim": torch.max,
    "aten.var.correction": lambda x, dim, correction, keepdim: torch.var(
        x, dim, correction=correction, keepdim=keepdim
    ),
    "aten.cumsum.default": lambda x, dim, _: torch.cumsum(x, dim),
    "aten._softmax.default": lambda x, dim, _: torch.softmax(x, dim),
    "aten._log_softmax.default": lambda x, dim, _: torch.log_softmax(x, dim),
    "aten.native_layer_norm.default": torch.native_layer_norm,
    "aten.native_group_norm.default": lambda x, *rest: torch.native_group_norm(x.contiguous(), *rest),
    "aten.linear.default": F.linear,
    "aten.addmm.default": lambda addend, x, other, beta, alpha: torch.addmm(addend, x, other, beta=beta, alpha=alpha),
    "aten.embedding.default": lambda weight, ids, *_: weight[ids],
    "aten.index_select.default": torch.index_select,
    "aten.gather.default": lambda x, dim, index, _: torch.gather(x, dim, index),
    "aten.index.Tensor": lambda x, indices: x[tuple(slice(None) if i is None else i for i in indices)],
    "aten.index_put.default": lambda x, indices, values, add: x.index_put(indices, values, add),
    "aten.index_put_.default": lambda x, indices, values, add: x.index_put(indices, values, add),
    "aten.scatter_reduce.two": lambda x, dim, index, source, how, whole: (
        torch.scatter_reduce(x, dim, index, source, how, include_self=whole)
    ),
    "aten.full.default": lambda size, value, *_: torch.full(size, value),
    "aten.full_like.default": lambda x, value, *_: torch.full(x.shape, value),
    "aten.arange.start_step": lambda start, end, step, *_: torch.arange(start, end, step),
    "et_vk.select_as_symint.default": lambda x, dim, index: (
        x.select(dim, index).reshape(-1)[0].item() if x.numel() else 0
    ),
    "aten::_local_scalar_dense": lambda x: x.reshape(-1)[0].item(),
})  # fmt: skip


def meaning(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Say what operators mean."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        MEANING.update(dict.fromkeys(names, function))
        return function

    return register


@meaning("torchao.choose_qparams_affine.default")
def _choose_qparams(x: Tensor, *_: Any, nudge: float) -> tuple[Tensor, Tensor]:
    """As torchao has it for asymmetric int8 by rows, in float32 as there: a zero point is a matter of rounding.

    The ends of a row of which one is minus the other lie in the middle of two steps, so the last bit of the scale
    decides which of the two keeps its step; GPUs divide to about two of these. `nudge` is what the scale is off.
    """
    low, high = x.float().amin(-1).clamp(max=0), x.float().amax(-1).clamp(min=0)
    scale = ((high - low) / 255 * (1 + nudge)).clamp(min=torch.finfo(torch.float32).tiny)
    return scale.double(), (-128 - torch.round(low / scale)).clamp(-128, 127).long()


@meaning("et_vk.conv_with_clamp.default")
def _clamped(*given: Any) -> Tensor:
    *args, low, high = given
    return torch.convolution(*args).clamp(low, high)


@meaning("aten.sort.default")
def _sort(x: Tensor, dim: int, descending: bool) -> tuple[Tensor, Tensor]:
    values, places = torch.sort(x, dim=dim, descending=descending, stable=True)
    return values, places


@meaning("aten.topk.default")
def _topk(x: Tensor, k: int, dim: int, largest: bool, _: bool) -> tuple[Tensor, Tensor]:
    values, places = _sort(x, dim, largest)
    return values.narrow(dim, 0, k), places.narrow(dim, 0, k)


@meaning("liveshape.sample")
def _greedy(logits: Tensor, history: Tensor, length: int, *settings: Any) -> Tensor:
    scores, (penalty, frequency, _, prompt, _) = logits.reshape(-1, logits.shape[-1])[-1].clone(), settings[-5:]
    tokens = history.reshape(-1)[:length].tolist()
    for token in set(tokens):
        scores[token] *= penalty if scores[token] < 0 else 1 / penalty
        scores[token] -= frequency * tokens[prompt:].count(token)
    return torch.argmax(scores).reshape(1, 1)


@meaning("executorch_prim::et_copy_index.tensor")
def _copy_index(collected: Tensor | None, row: Tensor, index: int) -> Tensor:
    return row.unsqueeze(0) if collected is None or not index else torch.cat((collected[:index], row.unsqueeze(0)))


_MOVING = """
    flip roll cat stack copy_ clone gather sort topk masked_fill masked_scatter masked_select index tril triu
    pixel_shuffle pixel_unshuffle reflection_pad1d reflection_pad2d replication_pad1d replication_pad2d
    upsample_nearest1d upsample_nearest2d max_pool1d max_pool2d max_pool2d_with_indices
    adaptive_max_pool1d adaptive_max_pool2d
""".split()
MOVES |= {name for name in MEANING if "_copy." in name or name.removeprefix("aten.").partition(".")[0] in _MOVING}
MOVES.remove("aten._to_copy.default")
