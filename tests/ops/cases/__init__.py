"""Every operator case: a module per family, each with a list CASES."""

from tests.ops.cases import (
    binary,
    compare,
    creation,
    indexing,
    matmul,
    movement,
    normalization,
    reduction,
    scan,
    softmax,
    unary,
    views,
)

CASES = [
    *normalization.CASES,
    *movement.CASES,
    *views.CASES,
    *indexing.CASES,
    *matmul.CASES,
    *reduction.CASES,
    *softmax.CASES,
    *scan.CASES,
    *binary.CASES,
    *unary.CASES,
    *compare.CASES,
    *creation.CASES,
]
