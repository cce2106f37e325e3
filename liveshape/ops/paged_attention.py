"""Attention of many sequences in one call: their queries lie one behind the other, their KV caches in pages of a pool.

Tables on the device say which of them belong together, so that the plan stays while sequences come and go.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from liveshape.errors import ShapeError
from liveshape.graph import Limits
from liveshape.graph.elements import prod
from liveshape.graph.live import LiveTensor
from liveshape.graph.traits import CacheRows, Product, Role
from liveshape.kernels import Dispatch, Kernel
from liveshape.kernels.requests import GetLimits, Scratch
from liveshape.ops import attention_heuristics as heuristics
from liveshape.ops.attention import ROWS_FIRST, check_heads, row_strides
from liveshape.ops.attention_routes import AttentionCall, Kernels, Steps, route_of
from liveshape.ops.operations import attended_in_lines
from liveshape.ops.registry import op

PAGED = Kernels.of_cache("paged")
PAGED_WITH_SINKS = Kernels.of_cache("paged", SOFTMAX="with_sinks")
COPY_PAGES = Kernel.load("attention/copy_pages")

COPY = 2  # numbers: source and target
_LINE = 4  # numbers: first row of q, queries, position of the first, sequence
_NO_WINDOW = (1 << 32) - 1  # keys: more than any sequence has


@op("liveshape.copy_pages", mutates=("pool",), cache=CacheRows({"pool": 1}, "copies"))
def copy_pages(pool: LiveTensor, copies: LiveTensor, page_size: int, out: Any) -> Iterator[Dispatch]:
    """Copy pages of a pool [1, slots, ..], each line (source, target) of [C, 2] after the one before it."""
    _check_pages(pool, page_size)
    if copies.shape[1:] != (COPY,):
        raise ShapeError(f"copies {copies.shape}: a source and a target for each is needed")
    count = page_size * prod(pool.shape[2:])
    if copies.shape[0]:
        yield COPY_PAGES(pool, copies, count=count, copies=copies.shape[0], threads=count)


@op("liveshape.paged_attention", role=Role.ATTENTION, product=Product(attended_in_lines))
def paged_attention(
    q: LiveTensor,  # [1, rows, heads, size]
    k_cache: LiveTensor,  # [1, slots, key heads, size]
    v_cache: LiveTensor,
    units: LiveTensor,  # [lines, 4]
    block_table: LiveTensor,  # [sequences, pages]
    page_size: int,
    few: int,
    tiles: int,
    few_context: int,
    tile_context: int,
    scale: float | None,
    window: int,
    softcap: float,
    sinks: LiveTensor | None,  # [heads]
    out: LiveTensor,
) -> Steps:
    """Every query of a line attends to the keys of its sequence up to its own, or to the last `window` of these.

    With `sinks`, a logit of its head is in the denominator of the softmax beside these.
    The first `few` lines have at most `few_queries` each, as in decode, the next `tiles` lines at most `tile_queries`.
    The contexts are at least as long as the longest sequence of a kind. Rows of q that are in no line are not written.
    """
    key_heads, size = k_cache.shape[2:]
    _check(q, k_cache, v_cache, units, block_table, page_size)
    if sinks is not None and sinks.shape != (q.shape[2],):
        raise ShapeError(f"sinks {sinks.shape} of queries with {q.shape[2]} heads; there must be one for each head")
    limits: Limits = yield GetLimits()
    shape = q.shape[2], key_heads, size, limits
    capacity, longest = (pages * page_size for pages in (block_table.shape[1], block_table.max_shape[1]))
    split_results: LiveTensor = yield Scratch(
        "float32", heuristics.line_results_shape(units.max_shape[0], longest, *shape)
    )
    out.shape = q.shape
    if few < 0 or tiles < 0 or few + tiles > units.shape[0]:
        raise ShapeError(f"{few} lines of few rows and {tiles} of tiles are not in a table of {units.shape[0]} lines")
    kernels = PAGED if sinks is None else PAGED_WITH_SINKS
    tensors = (out, split_results, q, k_cache, v_cache, units, block_table, *([] if sinks is None else [sinks]))
    values = _params(q, k_cache, block_table, scale, window, softcap) | {"PAGE": page_size}
    group = values["group"]
    for is_few, first, count, queries, context in (
        (True, 0, few, heuristics.few_queries(*shape), few_context),
        (False, few, tiles, heuristics.tile_queries(*shape), tile_context),
    ):
        if count == 0:
            continue
        if context <= 0:
            raise ShapeError(f"{count} lines with a context of {context} keys; a query sees at least its own key")
        most = min(longest, window + queries - 1) if window else longest
        seen = min(context, capacity, most)
        given = values | {"rows": queries * group, "first_line": first}
        call = AttentionCall(kernels, tensors, (out, split_results, units), given, most)
        yield from route_of(is_few, size, seen, limits)(call, count * key_heads, seen, limits)


def _check(
    q: LiveTensor, k: LiveTensor, v: LiveTensor, units: LiveTensor, block_table: LiveTensor, page_size: int
) -> None:
    check_heads(q, k, v, ROWS_FIRST, context=0)
    if q.shape[0] != 1 or units.shape[1:] != (_LINE,) or block_table.rank != 2:
        raise ShapeError(
            f"queries {q.shape}, lines {units.shape} and a block table {block_table.shape} must be [1, rows, heads, "
            f"size], [lines, {_LINE}] and [sequences, pages]"
        )
    _check_pages(k, page_size)


def _check_pages(pool: LiveTensor, page_size: int) -> None:
    if page_size <= 0 or pool.shape[1] % page_size:
        raise ShapeError(
            f"{pool.shape[1]} rows of a cache are not whole pages of {page_size}; give it a multiple of these"
        )


def _params(
    q: LiveTensor, k: LiveTensor, block_table: LiveTensor, scale: float | None, window: int, softcap: float
) -> dict[str, Any]:
    """The params of attention/lines.wgsl that are the same for all lines, and the constants of its operands."""
    key_heads, size = k.shape[2:]
    vector = 4 if size % 4 == 0 else 1
    _, query_row, query_head = row_strides(q.shape, ROWS_FIRST)
    _, key_row, key_head = row_strides(k.shape, ROWS_FIRST)
    return {
        "key_heads": key_heads,
        "group": q.shape[2] // key_heads,
        "table_row": block_table.shape[1],
        "query_row": query_row,
        "query_head": query_head,
        "key_row": key_row // vector,
        "key_head": key_head // vector,
        "window": window or _NO_WINDOW,
        "softcap": softcap,
        "scale": size**-0.5 if scale is None else scale,
        "hidden": float("-inf"),
        **dict.fromkeys(("HEAD_SIZE", "KEY_SIZE", "VALUE_SIZE"), size),
        "VEC": vector,
        "SOFTCAP": softcap > 0,
    }
