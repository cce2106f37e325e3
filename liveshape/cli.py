"""The `liveshape` command: its words, its help and its exit codes. What a command does is in liveshape/tools."""

from __future__ import annotations

import argparse
import io
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import get_args

from liveshape import __version__
from liveshape.errors import (
    FormatError,
    InputError,
    LiveshapeError,
    NoAdapterError,
    ShapeError,
    UnsupportedError,
)
from liveshape.export.model.config import Mode
from liveshape.export.model.families import FAMILIES
from liveshape.tools.parsers import measuring_parsers, text_parsers
from liveshape.tools.parsers.flags import SOURCES, add_activations, add_conversion, conversion_of, positive
from liveshape.tools.wrapping import HelpFormatter, wrapped

_ABOUT = """\
Run PyTorch programs on any GPU: one graph, right at every live shape."""

_EXAMPLES = """\
examples:
  liveshape devices                                  what this machine offers
  liveshape inspect model.pte                        what is in a program and what it needs
  liveshape ops conv                                 which operators there are
  liveshape run model.pte --input-shapes 1x7x64      run it on random inputs
  liveshape generate model-folder -p "Once upon"     text from a language model
  liveshape chat model.gguf                          talk to one, converted at its first use
  liveshape export SmolLM2-135M-Instruct -o smollm   make such a folder (the extra `llm`)
  liveshape perplexity model-folder book.txt         how well it foretells a text
  liveshape bench --shape 1b                         tokens per second
  liveshape profile --shape 1b                       and where the time goes
  liveshape demo                                     one graph at several live shapes

exit codes: {codes}

environment: LIVESHAPE_DEVICE (index or name), LIVESHAPE_CACHE (a folder), LIVESHAPE_DEBUG=1 (tracebacks)"""

_DEVICES = """\
examples:
  liveshape devices
  liveshape devices --json
  LIVESHAPE_DEVICE=nvidia liveshape devices          which one would that be?
  liveshape devices --measure                        how fast is each at copying and computing?

--measure is remembered per adapter and driver in the user's cache folder (LIVESHAPE_CACHE), for `liveshape profile`."""

_INSPECT = """\
Needs no GPU: without one the limits are those that every WebGPU device has.

examples:
  liveshape inspect model.pte
  liveshape inspect model.pte --data weights.ptd --method decode
  liveshape inspect model.pte --json | jq '.methods[].problems'"""

_OPS = """\
NAMEs are whole names or parts of them; a whole name may be one that has no kernel and runs on the host.

examples:
  liveshape ops
  liveshape ops softmax aten::mm.out
  liveshape ops --json | jq -r '.[] | select(.kind == "portable").name'"""

_RUN = f"""\
Inputs are random unless given: floats are normal, integers small and not negative, single integers 0.
Shapes are one per input, sizes joined by x, inputs by commas; without them every input has its largest shape.
{SOURCES}

examples:
  liveshape run model.pte
  liveshape run model.pte --input-shapes 1x7x64,1 --repeat 20
  liveshape run model.pte --inputs tokens.npy position.npy --output-file logits.npz --print none
  liveshape run model.pte --method get_max_seq_len"""

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

Families: {", ".join(family.title for family in FAMILIES.values())}.
Architectures of GGUF files: {", ".join(name for name, family in FAMILIES.items() if family.gguf)}.

OUT becomes a folder with model.pte, tokenizer.json and what chat needs; for module:function it may be a .pte.
One graph takes any number of tokens up to --max-seq-len at any position of a context of --max-context tokens (2048, or
what the model was trained for, if that is less). Here the context may be another at every load; elsewhere it is this.
Weights: auto keeps whole numbers of 4 or 8 bits exactly as the source stores them, and gives floats 4 bits, or 8
where 4 would cost; 4w is 4 bits everywhere, 8da4w the same on 8-bit activations, 8w is 8 bits, none is floats. A model
of a billion parameters takes about ten seconds of two cores and 200 MB of memory; only module:function needs torch
(the extra `export`). --evaluate also writes the source's own weights, for a while, and compares: perplexity, and the
divergence of what both expect next.

