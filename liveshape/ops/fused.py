"""Fused operators: `lower/fusion.py` replaces patterns with them where the result is provably the same."""

from __future__ import annotations

from collections.abc import Iterator

from liveshape.graph import Node
from liveshape.graph.live import LiveTensor
from liveshape.graph.traits import CacheRows, Carried
from liveshape.kernels import Dispatch, Kernel
from liveshape.ops.attention import new_rows
from liveshape.ops.normalization import rms_norm, rows_of
from liveshape.ops.pointwise import apply
from liveshape.ops.registry import Tensors, op
from liveshape.ops.rotary import angles_of_positions, angles_of_rows, rotate
from liveshape.ops.row_rules import elementwise, outputs_along
from liveshape.ops.row_tables import RowKernels, Start, axis_by_table, first_row

ADD_RMS_NORM = Kernel.load("normalization/rms_norm", ROWS="sum")
ROTARY_TO_CACHE = RowKernels.load("attention/rotary", VALUES="to_cache")


@op(
    "liveshape.add_rms_norm",
    rows=elementwise("a", "b", tail=1),
    fused_from=("aten.add.Tensor", "et_vk.rms_norm.default"),
)
def add_rms_norm(a: LiveTensor, b: LiveTensor, weight: LiveTensor, eps: float, outputs: Tensors) -> Iterator[Dispatch]:
    """The sum of a and b, and its RMSNorm."""
    total, out = outputs
    if a.shape != b.shape:
        yield from apply("add", a, b, out=total)
        yield from rms_norm(total, weight, eps, out)
        return
    total.shape = out.shape = a.shape
    yield ADD_RMS_NORM(out, weight, total, a, b, **rows_of(a, weight, eps))


def axis_to_cache(node: Node, carried: Carried, *names: str) -> int | None:
    """The axis of rows that are rotated and cached by a table; angles of the rows themselves have these rows, too."""
    angles = {node.named["cosine"], node.named["sine"]} if node.named["start_pos"] is None else set()
    if any(carried.get(table) != 0 for table in angles):
        return None
    others = {value: axis for value, axis in carried.items() if value not in angles}
    return axis_by_table(node, others, ("start_pos", "input_pos"), *names)


def _rotated_to_cache(node: Node, carried: Carried) -> Carried | None:
    return outputs_along(node, 1) if axis_to_cache(node, carried, "xq", "xk", "v") == 1 else None


@op(
    "liveshape.rotary_to_cache",
    rows=_rotated_to_cache,
    mutates=("k_cache", "v_cache"),
    cache=CacheRows({"k_cache": 1, "v_cache": 1}, "input_pos"),
    fused_from=("et_vk.apply_rotary_emb_hf.default", "sdpa_with_kv_cache.default"),
)
def rotary_to_cache(
    xq: LiveTensor,
    xk: LiveTensor,
    v: LiveTensor,
    cosine: LiveTensor,
    sine: LiveTensor,
    start_pos: Start | None,  # in tables of every position; None where they are of the live rows
    k_cache: LiveTensor,
    v_cache: LiveTensor,
    input_pos: Start,
    out: LiveTensor,
) -> Iterator[Dispatch]:
    """Rotary embedding of queries and keys; keys and values go to the KV cache in the same dispatch."""
    if start_pos is None:
        angles = angles_of_rows(xq, xk, cosine, sine)
    else:
        angles = angles_of_positions(xq, xk, cosine, sine, start_pos)
    first = first_row(start_pos, input_pos)
    run, start, stride = new_rows(xq, xk, v, k_cache, v_cache, input_pos)
    out.shape = xq.shape
    tensors = (out, k_cache, xq, xk, cosine, sine, v, v_cache)
    yield rotate(tensors, angles, first, run, start, stride, ROTARY_TO_CACHE)
