"""What `pip install liveshape` gives, without any extra: programs run, and what needs more says how to install it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

# Of every extra; None in the place of a module makes its import fail.
WITHOUT = """
import sys
for name in ("flatbuffers", "jinja2", "tokenizers", "torch", "executorch", "torchao", "huggingface_hub", "llguidance",
             "starlette", "uvicorn", "transformers", "safetensors"):
    sys.modules[name] = None
import importlib.util
found = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if sys.modules.get(name, 0) is None else found(name, *rest)
from liveshape.cli import main
sys.exit(main(sys.argv[1:]))
"""


def call(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", WITHOUT, *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    "arguments",
    [
        "run demo --input-shapes 1x7x64",
        "inspect demo --html demo.html",
        "check demo --input-shapes 1x7x64",
        "check --selftest --only softmax",
        "bench liveshape-demo.pte --input-shapes 1x7x64 -r 1",
        "ops softmax",
    ],
)
def test_programs_run(arguments: str, tmp_path: Path) -> None:
    import liveshape

    block = Path(liveshape.__file__).parent / "demo" / "block.pte"
    (tmp_path / "liveshape-demo.pte").symlink_to(block)
    done = call(tmp_path, *arguments.split())
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("arguments", ["generate -p hi", "chat story", "serve story", "perplexity story book.txt"])
def test_what_needs_an_extra_says_so(arguments: str, tmp_path: Path) -> None:
    (tmp_path / "book.txt").write_text("Once upon a time.")
    done = call(tmp_path, *arguments.split())
    assert done.returncode == 1
    assert "pip install 'liveshape[" in done.stderr
    assert "Traceback" not in done.stderr
