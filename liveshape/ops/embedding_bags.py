"""EmbeddingBag: sum, mean or max of gathered rows, in bags that begin where the offsets say."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from liveshape.errors import ShapeError, UnsupportedError
from liveshape.graph.live import LiveTensor
from liveshape.kernels import Dispatch, Kernel
from liveshape.ops.creation import fill
from liveshape.ops.registry import Tensors, op

EMBEDDING_BAG = Kernel.load("indexing/embedding_bag")
_MODES = ("SUM", "MEAN", "MAXIMUM")


@op(
    "aten._embedding_bag_forward_only.default", "aten::_embedding_bag_forward_only.out",
    "aten._embedding_bag.default", "aten::_embedding_bag.out",
)  # fmt: skip
def embedding_bag(
    weight: LiveTensor,
    indices: LiveTensor,
    offsets: LiveTensor,
    scale_grad_by_freq: Any,
    mode: int,
    sparse: Any,
    per_sample_weights: LiveTensor | None,
    include_last_offset: bool,
    padding_idx: int,
    out: Tensors,
) -> Iterator[Dispatch]:
    """The bags, then what a gradient would need: the bag of each index, their sizes, and where each greatest is from.

    A sum needs none of that: its sizes and origins are zeros, as torch has them.
    """
    if not 0 <= mode < len(_MODES):
        raise UnsupportedError(f"embedding_bag mode {mode} is not one of 0 (sum), 1 (mean), 2 (max)")
    if indices.rank != 1 or offsets.rank != 1 or (include_last_offset and offsets.numel == 0):
        raise ShapeError(f"indices {indices.shape} and offsets {offsets.shape} must be rows, offsets not empty")
    if per_sample_weights is not None and per_sample_weights.shape != indices.shape:
        raise ShapeError(f"weights {per_sample_weights.shape} do not match the indices {indices.shape}")
    (rows, width), bags = weight.shape, offsets.numel - include_last_offset
    found, bag_of, sizes, origins = out
    # With a padding row torch takes another way, which knows no last offset.
    stops = include_last_offset and padding_idx < 0

    def bag(function: str, result: LiveTensor) -> Dispatch:
        return EMBEDDING_BAG(
            result, weight, indices, offsets, weight if per_sample_weights is None else per_sample_weights,
            count=result.numel, bags=bags, indices=indices.numel, rows=rows, width=width, padding=padding_idx,
            invalid=float("nan"), OP=function, WEIGHTS=per_sample_weights is not None,
            INCLUDE_LAST_OFFSET=stops, threads=result.numel, turns=indices.numel,
        )  # fmt: skip

    found.shape = (bags, width)
    yield bag(_MODES[mode], found)
    bag_of.shape = indices.shape if bag_of.max_shape != (0,) else (0,)
    yield bag("BAG", bag_of)
    if mode == 0:
        yield from fill(offsets.shape, 0, sizes)
        yield from fill((bags,), 0, origins)
        return
    sizes.shape = (bags,)
    yield bag("SIZE", sizes)
    origins.shape = (bags, width) if origins.rank == 2 else (bags,)
    yield bag("ORIGIN" if origins.rank == 2 else "SIZE", origins)
