"""Argument parsers of `bench`, `profile` and `scale`."""

from __future__ import annotations

import argparse
from typing import Any

from liveshape.graph.activation_kinds import AUTO
from liveshape.tools.parsers.flags import (
    SOURCES,
    Add,
    add_activations,
    add_conversion,
    conversion_of,
    counts,
    positive,
    size,
)

_BENCH = f"""\
MODEL is a language model, or a .pte file, which is timed per call at the shapes given; without it, the shipped model.
{SOURCES} --shape takes random weights of a known size instead (1b: 4 bits; 1b-q4_k_m, 1b-q8_0: as in GGUF files).
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
however often it is read. Layers are found by attention, which comes once in each.

examples:
  liveshape profile --shape 1b -p 512 -n 32
  liveshape profile SmolLM2-135M-Instruct -p 0 -n 32 -d 1024 --trace trace.json
  liveshape profile model.pte --input-shapes 1x3x224x224 --json | jq '.profiles[].by_kernel'"""

_SCALE = f"""\
MODEL is as of `liveshape serve`; --shape takes a known size instead. {SOURCES}
Nothing runs, and without a GPU it is planned for the least that every WebGPU device has. A step reads every weight once
and of the KV cache what each sequence sees; at the bandwidth of the adapter's memory that bounds its tokens per second.

examples:
  liveshape scale model.gguf --sequences 1,8,64 --context 4096
  liveshape scale --shape 8b --context 2048 --memory 80GiB --bandwidth 3350
  liveshape scale model-folder --half-cache --json | jq '.sequence_bytes'"""


def add_commands(add: Add) -> None:
    """Add the subcommands' parsers.

    Example: `add_commands(add)`, before `parser.parse_args()`.
    """
    timing = add("bench", "measure tokens per second, or the time of a call", _BENCH, _run_bench)
    _add_measured(timing, tokens="128", repeats=5)
    timing.add_argument(
        "-o", "--output", choices=("md", "json", "csv"), default="md", help="output format (default md)"
    )
    timing.add_argument("--plot", metavar="FILE", help="write a plot: generation over depth, or bars (.svg)")

    looking = add("profile", "show where the time goes: kernels, operators, layers, host", _PROFILE, _run_profile)
    _add_measured(looking, tokens="32", repeats=3)
    looking.add_argument("--trace", metavar="FILE", help="write a trace that ui.perfetto.dev shows (.json)")
    looking.add_argument("--remeasure", action="store_true", help="measure the peak rates of the adapter again")
    looking.add_argument("--json", action="store_true", help="print JSON")

    scaling = add("scale", "show what a server of many sequences needs: memory, bandwidth", _SCALE, _run_scale)
    scaling.add_argument("model", metavar="MODEL", nargs="?", help="a folder, a .pte, or what is converted")
    scaling.add_argument(
        "--shape", metavar="SIZE", help="random weights instead: tiny, 135m, 1b, 8b, 1b-q4_k_m or 1b-q8_0"
    )
    scaling.add_argument(
        "--sequences",
        metavar="N,..",
        type=counts,
        default=[1, 8, 64],
        help="how many decode together (default 1,8,64)",
    )
    scaling.add_argument(
        "--context", metavar="N", type=positive, help="tokens in the KV cache of each (default 1024, or the model's)"
    )
    scaling.add_argument(
        "--bandwidth", metavar="GB/s", type=positive, help="of the memory (default: that of the adapter, measured)"
    )
    scaling.add_argument(
        "--memory", metavar="SIZE", type=size, help="of an adapter, such as 80GiB: how many sequences does it hold?"
    )
    scaling.add_argument("--half-cache", action="store_true", help="float16 KV cache")
    add_activations(scaling, AUTO)
    add_conversion(scaling)
    scaling.add_argument("--json", action="store_true", help="print JSON")


def _add_measured(parser: argparse.ArgumentParser, tokens: str, repeats: int) -> None:
    """Add the flags that `bench` and `profile` share: model, shape, lengths, depths, repeats."""
    parser.add_argument("model", metavar="MODEL", nargs="?", help="a language model, or a .pte file")
    parser.add_argument(
        "--shape", metavar="SIZE", help="random weights instead: tiny, 135m, 1b, 8b, 1b-q4_k_m or 1b-q8_0"
    )
    parser.add_argument(
        "-p",
        "--prompt",
        metavar="N,..",
        type=counts,
        default=[512],
        help="prompt lengths (prefill), 0: none (default 512)",
    )
    parser.add_argument(
        "-n",
        "--tokens",
        metavar="N,..",
        type=counts,
        default=counts(tokens),
        help=f"tokens to generate (decode), 0: none (default {tokens})",
    )
    parser.add_argument(
        "-d", "--depth", metavar="N,..", type=counts, default=[0], help="tokens in the KV cache before (default 0)"
    )
    parser.add_argument(
        "-r", "--repetitions", metavar="N", type=positive, default=repeats, help=f"timed runs (default {repeats})"
    )
    parser.add_argument("--half-cache", action="store_true", help="float16 KV cache")
    add_activations(parser, AUTO)
    parser.add_argument("--data", metavar="FILE", action="append", default=[], help="a .ptd file of a .pte")
    parser.add_argument("--method", metavar="NAME", default="forward", help="of a .pte (default forward)")
    parser.add_argument(
        "--input-shapes", metavar="SHAPES", action="append", default=[], help="of a call of a .pte, such as 1x7x64,1"
    )
    parser.add_argument(
        "--inputs", metavar="FILE", nargs="+", help="its inputs: .npy, .npz, or raw .bin files, in order"
    )
    add_conversion(parser)


def _measured(arguments: argparse.Namespace) -> dict[str, Any]:
    """The shared keyword arguments of `bench` and `profile`."""
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
        "conversion": conversion_of(arguments),
    }


# Lazy imports: `--help` loads no command's modules.


def _run_bench(arguments: argparse.Namespace) -> int:
    from liveshape.tools.commands.bench import bench

    return bench(
        arguments.model,
        output=arguments.output,
        plot=arguments.plot,
        **_measured(arguments),
    )


def _run_profile(arguments: argparse.Namespace) -> int:
    from liveshape.tools.commands.profile import profile

    return profile(
        arguments.model,
        trace=arguments.trace,
        as_json=arguments.json,
        remeasure=arguments.remeasure,
        **_measured(arguments),
    )


def _run_scale(arguments: argparse.Namespace) -> int:
    from liveshape.tools.commands.scale import scale

    return scale(
        arguments.model,
        shape=arguments.shape,
        sequences=arguments.sequences,
        context=arguments.context,
        bandwidth=None if arguments.bandwidth is None else 1e9 * arguments.bandwidth,
        memory=arguments.memory,
        half_cache=arguments.half_cache,
        activations=arguments.activations,
        device=arguments.device,
        as_json=arguments.json,
        conversion=conversion_of(arguments),
    )
