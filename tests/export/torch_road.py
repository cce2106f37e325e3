"""The way through torch and executorch, which the writer is held to: a checkpoint as a module, lowered to a file."""

from __future__ import annotations

from pathlib import Path

import torch

from liveshape.export.decoder.decoder import Bounds, runner_methods
from liveshape.export.folder import Settings
from liveshape.export.model.checkpoint import Checkpoint
from liveshape.export.module.torch_export import ModuleSource, lower
from tests.export.torch_decoder import Decoder
from tests.export.torch_weights import Weights


def build_decoder(checkpoint: Checkpoint, settings: Settings) -> Decoder:
    """The checkpoint as a torch module, its weights quantized."""
    _, max_context = settings.bounds(checkpoint.config.context)
    weights = Weights(checkpoint.read, frozenset(checkpoint.shapes), settings.quantization)
    with torch.no_grad():
        return Decoder(checkpoint.config, weights, max_context, settings.full_logits)


def lower_decoder(decoder: Decoder, path: Path, max_seq: int, half: bool = False) -> None:
    """Any number of tokens up to `max_seq`, at any position that leaves room for them."""
    decoder.clear_caches()
    methods = runner_methods(decoder.config, Bounds(max_seq, decoder.max_context))
    # The example is at the bound: the exporter then neither fixes a length of 1 nor stops one short of the bound.
    args = (torch.zeros(1, max_seq, dtype=torch.long), torch.zeros(1, dtype=torch.long))
    length = torch.export.Dim("length", min=1, max=max_seq)
    source = ModuleSource(decoder, args, {"tokens": {1: length}, "input_pos": None}, methods)
    lower(source, path, half, via="executorch")
