"""The shipped language model with float16 activations: its fused layers, with every epilogue, by matrix units, beside
the same in float32."""

from __future__ import annotations

import numpy as np
import pytest

from liveshape.llm.language_model import LanguageModel
from tests.matrices.opened import kernels_of, with_matrices
from tests.survival.subjects import STORY

pytestmark = pytest.mark.slow
LENGTHS = (131, 17, 3, 64, 37, 113)
EPILOGUES = {"+gated", "+residual", "+rotary", "+split_k"}


def test_prompts_of_any_length() -> None:
    device, _ = with_matrices()
    draw = np.random.default_rng(1)
    with (
        LanguageModel.load(STORY, device=device, activations="float32") as exact,
        LanguageModel.load(STORY, device=device, activations="float16") as rounded,
    ):
        for length in LENGTHS:
            ids = [int(each) for each in draw.integers(3, exact.vocab_size, length)]
            expected, got = (_logits(model, ids) for model in (exact, rounded))
            error = np.abs(got - expected).max() / np.abs(expected).max()
            assert error < 5e-3, f"{length} tokens: {error}"
            assert length < 16 or error > 0, "it was not computed from halves"
        found = {name.removeprefix("q4/matrix_tiles") for name in kernels_of(device) if "q4/matrix" in name}
    assert found >= EPILOGUES


def _logits(model: LanguageModel, ids: list[int]) -> np.ndarray:
    model.reset()
    model.prefill(ids)
    return model.logits()
