"""Attention over a KV cache or over given keys and values, with online softmax: the matrix of scores is never stored.

One plan serves every operator: few rows (decode) split the context among workgroups, many rows (prefill) go in tiles.
Where threads are few, as on a software adapter, both go to the lanes of subgroups.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from typing import Any, NamedTuple

from liveshape.errors import ShapeError, UnsupportedError
from liveshape.graph import Limits, Node, Shape
from liveshape.graph.elements import stored_alike
from liveshape.graph.live import LiveTensor
from liveshape.graph.traits import CacheRows, Carried, Product, Role
from liveshape.kernels import Dispatch, Kernel
from liveshape.kernels.requests import GetLimits, Scratch
from liveshape.ops import attention_heuristics as heuristics
from liveshape.ops.copies import copy_strided
from liveshape.ops.operations import attended, attended_causally
from liveshape.ops.registry import Tensors, op
from liveshape.ops.row_rules import nothing_but, outputs_along
from liveshape.ops.row_tables import RowKernels, Start, check_row_table, rows_of_cache, rows_to_slots
from liveshape.ops.shapes import broadcast_shapes, broadcast_strides, ceil_div, strides_of

CACHE_UPDATE = RowKernels.load("attention/cache_update")

Steps = Generator[Dispatch | Scratch | GetLimits, Any, None]

# Which dimension counts rows and which counts heads.
ROWS_FIRST = (1, 2)
HEADS_FIRST = (2, 1)
# What attention/operands.wgsl declares, and the kernel that combines splits does not.
_OPERAND_CONSTANTS = ("MASK", "VEC", "PAGE", "SOFTCAP")


class Kernels(NamedTuple):
    """The kernels of one layout of the cache, as `CACHE` of attention/params.wgsl says."""

    few: Kernel  # few rows by subgroup shuffles
    rows: Kernel  # few rows through workgroup memory
    lane_rows: Kernel  # rows of lanes where threads are few
    tiled: Kernel
    tiled_by_shuffles: Kernel
    matrix_tiles: Kernel
    combine: Kernel

    @classmethod
    def of_cache(cls, layout: str, **softmax: str) -> Kernels:
        """Example: `Kernels.of_cache("paged", SOFTMAX="with_sinks")`."""

        def load(name: str, **choices: str) -> Kernel:
            return Kernel.load(f"attention/{name}", CACHE=layout, **choices)

        return cls(
            load("few_rows_subgroups", **softmax),
            load("few_rows", **softmax),
            load("lane_rows", **softmax),
            load("tiled", **softmax),
            load("tiled", ROW_REDUCTION="shuffles", **softmax),
            load("matrix_tiles", **softmax),
            load("combine_splits"),
        )


CONTIGUOUS = Kernels.of_cache("contiguous")
HALF_CACHE = Kernel.load("attention/half_cache")
# What attention/half_cache.wgsl takes of the params.
_CACHE_PARAMS = (
    "key_heads", "context", "HEAD_SIZE", "VEC",
    "key_start", "key_batch", "key_row", "key_head", "value_start", "value_batch", "value_row", "value_head",
)  # fmt: skip


class Workspace(NamedTuple):
    """Scratch of attention: partial results of splits of the context, and keys and values as halves in tiles with what
    each tile was divided by, where matrix units may take them."""

    split_results: LiveTensor
    halves: LiveTensor | None
    factors: LiveTensor | None


class AttentionCall(NamedTuple):
    """What every plan of the same operands has: kernels, tensors in the order of their bindings, params by name."""

    kernels: Kernels
    tensors: Tensors
    combined: Tensors  # those of the kernel that combines splits
    values: dict[str, Any]
    longest: int  # context that may be live
    workspace: Workspace | None = None  # of a contiguous cache

    def dispatch(self, kernel: Kernel, groups: int, **chosen: Any) -> Dispatch:
        return kernel(*self.tensors, **self.values, **chosen, groups=groups)

    def combine(self, threads: int, **chosen: Any) -> Dispatch:
        """Reduce the partial results of the splits to the output."""
        layout = {name: value for name, value in self.values.items() if name not in _OPERAND_CONSTANTS}
        return self.kernels.combine(*self.combined, **layout, **chosen, threads=threads)


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
    out.shape = q.shape
    row_axis, head_axis = axes
    size, key_heads = q.shape[3], k.shape[head_axis]
    values = _params(q, k, mask, axes, context) | {
        "causal": causal,
        "position": position,
        "scale": size**-0.5 if scale is None else scale,
        "masked": float("-inf"),
        "unseen": 0.0,
        "HEAD_SIZE": size,
    }
    # An absent mask still needs a buffer in its place; the queries are there and only read.
    tensors = (out, workspace.split_results, q, k, v, q if mask is None else mask)
    masking = 0 if mask is None else 2 if mask.dtype == "bool" else 1
    values |= {"MASK": masking, "VEC": 4 if size % 4 == 0 else 1}
    yield from routed(tensors, values, q.shape[0] * key_heads, q.shape[row_axis], k.max_shape[row_axis], workspace)


def routed(
    tensors: Tensors,
    values: dict[str, Any],
    heads: int,
    queries: int,
    longest: int,
    workspace: Workspace,
    *,
    by_tiles: bool = False,
) -> Steps:
    """Attention by the kernels for so many heads of keys, of all batches, and so many queries.

    With `by_tiles` rows that are many, but in few tiles, go as few rows do.
    """
    limits: Limits = yield GetLimits()
    values = values | {"hidden": float("-inf")}
    attention = AttentionCall(CONTIGUOUS, tensors, tensors[:2], values, longest, workspace)
    context = values["context"]
    size, rows = values["HEAD_SIZE"], values["rows"]
    few = heuristics.is_few_rows(queries, values["group"])
    few = few or (by_tiles and heuristics.in_few_tiles(heads, rows, size, context, limits))
    yield from route_of(few, size, context, limits)(attention, heads, context, limits)


def check_heads(q: LiveTensor, k: LiveTensor, v: LiveTensor, axes: tuple[int, int], context: int) -> None:
    row_axis, head_axis = axes
    key_heads = k.shape[head_axis]
    if (
        k.shape != v.shape
        or k.shape[3] != q.shape[3]
        or k.shape[0] not in (1, q.shape[0])
        or key_heads == 0
        or q.shape[head_axis] % key_heads
        or context > k.shape[row_axis]
    ):
        raise ShapeError(
            f"queries {q.shape} cannot attend to keys {k.shape} and values {v.shape}: these must be alike, of the same "
            "head size, and their number of heads must divide that of the queries"
        )


def _params(
    q: LiveTensor, k: LiveTensor, mask: LiveTensor | None, axes: tuple[int, int], context: int
) -> dict[str, Any]:
    """The sizes and strides of attention/params.wgsl: queries that share a head of keys are its rows."""
    row_axis, head_axis = axes
    batch, queries, heads, size = q.shape[0], q.shape[row_axis], q.shape[head_axis], q.shape[3]
    key_heads = k.shape[head_axis]
    group = heads // key_heads
    vector = 4 if size % 4 == 0 else 1
    query_batch, query_row, query_head = row_strides(q.shape, axes)
    key_batch, key_row, key_head = row_strides(k.shape, axes)
    key_batch = key_batch // vector if k.shape[0] == batch else 0
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
        "key_batch": key_batch,
        "key_row": key_row // vector,
        "key_head": key_head // vector,
        "value_start": 0,
        "value_batch": key_batch,
        "value_row": key_row // vector,
        "value_head": key_head // vector,
        "out_batch": query_batch,
        "out_row": query_row,
        "out_head": query_head,
        "mask_start": 0,
        "mask_batch": mask_strides[0],
        "mask_head": mask_strides[1],
        "mask_row": mask_strides[2],
        "mask_key": mask_strides[3],
    }


def route_of(
    few: bool, size: int, context: int, limits: Limits
) -> Callable[[AttentionCall, int, int, Limits], Iterator[Dispatch]]:
    """How few rows are planned, or many: where threads are few, and have shuffles, all alike up to a long context."""
    if heuristics.takes_lane_rows(size, context, limits):
        return lane_rows
    return few_rows if few or limits.one_order else in_tiles


def lane_rows(attention: AttentionCall, heads: int, context: int, limits: Limits) -> Iterator[Dispatch]:
    """Rows of lanes, which load the keys of a subgroup together: for few threads, however many rows there are."""
    config = heuristics.lane_rows_config(attention.values["HEAD_SIZE"], limits.few_threads_lanes)
    blocks = ceil_div(attention.values["rows"], config["ROWS"] * config["WG"])
    units = heads * blocks
    grid = {"units": units, "blocks": blocks, "splits": 1, "split_keys": context}
    out, _, *operands = attention.tensors
    yield attention.kernels.lane_rows(out, *operands, **attention.values, **grid, **config, groups=units)


def few_rows(attention: AttentionCall, heads: int, context: int, limits: Limits) -> Iterator[Dispatch]:
    """Blocks of few rows: splits of the context go to workgroups of their own, and are combined (split-K)."""
    kernels, rows, size = attention.kernels, attention.values["rows"], attention.values["HEAD_SIZE"]
    block: heuristics.Block | heuristics.SubgroupBlock
    if limits.one_order:
        block = heuristics.ordered_block_of(attention.values["group"], size, context, attention.longest, limits)
        split_keys = heuristics.ordered_split_keys(attention.longest, limits)
    else:
        by_shuffles = heuristics.subgroup_block_of(heads, rows, size, context, limits)
        block = by_shuffles or heuristics.block_of(heads, rows, size, context, limits)
        split_keys = ceil_div(context, block.splits)
    blocks, splits = ceil_div(rows, block.rows), block.splits
    units = heads * blocks
    grid = {"units": units, "blocks": blocks, "splits": splits, "split_keys": split_keys}
    chosen = {"ROWS": block.rows, "LANES": block.lanes}
    if isinstance(block, heuristics.SubgroupBlock):
        chosen |= {"WG": block.threads, "PREFETCH_KEYS": block.prefetch, "COMBINE_THREADS": block.combine_threads}
        yield attention.dispatch(kernels.few, units * splits, **grid, **chosen)
    else:
        yield attention.dispatch(kernels.rows, units * splits, **grid, **chosen, CHUNK=block.chunk)
    if splits > 1:
        combine = heuristics.combine_threads(limits)
        yield attention.combine(units * block.rows * size * combine, **grid, ROWS=block.rows, COMBINE_THREADS=combine)


def in_tiles(attention: AttentionCall, heads: int, context: int, limits: Limits) -> Iterator[Dispatch]:
    """Many rows, as in prefill, in tiles with online softmax."""
    kernels, rows, size = attention.kernels, attention.values["rows"], attention.values["HEAD_SIZE"]
    # Matrix units take queries, and give results, by four.
    aligned = not any(step % 4 for name, step in attention.values.items() if name.startswith(("query_", "out_")))
    keys = heuristics.matrix_keys(size, limits) if aligned else 0
    if keys and (attention.workspace is None or attention.workspace.halves is not None):
        yield from _matrix_tiles(attention, heads, context, keys)
        return
    tile = heuristics.tile_of(heads, rows, size, context, limits)
    blocks, splits = ceil_div(rows, tile.rows), tile.splits
    units = heads * blocks
    split_keys = ceil_div(ceil_div(context, splits), tile.keys) * tile.keys
    grid = {"units": units, "blocks": blocks, "splits": splits, "split_keys": split_keys}
    shuffles = heuristics.reduces_by_shuffles(tile, kernels.tiled.group_size, limits)
    yield attention.dispatch(
        kernels.tiled_by_shuffles if shuffles else kernels.tiled, units * splits, **grid, TILE_ROWS=tile.rows,
        THREAD_ROWS=tile.thread_rows, KEYS=tile.keys, TILE_DEPTH=tile.depth, VALUE_KEYS=tile.value_keys,
    )  # fmt: skip
    if splits > 1:
        yield attention.combine(units * tile.rows * size, **grid, ROWS=tile.rows)


def _matrix_tiles(attention: AttentionCall, heads: int, context: int, keys: int) -> Iterator[Dispatch]:
    """Many rows by matrix units, so many keys at a time; those of a contiguous cache become halves before."""
    rows, size, tile = attention.values["rows"], attention.values["HEAD_SIZE"], heuristics.LARGE_TILE
    blocks = ceil_div(rows, tile)
    units = heads * blocks
    splits = heuristics.matrix_tile_splits(context, units)
    split_keys = ceil_div(ceil_div(context, splits), keys) * keys
    grid = {"units": units, "blocks": blocks, "splits": splits, "split_keys": split_keys}
    chosen = heuristics.matrix_tile_config(size, keys)
    if attention.workspace is not None:
        _, halves, factors = attention.workspace
        assert halves is not None
        assert factors is not None
        out, split_results, q, k, v, mask = attention.tensors
        taken = {name: attention.values[name] for name in _CACHE_PARAMS}
        own = heads if taken["key_batch"] or taken["value_batch"] else taken["key_heads"]
        tiles = own * ceil_div(context, keys)
        yield HALF_CACHE(halves, factors, k, v, **taken, heads=own, KEYS=keys, groups=tiles)
        values = {name: value for name, value in attention.values.items() if name != "VEC"}
        attention = attention._replace(tensors=(out, split_results, q, halves, factors, mask), values=values)
    yield attention.dispatch(attention.kernels.matrix_tiles, units * splits, **grid, **chosen)
    if splits > 1:
        yield attention.combine(units * tile * size, **grid, ROWS=tile)


def row_strides(shape: Shape, axes: tuple[int, int]) -> tuple[int, int, int]:
    """Elements from one batch, one row and one head to the next."""
    _, outer, inner, size = shape
    steps = (outer * inner * size, inner * size, size)
    return steps[0], steps[axes[0]], steps[axes[1]]


def workspace_of(q: LiveTensor, k: LiveTensor, axes: tuple[int, int]) -> Generator[Scratch | GetLimits, Any, Workspace]:
    """The scratch of attention of up to these queries to up to these keys."""
    if q.rank != 4 or k.rank != 4:
        raise ShapeError(f"queries {q.shape} and keys {k.shape} must have four dimensions: batch, rows, heads and size")
    return (yield from workspace_up_to(q.max_shape, k.max_shape, axes))


def workspace_up_to(
    queries: Shape, keys: Shape, axes: tuple[int, int]
) -> Generator[Scratch | GetLimits, Any, Workspace]:
    """The scratch of attention of queries and keys whose shapes have these bounds."""
    limits: Limits = yield GetLimits()
    split_results: LiveTensor = yield Scratch("float32", heuristics.split_results_shape(queries, keys, axes, limits))
    nbytes, tiles = heuristics.half_cache_size(queries, keys, axes, limits)
    if nbytes == 0:
        return Workspace(split_results, None, None)
    halves: LiveTensor = yield Scratch("int8", (nbytes,))
    factors: LiveTensor = yield Scratch("float32", (tiles, 2))
    return Workspace(split_results, halves, factors)


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
    workspace = yield from workspace_of(q, k_cache, ROWS_FIRST)
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
    workspace = yield from workspace_of(q, k_cache, ROWS_FIRST)
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
    yield from copy_strided(
        value, cache, value.shape, (0, strides_of(value.shape)), (start_pos * strides[1], strides)
    )  # fmt: skip


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
    workspace = yield from workspace_of(q, k, HEADS_FIRST)
    yield from attend(q, k, v, attn_mask, out, HEADS_FIRST, context=k.shape[2], scale=scale, workspace=workspace)
