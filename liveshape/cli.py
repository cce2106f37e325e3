"""The `liveshape` command: its words, its help and its exit codes. What a command does is in liveshape/tools.

Exit codes: 0 ok, 1 values differ or something failed, 2 wrong usage or input, 3 no adapter, 4 unsupported program.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

from liveshape import __version__
from liveshape.errors import (
    FormatError,
    InputError,
    LiveshapeError,
    NoAdapterError,
    ShapeError,
    UnsupportedError,
)

_ABOUT = """\
Run PyTorch programs on any GPU: one graph, right at every live shape."""

_EXAMPLES = """\
examples:
  liveshape devices                                  what this machine offers
  liveshape inspect model.pte                        what is in a program and what it needs
  liveshape ops conv                                 which operators there are
  liveshape run model.pte --input-shapes 1x7x64      run it on random inputs
  liveshape generate model-folder -p "Once upon"     text from a language model
  liveshape chat model-folder                        talk to one
  liveshape export SmolLM2-135M-Instruct -o smollm   make such a folder (the extra `llm`)
  liveshape perplexity model-folder book.txt         how well it foretells a text
  liveshape bench --shape 1b                         tokens per second
  liveshape profile --shape 1b                       and where the time goes
  liveshape demo                                     one graph at several live shapes

exit codes: 0 ok, 1 values differ or something failed, 2 wrong usage or input, 3 no adapter, 4 unsupported program
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

_RUN = """\
Inputs are random unless given: floats are normal, integers small and not negative, single integers 0.
Shapes are one per input, sizes joined by x, inputs by commas; without them every input has its largest shape.

examples:
  liveshape run model.pte
  liveshape run model.pte --input-shapes 1x7x64,1 --repeat 20
  liveshape run model.pte --inputs tokens.npy position.npy --output-file logits.npz --print none
  liveshape run model.pte --method get_max_seq_len"""

_GENERATE = """\
MODEL is a folder with model.pte and tokenizer.json, or a .pte beside its tokenizer; without it, the shipped one.
What is not given is as the model's generation_config.json recommends.
Text goes to stdout as it comes, tokens per second to stderr.

examples:
  liveshape generate -p "Once upon a time"
  liveshape generate SmolLM2-135M-Instruct -p "Why is the sky blue?" --system "Be brief." --temp 0.7 --seed 1
  liveshape generate model-folder -f prompt.txt -n 500 --raw --stop "The end"
  git diff | liveshape generate model-folder -p - --json
  liveshape generate model-folder -f code.py --lookahead ngram       the same text, sooner where it repeats itself"""

_CHAT = """\
Each turn computes only what is new. q quits, r starts over, h helps; Ctrl-C stops the answer alone.

examples:
  liveshape chat SmolLM2-135M-Instruct
  liveshape chat model-folder --system "You are a pirate." --temp 0.8 --top-p 0.9"""

_EXPORT = """\
SOURCE is one of
  a Hugging Face folder    config.json, safetensors, tokenizer.json: Llama, Mistral, Qwen2 and Qwen3 families
  a GGUF file              the same families; weights are read and quantized anew, tokenizer and chat template kept
  a llama2.c checkpoint    a .bin with its tokenizer.bin beside it
  module:function          your own: returns (module, example arguments at the upper bound, dynamic_shapes)

OUT becomes a folder with model.pte, tokenizer.json and what chat needs; for module:function it may be a .pte.
One graph takes any number of tokens up to --max-seq-len at any position of a context of --max-context tokens.
Weights: 4w is 4 bits in groups, 8da4w the same on 8-bit activations, none keeps them. A model of a billion
parameters takes about a minute and less than 1 GB of memory; only module:function needs torch (the extra `export`).

examples:
  liveshape export SmolLM2-135M-Instruct -o smollm
  liveshape export model.Q8_0.gguf -o model --max-context 8192
  liveshape export Qwen3-0.6B -o qwen --group-size 64 --dtype fp16
  liveshape export mymodel:build -o mymodel.pte"""

