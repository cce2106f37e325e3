"""Time and peak host memory of `liveshape export`, for two small models and one of Llama-3.2-1B's shape.

The 1B has random weights in bfloat16, made on the spot in a folder as the Hub has them. Each export is a process of its
own, as a user runs it. CPU seconds stand beside wall seconds: on a busy machine only they can be compared.

Run: python -m bench.export [smollm2] [stories15M] [1b] [--quant auto]
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from liveshape.export.model.checkpoint import expected_tensors
from liveshape.export.sources.huggingface_config import from_hugging_face
from liveshape.export.sources.opening import open_checkpoint
from liveshape.tools.console import size_text

LLAMA_1B = {
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 2048,
    "intermediate_size": 8192,
    "num_hidden_layers": 16,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 64,
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
    "rms_norm_eps": 1e-5,
    "rope_theta": 500000.0,
    "tie_word_embeddings": True,
    "bos_token_id": 128000,
    "eos_token_id": 128001,
}
_POOL = 1 << 22  # random weights, repeated
MODELS = ("smollm2", "stories15M", "1b")


@dataclass(frozen=True)
class Cost:
    """The cost of one export."""

    seconds: float
    processor: float
    peak: int
    file: int


def write_1b(folder: Path) -> None:
    """A Hugging Face folder of random weights; its tokenizer is a stand-in."""
    (folder / "config.json").write_text(json.dumps(LLAMA_1B))
    (folder / "tokenizer.json").write_text("{}")
    shapes = dict(expected_tensors(from_hugging_face(LLAMA_1B)))
    header, end = {}, 0
    for name, shape in shapes.items():
        size = 2 * prod(shape)
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": (end, end + size)}
        end += size
    weights = np.random.default_rng(0).standard_normal(_POOL, np.float32) / np.float32(50)
    pool = (weights.view(np.uint32) >> 16).astype("<u2").tobytes()
    text = json.dumps(header).encode()
    with open(folder / "model.safetensors", "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for _ in range(end // len(pool)):
            file.write(pool)
        file.write(pool[: end % len(pool)])


@contextmanager
def source_of(model: str) -> Iterator[Path]:
    from tests.export.real_models import smollm2, smollm2_q4_k_m, stories15m

    if model != "1b":
        yield {"smollm2": smollm2, "smollm2-q4_k_m": smollm2_q4_k_m, "stories15M": stories15m}[model]()
        return
    with tempfile.TemporaryDirectory() as folder:
        write_1b(Path(folder))
        yield Path(folder)


def parameters_of(source: Path) -> int:
    return open_checkpoint(str(source)).config.parameters


def measure(source: Path, quantization: str) -> Cost:
    """Export in a process of its own, measured by the operating system."""
    with tempfile.TemporaryDirectory() as out:
        command = [
            sys.executable,
            "-m",
            "liveshape",
            "export",
            str(source),
            "-o",
            f"{out}/model",
            "--quant",
            quantization,
        ]
        start = time.perf_counter()
        process = os.spawnv(os.P_NOWAIT, sys.executable, command)
        _, status, used = os.wait4(process, 0)
        seconds = time.perf_counter() - start
        if status:
            raise SystemExit(f"{' '.join(command)} failed")
        size = (Path(out) / "model" / "model.pte").stat().st_size
    unit = 1 if sys.platform == "darwin" else 1024
    return Cost(seconds, used.ru_utime + used.ru_stime, used.ru_maxrss * unit, size)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("models", nargs="*", default=list(MODELS), metavar="|".join(MODELS))
    parser.add_argument("--quant", default="auto")
    options = parser.parse_args()
    table = Table("model", "seconds", "of the processor", "peak of the host", "model.pte", title=f"{options.quant}")
    for model in options.models:
        with source_of(model) as source:
            cost = measure(source, options.quant)
        row = f"{cost.seconds:.1f}", f"{cost.processor:.1f}", size_text(cost.peak), size_text(cost.file)
        table.add_row(model, *row)
    Console().print(table)


if __name__ == "__main__":
    main()
