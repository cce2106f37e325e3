"""The kernels of a 4-bit linear layer: by how many rows there are, by what the rows are, and by their epilogue."""

from __future__ import annotations

from typing import NamedTuple

from liveshape.kernels import Kernel


class Q4Kernels(NamedTuple):
    """The kernels of one epilogue. Those of `int8` take quantized rows, the others rows of floats."""

    gemv: Kernel
    staged_gemv: Kernel  # with its row in workgroup memory
    normed_gemv: Kernel  # and with its RMSNorm in the prologue
    few_rows: Kernel
    tiles: Kernel
    large_tiles: Kernel
    int8_gemv: Kernel
    normed_int8_gemv: Kernel  # the RMSNorm scale is applied in the epilogue, from the sum of squares of the row
    int8_few_rows: Kernel
    int8_tiles: Kernel
    quantizing_gemv: Kernel  # every workgroup quantizes the row of floats in its prologue
    normed_quantizing_gemv: Kernel
    matrix_tiles: Kernel  # rows and weight as halves, by matrix units
    combine_splits: Kernel  # the partial sums of split-K

    @classmethod
    def with_epilogue(cls, epilogue: str, floats: Q4Kernels | None = None, **rows: str) -> Q4Kernels:
        """The kernels with this epilogue of q4/epilogue.wgsl.

        Those of `floats` are for rows of floats, where only the int8 kernels have this epilogue. `rows` are its other
        choices.
        """

        def load(name: str, **choices: str) -> Kernel:
            return Kernel.load(f"q4/{name}", EPILOGUE=epilogue, **rows, **choices)

        return cls(
            gemv=floats.gemv if floats else load("gemv"),
            staged_gemv=floats.staged_gemv if floats else load("gemv", ROW="staged"),
            normed_gemv=floats.normed_gemv if floats else load("gemv", ROW="rms"),
            few_rows=floats.few_rows if floats else load("few_rows"),
            tiles=floats.tiles if floats else load("tiles"),
            large_tiles=floats.large_tiles if floats else load("large_tiles"),
            int8_gemv=load("int8_gemv"),
            normed_int8_gemv=load("int8_gemv", TOTAL="sums_and_squares"),
            int8_few_rows=load("int8_few_rows"),
            int8_tiles=load("int8_tiles"),
            quantizing_gemv=load("quantizing_gemv"),
            normed_quantizing_gemv=load("quantizing_gemv", NORM="rms"),
            matrix_tiles=floats.matrix_tiles if floats else load("matrix_tiles"),
            combine_splits=load("combine_splits"),
        )


STORE = Q4Kernels.with_epilogue("store")
SPLIT_K = Q4Kernels.with_epilogue("split_k")
QKV = Q4Kernels.with_epilogue("qkv")
ROTARY = Q4Kernels.with_epilogue("rotary")
ROTARY_BY_TABLE = Q4Kernels.with_epilogue("rotary", POSITIONS="table")
RESIDUAL = Q4Kernels.with_epilogue("residual")
RESIDUAL_QUANTIZED = RESIDUAL._replace(  # of one row
    int8_gemv=Kernel.load("q4/int8_gemv", EPILOGUE="residual_quantized"),
    quantizing_gemv=Kernel.load("q4/quantizing_gemv", EPILOGUE="residual_quantized"),
)
GATED = Q4Kernels.with_epilogue("gated")
GATED_QUANTIZED = Q4Kernels.with_epilogue("gated_quantized", floats=GATED)