_PERPLEXITY = """\
MODEL is a folder or a .pte beside its tokenizer, as of `liveshape generate`; FILE is a text, - is stdin.
The rule is that of llama.cpp's command: windows of --context tokens that do not overlap, each from an empty cache and
begun as the tokenizer begins texts; the second half of each counts, what is left after the last whole one does not.
The number after ± is the deviation of the estimate. Compare models of one tokenizer, and runs of one --context, alone.

examples:
  liveshape perplexity SmolLM2-135M-Instruct book.txt
  liveshape perplexity SmolLM2-135M-Instruct book.txt --activations int8      what does rounding cost?
  cat *.md | liveshape perplexity model-folder - --context 256 --json"""

_BENCH = """\
MODEL is the folder of a language model, or a .pte file, which is timed per call at the shapes given; without it, the
shipped model. --shape takes random 4-bit weights of a known size instead: no file, no download.
Rows have the names of llama-bench: pp512 is a prompt of 512 tokens, tg128 the generation of 128, @ d4096 after as many
tokens. Each is mean and deviation over -r runs, after one that is not counted. -p, -n and -d take several, by commas.

examples:
  liveshape bench --shape 1b -p 512 -n 128 -d 0,4096,8192 --plot decode.svg
  liveshape bench SmolLM2-135M-Instruct -p 128 -n 32 -r 3 -o json
  liveshape bench model.pte --input-shapes 1x3x224x224 --input-shapes 4x3x224x224 -r 20"""

_PROFILE = """\
MODEL and --shape are those of `liveshape bench`. Each work runs once to warm up, then -r times at full speed for
the times of the host, with the device's clock around submits, and around every kernel; the fastest run counts.
Every line has its share of the time, the bytes and operations that the plan says it needs, and how near that is to what
the adapter does at its best (`liveshape devices --measure`; measured now if it is not known). A byte counts once,
however often it is read. Layers are told by attention, which comes once in each.

examples:
  liveshape profile --shape 1b -p 512 -n 32
  liveshape profile SmolLM2-135M-Instruct -p 0 -n 32 -d 1024 --trace trace.json
  liveshape profile model.pte --input-shapes 1x3x224x224 --json | jq '.profiles[].by_kernel'"""

_DEMO = """\
examples:
  liveshape demo
  liveshape demo --device llvmpipe"""

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
    parser = _parser()
    try:
        arguments = parser.parse_args(argv)
    except SystemExit as done:  # --help, --version, or wrong usage, which argparse has explained
        return int(done.code or 0)
    try:
        code: int = arguments.command(arguments)
        sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # The reader of a pipe left; nothing more may be written, not even at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (LiveshapeError, OSError) as error:
        if os.environ.get("LIVESHAPE_DEBUG", "0") not in ("", "0"):
            raise
        print(f"liveshape: {_message(error)}", file=sys.stderr)
        return next((code for kind, code in _CODES if isinstance(error, kind)), 1)


