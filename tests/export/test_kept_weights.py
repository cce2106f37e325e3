"""`liveshape export` of a file that is quantized already: its weights arrive as they are, or a line says so."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import liveshape
from liveshape.cli import main
from liveshape.export.sources.opening import open_checkpoint
from tests.export import reference
from tests.export.gguf_files import rewritten
from tests.export.perplexity import settings_of
from tests.export.test_readers import gguf_of_weights
from tests.export.tiny import LLAMA, write_safetensors

QUERY = "model.layers.0.self_attn.q_proj"
# One format for each kind of layer.
MIX = {"attn_q": "Q4_0", "attn_k": "Q4_1", "attn_v": "Q5_0", "attn_output": "Q5_1", "ffn_down": "Q8_0"}
BOUNDS = ["--max-seq-len", "8", "--max-context", "16"]


def mixed(name: str) -> str:
    return next((kind for part, kind in MIX.items() if part in name), "Q4_1")


@pytest.fixture
def source(tmp_path: Path) -> Path:
    pytest.importorskip("tokenizers")
    gguf_of_weights(tmp_path / "plain.gguf")
    rewritten(tmp_path / "plain.gguf", tmp_path / "mixed.gguf", mixed)
    return tmp_path / "mixed.gguf"


def test_weights_are_kept_by_default(source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", str(source), "-o", str(tmp_path / "out"), "--full-logits", *BOUNDS]) == 0
    assert "second time" not in capsys.readouterr().out
    checkpoint = open_checkpoint(str(source))
    tokens = [3, 1, 4, 1, 5, 9, 2, 6]
    weights = {name: checkpoint.read(name) for name in checkpoint.shapes}
    wanted = reference.logits(settings_of(checkpoint.config), weights, tokens)
    got = np.asarray(liveshape.load(tmp_path / "out" / "model.pte")(np.array([tokens]), np.array([0])))[0]
    np.testing.assert_allclose(got, wanted, rtol=1e-3, atol=1e-3)


def test_what_is_rounded_a_second_time_is_said(
    source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["export", str(source), "-o", str(tmp_path / "out"), "--quant", "4w", *BOUNDS]) == 0
    layers = sum(kind in ("Q5_0", "Q5_1", "Q8_0") for kind in MIX.values()) * LLAMA["num_hidden_layers"]
    line = f"note: {layers} layers of 8 bits will be rounded a second time; --quant auto does not"
    assert line in capsys.readouterr().out


def test_groups_that_cannot_be_kept_are_refused(
    source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["export", str(source), "-o", str(tmp_path / "out"), "--group-size", "64", *BOUNDS]) == 4
    message = " ".join(capsys.readouterr().err.split())
    assert "--group-size 64 cannot be kept" in message
    assert "groups of 32" in message
    assert not (tmp_path / "out").exists()


def test_an_adapter_makes_floats(source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "adapter"
    folder.mkdir()
    (folder / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA", "r": 2, "lora_alpha": 4}))
    generator = np.random.default_rng(0)
    parts = {"A": generator.standard_normal((2, 64)), "B": generator.standard_normal((64, 2))}
    tensors = {f"base_model.model.{QUERY}.lora_{part}.weight": each.astype(np.float32) for part, each in parts.items()}
    write_safetensors(folder / "adapter_model.safetensors", tensors)
    options = ["-o", str(tmp_path / "out"), "--adapter", str(folder), *BOUNDS]
    assert main(["export", str(source), *options]) == 0
    printed = capsys.readouterr().out
    assert "note: the adapter makes floats of 1 layer that the source stores in fewer bits" in printed
    assert main(["export", "any:thing", *options, "--force"]) == 2
    assert "--adapter" in capsys.readouterr().err