examples:
  liveshape export SmolLM2-135M-Instruct -o smollm
  liveshape export model.Q8_0.gguf -o model --max-context 8192
  liveshape export Qwen3-0.6B -o qwen --quant 8w --evaluate book.txt
  liveshape export Qwen3-0.6B -o qwen --quant 4w --group-size 64 --dtype fp16
  liveshape export SmolLM2-135M-Instruct -o mine --adapter my-lora
  liveshape export mymodel:build -o mymodel.pte"""

_COMPLETION = """\
examples:
  source <(liveshape completion bash)                now, in this shell
  liveshape completion bash > ~/.local/share/bash-completion/completions/liveshape
  liveshape completion zsh > "${fpath[1]}/_liveshape"
  liveshape completion fish > ~/.config/fish/completions/liveshape.fish"""

_DEMO = """\
examples:
  liveshape demo
  liveshape demo --device llvmpipe"""

# docs/commands.md has the same table.
EXIT_CODES = {
    0: "ok",
    1: "values differ or something failed",
    2: "wrong usage or input",
    3: "no adapter",
    4: "unsupported program",
    130: "ended by Ctrl-C",
}
_CODES: tuple[tuple[type[Exception], int], ...] = (
    (NoAdapterError, 3),
    (UnsupportedError, 4),
    (FormatError, 2),
    (InputError, 2),
    (ShapeError, 2),
    (OSError, 2),
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code.

    Example: `main(["inspect", "model.pte"])`.
    """
    _open_streams()
    try:
        arguments = _parser().parse_args(argv)
        code: int = arguments.command(arguments)
        sys.stdout.flush()
        return code
    except SystemExit as done:  # --help, --version, or wrong usage, which argparse has explained
        with suppress(OSError):
            sys.stdout.flush()
            return int(done.code or 0)
        return _abandon_stdout(int(done.code or 0))
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        return _abandon_stdout(0)
    except (LiveshapeError, OSError) as error:
        if os.environ.get("LIVESHAPE_DEBUG", "0") not in ("", "0"):
            raise
        print(wrapped(f"liveshape: {_message(error)}", sys.stderr), file=sys.stderr)
        code = next((code for kind, code in _CODES if isinstance(error, kind)), 1)
        with suppress(OSError):
            sys.stdout.flush()
            return code
        return _abandon_stdout(code)


def _open_streams() -> None:
    """A stream that was closed before we began takes everything and gives nothing; bytes that are no text become ?."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115  # it stays open as long as the process
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors in ("strict", "surrogateescape"):
        sys.stdout.reconfigure(errors="replace")


def _abandon_stdout(code: int) -> int:
    """The reader of a pipe left, or a disk is full: nothing more may be written, not even at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return code


def _message(error: Exception) -> str:
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    return str(error)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="liveshape",
        description=_ABOUT,
        epilog=_EXAMPLES.format(codes=", ".join(f"{code} {what}" for code, what in EXIT_CODES.items())),
        formatter_class=HelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"liveshape {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)

    def add(
        name: str, summary: str, epilog: str, command: Callable[[argparse.Namespace], int], on_device: bool = True
    ) -> argparse.ArgumentParser:
        made = commands.add_parser(
            name,
            help=summary,
            description=f"{summary[0].upper()}{summary[1:]}.",
            epilog=epilog,
            formatter_class=HelpFormatter,
        )
        if on_device:
            made.add_argument("--device", metavar="WHICH", help="adapter by index or by a part of its name")
        made.set_defaults(command=command)
        return made

    listing = add("devices", "list the adapters of this machine", _DEVICES, _run_devices)
    listing.add_argument("--json", action="store_true", help="print JSON")
    listing.add_argument("--measure", action="store_true", help="measure its copy rate and arithmetic, or recall them")
    listing.add_argument("--remeasure", action="store_true", help="measure them anew")

    inspecting = add("inspect", "show what is in a program and what it needs", _INSPECT, _run_inspect)
    _add_program(inspecting)

    names = add("ops", "list the operators, their dtypes and kernels", _OPS, _run_ops, False)
    names.add_argument("names", metavar="NAME", nargs="*", help="a name or a part of one")
    names.add_argument("--json", action="store_true", help="print JSON")
    names.add_argument("--markdown", action="store_true", help="print docs/operators.md")

    running = add("run", "run a program on given or random inputs", _RUN, _run_run)
    _add_program(running, "a .pte file, a folder with one, or what is converted")
    running.add_argument("--input-shapes", metavar="SHAPES", help="such as 1x7x64,1: one shape per input")
    running.add_argument("--inputs", metavar="FILE", nargs="+", help=".npy, .npz or raw .bin, in order or NAME=FILE")
    running.add_argument("--seed", type=int, default=0, help="of the random inputs (default 0)")
    running.add_argument("--repeat", metavar="N", type=positive, default=1, help="how often to run (default 1)")
    running.add_argument("--output-file", metavar="FILE", help="write the outputs to a .npz, or a single one to a .npy")
    running.add_argument("--print", choices=("none", "summary", "all"), default="summary", help="what to show of them")
    add_activations(running)
    add_conversion(running, context=False)
    running.add_argument("--strict", action="store_true", help="refuse operators that only the host computes")
    # The words of executor_runner, for habits and scripts.
    running.add_argument("--print-output", dest="print", choices=("none", "summary", "all"), help=argparse.SUPPRESS)
    running.add_argument("--num-executions", dest="repeat", type=positive, help=argparse.SUPPRESS)
    running.set_defaults(print="summary", repeat=1)

    text_parsers.add_commands(add)

    exporting = add("export", "make a folder that runs of a model", _EXPORT, _run_export, False)
    exporting.add_argument("source", metavar="SOURCE", help="a folder, a file, or module:function")
    exporting.add_argument("-o", "--output", metavar="OUT", required=True, help="the folder to write")
    exporting.add_argument("--quant", choices=get_args(Mode), default="auto", help="of the weights (default auto)")
    exporting.add_argument(
        "--group-size", metavar="N", type=positive, help="weights that share a scale (default 32, of 8 bits 128)"
    )
    exporting.add_argument("--adapter", metavar="FOLDER", help="a LoRA adapter of peft, merged into the weights")
    exporting.add_argument("--keep-embedding", action="store_true", help="do not quantize the embedding")
    exporting.add_argument(
        "--max-seq-len", metavar="S", type=positive, help="tokens of a prompt in one call (default 512)"
    )
    exporting.add_argument(
        "--max-context", metavar="C", type=positive, help="tokens that the cache holds, unless a load asks for others"
    )
    exporting.add_argument("--dtype", choices=("fp32", "fp16"), default="fp32", help="of everything else, on the GPU")
    exporting.add_argument("--full-logits", action="store_true", help="logits of every token, not of the last alone")
    exporting.add_argument("--allow-split", action="store_true", help="let operators outside of one delegate pass")
    exporting.add_argument(
        "--evaluate",
        metavar="TEXT",
        nargs="?",
        const="",
        help="measure what rounding cost on a file with a text, or on one that liveshape brings",
    )
    exporting.add_argument("--device", metavar="WHICH", help="what --evaluate runs on, by index or a part of its name")
    exporting.add_argument(
        "--force", action="store_true", help="write into an OUT that exists, over files of the same names"
    )

    keeping = add("cache", "list or remove the models that were converted", _CACHE, _run_cache, False)
    keeping.add_argument(
        "--clear", choices=("all", "stale"), nargs="?", const="all", help="remove all of them, or those that are stale"
    )
    keeping.add_argument("--json", action="store_true", help="print JSON")

    measuring_parsers.add_commands(add)

    add("demo", "run one shipped program at several live shapes", _DEMO, _run_demo)

    completing = add("completion", "print what lets a shell complete commands", _COMPLETION, _run_completion, False)
    completing.add_argument("shell", choices=("bash", "zsh", "fish"), help="the shell to print it for")
    return parser


