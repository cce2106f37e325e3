"""A small encoder with an attention mask, as `liveshape export` and as ExecuTorch alone write it, in a folder with a
tokenizer."""

from __future__ import annotations

import functools
import math
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.export import Dim

from tests.llm.texts import byte_level
from tests.support.exporting import MethodSource as Source
from tests.support.exporting import cached, exporter_sources, lower_methods, quick, quiet

SIZE, MOST, STATIC = 16, 24, 12
VOCABULARY = 360


class Encoder(torch.nn.Module):
    """Words and places, one layer of attention, and a feed-forward one; hidden states and one vector of them."""

    def __init__(self) -> None:
        super().__init__()
        rng = np.random.default_rng(0)  # torch's normal numbers differ between processors in their last bits
        shapes = {
            "words": (VOCABULARY, SIZE),
            "places": (MOST, SIZE),
            "inner": (4 * SIZE, SIZE),
            "outer": (SIZE, 4 * SIZE),
        }
        for name in ("query", "key", "value", "pooler"):
            shapes[name] = (SIZE, SIZE)
        for name, shape in shapes.items():
            weights = rng.standard_normal(shape, np.float32) / np.float32(math.sqrt(SIZE))
            self.register_parameter(name, torch.nn.Parameter(torch.from_numpy(weights)))

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        linear = torch.nn.functional.linear
        x = torch.nn.functional.embedding(input_ids, self.words) + self.places[: input_ids.shape[1]]
        scores = linear(x, self.query) @ linear(x, self.key).transpose(1, 2) / math.sqrt(SIZE)
        seen = torch.softmax(scores + (attention_mask.unsqueeze(1) - 1.0) * 1e4, -1)
        x = x + linear(seen @ linear(x, self.value), self.pooler)
        x = x + linear(torch.relu(linear(x, self.inner)), self.outer)
        return x, torch.tanh(linear(x[:, 0], self.pooler))


def arguments(length: int) -> tuple[Any, ...]:
    return torch.zeros(1, length, dtype=torch.int64), torch.ones(1, length)


@functools.cache
def dynamic() -> Path:
    """Texts of 1 to 24 tokens; inputs have names."""

    def make() -> bytes:
        from liveshape.export.module.torch_export import ModuleSource, lower  # slow, and seldom needed

        length = Dim("length", min=1, max=MOST)
        shapes = {"input_ids": {1: length}, "attention_mask": {1: length}}
        with quiet(), quick(), tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "model.pte"
            lower(ModuleSource(Encoder(), arguments(MOST), shapes), path)
            return path.read_bytes()

    return cached("encoder_dynamic", (sys.modules[__name__], *exporter_sources()), make)


@functools.cache
def static() -> Path:
    """12 tokens, no more and no less, from an exporter that keeps no names."""

    def make() -> bytes:
        return lower_methods({"forward": Source(Encoder(), arguments(STATIC))})

    return cached("encoder_static", sys.modules[__name__], make)  # type: ignore[arg-type]


def write_encoder(folder: Path, program: Path) -> Path:
    """The folder that `TextEncoder.load` takes; tokenizers are quick to train, and this one is always the same."""
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(program, folder / "model.pte")
    byte_level().save(str(folder / "tokenizer.json"))
    return folder


def hidden(ids: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
    """What torch computes of a text, in float64: hidden states (S, D), and the vector."""
    module = Encoder().double()
    with torch.no_grad():
        rows, vector = module(torch.tensor([ids]), torch.ones(1, len(ids), dtype=torch.float64))
    return rows[0], vector[0]
