"""What every operator of a random program means, in torch: floats are float64, whole numbers int64.

Pointwise operators mean what kernels/pointwise_table.py says of their functions.

A function gets the arguments before the output and returns what its node's targets become.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

from liveshape.check.meanings.pointwise_meanings import Operand, evaluated
from liveshape.ops import OPS
from liveshape.ops.pointwise import built
from tests.ops.cases.attention import _attention
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
    for name in ("eq", "ne", "lt", "le", "gt", "ge", "add", "sub", "mul", "floordiv"):
        MEANING[name] = getattr(operator, name)
    for name in ("clone", "alias_copy", "detach_copy", "_to_copy", "lift_fresh_copy"):
        MEANING[f"aten.{name}.default"] = lambda x, *_: x
    for name in ("mm", "bmm", "matmul"):
        MEANING[f"aten.{name}.default"] = getattr(torch, name)
    MEANING["sym_max"], MEANING["sym_min"] = max, min
    MEANING["liveshape.move"] = MEANING["liveshape.assign"] = lambda x: x


_KINDS = {torch.float64: "float32", torch.int64: "int64", torch.bool: "bool"}


def _by_table(define: Callable[..., Any]) -> Callable[..., Tensor]:
    """A pointwise operator as the expression that it declares."""

    def evaluated_at(*arguments: Any) -> Tensor:
        inputs = [Operand("", _KINDS[x.dtype], x) if isinstance(x, Tensor) else x for x in arguments]
        kinds = {x.dtype for x in inputs if isinstance(x, Operand)}
        out = "float32" if "float32" in kinds else "int64" if "int64" in kinds else "bool"
        made = built(define, inputs, out)
        (result,) = evaluated(TORCH, made.expression, [x.array for x in made.tensors], made.numbers)
        return result

    return evaluated_at


TORCH = TorchFunctions()
for _name, _entry in OPS.items():
    if _entry.traits.pointwise is not None and _name.startswith("aten."):
        MEANING[_name] = _by_table(_entry.traits.pointwise)


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
    "et_vk.rms_norm.default": lambda x, weight, eps: (
        x * torch.rsqrt((x * x).mean(-1, keepdim=True) + eps) * weight
    ),
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
    "sym_size.int": lambda x, dim: x.shape[dim],
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


def nibbles(packed: Tensor, depth: int, high_first: bool) -> Tensor:
    """The whole numbers of a packed 4-bit weight."""
    low, high = packed % 16 - 8, packed // 16 - 8
    pairs = (high, low) if high_first else (low, high)
    return torch.stack(pairs, -1).reshape(packed.shape[0], -1)[:, :depth].double()


@meaning("et_vk.linear_q4gsw.default")
def _linear_q4(x: Tensor, weight: Tensor, scales: Tensor, group: int, bias: Tensor | None) -> Tensor:
    whole = nibbles(weight, x.shape[-1], False) * scales.repeat_interleave(group, 0).T
    return F.linear(x, whole, bias)


@meaning("et_vk.linear_qcs4w.default")
def _linear_columns(x: Tensor, weight: Tensor, scales: Tensor) -> Tensor:
    return F.linear(x, nibbles(weight, x.shape[-1], True) * scales[:, None])


@meaning("et_vk.embedding_q4gsw.default")
def _embedding_q4(weight: Tensor, scales: Tensor, group: int, ids: Tensor, is_linear_weight: bool) -> Tensor:
    table = nibbles(weight, weight.shape[1] * 2, not is_linear_weight) * scales.repeat_interleave(group, 1)
    return table[ids]


@meaning("torchao.choose_qparams_affine.default")
def _choose_qparams(x: Tensor, *_: Any, nudge: float) -> tuple[Tensor, Tensor]:
    """As torchao has it for asymmetric int8 by rows, in float32 as there: a zero point is a matter of rounding.

    The ends of a row of which one is minus the other lie in the middle of two steps, so the last bit of the scale
    decides which of the two keeps its step; GPUs divide to about two of these. `nudge` is what the scale is off.
    """
    low, high = x.float().amin(-1).clamp(max=0), x.float().amax(-1).clamp(min=0)
    scale = ((high - low) / 255 * (1 + nudge)).clamp(min=torch.finfo(torch.float32).tiny)
    return scale.double(), (-128 - torch.round(low / scale)).clamp(-128, 127).long()


@meaning("et_vk.linear_dq8ca_q4gsw.default")
def _linear_rounded(
    x: Tensor, scale: Tensor, zero: Tensor, weight: Tensor, _: Any, scales: Tensor, group: int, bias: Tensor | None
) -> Tensor:
    steps = torch.round(x / scale[..., None]) + zero[..., None]
    return _linear_q4((steps.clamp(-128, 127) - zero[..., None]) * scale[..., None], weight, scales, group, bias)


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


def _codes(values: Tensor, scale: float, zero: int) -> Tensor:
    return (torch.round(values / scale) + zero).clamp(-128, 127)


def _along(x: Tensor, given: Tensor, axis: int) -> Tensor:
    return given.reshape([-1 if each == axis % x.dim() else 1 for each in range(x.dim())])


@meaning("quantized_decomposed.quantize_per_tensor.default", "quantized_decomposed.quantize_per_tensor.tensor")
def _quantize(x: Tensor, scale: Any, zero: Any, *_: Any) -> Tensor:
    return _codes(x, scale, zero)


@meaning("quantized_decomposed.quantize_per_channel.default")
def _quantize_channels(x: Tensor, scales: Tensor, zeros: Tensor, axis: int, *_: Any) -> Tensor:
    return _codes(x, _along(x, scales, axis), _along(x, zeros, axis))


@meaning("quantized_decomposed.quantize_per_token.default")
def _quantize_tokens(x: Tensor, scales: Tensor, zeros: Tensor, *_: Any) -> Tensor:
    return torch.round(x / scales + zeros).clamp(-128, 127)


@meaning(*(f"quantized_decomposed.dequantize_{form}" for form in ("per_tensor.default", "per_tensor.tensor",
                                                                "per_token.default")))  # fmt: skip
def _dequantize(x: Tensor, scale: Any, zero: Any, *_: Any) -> Tensor:
    return (x - zero) * scale


@meaning("quantized_decomposed.dequantize_per_channel.default")
def _dequantize_channels(x: Tensor, scales: Tensor, zeros: Tensor, axis: int, *_: Any) -> Tensor:
    return (x - _along(x, zeros, axis)) * _along(x, scales, axis)


@meaning("et_vk.linear_q8ta_q8csw.default")
def _linear_bytes(
    x: Tensor, scale: float, zero: int, weight: Tensor, _: Any, scales: Tensor, bias: Tensor | None
) -> Tensor:
    columns = weight.shape[0]
    offset = None if bias is None else bias[:columns]
    return F.linear((x - zero).double() * scale, weight * scales[:columns, None], offset)


@meaning("et_vk.q8ta_linear.default")
def _linear_codes(*given: Any) -> Tensor:
    *operands, scale, zero, bias, activation = given
    values = _linear_bytes(*operands, bias)
    return _codes(torch.relu(values) if activation == "relu" else values, scale, zero)


@meaning("et_vk.q8ta_relu.default")
def _relu_codes(x: Tensor, scale: float, zero: int, out_scale: float, out_zero: int) -> Tensor:
    return _codes(torch.relu((x - zero) * scale), out_scale, out_zero)


@meaning("et_vk.q8ta_add.default")
def _add_codes(a: Tensor, b: Tensor, a_scale: float, a_zero: int, b_scale: float, b_zero: int, *to: Any) -> Tensor:
    out_scale, out_zero, alpha = to
    return _codes((a - a_zero) * a_scale + alpha * (b - b_zero) * b_scale, out_scale, out_zero)


@meaning("et_vk.apply_rotary_emb_hf.default")
def _rotary_halves(q: Tensor, k: Tensor, cosine: Tensor, sine: Tensor, start: int) -> tuple[Tensor, Tensor]:
    def turn(x: Tensor) -> Tensor:
        width = cosine.shape[1]
        angles = slice(start, start + x.shape[1])
        rest, x = x[..., width:], x[..., :width]
        other = torch.cat((-x[..., width // 2 :], x[..., : width // 2]), -1)
        return torch.cat((x * cosine[angles].unsqueeze(1) + other * sine[angles].unsqueeze(1), rest), -1)

    return turn(q), turn(k)


@meaning("et_vk.apply_rotary_emb.default")
def _rotary_neighbours(q: Tensor, k: Tensor, cosine: Tensor, sine: Tensor) -> tuple[Tensor, ...]:
    turn = torch.complex(cosine, sine).unsqueeze(1)
    return tuple(
        torch.view_as_real(torch.view_as_complex(x.unflatten(-1, (-1, 2)).contiguous()) * turn).flatten(-2)
        for x in (q, k)
    )


def _in_cache(cache: Tensor, rows: Tensor, position: int) -> Tensor:
    return torch.cat((cache[:, :position], rows, cache[:, position + rows.shape[1] :]), 1)


@meaning("custom_sdpa.default")
def _custom_sdpa(
    q: Tensor, k: Tensor, v: Tensor, position: int, mask: Any, dropout: float, causal: bool, scale: Any
) -> Tensor:
    keys, values = (held[:, : position + q.shape[1]].transpose(1, 2) for held in (k, v))
    return _attention(q.transpose(1, 2), keys, values, mask, position if causal else None, scale).transpose(1, 2)


@meaning("sdpa_with_kv_cache.default")
def _sdpa_with_cache(
    q: Tensor, k: Tensor, v: Tensor, k_cache: Tensor, v_cache: Tensor, position: int, _: Any, *rest: Any
) -> tuple[Tensor, ...]:
    caches = _in_cache(k_cache, k, position), _in_cache(v_cache, v, position)
    return _custom_sdpa(q, *caches, position, *rest), *caches


@meaning("update_cache.default")
def _update_cache(rows: Tensor, cache: Tensor, position: int) -> Tensor:
    return _in_cache(cache, rows, position)


@meaning("et_vk.sdpa.default")
def _sdpa(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, scale: float | None) -> Tensor:
    return _attention(q, k, v, mask, None, scale)


@meaning("liveshape.record")
def _record(tokens: Tensor, position: int, history: Tensor) -> Tensor:
    return _in_cache(history, tokens.reshape(1, -1), position)


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
