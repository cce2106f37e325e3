"""Every operator case: a module per family, each with a list CASES."""

from tests.ops.cases import (
    attention,
    binary,
    compare,
    creation,
    indexing,
    matmul,
    movement,
    normalization,
    quantized,
    reduction,
    rotary,
    scan,
    softmax,
    training,
    unary,
    views,
)

CASES = [
    *normalization.CASES,
    *movement.CASES,
    *views.CASES,
    *indexing.CASES,
    *matmul.CASES,
    *quantized.CASES,
    *reduction.CASES,
    *softmax.CASES,
    *training.CASES,
    *scan.CASES,
    *rotary.CASES,
    *attention.CASES,
    *binary.CASES,
    *unary.CASES,
    *compare.CASES,
    *creation.CASES,
]
