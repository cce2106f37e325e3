"""Adapters of peft, joined while weights are read: against plain numpy, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from liveshape.errors import FormatError, InputError, UnsupportedError
from liveshape.export.sources.huggingface import open_folder
from liveshape.export.sources.lora import with_adapter
from tests.export.family_models import MODELS, folder_of
from tests.export.tiny import LLAMA, Arrays, checkpoint_of, write_folder, write_safetensors

CHECKPOINT = checkpoint_of(LLAMA)
QUERY, DOWN = "model.layers.0.self_attn.q_proj", "model.layers.1.mlp.down_proj"
EMBEDDING = "model.embed_tokens"
CONFIG = {
    "peft_type": "LORA",
    "r": 4,
    "lora_alpha": 16,
    "target_modules": ["q_proj", "down_proj"],
    "lora_dropout": 0.1,
    "bias": "none",
    "use_rslora": False,
    "use_dora": False,
    "modules_to_save": None,
    "task_type": "CAUSAL_LM",
    "base_model_name_or_path": "someone/model",
}


def pair(name: str, rank: int = 4, prefix: str = "base_model.model.") -> Arrays:
    rows, width = CHECKPOINT.shapes[f"{name}.weight"]
    generator = np.random.default_rng(rows * width)
    return {
        f"{prefix}{name}.lora_A.weight": generator.standard_normal((rank, width)).astype(np.float32),
        f"{prefix}{name}.lora_B.weight": generator.standard_normal((rows, rank)).astype(np.float32),
    }


def write(folder: Path, tensors: Arrays, **settings: Any) -> Path:
    (folder / "adapter_config.json").write_text(json.dumps({**CONFIG, **settings}))
    write_safetensors(folder / "adapter_model.safetensors", tensors)
    return folder


@pytest.mark.parametrize(("settings", "scale"), [({}, 4.0), ({"use_rslora": True}, 8.0), ({"lora_alpha": 2}, 0.5)])
def test_merged(settings: dict[str, Any], scale: float, tmp_path: Path) -> None:
    tensors = {**pair(QUERY), **pair(DOWN)}
    joined = with_adapter(CHECKPOINT, write(tmp_path, tensors, **settings))
    for name in CHECKPOINT.shapes:
        expected = CHECKPOINT.read(name).astype(np.float64)
        module = "base_model.model." + name.removesuffix(".weight")
        if f"{module}.lora_A.weight" in tensors:
            up, down = (tensors[f"{module}.lora_{part}.weight"].astype(np.float64) for part in "BA")
            expected = expected + scale * up @ down
        np.testing.assert_allclose(joined.read(name), expected, rtol=1e-5, atol=1e-5, err_msg=name)
        np.testing.assert_allclose(joined.read_rows(name, slice(5, 9)), expected[5:9], rtol=1e-5, atol=1e-5)
        assert joined.read(name).dtype == np.float32


@pytest.mark.parametrize("value", [np.nan, np.inf, -3e38])
def test_values_that_are_no_weights_are_refused(value: float, tmp_path: Path) -> None:
    tensors = pair(QUERY)
    tensors[f"base_model.model.{QUERY}.lora_A.weight"][2, 3] = value
    with pytest.raises(FormatError, match="infinite or no numbers"):
        with_adapter(CHECKPOINT, write(tmp_path, tensors))


def test_rows_of_interleaved_pairs_are_put_in_order(tmp_path: Path) -> None:
    """A checkpoint of such a family has rows of queries in another order than the adapter that was trained on it."""
    folder, weights = folder_of(tmp_path / "glm4", MODELS["glm4"])
    checkpoint, name = open_folder(folder), "model.layers.1.self_attn.q_proj"
    rows, width = checkpoint.shapes[f"{name}.weight"]
    generator = np.random.default_rng(0)
    down, up = (generator.standard_normal(shape).astype(np.float32) for shape in ((4, width), (rows, 4)))
    tensors = {f"base_model.model.{name}.lora_A.weight": down, f"base_model.model.{name}.lora_B.weight": up}
    joined = with_adapter(checkpoint, write(tmp_path, tensors)).read(f"{name}.weight")
    write_folder(
        tmp_path / "joined", MODELS["glm4"], weights | {f"{name}.weight": weights[f"{name}.weight"] + 4 * up @ down}
    )
    expected = open_folder(tmp_path / "joined").read(f"{name}.weight")
    np.testing.assert_allclose(joined, expected, rtol=1e-5, atol=1e-5)


def test_ranks_and_alphas_of_single_layers(tmp_path: Path) -> None:
    tensors = {**pair(QUERY), **pair(DOWN, rank=8)}
    settings = {"rank_pattern": {"mlp.down_proj": 8}, "alpha_pattern": {"down_proj": 4}}
    joined = with_adapter(CHECKPOINT, write(tmp_path, tensors, **settings))
    up, down = (tensors[f"base_model.model.{DOWN}.lora_{part}.weight"] for part in "BA")
    expected = CHECKPOINT.read(f"{DOWN}.weight") + 0.5 * up @ down
    np.testing.assert_allclose(joined.read(f"{DOWN}.weight"), expected, rtol=1e-5, atol=1e-5)


def test_the_embedding_and_bare_names(tmp_path: Path) -> None:
    rows, width = CHECKPOINT.shapes[f"{EMBEDDING}.weight"]
    generator = np.random.default_rng(0)
    down, up = (generator.standard_normal(shape).astype(np.float32) for shape in ((4, rows), (width, 4)))
    tensors = {"embed_tokens.lora_embedding_A": down, "embed_tokens.lora_embedding_B": up}
    joined = with_adapter(CHECKPOINT, write(tmp_path, tensors))
    expected = CHECKPOINT.read(f"{EMBEDDING}.weight") + 4 * (up @ down).T
    np.testing.assert_allclose(joined.read(f"{EMBEDDING}.weight"), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("settings", "kind", "message"),
    [
        ({"peft_type": "IA3"}, UnsupportedError, "IA3"),
        ({"use_dora": True}, UnsupportedError, "use_dora = True"),
        ({"modules_to_save": ["lm_head"]}, UnsupportedError, "modules_to_save"),
        ({"bias": "all"}, UnsupportedError, "bias = 'all'"),
        ({"something_new": 3}, UnsupportedError, "something_new = 3.*merge_and_unload"),
        ({"alpha_pattern": {"layers.[0-9]+.q": 3}}, UnsupportedError, "alpha_pattern"),
        ({"r": 8}, FormatError, "ranks 4 and 4.*says 8"),
        ({"r": 0}, FormatError, "r is 0"),
        ({"lora_alpha": None}, FormatError, "lora_alpha is None"),
    ],
)
def test_settings_that_are_refused(
    settings: dict[str, Any], kind: type[Exception], message: str, tmp_path: Path
) -> None:
    with pytest.raises(kind, match=message):
        with_adapter(CHECKPOINT, write(tmp_path, pair(QUERY), **settings))


@pytest.mark.parametrize(
    ("tensors", "kind", "message"),
    [
        ({}, FormatError, "no tensors"),
        ({**pair(QUERY), "base_model.model.x.lora_magnitude_vector": np.ones(3)}, UnsupportedError, "magnitude"),
        ({f"base_model.model.{QUERY}.lora_A.weight": np.ones((4, 64))}, FormatError, "has lora_A; a pair"),
        ({name.replace("layers.0", "layers.7"): each for name, each in pair(QUERY).items()}, FormatError, r"layers\.7"),
        ({name.replace("q_proj", "k_proj"): each for name, each in pair(QUERY).items()}, FormatError, "does not fit"),
    ],
)
def test_tensors_that_are_refused(tensors: Any, kind: type[Exception], message: str, tmp_path: Path) -> None:
    with pytest.raises(kind, match=message):
        with_adapter(CHECKPOINT, write(tmp_path, tensors))


def test_a_folder_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"adapter_config\.json.*save_pretrained"):
        with_adapter(CHECKPOINT, tmp_path)


@pytest.mark.parametrize("theirs", [f"base_model.model.{QUERY}", f"base_model.model.{QUERY.removeprefix('model.')}"])
def test_a_layer_that_is_there_twice(theirs: str, tmp_path: Path) -> None:
    """One of both was dropped without a word."""
    others = {f"{theirs}.lora_{part[-8]}.default.weight": tensor for part, tensor in pair(QUERY).items()}
    assert len(others) == 2
    with pytest.raises(FormatError, match=r"layers\.0\.self_attn\.q_proj.* twice"):
        with_adapter(CHECKPOINT, write(tmp_path, {**pair(QUERY), **others}))
