"""What a recipe costs: perplexity of the real models with their weights as a recipe makes them, against floats.

`python -m tests.export.perplexity [--model NAME] [--quant MODE ...]` prints a row for each. The decoder is torch's, in
float32, on the weights that the whole numbers stand for: what rounding costs, and nothing else.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import numpy as np
import torch

from liveshape.export.model.checkpoint import Checkpoint
from liveshape.export.model.config import Mode, ModelConfig, Quantization
from liveshape.export.model.layout import Array, Layout, restored
from liveshape.export.sources.opening import open_checkpoint
from liveshape.export.weights.storage import RoundedStorage
from liveshape.tools.measuring.cross_entropy import Measured, measured
from tests.export.real_models import smollm2, stories15m
from tests.export.reference import logits

TEXTS = Path(__file__).parent / "texts"


@dataclass(frozen=True)
class Subject:
    """A model, the text that it foretells, and the context of a window."""

    open: Callable[[], Checkpoint]
    text: str
    context: int


def shuffled(checkpoint: Checkpoint, seed: int = 0) -> Checkpoint:
    """The same function with its channels in another order, and only as floats.

    A file of 4-bit groups says nothing about rounding: each group lies on a grid already, and rounding finds it again.
    Where the columns of many groups are mixed, no grid is left, and not a single weight has changed.
    """
    config, generator = checkpoint.config, np.random.default_rng(seed)
    stream = generator.permutation(config.hidden)
    shared = config.heads // config.kv_heads
    columns: dict[str, Array] = {"model.embed_tokens": stream, "lm_head": stream}
    rows: dict[str, Array] = {"model.norm": stream}
    for index in range(config.layers):
        layer, inner = f"model.layers.{index}", generator.permutation(config.feed_forward)
        within = [generator.permutation(config.head_size) for _ in range(config.kv_heads)]
        values = np.concatenate([each + head * config.head_size for head, each in enumerate(within)])
        mixed = [within[head // shared] + head * config.head_size for head in range(config.heads)]
        rows |= {f"{layer}.{norm}": stream for norm in ("input_layernorm", "post_attention_layernorm")}
        columns |= {f"{layer}.self_attn.{part}_proj": stream for part in "qkv"}
        columns |= {f"{layer}.mlp.{part}_proj": stream for part in ("gate", "up")}
        columns |= {f"{layer}.self_attn.o_proj": np.concatenate(mixed), f"{layer}.mlp.down_proj": inner}
        rows |= {f"{layer}.mlp.{part}_proj": inner for part in ("gate", "up")}
        rows |= {f"{layer}.{part}": stream for part in ("self_attn.o_proj", "mlp.down_proj")}
        rows |= {f"{layer}.self_attn.v_proj": values}

    def read(name: str) -> Array:
        weight, module = checkpoint.read(name), name.removesuffix(".weight")
        weight = weight[rows[module]] if module in rows else weight
        return weight[:, columns[module]] if module in columns else weight

    return Checkpoint(config, checkpoint.shapes, read, checkpoint.files)


SUBJECTS: Mapping[str, Subject] = {
    "stories15M": Subject(lambda: open_checkpoint(str(stories15m())), "stories", 256),
    "smollm2-stories": Subject(lambda: shuffled(open_checkpoint(str(smollm2()))), "stories", 512),
    "smollm2-prose": Subject(lambda: shuffled(open_checkpoint(str(smollm2()))), "prose", 512),
}


def settings_of(config: ModelConfig) -> dict[str, Any]:
    """The config in the words of a config.json, for the reference decoder."""
    assert config.rope_scaling is None
    return {
        "num_hidden_layers": config.layers,
        "num_attention_heads": config.heads,
        "num_key_value_heads": config.kv_heads,
        "head_dim": config.head_size,
        "hidden_size": config.hidden,
        "rms_norm_eps": config.norm_eps,
        "rope_theta": config.rope_theta,
    }


def windows_of(checkpoint: Checkpoint, subject: Subject) -> list[list[int]]:
    """The windows of a text, as `liveshape perplexity` cuts them."""
    import tokenizers

    tokenizer = tokenizers.Tokenizer.from_str(checkpoint.files["tokenizer.json"].decode())
    ids = tokenizer.encode((TEXTS / f"{subject.text}.txt").read_text(encoding="utf-8")).ids
    begin, size = tokenizer.encode("").ids[:1], subject.context
    return [[*begin, *ids[at : at + size][len(begin) :]] for at in range(0, len(ids) - size + 1, size)]


def made_of(storage: RoundedStorage, name: str) -> Array:
    """The tensor of this name with what it loses on its way into a file."""
    layout = storage.layout(name, lookup=False) if len(storage.shapes[name]) == 2 else None
    return storage.floats(name) if layout is None else restored(storage.grouped(name, layout, slice(None)))


def bits_of(storage: RoundedStorage) -> float:
    """What one weight of a matrix takes, with its part of the scales and minima of its group."""
    bits = count = 0.0
    for name, (rows, width) in {name: shape for name, shape in storage.shapes.items() if len(shape) == 2}.items():
        count += rows * width
        bits += rows * width * bits_of_layout(storage.layout(name, lookup=False))
    return bits / count


def bits_of_layout(layout: Layout | None) -> float:
    """
    >>> bits_of_layout(Layout(4, 32, minima=True)), bits_of_layout(None)
    (6.0, 32.0)
    """
    return 32.0 if layout is None else layout.bits + 32 * (1 + layout.minima) / layout.group


def evaluated(checkpoint: Checkpoint, subject: Subject, quantization: Quantization) -> tuple[Measured, float]:
    """The perplexity of the weights that a recipe makes, and the bits that one of a matrix takes."""
    storage = RoundedStorage(checkpoint, quantization)
    weights = {name: made_of(storage, name) for name in checkpoint.shapes}
    settings, windows, losses = settings_of(checkpoint.config), windows_of(checkpoint, subject), []
    for window in windows:
        half = len(window) // 2
        rows = torch.from_numpy(logits(settings, weights, window, torch.float32)[half:-1]).double()
        losses.append(torch.nn.functional.cross_entropy(rows, torch.tensor(window[half + 1 :]), reduction="none"))
    return measured(torch.cat(losses).numpy(), subject.context, len(windows), 1.0), bits_of(storage)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", choices=SUBJECTS, action="append")
    parser.add_argument("--quant", choices=get_args(Mode), nargs="+", default=["auto", "8w"])
    parser.add_argument("--group-size", type=int)
    options = parser.parse_args()
    print("| model and text | tokens | recipe | bits a weight | perplexity | ratio |")
    print("| --- | --- | --- | --- | --- | --- |")
    for name in options.model or SUBJECTS:
        subject = SUBJECTS[name]
        checkpoint = subject.open()
        plain = None
        for mode in ["none", *options.quant]:
            found, bits = evaluated(checkpoint, subject, Quantization(mode, options.group_size))
            plain = plain or found.perplexity
            ratio = found.perplexity / plain
            print(
                f"| {name} | {found.counted} | {mode} | {bits:.2f} | {found.perplexity:.3f} | {ratio:.4f} |", flush=True
            )


if __name__ == "__main__":
    main()
