"""Argument parsers of `export` and `cache`."""

from __future__ import annotations

import argparse
from typing import get_args

from liveshape.export.model.config import Mode
from liveshape.export.model.families import FAMILIES
from liveshape.tools.parsers.flags import Add, positive

_CACHE = """\
Commands that take a model convert a GGUF file or a Hugging Face folder at its first use, and keep the result here:
LIVESHAPE_CACHE, or where the system keeps such things. One is stale if its source is gone or was changed, or if it was
made by another version of liveshape: nothing uses it again.

examples:
  liveshape cache
  liveshape cache --clear stale"""

_EXPORT = f"""\
SOURCE is one of
  a Hugging Face folder    config.json, safetensors, tokenizer.json
  a GGUF file              weights, tokenizer and chat template are kept as they are
  a llama2.c checkpoint    a .bin with its tokenizer.bin beside it
  owner/name               a model of the Hugging Face Hub (the extra `hub`)
  module:function          your own: returns (module, example arguments at the upper bound, dynamic_shapes)
  file.py:function         the same, by the path of its file

Families: {", ".join(family.title for family in FAMILIES.values())}.
Architectures of GGUF files: {", ".join(name for name, family in FAMILIES.items() if family.gguf)}.

OUT becomes a folder with model.pte, tokenizer.json and what chat needs; for module:function it may be a .pte.
One graph takes any number of tokens up to --max-seq-len at any position of a context of --max-context tokens (2048, or
what the model was trained for, if that is less). Here the context may be another at every load; elsewhere it is this.
Weights: auto keeps whole numbers of 4 or 8 bits exactly as the source stores them, and gives floats 4 bits, or 8
where 4 would cost; 4w is 4 bits everywhere, 8da4w the same on 8-bit activations, 8w is 8 bits, none is floats. A model
of a billion parameters takes about ten seconds of two cores and 200 MB of memory; only module:function needs torch
(the extra `torch`), which lowers it in seconds. --evaluate also writes the source's own weights, for a while, and
compares: perplexity, and the divergence of what both expect next.

examples:
  liveshape export SmolLM2-135M-Instruct -o smollm
  liveshape export model.Q8_0.gguf -o model --max-context 8192
  liveshape export Qwen3-0.6B -o qwen --quant 8w --evaluate book.txt
  liveshape export Qwen3-0.6B -o qwen --quant 4w --group-size 64 --dtype fp16
  liveshape export SmolLM2-135M-Instruct -o mine --adapter my-lora
  liveshape export mymodel.py:build -o mymodel.pte"""


def add_commands(add: Add) -> None:
    """Add the subcommands' parsers.

    Example: `add_commands(add)`, before `parser.parse_args()`.
    """
    _add_export(add)
    _add_cache(add)


def _add_export(add: Add) -> None:
    exporting = add("export", "export a model to a folder that runs", _EXPORT, _run_export, False)
    exporting.add_argument("source", metavar="SOURCE", help="a folder, a file, module:function or file.py:function")
    exporting.add_argument("-o", "--output", metavar="OUT", required=True, help="the folder to write")
    exporting.add_argument(
        "--quant", choices=get_args(Mode), default="auto", help="quantization of the weights (default auto)"
    )
    exporting.add_argument(
        "--group-size",
        metavar="N",
        type=positive,
        help="quantization group: weights that share a scale (default 32, of 8 bits 128)",
    )
    exporting.add_argument("--adapter", metavar="FOLDER", help="a LoRA adapter of peft, merged into the weights")
    exporting.add_argument("--keep-embedding", action="store_true", help="do not quantize the embedding")
    exporting.add_argument(
        "--max-seq-len", metavar="S", type=positive, help="prefill chunk: most tokens of one call (default 512)"
    )
    exporting.add_argument(
        "--max-context", metavar="C", type=positive, help="context length, unless a load asks for another"
    )
    exporting.add_argument(
        "--dtype", choices=("fp32", "fp16"), default="fp32", help="of what is not quantized, on the GPU"
    )
    exporting.add_argument("--full-logits", action="store_true", help="logits of every token, not of the last alone")
    exporting.add_argument(
        "--via",
        choices=("torch", "executorch"),
        default="torch",
        help="what lowers module:function: torch alone (default), or ExecuTorch's exporter (the extra `export`)",
    )
    exporting.add_argument(
        "--one-delegate",
        action="store_true",
        help="--via executorch: refuse a module with operators outside of a single delegate",
    )
    exporting.add_argument("--allow-split", action="store_true", help=argparse.SUPPRESS)  # the default by now
    exporting.add_argument(
        "--evaluate",
        metavar="TEXT",
        nargs="?",
        const="",
        help="measure the loss of quantization on a text file, or on the one that liveshape ships",
    )
    exporting.add_argument("--device", metavar="WHICH", help="what --evaluate runs on, by index or a part of its name")
    exporting.add_argument(
        "--force", action="store_true", help="write into an OUT that exists, over files of the same names"
    )


def _add_cache(add: Add) -> None:
    keeping = add("cache", "list or remove converted models", _CACHE, _run_cache, False)
    keeping.add_argument(
        "--clear", choices=("all", "stale"), nargs="?", const="all", help="remove all of them, or those that are stale"
    )
    keeping.add_argument("--json", action="store_true", help="print JSON")


# Lazy imports: `--help` loads no command's modules.


def _run_export(arguments: argparse.Namespace) -> int:
    from liveshape.export.model.config import Quantization
    from liveshape.tools.commands.export import export

    return export(
        arguments.source,
        arguments.output,
        Quantization(arguments.quant, arguments.group_size, not arguments.keep_embedding),
        max_seq=arguments.max_seq_len,
        max_context=arguments.max_context,
        half=arguments.dtype == "fp16",
        full_logits=arguments.full_logits,
        one_delegate=arguments.one_delegate,
        via=arguments.via,
        force=arguments.force,
        evaluate=arguments.evaluate,
        device=arguments.device,
        adapter=arguments.adapter,
    )


def _run_cache(arguments: argparse.Namespace) -> int:
    from liveshape.tools.commands.cache import cache

    return cache(arguments.clear, as_json=arguments.json)
