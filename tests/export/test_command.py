"""`liveshape export` as a user meets it: refusals before any work, a module of their own, a folder that loads."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import liveshape
from liveshape.cli import main
from liveshape.export.model.families import FAMILIES
from liveshape.tools.commands.export import _report
from tests.export.tiny import LLAMA, checkpoint_of, random_weights, write_folder

MODULES = """
import torch

class Norm(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x) * 2.0

class Sorting(torch.nn.Module):
    def forward(self, x):
        return torch.sort(torch.relu(x))[0]

def build():
    return Norm(), (torch.randn(43, 8),), {"x": {0: torch.export.Dim("rows", min=1, max=43)}}

def sorting():
    return Sorting(), (torch.randn(43, 8),)

class Branching(torch.nn.Module):
    def forward(self, x):
        y = x * 2
        return torch.cond(x.sum() > 0, lambda x: x + 1, lambda x: x - 1, (y,))

def branching():
    return Branching(), (torch.randn(43, 8),)
"""


@pytest.fixture
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "my_modules.py").write_text(MODULES)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "my_modules", raising=False)
    return tmp_path


def test_a_module_of_the_users_own(modules: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", "my_modules.py:build", "-o", "mine.pte"]) == 0
    assert "liveshape run mine.pte" in capsys.readouterr().out
    x = np.random.default_rng(0).standard_normal((7, 8)).astype(np.float32)
    np.testing.assert_allclose(np.asarray(liveshape.load("mine.pte")(x)), np.maximum(x, 0) * 2)
    assert not list(modules.glob(".*.part"))


def test_what_cannot_be_lowered_is_named_with_its_line(modules: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", "my_modules:branching", "-o", "mine.pte"]) == 4
    message = capsys.readouterr().err
    line = MODULES[: MODULES.index("torch.cond(")].count("\n") + 1
    assert f"my_modules.py:{line}): cond has no kernel" in message
    assert "--via executorch" in message
    assert not (modules / "mine.pte").exists()
    assert main(["export", "my_modules:branching", "-o", "mine.pte", "--via", "executorch"]) == 0
    x = np.random.default_rng(0).standard_normal((43, 8)).astype(np.float32)
    np.testing.assert_allclose(liveshape.load("mine.pte")(x), x * 2 + (1 if x.sum() > 0 else -1), rtol=1e-6)


def test_what_does_not_fit_one_delegate_is_listed(modules: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", "my_modules:sorting", "-o", "mine.pte", "--one-delegate", "--via", "executorch"]) == 4
    message = capsys.readouterr().err
    assert "aten.sort.default" in message
    assert "no operator implementation" in message
    assert "without --one-delegate they run in the same graph" in message
    assert "lowering to one delegate" in message
    assert "writing" not in message
    assert not (modules / "mine.pte").exists()


def test_refusals_come_before_any_work(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_folder(tmp_path / "model", {**LLAMA, "num_local_experts": 4}, {})
    assert main(["export", str(tmp_path / "model"), "-o", str(tmp_path / "out")]) == 4
    assert "num_local_experts = 4" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_missing_extra_names_the_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from liveshape import packages

    found = packages.find_spec
    gone = ("executorch", "flatbuffers")
    monkeypatch.setattr(packages, "find_spec", lambda name: None if name in gone else found(name))
    for via, extra in (("executorch", "export"), ("torch", "torch")):
        assert main(["export", "json:thing", "-o", str(tmp_path), "--via", via]) == 1
        message = capsys.readouterr().err
        assert "needs executorch" in message if via == "executorch" else "needs flatbuffers" in message
        assert f"pip install 'liveshape[{extra}]'" in message
    assert "whl/cpu" not in message  # torch is there
    monkeypatch.setattr(packages, "find_spec", lambda name: None)
    assert main(["export", "json:thing", "-o", str(tmp_path)]) == 1
    message = " ".join(capsys.readouterr().err.split())
    assert "pip install torch==2.13.0 --index-url https://download.pytorch.org/whl/cpu && pip install 'live" in message
    monkeypatch.setattr(packages, "find_spec", lambda name: None if name in gone else found(name))
    assert main(["export", str(tmp_path), "-o", str(tmp_path)]) == 1
    message = capsys.readouterr().err
    assert "needs flatbuffers" in message
    assert "pip install 'liveshape[llm]'" in message


def test_a_checkpoint_needs_no_torch(tmp_path: Path) -> None:
    """In a process where neither torch nor executorch can be imported."""
    write_folder(tmp_path / "model", LLAMA, random_weights(checkpoint_of(LLAMA).config))
    code = (
        "import sys\n"
        "for name in ('torch', 'torchao', 'executorch', 'transformers'): sys.modules[name] = None\n"
        "from liveshape.cli import main\n"
        f"sys.exit(main(['export', {str(tmp_path / 'model')!r}, '-o', {str(tmp_path / 'out')!r}]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=1800)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out" / "model.pte").exists()


def test_names_are_looked_at_before_torch_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*packages: str, **options: str) -> None:
        raise AssertionError("the extra was looked for")

    monkeypatch.setattr("liveshape.tools.commands.export.need", fail)
    for source, message in (
        ("nowhere.py:build", "there is no file nowhere.py"),
        ("some/where.py:build", "there is no file some/where.py"),
        ("nowhere:build", "No module named 'nowhere'"),
        ("nowhere:build", "path/to/nowhere.py:build"),
    ):
        assert main(["export", source, "-o", str(tmp_path / "out")]) == 2
        assert message in " ".join(capsys.readouterr().err.split())
    assert main(["export", str(tmp_path / "nowhere"), "-o", str(tmp_path / "out")]) == 2
    assert "No such file or directory" in capsys.readouterr().err
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine.txt").write_text("keep me")
    for out in (tmp_path / "out", tmp_path / "out" / "mine.txt"):
        assert main(["export", "mymodel:build", "-o", str(out)]) == 2
        assert f"{out} exists: --force replaces" in capsys.readouterr().err
    with pytest.raises(AssertionError, match="the extra was looked for"):
        main(["export", "json:build", "-o", str(tmp_path / "out"), "--force"])
    assert (tmp_path / "out" / "mine.txt").read_text() == "keep me"


def test_help_teaches(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", "--help"]) == 0
    printed = capsys.readouterr().out
    for word in ("GGUF", "module:function", "--max-context", "8da4w", "--evaluate", "--device"):
        assert word in printed
    for name, family in FAMILIES.items():
        assert f"{family.title}," in printed or f"{family.title}." in printed
        assert not family.gguf or f"{name}," in printed or f"{name}." in printed


def test_a_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    checkpoint = checkpoint_of(LLAMA)
    write_folder(tmp_path / "model", LLAMA, random_weights(checkpoint.config))
    options = ["--max-seq-len", "16", "--max-context", "32", "--quant", "4w", "--group-size", "32"]
    assert main(["export", str(tmp_path / "model"), "-o", str(tmp_path / "out"), *options]) == 0
    printed = capsys.readouterr().out
    assert "prompts in pieces of 16, context 32" in printed
    assert "bits per weight" in printed
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert names == {"model.pte", "tokenizer.json", "generation_config.json"}
    assert json.loads((tmp_path / "out" / "generation_config.json").read_text())["eos_token_id"] == [2, 3]
    loaded: Any = liveshape.load(tmp_path / "out" / "model.pte")
    assert np.asarray(loaded(np.array([[1, 2, 3]]), np.array([0]))).shape == (1, 130)


@pytest.mark.slow
def test_half(tmp_path: Path) -> None:
    """Weights, caches and activations in float16; what goes in and comes out stays float32."""
    from liveshape.export.folder import Settings, export_folder
    from liveshape.export.model.config import Quantization
    from tests.export.torch_road import build_decoder

    settings = Settings(Quantization("4w"), max_seq=16, max_context=32, half=True)
    size = export_folder(checkpoint_of(LLAMA), tmp_path, settings)
    assert size == (tmp_path / "model.pte").stat().st_size
    tokens, position = np.array([[5, 6, 7, 8]]), np.array([0])
    with torch.no_grad():
        wanted = build_decoder(checkpoint_of(LLAMA), settings)(torch.from_numpy(tokens), torch.from_numpy(position))
    got = np.asarray(liveshape.load(tmp_path / "model.pte")(tokens, position))
    assert got.dtype == np.float32
    np.testing.assert_allclose(got, wanted.numpy(), rtol=3e-2, atol=3e-2)


@pytest.mark.parametrize("place", [".", "made"])
def test_what_was_written_has_a_name(
    place: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / place).mkdir(exist_ok=True)
    monkeypatch.chdir(tmp_path)
    path = Path(place) / "block.pte"
    shutil.copy(Path(liveshape.__file__).parent / "demo" / "block.pte", path)
    _report(path, 85.0)
    printed = capsys.readouterr().out
    assert printed.startswith(f"{path} written in 85 s\n")
    assert "delegate" not in printed  # one, and nothing outside of it