def _add_program(parser: argparse.ArgumentParser, what: str = "a .pte file, or a folder with one") -> None:
    parser.add_argument("program", metavar="PROGRAM", help=what)
    parser.add_argument(
        "--data", "--data-path", metavar="FILE", action="append", default=[], help="a .ptd file of it; may be repeated"
    )
    parser.add_argument("--method", "--method-name", metavar="NAME", help="one method of it")
    parser.add_argument("--json", action="store_true", help="print JSON")


# Each command brings its modules along only when it is the one that runs: `--help` needs none of them.


def _run_completion(arguments: argparse.Namespace) -> int:
    from liveshape.tools.commands.completion import completion

    return completion(arguments.shell, _parser())


def _run_devices(arguments: argparse.Namespace) -> int:
    from liveshape.tools.commands.devices import devices

    return devices(arguments.device, as_json=arguments.json, measure=arguments.measure, remeasure=arguments.remeasure)


def _run_inspect(arguments: argparse.Namespace) -> int:
    from liveshape.tools.commands.inspect import inspect

    return inspect(
        arguments.program,
        data=arguments.data,
        method=arguments.method,
        device=arguments.device,
        as_json=arguments.json,
    )


def _run_ops(arguments: argparse.Namespace) -> int:
    from liveshape.tools.commands.ops import ops

    return ops(arguments.names, as_json=arguments.json, as_markdown=arguments.markdown)


def _run_run(arguments: argparse.Namespace) -> int:
    from liveshape.tools.commands.run import run

    return run(
        arguments.program,
        data=arguments.data,
        method=arguments.method or "forward",
        device=arguments.device,
        input_shapes=arguments.input_shapes,
        input_files=arguments.inputs,
        seed=arguments.seed,
        repeat=arguments.repeat,
        output_file=arguments.output_file,
        show=arguments.print,
        as_json=arguments.json,
        strict=arguments.strict,
        activations=arguments.activations,
        conversion=conversion_of(arguments),
    )


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
        allow_split=arguments.allow_split,
        force=arguments.force,
        evaluate=arguments.evaluate,
        device=arguments.device,
        adapter=arguments.adapter,
    )


def _run_cache(arguments: argparse.Namespace) -> int:
    from liveshape.tools.commands.cache import cache

    return cache(arguments.clear, as_json=arguments.json)


def _run_demo(arguments: argparse.Namespace) -> int:
    from liveshape.tools.commands.demo import demo

    return demo(arguments.device)
