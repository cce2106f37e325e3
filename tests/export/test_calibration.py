"""Error feedback: less error in what a layer gives for inputs like those of its calibration, and the same decoder."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from liveshape.errors import UnsupportedError
from liveshape.export import calibration
from liveshape.export.calibration import calibrated, calibration_windows
from liveshape.export.feedback import fed_back
from liveshape.export.recipe import Recipe, prepared
from liveshape.export.rounding import restored, rounded
from liveshape.export.weights import Grouped
from tests.export.reference import logits
from tests.export.tiny import LLAMA, QWEN2, QWEN3, checkpoint_of, random_weights

WINDOWS = [[3, 1, 4, 1, 5, 9, 2, 6], [5, 3, 5, 8, 9, 7, 9, 3]]


def test_feedback_makes_up_for_errors() -> None:
    generator = np.random.default_rng(0)
    # A few directions carry most of what comes in, as in a trained model.
    mix = generator.standard_normal((96, 96)) * (generator.random(96) ** 3)[:, None]
    weight = generator.standard_normal((40, 96)).astype(np.float32)
    seen, new = (generator.standard_normal((600, 96)) @ mix for _ in range(2))
    found = fed_back(weight, seen.T @ seen / len(seen))
    assert (found.bits, found.group, found.codes.dtype) == (4, 32, np.int8)
    assert np.abs(found.codes.astype(int)).max() <= 8

    def error(made: Grouped) -> float:
        return float(np.square(new @ (restored(made) - weight).T).mean())

    assert error(found) < 0.5 * error(rounded(weight, 4, 32, minima=True))


def test_inputs_that_are_never_there_are_rounded_as_without() -> None:
    weight = np.random.default_rng(1).standard_normal((8, 64)).astype(np.float32)
    plain = rounded(weight, 4, 32, minima=True)
    found = fed_back(weight, np.zeros((64, 64), np.float32))
    np.testing.assert_array_equal(found.scales, plain.scales)
    # Rounded with the fitted scale and not the first one: a few codes lie beside.
    assert np.abs(found.codes.astype(int) - plain.codes).max() <= 1


@pytest.mark.parametrize("settings", [LLAMA, QWEN2, QWEN3], ids=["llama", "qwen2", "qwen3"])
def test_layers_see_what_they_see_in_the_decoder(settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoint = checkpoint_of(settings)
    seen: list[Any] = []

    def spy(weight: Any, moments: Any, group: int) -> Any:
        seen.append(moments)
        return weight  # unrounded

    monkeypatch.setattr(calibration, "fed_back", spy)
    monkeypatch.setattr(calibration, "prepared", lambda checkpoint, name, recipe: checkpoint.read(name))
    names = [name for name, _ in calibrated(checkpoint, WINDOWS, Recipe("4w"))]
    inputs: list[dict[str, Any]] = [{} for _ in WINDOWS]
    for window, filled in zip(WINDOWS, inputs, strict=True):
        logits(settings, random_weights(checkpoint.config), window, inputs=filled)
    four = [name for name in names if Recipe("4w").form(name, 64, checkpoint.config.parameters).bits == 4]  # type: ignore[union-attr]
    assert len(names) == 14
    assert len(four) == len(seen) > 4
    for name, moments in zip(four, seen, strict=True):
        rows = np.concatenate([filled[name.removesuffix(".weight")].reshape(-1, len(moments)) for filled in inputs])
        np.testing.assert_allclose(moments, rows.T @ rows / len(rows), rtol=1e-3, atol=1e-4, err_msg=name)


def test_what_a_recipe_keeps_or_gives_8_bits_is_not_fed_back() -> None:
    checkpoint = checkpoint_of(LLAMA)
    made = dict(calibrated(checkpoint, WINDOWS, Recipe("8w")))
    for name, weight in made.items():
        plain = prepared(checkpoint, name, Recipe("8w"))
        assert isinstance(weight, Grouped)
        assert isinstance(plain, Grouped)
        np.testing.assert_array_equal(weight.codes, plain.codes)
    codes = rounded(checkpoint.read("model.layers.0.self_attn.q_proj.weight"))
    kept = replace(checkpoint, grouped=lambda name: codes if "layers.0.self_attn.q_proj" in name else None)
    assert next(calibrated(kept, WINDOWS, Recipe()))[1] is codes


def test_other_families_are_refused() -> None:
    checkpoint = checkpoint_of(LLAMA)
    other = replace(checkpoint, config=replace(checkpoint.config, family="gemma"))
    with pytest.raises(UnsupportedError, match=r"gemma.*llama, mistral, qwen2, qwen3.*--calibrate"):
        next(calibrated(other, WINDOWS, Recipe()))


def test_windows_of_the_text_that_is_shipped() -> None:
    tokenizers = pytest.importorskip("tokenizers")
    words = tokenizers.Tokenizer(tokenizers.models.WordLevel({"<s>": 0, "the": 1, "?": 2}, unk_token="?"))
    words.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    words.post_processor = tokenizers.processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    checkpoint = replace(checkpoint_of(LLAMA), files={"tokenizer.json": words.to_str().encode()})
    windows = calibration_windows(checkpoint)
    assert len(windows) > 4
    assert {len(window) for window in windows} == {128}  # what the model was trained for
    assert {window[0] for window in windows} == {0}
    assert sum(window.count(0) for window in windows) == len(windows)
    assert sum(window.count(1) for window in windows) > 20
