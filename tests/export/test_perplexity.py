"""The default recipe on the real models: at most 5% more perplexity than with their float weights."""

from __future__ import annotations

import numpy as np
import pytest

from liveshape.export.model.config import Quantization
from tests.export.perplexity import SUBJECTS, evaluated, settings_of, shuffled
from tests.export.reference import logits
from tests.export.tiny import LLAMA, checkpoint_of


@pytest.mark.parametrize(
    "settings", [{**LLAMA, "rope_scaling": None}, {**LLAMA, "rope_scaling": None, "num_key_value_heads": 4}]
)
def test_shuffled_channels_make_the_same_function(settings: dict[str, object]) -> None:
    plain = checkpoint_of(settings)
    other = shuffled(plain)
    found, expected = (
        logits(settings_of(each.config), {name: each.read(name) for name in each.shapes}, [3, 1, 4, 1, 5])
        for each in (other, plain)
    )
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
    name = "model.layers.0.mlp.up_proj.weight"
    assert not np.array_equal(other.read(name), plain.read(name))


@pytest.mark.slow
@pytest.mark.parametrize("name", SUBJECTS)
def test_default_recipe_on_real_models(name: str) -> None:
    pytest.importorskip("tokenizers")
    checkpoint = SUBJECTS[name].open()
    recipes = Quantization("none"), Quantization()
    plain, made = (evaluated(checkpoint, SUBJECTS[name], recipe)[0] for recipe in recipes)
    assert made.perplexity <= 1.05 * plain.perplexity