def _message(error: Exception) -> str:
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    return str(error)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="liveshape",
        description=_ABOUT,
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
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
            formatter_class=argparse.RawDescriptionHelpFormatter,
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
    _add_program(running)
    running.add_argument("--input-shapes", metavar="SHAPES", help="such as 1x7x64,1: one shape per input")
    running.add_argument("--inputs", metavar="FILE", nargs="+", help=".npy, .npz, or raw .bin files, in order")
    running.add_argument("--seed", type=int, default=0, help="of the random inputs (default 0)")
    running.add_argument("--repeat", metavar="N", type=_positive, default=1, help="how often to run (default 1)")
    running.add_argument("--output-file", metavar="FILE", help="write the outputs to a .npz, or a single one to a .npy")
    running.add_argument("--print", choices=("none", "summary", "all"), default="summary", help="what to show of them")
    _add_activations(running)
    running.add_argument("--strict", action="store_true", help="refuse operators that only the host computes")
    # The words of executor_runner, for habits and scripts.
    running.add_argument("--print-output", dest="print", choices=("none", "summary", "all"), help=argparse.SUPPRESS)
    running.add_argument("--num-executions", dest="repeat", type=_positive, help=argparse.SUPPRESS)
    running.set_defaults(print="summary", repeat=1)

    generating = add("generate", "generate text from a prompt", _GENERATE, _run_generate)
    _add_language_model(generating, max_tokens=256)
    generating.add_argument("-p", "--prompt", metavar="TEXT", help="what to begin with; - is stdin")
    generating.add_argument("-f", "--file", metavar="FILE", help="a file with the prompt")
    generating.add_argument("--raw", action="store_true", help="take the prompt as it is, without the chat template")
    generating.add_argument("--json", action="store_true", help="print JSON")

    chatting = add("chat", "talk to a language model", _CHAT, _run_chat)
    _add_language_model(chatting, max_tokens=-1)

    exporting = add("export", "make a folder that runs of a model", _EXPORT, _run_export, False)
    exporting.add_argument("source", metavar="SOURCE", help="a folder, a file, or module:function")
    exporting.add_argument("-o", "--output", metavar="OUT", required=True, help="the folder to write")
    exporting.add_argument("--quant", choices=("4w", "8da4w", "none"), default="4w", help="of the weights (default 4w)")
    exporting.add_argument(
        "--group-size", metavar="N", type=_positive, default=32, help="weights that share a scale (default 32)"
    )
    exporting.add_argument("--keep-embedding", action="store_true", help="do not quantize the embedding")
    exporting.add_argument(
        "--max-seq-len", metavar="S", type=_positive, help="tokens of a prompt in one call (default 512)"
    )
    exporting.add_argument(
        "--max-context", metavar="C", type=_positive, help="tokens that the cache holds (default 2048, or the model's)"
    )
    exporting.add_argument("--dtype", choices=("fp32", "fp16"), default="fp32", help="of everything else, on the GPU")
    exporting.add_argument("--full-logits", action="store_true", help="logits of every token, not of the last alone")
    exporting.add_argument("--allow-split", action="store_true", help="let operators outside of one delegate pass")

    foretelling = add("perplexity", "measure how well a model foretells a text", _PERPLEXITY, _run_perplexity)
    foretelling.add_argument("model", metavar="MODEL", help="a folder or a .pte file")
    foretelling.add_argument("file", metavar="FILE", help="a text; - is stdin")
    foretelling.add_argument(
        "-c", "--context", metavar="N", type=_positive, help="tokens of a window (default 512, or the model's)"
    )
    foretelling.add_argument("--half-cache", action="store_true", help="keep the cache in float16")
    _add_activations(foretelling)
    foretelling.add_argument("--json", action="store_true", help="print JSON")

    timing = add("bench", "measure tokens per second, or the time of a call", _BENCH, _run_bench)
    _add_measured(timing, tokens="128", repeats=5)
    timing.add_argument("-o", "--output", choices=("md", "json", "csv"), default="md", help="as what (default md)")
    timing.add_argument("--plot", metavar="FILE", help="write a plot: generation over depth, or bars (.svg)")

    looking = add("profile", "show where the time goes: kernels, operators, layers, host", _PROFILE, _run_profile)
    _add_measured(looking, tokens="32", repeats=3)
    looking.add_argument("--trace", metavar="FILE", help="write a trace that ui.perfetto.dev shows (.json)")
    looking.add_argument("--remeasure", action="store_true", help="measure what the adapter does at its best anew")
    looking.add_argument("--json", action="store_true", help="print JSON")

    add("demo", "run one shipped program at several live shapes", _DEMO, _run_demo)
    return parser


