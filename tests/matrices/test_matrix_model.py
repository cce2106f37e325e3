"""Language models with float16 activations: the shipped one, its fused layers, with every epilogue, by matrix units,
beside the same in float32; and SmolLM2, whose text is torch's."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from liveshape.export.folder import Settings, export_folder
from liveshape.export.sources.opening import open_checkpoint
from liveshape.llm import Sampling
from liveshape.llm.language_model import LanguageModel
from tests.export.real_models import smollm2
from tests.export.test_real_models import expected
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
        names = {name.partition(" + ")[0] for name in kernels_of(device)}  # without the expression of a gate
        found = {name.removeprefix("q4/matrix_tiles") for name in names if "q4/matrix" in name}
    assert found >= EPILOGUES


def test_text_is_that_of_torch(tmp_path: Path) -> None:
    """SmolLM2 as its file has it: every token after a prompt, and after as much of the text as matrix units take."""
    device, _ = with_matrices()
    export_folder(open_checkpoint(str(smollm2())), tmp_path, Settings(max_seq=64, max_context=128))
    with LanguageModel.load(tmp_path, device=device, activations="float16") as model:
        for case in expected("smollm2"):
            ids, greedy = case["ids"], case["greedy"]
            model.reset()
            assert list(model.stream(ids, Sampling(), max_tokens=len(greedy))) == greedy, case["prompt"]
            for length in range(max(0, 17 - len(ids)), len(greedy), 4):
                assert _logits(model, [*ids, *greedy[:length]]).argmax() == greedy[length], (case["prompt"], length)
    assert any("/matrix_" in name for name in kernels_of(device))


def _logits(model: LanguageModel, ids: list[int]) -> np.ndarray:
    model.reset()
    model.prefill(ids)
    return model.logits()
