"""The operator library: one file per family, one generator per operator. Importing this package fills `OPS`."""

from liveshape.ops import (
    binary,
    compare,
    control,
    convert,
    creation,
    indexing,
    joining,
    matmul,
    movement,
    normalization,
    reduction,
    scan,
    softmax,
    symint,
    unary,
    views,
)
from liveshape.ops.registry import OPS, Op, op

__all__ = [
    "OPS",
    "Op",
    "binary",
    "compare",
    "control",
    "convert",
    "creation",
    "indexing",
    "joining",
    "matmul",
    "movement",
    "normalization",
    "op",
    "reduction",
    "scan",
    "softmax",
    "symint",
    "unary",
    "views",
]
