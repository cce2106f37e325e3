"""How attention is planned: the kernels of each layout of the cache, and which of them takes how many rows.

Few rows (decode) split the context among workgroups, many rows (prefill) go in tiles, by matrix units where the device
has them. Where threads are few, as on a software adapter, both go to the lanes of subgroups.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from typing import Any, NamedTuple

from liveshape.errors import ShapeError
from liveshape.graph import Limits, Shape
from liveshape.graph.live import LiveTensor
from liveshape.kernels import Dispatch, Kernel
from liveshape.kernels.requests import GetLimits, Scratch
from liveshape.ops import attention_heuristics as heuristics
from liveshape.ops.registry import Tensors
from liveshape.ops.shapes import ceil_div

Steps = Generator[Dispatch | Scratch | GetLimits, Any, None]

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
    of_halves: Kernel | None  # the same of keys and values that are halves already
    combine: Kernel

    @classmethod
    def of_cache(cls, layout: str, **scores: str) -> Kernels:
        """Example: `Kernels.of_cache("paged", SOFTMAX="with_sinks")`."""

        def load(name: str, **choices: str) -> Kernel:
            return Kernel.load(f"attention/{name}", CACHE=layout, **choices)

        paged = layout == "paged"
        return cls(
            load("few_rows_subgroups", **scores),
            load("few_rows", **scores),
            load("lane_rows", **scores),
            load("tiled", **scores),
            load("tiled", ROW_REDUCTION="shuffles", **scores),
            load("matrix_tiles", **scores),
            None if paged else load("matrix_tiles", HALVES="given", **scores),
            load("combine_splits"),
        )


CONTIGUOUS = Kernels.of_cache("contiguous")
WITH_BIAS = Kernels.of_cache("contiguous", BIAS="added")
HALF_CACHE = Kernel.load("attention/half_cache")
_STRIDES = (
    "key_start", "key_batch", "key_row", "key_head", "value_start", "value_batch", "value_row", "value_head",
)  # fmt: skip
# What attention/half_cache.wgsl takes of the params.
_CACHE_PARAMS = ("key_heads", "context", "HEAD_SIZE", "KEY_SIZE", "VALUE_SIZE", "VEC", *_STRIDES)


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


def routed(
    tensors: Tensors,
    values: dict[str, Any],
    heads: int,
    queries: int,
    longest: int,
    workspace: Workspace,
    *,
    biased: bool = False,
    by_tiles: bool = False,
) -> Steps:
    """Attention by the kernels for so many heads of keys, of all batches, and so many queries.

    Where scores are `biased` the last of the tensors is what is added to them before their mask.
    With `by_tiles` rows that are many, but in few tiles, go as few rows do.
    """
    limits: Limits = yield GetLimits()
    values = values | {"hidden": float("-inf")}
    attention = AttentionCall(WITH_BIAS if biased else CONTIGUOUS, tensors, tensors[:2], values, longest, workspace)
    context = values["context"]
    size, rows = values["HEAD_SIZE"], values["rows"]
    few = heuristics.is_few_rows(queries, values["group"])
    few = few or (by_tiles and heuristics.in_few_tiles(heads, rows, size, context, limits))
    yield from route_of(few, size, context, limits)(attention, heads, context, limits)


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
    aligned = aligned and attention.values["KEY_SIZE"] % 8 == attention.values["VALUE_SIZE"] % 8 == 0
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
    """Many rows by matrix units, so many keys at a time; floats of a contiguous cache become halves before."""
    values, kernel = attention.values, attention.kernels.matrix_tiles
    rows, size = values["rows"], values["HEAD_SIZE"]
    row_blocks = (
        1 if attention.workspace is None else heuristics.matrix_row_blocks(heads, rows, size)
    )  # lines are short
    chosen, tile = heuristics.matrix_tile_config(size, row_blocks), row_blocks * heuristics.LARGE_TILE
    blocks = ceil_div(rows, tile)
    units = heads * blocks
    splits = heuristics.matrix_tile_splits(context, units)
    split_keys = ceil_div(ceil_div(context, splits), keys) * keys
    grid = {"units": units, "blocks": blocks, "splits": splits, "split_keys": split_keys}
    if attention.workspace is not None:
        out, split_results, q, k, v, *masks = attention.tensors
        steps = {name: values[name] * values["VEC"] for name in _STRIDES}
        of_queries = [values[name] for name in ("query_start", "query_batch", "query_row", "query_head")]
        by_eights = not any(step % 8 for step in (*steps.values(), *of_queries))
        # Queries that are not multiplied before: the largest product must be that of the largest score.
        if q.dtype == k.dtype == v.dtype == "float16" and by_eights and values["scale"] > 0:
            assert attention.kernels.of_halves is not None
            kernel = attention.kernels.of_halves
            values = values | {name: step // 8 for name, step in steps.items()}
        else:
            _, halves, factors = attention.workspace
            assert halves is not None
            assert factors is not None
            taken = {name: values[name] for name in _CACHE_PARAMS}
            own = heads if taken["key_batch"] or taken["value_batch"] else taken["key_heads"]
            tiles = own * ceil_div(context, keys)
            yield HALF_CACHE(halves, factors, k, v, **taken, heads=own, KEYS=keys, groups=tiles)
            k, v = halves, factors
        values = {name: value for name, value in values.items() if name != "VEC"}
        attention = attention._replace(tensors=(out, split_results, q, k, v, *masks), values=values)
    yield attention.dispatch(kernel, units * splits, **grid, **chosen)
    if splits > 1:
        yield attention.combine(units * tile * size, **grid, ROWS=tile)


def workspace_of(
    q: LiveTensor, k: LiveTensor, v: LiveTensor, axes: tuple[int, int]
) -> Generator[Scratch | GetLimits, Any, Workspace]:
    """The scratch of attention of up to these queries to up to these keys."""
    if not q.rank == k.rank == v.rank == 4:
        raise ShapeError(
            f"queries {q.shape}, keys {k.shape} and values {v.shape} must each have batch, rows, heads and size"
        )
    size = max(k.max_shape[3], v.max_shape[3])
    return (yield from workspace_up_to((*q.max_shape[:3], size), (*k.max_shape[:3], size), axes))


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
