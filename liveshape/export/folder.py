"""The folder of a language model: `model.pte` with the methods that runners ask, and the tokenizer files beside it."""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from liveshape.errors import InputError
from liveshape.export.checkpoint import Checkpoint, check_tensors
from liveshape.export.config import Quantization, check_context
from liveshape.export.lower import Source, Step, lower
from liveshape.export.model import Decoder
from liveshape.export.quantize import Weights

MODEL = "model.pte"
# What a file is made for, unless the model was trained for less.
_CONTEXT, _PIECE = 2048, 512

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Settings:
    """What to make of a checkpoint. `max_seq` is the longest piece of a prompt in one call, `max_context` the cache.

    Example: `Settings(Quantization("4w", group=64), max_context=4096)`.
    """

    quantization: Quantization = field(default_factory=Quantization)
    max_seq: int | None = None
    max_context: int | None = None
    half: bool = False
    full_logits: bool = False

    def bounds(self, trained: int) -> tuple[int, int]:
        """The piece and the cache for a model that was trained for this context.

        >>> Settings().bounds(256), Settings(max_context=4096).bounds(8192)
        ((256, 256), (512, 4096))
        """
        context = self.max_context or min(_CONTEXT, trained)
        return self.max_seq or min(_PIECE, context), context


def export_folder(
    checkpoint: Checkpoint,
    out: Path,
    settings: Settings | None = None,
    step: Step = lambda text: None,
    progress: Progress = lambda done, total: None,
) -> int:
    """Write the folder of a checkpoint and return the size of its `model.pte`.

    Example: `export_folder(open_checkpoint("SmolLM2-135M/"), Path("smollm"), Settings(max_context=4096))`.
    """
    settings = settings or Settings()
    max_seq, max_context = settings.bounds(checkpoint.config.context)
    check_context(checkpoint.config, max_seq, max_context)
    check_tensors(checkpoint)
    with whole_folder(out) as unfinished:
        step("reading weights" if settings.quantization.mode == "none" else "reading and quantizing weights")
        decoder = build_decoder(checkpoint, settings, progress)
        size = lower(decoder_source(decoder, max_seq), unfinished / MODEL, settings.half, step=step)
        for name, content in checkpoint.files.items():
            (unfinished / name).write_bytes(content)
    return size


@contextmanager
def whole_folder(out: Path) -> Iterator[Path]:
    """A folder to write into that becomes `out` at the end, or goes without a trace if anything stops it before.

    Files of an `out` that is there already are replaced one by one by renaming, at the very end.

    Example: `with whole_folder(Path("smollm")) as folder: (folder / "tokenizer.json").write_bytes(content)`.
    """
    if out.exists() and not out.is_dir():
        raise InputError(f"{out} is a file; give the name of a folder")
    home = out if out.exists() else out.parent
    home.mkdir(parents=True, exist_ok=True)
    # Beside what it becomes: renaming does not cross file systems.
    unfinished = home / f".{out.name}.{secrets.token_hex(4)}.part"
    unfinished.mkdir()
    try:
        yield unfinished
        if home is out:
            made = list(unfinished.iterdir())
            try:
                _move(made, out)
            except KeyboardInterrupt:  # half of the old and half of the new is no folder
                _move(made, out)
                raise
        else:
            unfinished.rename(out)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def _move(files: list[Path], out: Path) -> None:
    for file in files:
        if file.exists():
            file.replace(out / file.name)


def build_decoder(checkpoint: Checkpoint, settings: Settings, progress: Progress = lambda done, total: None) -> Decoder:
    """The checkpoint as a torch module, its weights quantized.

    Example: `build_decoder(checkpoint, Settings())(tokens, position)`.
    """
    done, total = 0, len(checkpoint.shapes)

    def read(name: str) -> Any:
        nonlocal done
        done += 1
        progress(min(done, total), total)
        return checkpoint.read(name)

    _, max_context = settings.bounds(checkpoint.config.context)
    weights = Weights(read, frozenset(checkpoint.shapes), settings.quantization)
    with torch.no_grad():
        return Decoder(checkpoint.config, weights, max_context, settings.full_logits)


def decoder_source(decoder: Decoder, max_seq: int) -> Source:
    """How a decoder is exported: any number of tokens up to `max_seq`, at any position that leaves room for them.

    Example: `lower(decoder_source(decoder, 512), Path("model.pte"))`.
    """
    decoder.clear_caches()
    config = decoder.config
    constants: dict[str, Any] = {
        "get_max_seq_len": max_seq,
        "get_max_context_len": decoder.max_context,
        "get_n_layers": config.layers,
        "get_vocab_size": config.vocabulary,
        "use_kv_cache": True,
        "use_sdpa_with_kv_cache": True,
        "enable_dynamic_shape": True,
    }
    # Runners ask the tokenizer for what is not here.
    if config.begin is not None:
        constants["get_bos_id"] = config.begin
    if config.ends:
        constants["get_eos_ids"] = list(config.ends)
    # The example is at the bound: the exporter then neither fixes a length of 1 nor stops one short of the bound.
    args = (torch.zeros(1, max_seq, dtype=torch.long), torch.zeros(1, dtype=torch.long))
    length = torch.export.Dim("length", min=1, max=max_seq)
    return Source(decoder, args, {"tokens": {1: length}, "input_pos": None}, constants)
