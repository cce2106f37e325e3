"""gpt-oss as it is published: experts in blocks of MXFP4, kept exactly, and what is no such checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import liveshape
from liveshape.errors import FormatError, UnsupportedError
from liveshape.export.folder import MODEL, Settings, export_folder
from liveshape.export.model.checkpoint import check_tensors
from liveshape.export.model.config import Quantization
from liveshape.export.model.layout import Layout, restored
from liveshape.export.sources.huggingface import open_folder
from liveshape.export.weights.storage import RoundedStorage
from tests.export.family_models import MODELS, folder_of
from tests.export.family_reference import logits
from tests.export.gguf_files import mxfp4
from tests.export.tiny import Arrays, write_folder

SETTINGS = {**MODELS["gpt_oss"], "quantization_config": {"quant_method": "mxfp4"}, "num_hidden_layers": 2}
TOKENS = [int(token) for token in np.random.default_rng(3).integers(0, 128, 20)]


def blocks_of(weight: Any) -> tuple[Any, Any]:
    """(experts, inputs, outputs) as blocks (experts, outputs, inputs / 32, 16), at random, and their scales."""
    generator = np.random.default_rng(weight.size)
    shape = weight.shape[0], weight.shape[2], weight.shape[1] // 32
    return (
        generator.integers(0, 256, (*shape, 16)).astype(np.uint8),
        generator.integers(122, 126, shape).astype(np.uint8),
    )


def floats_of(blocks: Any, scales: Any) -> Any:
    """(experts, inputs, outputs) again. A byte has two neighbours, where a GGUF file has the two halves of a block."""
    rows = []
    for block, scale in zip(blocks.reshape(-1, 16), scales.reshape(-1), strict=True):
        found = np.array(mxfp4(bytes([scale, *block])), np.float32)
        rows.append(np.stack([found[:16], found[16:]], 1).reshape(-1))
    return np.array(rows).reshape(*scales.shape[:2], -1).swapaxes(1, 2)


def blocked(weights: Arrays) -> tuple[Arrays, Arrays]:
    """A checkpoint with its experts in blocks, and the floats that they are."""
    stored, floats = {}, {}
    for name, weight in weights.items():
        if weight.ndim == 3:
            stored[f"{name}_blocks"], stored[f"{name}_scales"] = blocks_of(weight)
            floats[name] = floats_of(stored[f"{name}_blocks"], stored[f"{name}_scales"])
        else:
            stored[name] = floats[name] = weight
    return stored, floats


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Arrays, Arrays]:
    path, weights = folder_of(tmp_path_factory.mktemp("gpt_oss"), SETTINGS)
    stored, floats = blocked(weights)
    write_folder(path, SETTINGS, stored)
    return path, stored, floats


def test_blocks_are_kept_as_they_are(published: tuple[Path, Arrays, Arrays]) -> None:
    path, _, floats = published
    checkpoint = open_folder(path)
    check_tensors(checkpoint)
    assert checkpoint.grouped is not None
    for layer in range(2):
        owner = f"model.layers.{layer}.mlp.experts"
        both, down = floats[f"{owner}.gate_up_proj"], floats[f"{owner}.down_proj"]
        for number in range(4):
            expected = {"gate": both[number, :, ::2].T, "up": both[number, :, 1::2].T, "down": down[number].T}
            for kind, weight in expected.items():
                name = f"{owner}.{number}.{kind}_proj.weight"
                assert checkpoint.stored(name) == Layout(8, 32)
                np.testing.assert_array_equal(checkpoint.read(name), weight)
                np.testing.assert_array_equal(restored(checkpoint.grouped(name, slice(5, 9))), weight[5:9])
    assert checkpoint.stored("model.layers.0.self_attn.q_proj.weight") is None


def test_logits_of_kept_blocks(published: tuple[Path, Arrays, Arrays], tmp_path: Path) -> None:
    """What is no expert, and no router, is rounded to 8 bits."""
    path, _, floats = published
    storage = RoundedStorage(open_folder(path), Quantization("8w"))
    weights = dict(floats)
    for name in floats:
        if name.endswith(("proj.weight", "embed_tokens.weight", "lm_head.weight")):
            layout = storage.layout(name, lookup=False)
            assert layout is not None
            weights[name] = restored(storage.grouped(name, layout, slice(None)))
    export_folder(open_folder(path), tmp_path, Settings(Quantization("8w"), 16, 32, full_logits=True))
    expected = logits(SETTINGS, weights, TOKENS)
    with liveshape.load(tmp_path / MODEL) as model:
        for start, length in ((0, 7), (7, 1), (8, 12)):
            got = np.asarray(model(np.array([TOKENS[start : start + length]]), np.array([start])))[0]
            np.testing.assert_allclose(got, expected[start : start + length], rtol=1e-3, atol=1e-3)


def test_floats_of_blocks(published: tuple[Path, Arrays, Arrays], tmp_path: Path) -> None:
    path, _, floats = published
    export_folder(open_folder(path), tmp_path, Settings(Quantization("none"), 16, 32, full_logits=True))
    with liveshape.load(tmp_path / MODEL) as model:
        got = np.asarray(model(np.array([TOKENS[:13]]), np.array([0])))[0]
    np.testing.assert_allclose(got, logits(SETTINGS, floats, TOKENS)[:13], rtol=1e-3, atol=1e-3)


DOWN = "model.layers.1.mlp.experts.down_proj"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({f"{DOWN}_scales": None}, "without the scales"),
        ({f"{DOWN}_blocks": None}, "U8|lacks"),
        ({f"{DOWN}_scales": np.zeros((4, 64, 2), np.uint8)}, "one scale a block"),
        ({f"{DOWN}_scales": np.zeros((4, 64, 3), np.float32)}, "one scale a block"),
        ({f"{DOWN}_blocks": np.zeros((4, 64, 3, 15), np.uint8)}, "one scale a block"),
        ({DOWN: np.zeros((4, 96, 64), np.float32)}, "twice, as floats and as blocks"),
        ({f"{DOWN}_bias": np.zeros((4, 3, 5), np.float32)}, "2 dims are needed"),
        ({f"{DOWN}_bias": np.zeros((1 << 30, 0), np.float32)}, "holds no experts"),
        ({"model.norm.weight": np.zeros(64, np.uint8)}, "norm.weight is of type U8"),
    ],
)
def test_checkpoints_that_are_none(
    change: dict[str, Any], message: str, published: tuple[Path, Arrays, Arrays], tmp_path: Path
) -> None:
    _, stored, _ = published
    changed = {name: each for name, each in {**stored, **change}.items() if each is not None}
    write_folder(tmp_path, SETTINGS, changed)
    with pytest.raises(FormatError, match=message):
        check_tensors(open_folder(tmp_path))


def test_other_ways_to_store_weights(tmp_path: Path) -> None:
    path, _ = folder_of(tmp_path, MODELS["gpt_oss"])
    write_folder(path, {**SETTINGS, "quantization_config": {"quant_method": "awq"}}, {})
    with pytest.raises(UnsupportedError, match="quantization_config = awq: only mxfp4"):
        open_folder(path)
