"""Attention over a KV cache or over given keys and values, with online softmax: the matrix of scores is never stored.

One plan serves every operator, see `attention_routes.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from liveshape.errors import ShapeError, UnsupportedError
from liveshape.graph import Node, Shape
from liveshape.graph.elements import stored_alike
from liveshape.graph.live import LiveTensor
from liveshape.graph.traits import CacheRows, Carried, Product, Role
from liveshape.kernels import Dispatch
from liveshape.ops.attention_routes import Steps, Workspace, routed, workspace_of
from liveshape.ops.copies import copy_strided
from liveshape.ops.operations import attended, attended_causally
from liveshape.ops.registry import op
from liveshape.ops.row_rules import nothing_but, outputs_along
from liveshape.ops.row_tables import RowKernels, Start, check_row_table, rows_of_cache, rows_to_slots
from liveshape.ops.shapes import Strided, broadcast_shapes, broadcast_strides, strides_of

# The params of an absent bias of scores.
NO_BIAS = dict.fromkeys(("bias_start", "bias_batch", "bias_head", "bias_row", "bias_key"), 0) | {"bias_batches": 1}

CACHE_UPDATE = RowKernels.load("attention/cache_update")

# Which dimension counts rows and which counts heads.
ROWS_FIRST = (1, 2)
HEADS_FIRST = (2, 1)


def attend(
    q: LiveTensor,
    k: LiveTensor,
    v: LiveTensor,
    mask: LiveTensor | None,
    out: LiveTensor,
    axes: tuple[int, int],
    *,
    context: int,
    scale: float | None,
    causal: bool = False,
    position: int = 0,
    workspace: Workspace,
) -> Steps:
    """out = softmax(q @ k * scale + mask) @ v over the first `context` keys, q beginning at `position` among them.

    `workspace` is the scratch of `workspace_of`. A row that sees no key at all is zero.
    """
    check_heads(q, k, v, axes, context)
    size, value_size = k.shape[3], v.shape[3]
    out.shape = (*q.shape[:3], value_size)
    row_axis, head_axis = axes
    values = _params(q, k, v, mask, axes, context) | {
        "causal": causal,
        "position": position,
        "scale": size**-0.5 if scale is None else scale,
        "masked": float("-inf"),
        "unseen": 0.0,
        "HEAD_SIZE": max(size, value_size),
        "KEY_SIZE": size,
        "VALUE_SIZE": value_size,
        "MASK": 0 if mask is None else 2 if mask.dtype == "bool" else 1,
        "VEC": _vector(k, v),
    }
    # An absent mask still needs a buffer in its place; the queries are there and only read.
    tensors = (out, workspace.split_results, q, k, v, q if mask is None else mask)
    heads = q.shape[0] * k.shape[head_axis]
    yield from routed(tensors, values, heads, q.shape[row_axis], k.max_shape[row_axis], workspace)


def _vector(k: LiveTensor, v: LiveTensor) -> int:
    """Elements of a key and of a value that are read at once."""
    return 4 if k.shape[3] % 4 == v.shape[3] % 4 == 0 else 1


def check_heads(q: LiveTensor, k: LiveTensor, v: LiveTensor, axes: tuple[int, int], context: int) -> None:
    row_axis, head_axis = axes
    key_heads = k.shape[head_axis]
    if (
        k.shape[:3] != v.shape[:3]
        or k.shape[3] != q.shape[3]
        or k.shape[0] not in (1, q.shape[0])
        or key_heads == 0
        or q.shape[head_axis] % key_heads
        or context > k.shape[row_axis]
    ):
        raise ShapeError(
            f"queries {q.shape} cannot attend to keys {k.shape} and values {v.shape}: these must be as many, keys "
            "of the same head size, and their number of heads must divide that of the queries"
        )


def _params(
    q: LiveTensor, k: LiveTensor, v: LiveTensor, mask: LiveTensor | None, axes: tuple[int, int], context: int
) -> dict[str, Any]:
    """The sizes and strides of attention/params.wgsl: queries that share a head of keys are its rows."""
    row_axis, head_axis = axes
    batch, queries, heads = q.shape[0], q.shape[row_axis], q.shape[head_axis]
    key_heads = k.shape[head_axis]
    group = heads // key_heads
    query_batch, query_row, query_head = row_strides(q.shape, axes)
    out_batch, out_row, out_head = row_strides((*q.shape[:3], v.shape[3]), axes)
    steps = (*row_strides(k.shape, axes), *row_strides(v.shape, axes))
    key_batch, key_row, key_head, value_batch, value_row, value_head = (step // _vector(k, v) for step in steps)
    own = k.shape[0] == batch  # else keys and values of all batches are the same
    mask_strides: Shape = (0, 0, 0, 0)
    if mask is not None:
        target = (batch, heads, queries, context)
        if broadcast_shapes(mask.shape, target) != target:
            raise ShapeError(f"a mask {mask.shape} does not broadcast to [batch, heads, queries, keys] = {target}")
        mask_strides = broadcast_strides(mask.shape, target)
    return {
        "key_heads": key_heads,
        "group": group,
        "rows": queries * group,
        "context": context,
        "query_start": 0,
        "query_batch": query_batch,
        "query_row": query_row,
        "query_head": query_head,
        "key_start": 0,
        "key_batch": key_batch if own else 0,
        "key_row": key_row,
        "key_head": key_head,
        "value_start": 0,
        "value_batch": value_batch if own else 0,
        "value_row": value_row,
        "value_head": value_head,
        "out_batch": out_batch,
        "out_row": out_row,
        "out_head": out_head,
        **NO_BIAS,
        "mask_batches": max(batch, 1),
        "mask_start": 0,
        "mask_batch": mask_strides[0],
        "mask_head": mask_strides[1],
        "mask_row": mask_strides[2],
        "mask_key": mask_strides[3],
    }


def row_strides(shape: Shape, axes: tuple[int, int]) -> tuple[int, int, int]:
    """Elements from one batch, one row and one head to the next."""
    _, outer, inner, size = shape
    steps = (outer * inner * size, inner * size, size)
    return steps[0], steps[axes[0]], steps[axes[1]]


def check_room(cache: LiveTensor, rows: int, position: Start) -> None:
    capacity = cache.shape[1]
    if isinstance(position, LiveTensor):
        check_row_table(position, rows)
    elif position < 0 or position + rows > capacity:
        raise ShapeError(
            f"position {position} and {rows} new rows need {position + rows} rows, the cache holds {capacity}; "
            "start at an earlier position, give fewer rows, or export with a larger cache"
        )


def _check_new_rows(value: LiveTensor, cache: LiveTensor, position: Start) -> None:
    """New rows [B, S, H, D] for a cache [B, capacity, H, D], from `position` on or at the slots of a table."""
    if value.rank != 4 or cache.rank != 4 or (value.shape[0], value.shape[2:]) != (cache.shape[0], cache.shape[2:]):
        raise ShapeError(f"rows {value.shape} do not fit a cache {cache.shape}: only the second dimension may differ")
    check_room(cache, value.shape[1], position)


# A mask may be as long as the cache, and then every row of it counts, written or not; but none behind a causal query.
@op(
    "sdpa_with_kv_cache.default",
    "llama::sdpa_with_kv_cache.out",
    mutates=("k_cache", "v_cache"),
    cache=CacheRows({"k_cache": 1, "v_cache": 1}, "input_pos", unless_masked="attn_mask", causal="is_causal"),
    role=Role.ATTENTION,
    product=Product(attended_causally("input_pos")),
)
def sdpa_with_kv_cache(
    q: LiveTensor,
    k: LiveTensor,
    v: LiveTensor,
    k_cache: LiveTensor,
    v_cache: LiveTensor,
    input_pos: int,
    seq_len: Any,  # a literal 1 where the exporter fused the operator: the live rows of k say how many there are
    attn_mask: LiveTensor | None,
    dropout: float,
    is_causal: bool,
    scale: float | None,
    out: LiveTensor,
) -> Steps:
    workspace = yield from workspace_of(q, k_cache, v_cache, ROWS_FIRST)
    yield _write_rows(q, k, v, k_cache, v_cache, input_pos)
    yield from _attend_to_cache(q, k_cache, v_cache, input_pos, attn_mask, dropout, is_causal, scale, out, workspace)


def new_rows(
    q: LiveTensor, k: LiveTensor, v: LiveTensor, k_cache: LiveTensor, v_cache: LiveTensor, position: Start
) -> tuple[int, int, int]:
    """Where new keys and values lie in their caches: elements of a batch, how far into its cache, and of that.

    Rows of a table lie at their slots, not together.
    """
    _check_new_rows(k, k_cache, position)
    _check_new_rows(v, v_cache, position)
    if k.shape != v.shape or k.shape[:2] != q.shape[:2]:
        raise ShapeError(f"queries {q.shape}, keys {k.shape} and values {v.shape} must bring the same rows")
    row = k.shape[2] * k.shape[3]
    return k.shape[1] * row, 0 if isinstance(position, LiveTensor) else position * row, k_cache.shape[1] * row


@op(
    "liveshape.update_caches",
    mutates=("k_cache", "v_cache"),
    rows=rows_of_cache("k", "v", start="input_pos"),
    cache=CacheRows({"k_cache": 1, "v_cache": 1}, "input_pos"),
)
def update_caches(
    k: LiveTensor, v: LiveTensor, k_cache: LiveTensor, v_cache: LiveTensor, input_pos: Start, out: Any
) -> Iterator[Dispatch]:
    """New rows of keys and values to their caches, as `sdpa_with_kv_cache` writes them."""
    yield _write_rows(k, k, v, k_cache, v_cache, input_pos)


def _write_rows(
    q: LiveTensor, k: LiveTensor, v: LiveTensor, k_cache: LiveTensor, v_cache: LiveTensor, position: Start
) -> Dispatch:
    run, start, stride = new_rows(q, k, v, k_cache, v_cache, position)
    tensors = (k_cache, v_cache, k, v)
    values = {"count": k.numel, "run": run, "cache_stride": stride}
    if isinstance(position, LiveTensor):
        width = k.shape[2] * k.shape[3]
        return CACHE_UPDATE.by_table(*tensors, position, **values, width=width, threads=k.numel)
    return CACHE_UPDATE.consecutive(*tensors, **values, start=start, threads=k.numel)


@op(
    "custom_sdpa.default",
    "llama::custom_sdpa.out",
    cache=CacheRows({"k_cache": 1, "v_cache": 1}, "start_pos", unless_masked="attn_mask", causal="is_causal"),
    role=Role.ATTENTION,
    product=Product(attended_causally("start_pos")),
)
def custom_sdpa(
    q: LiveTensor,
    k_cache: LiveTensor,
    v_cache: LiveTensor,
    start_pos: int,
    attn_mask: LiveTensor | None,
    dropout: float,
    is_causal: bool,
    scale: float | None,
    out: LiveTensor,
) -> Steps:
    workspace = yield from workspace_of(q, k_cache, v_cache, ROWS_FIRST)
    yield from _attend_to_cache(q, k_cache, v_cache, start_pos, attn_mask, dropout, is_causal, scale, out, workspace)


def _attend_to_cache(
    q: LiveTensor,
    k_cache: LiveTensor,
    v_cache: LiveTensor,
    position: int,
    mask: LiveTensor | None,
    dropout: float,
    causal: bool,
    scale: float | None,
    out: LiveTensor,
    workspace: Workspace,
) -> Steps:
    if dropout != 0:
        raise UnsupportedError(f"dropout {dropout} is for training; export the model in eval mode")
    check_room(k_cache, q.shape[1], position)
    context = position + q.shape[1]
    if mask is not None and mask.rank and mask.shape[-1] != 1:
        # As in the operator's own kernel a mask speaks of the whole cache; a shorter one must reach the newest row.
        if not context <= mask.shape[-1] <= k_cache.shape[1]:
            raise ShapeError(
                f"a mask of {mask.shape[-1]} keys: position {position} and {q.shape[1]} rows make {context}, "
                f"the cache holds {k_cache.shape[1]}"
            )
        context = mask.shape[-1]
    yield from attend(
        q, k_cache, v_cache, mask, out, ROWS_FIRST, context=context, scale=scale, causal=causal, position=position,
        workspace=workspace,
    )  # fmt: skip


@op(
    "update_cache.default",
    "llama::update_cache.out",
    mutates=("cache",),
    rows=rows_of_cache("value", start="start_pos"),
    cache=CacheRows({"cache": 1, "out": 1}, "start_pos"),
)
def update_cache(value: LiveTensor, cache: LiveTensor, start_pos: Start, out: LiveTensor) -> Steps:
    """The result is one element without meaning, or the cache itself, which it may name: there is nothing to write."""
    _check_new_rows(value, cache, start_pos)
    if not stored_alike(value.dtype, cache.dtype):
        raise UnsupportedError(f"rows of {value.dtype} for a cache of {cache.dtype}; cast them before export")
    strides = strides_of(cache.shape)
    if isinstance(start_pos, LiveTensor):
        yield rows_to_slots(value, cache, start_pos)
        return
    target = Strided(value.shape, strides, start_pos * strides[1])
    yield from copy_strided(value, cache, Strided.contiguous(value.shape), target)


def _queried(node: Node, carried: Carried) -> Carried | None:
    """Attention [B, H, S, D] of rows of queries to the same keys, or of members of a batch each to its own."""
    q, k, v, mask = (node.named[name] for name in ("q", "k", "v", "attn_mask"))
    axis = carried.get(q)
    if axis == 2 and nothing_but(node, carried, "q", "attn_mask"):
        place = 0 if mask is None else mask.rank - 2
        rows = None if mask is None else carried.get(mask)
        alike = mask is None or rows == place or (rows is None and (place < 0 or mask.max_shape[place] == 1))
        return outputs_along(node, 2) if alike else None
    batched = axis == 0 and carried.get(k) == carried.get(v) == 0 and nothing_but(node, carried, "q", "k", "v")
    shared = mask is None or mask.rank < 4 or mask.max_shape[0] == 1
    return outputs_along(node, 0) if batched and shared else None


@op("et_vk.sdpa.default", rows=_queried, role=Role.ATTENTION, product=Product(attended))
def sdpa(
    q: LiveTensor, k: LiveTensor, v: LiveTensor, attn_mask: LiveTensor | None, scale: float | None, out: LiveTensor
) -> Steps:
    workspace = yield from workspace_of(q, k, v, HEADS_FIRST)
    yield from attend(q, k, v, attn_mask, out, HEADS_FIRST, context=k.shape[2], scale=scale, workspace=workspace)
