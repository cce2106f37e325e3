"""Quantization loss: perplexity of an exported model and its KL divergence from the unquantized source.

The source is exported in float32 to a temporary folder; both run on the device over the same windows of a text.
"""

from __future__ import annotations

import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from liveshape.disk import room_in
from liveshape.errors import InputError
from liveshape.export.folder import Settings, export_folder
from liveshape.export.model.checkpoint import Checkpoint
from liveshape.export.model.config import Quantization
from liveshape.graph.activation_kinds import FLOAT32
from liveshape.llm.language_model import LanguageModel
from liveshape.llm.text.tokenizer import Tokenizer
from liveshape.tools.console import upload_bar, work_bar
from liveshape.tools.measuring.cross_entropy import Measured, foretold, losses_of, measured, windows_of

CONTEXT = 256  # default tokens per window, if the model's context is as long


@dataclass(frozen=True)
class Compared:
    """An exported model compared with its source on one text."""

    model: Measured
    source: Measured
    divergence: float  # mean KL divergence over tokens, in nats
    agreement: float  # fraction of tokens with the same top-1

    def __str__(self) -> str:
        more = self.model.perplexity / self.source.perplexity - 1
        return (
            f"perplexity {self.model.perplexity:.3f}, the source's {self.source.perplexity:.3f} ({more:+.1%}); "
            f"divergence {self.divergence:.4f}; top-1 agreement {self.agreement:.1%} "
            f"({self.model.counted:,} tokens)"
        )


def evaluate(checkpoint: Checkpoint, folder: Path, settings: Settings, text: str, device: str | None) -> Compared:
    """Compare an exported model with the checkpoint that it was converted from.

    Example: `evaluate(checkpoint, Path("smollm"), Settings(), text, None).divergence`.
    """
    with tempfile.TemporaryDirectory(prefix="liveshape-", ignore_cleanup_errors=True) as home:
        plain = replace(settings, quantization=Quantization("none"), half=False)
        room = room_in(home, "set TMPDIR to a folder of another disk, or export without --evaluate")
        with upload_bar("the source's own weights") as progress, room:
            export_folder(checkpoint, Path(home) / "source", plain, progress=progress)
        source = LanguageModel.load(Path(home) / "source", device=device, activations=FLOAT32)
    with source, LanguageModel.load(folder, device=source.device, activations=FLOAT32) as model:
        return compare(model, source, Tokenizer.load(folder), text)


def compare(model: LanguageModel, source: LanguageModel, tokenizer: Tokenizer, text: str) -> Compared:
    """Perplexity of both models and KL divergence on one text. Resets their KV caches.

    Example: `compare(model, source, tokenizer, text).agreement`.
    """
    if model.vocab_size != source.vocab_size:
        raise InputError(f"{model.vocab_size:,} and {source.vocab_size:,} tokens: these models cannot be compared")
    context = min(CONTEXT, model.max_context, source.max_context)
    windows = windows_of(model, tokenizer, text, context)
    ours, theirs, divergences, same = [], [], [], []
    start = time.perf_counter()
    with work_bar(len(windows)) as progress:
        for number, window in enumerate(windows):
            progress(f"comparing with the source, window {number + 1}")
            tokens = window[len(window) // 2 + 1 :]
            # Concatenate: the two models may chunk a window differently.
            rows, wanted = (np.concatenate([rows for rows, _ in foretold(each, window)]) for each in (model, source))
            ours.append(losses_of(rows, tokens))
            theirs.append(losses_of(wanted, tokens))
            divergences.append((np.exp(wanted) * (wanted - rows)).sum(-1))
            same.append(rows.argmax(-1) == wanted.argmax(-1))
    about = (context, len(windows), time.perf_counter() - start)
    return Compared(
        measured(np.concatenate(ours), *about),
        measured(np.concatenate(theirs), *about),
        float(np.concatenate(divergences).mean()),
        float(np.concatenate(same).mean()),
    )