def _add_program(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("program", metavar="PROGRAM", help="a .pte file")
    parser.add_argument(
        "--data", "--data-path", metavar="FILE", action="append", default=[], help="a .ptd file of it; may be repeated"
    )
    parser.add_argument("--method", "--method-name", metavar="NAME", help="one method of it")
    parser.add_argument("--json", action="store_true", help="print JSON")


def _add_language_model(parser: argparse.ArgumentParser, max_tokens: int) -> None:
    most = "while there is context" if max_tokens < 0 else max_tokens
    parser.add_argument("model", metavar="MODEL", nargs="?", help="a folder or a .pte file")
    parser.add_argument(
        "-n",
        "--max-tokens",
        metavar="N",
        type=int,
        default=max_tokens,
        help=f"at most so many, -1: all (default {most})",
    )
    parser.add_argument("-sys", "--system", "--system-prompt", metavar="TEXT", help="the system prompt")
    parser.add_argument("--stop", metavar="TEXT", action="append", default=[], help="end before this; may be repeated")
    parser.add_argument("--temp", "--temperature", metavar="T", type=float, help="0 takes the likeliest token")
    parser.add_argument("--top-k", metavar="K", type=int, help="of the K likeliest; 0 is off")
    parser.add_argument("--top-p", metavar="P", type=float, help="of the likeliest that reach P together; 1 is off")
    parser.add_argument("--min-p", metavar="P", type=float, help="none below P times the likeliest; 0 is off")
    parser.add_argument("--repeat-penalty", "--repetition-penalty", metavar="R", type=float, help="1 is off")
    parser.add_argument("-s", "--seed", metavar="N", type=int, help="the same seed gives the same text; -1 draws one")
    parser.add_argument("--half-cache", action="store_true", help="keep the cache in float16: half of its memory")
    _add_activations(parser)
    parser.add_argument(
        "--lookahead", metavar="HOW", help="guess ahead: ngram, or the folder of a smaller model with this tokenizer"
    )
    parser.add_argument(
        "--lookahead-tokens", metavar="K", type=_positive, default=7, help="guesses at a time (default 7)"
    )


def _add_measured(parser: argparse.ArgumentParser, tokens: str, repeats: int) -> None:
    """What `bench` and `profile` measure."""
    parser.add_argument("model", metavar="MODEL", nargs="?", help="a folder of a language model, or a .pte file")
    parser.add_argument("--shape", metavar="SIZE", help="random weights instead: tiny, 135m, 1b or 8b")
    parser.add_argument(
        "-p", "--prompt", metavar="N,..", type=_counts, default=[512], help="tokens of a prompt, 0: none (default 512)"
    )
    parser.add_argument(
        "-n",
        "--tokens",
        metavar="N,..",
        type=_counts,
        default=_counts(tokens),
        help=f"tokens to generate, 0: none (default {tokens})",
    )
    parser.add_argument("-d", "--depth", metavar="N,..", type=_counts, default=[0], help="tokens before (default 0)")
    parser.add_argument(
        "-r", "--repetitions", metavar="N", type=_positive, default=repeats, help=f"counted runs (default {repeats})"
    )
    parser.add_argument("--half-cache", action="store_true", help="keep the cache in float16")
    _add_activations(parser)
    parser.add_argument("--data", metavar="FILE", action="append", default=[], help="a .ptd file of a .pte")
    parser.add_argument("--method", metavar="NAME", default="forward", help="of a .pte (default forward)")
    parser.add_argument(
        "--input-shapes", metavar="SHAPES", action="append", default=[], help="of a call of a .pte, such as 1x7x64,1"
    )
    parser.add_argument(
        "--inputs", metavar="FILE", nargs="+", help="its inputs: .npy, .npz, or raw .bin files, in order"
    )


def _add_activations(parser: argparse.ArgumentParser) -> None:
    """How the rows of 4-bit layers are multiplied."""
    parser.add_argument(
        "--activations",
        choices=("float32", "int8"),
        default="float32",
        help="of 4-bit layers; int8 rounds them: faster on a GPU, a little less exact (default float32)",
    )


def _measured(arguments: argparse.Namespace) -> dict[str, Any]:
    """The same, read."""
    return {
        "shape": arguments.shape,
        "prompts": arguments.prompt,
        "tokens": arguments.tokens,
        "depths": arguments.depth,
        "repeats": arguments.repetitions,
        "half_cache": arguments.half_cache,
        "activations": arguments.activations,
        "data": arguments.data,
        "method": arguments.method,
        "input_shapes": arguments.input_shapes,
        "input_files": arguments.inputs,
        "device": arguments.device,
    }


def _language_model(arguments: argparse.Namespace) -> dict[str, Any]:
    """What `generate` and `chat` have in common."""
    return {
        "system": arguments.system,
        "device": arguments.device,
        "half_cache": arguments.half_cache,
        "activations": arguments.activations,
        "max_tokens": None if arguments.max_tokens < 0 else arguments.max_tokens,
        "stop": arguments.stop,
        "lookahead": arguments.lookahead,
        "lookahead_tokens": arguments.lookahead_tokens,
        "sampling": {
            "temperature": arguments.temp,
            "top_k": arguments.top_k,
            "top_p": arguments.top_p,
            "min_p": arguments.min_p,
            "repetition_penalty": arguments.repeat_penalty,
            "seed": arguments.seed,
        },
    }


def _positive(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return int(text)


def _counts(text: str) -> list[int]:
    if not all(part.isdigit() for part in text.split(",")):
        raise argparse.ArgumentTypeError(f"{text!r} is not a row of whole numbers, such as 0,4096")
    return [int(part) for part in text.split(",")]


# Each command brings its modules along only when it is the one that runs: `--help` needs none of them.


def _run_devices(arguments: argparse.Namespace) -> int:
    from liveshape.tools.devices import devices

    return devices(arguments.device, as_json=arguments.json, measure=arguments.measure, remeasure=arguments.remeasure)


def _run_inspect(arguments: argparse.Namespace) -> int:
    from liveshape.tools.inspect import inspect

    return inspect(
        arguments.program,
        data=arguments.data,
        method=arguments.method,
        device=arguments.device,
        as_json=arguments.json,
    )


def _run_ops(arguments: argparse.Namespace) -> int:
    from liveshape.tools.ops import ops

    return ops(arguments.names, as_json=arguments.json, as_markdown=arguments.markdown)


def _run_run(arguments: argparse.Namespace) -> int:
    from liveshape.tools.run import run

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
    )


def _run_generate(arguments: argparse.Namespace) -> int:
    from liveshape.tools.generate import generate

    return generate(
        arguments.model,
        prompt=arguments.prompt,
        prompt_file=arguments.file,
        raw=arguments.raw,
        as_json=arguments.json,
        **_language_model(arguments),
    )


def _run_chat(arguments: argparse.Namespace) -> int:
    from liveshape.tools.chat import chat

    return chat(arguments.model, **_language_model(arguments))


def _run_export(arguments: argparse.Namespace) -> int:
    from liveshape.export.command import export
    from liveshape.export.config import Quantization

    return export(
        arguments.source,
        arguments.output,
        Quantization(arguments.quant, arguments.group_size, not arguments.keep_embedding),
        max_seq=arguments.max_seq_len,
        max_context=arguments.max_context,
        half=arguments.dtype == "fp16",
        full_logits=arguments.full_logits,
        allow_split=arguments.allow_split,
    )


def _run_perplexity(arguments: argparse.Namespace) -> int:
    from liveshape.tools.perplexity import perplexity

    return perplexity(
        arguments.model,
        arguments.file,
        context=arguments.context,
        activations=arguments.activations,
        half_cache=arguments.half_cache,
        device=arguments.device,
        as_json=arguments.json,
    )


def _run_bench(arguments: argparse.Namespace) -> int:
    from liveshape.tools.bench import bench

    return bench(
        arguments.model,
        output=arguments.output,
        plot=arguments.plot,
        **_measured(arguments),
    )


def _run_profile(arguments: argparse.Namespace) -> int:
    from liveshape.tools.profile import profile

    return profile(
        arguments.model,
        trace=arguments.trace,
        as_json=arguments.json,
        remeasure=arguments.remeasure,
        **_measured(arguments),
    )


def _run_demo(arguments: argparse.Namespace) -> int:
    from liveshape.tools.demo import demo

    return demo(arguments.device)
