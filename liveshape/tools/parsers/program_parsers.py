"""Argument parsers of `check`, `devices`, `inspect`, `ops` and `run`."""

from __future__ import annotations

import argparse

from liveshape.errors import InputError
from liveshape.graph.activation_kinds import FLOAT16, FLOAT32
from liveshape.tools.parsers.flags import SOURCES, Add, add_activations, add_conversion, conversion_of, positive

_CHECK = f"""\
Every node of the program runs alone, on random inputs and on what the reference has of the nodes before it, so that
errors do not add up; then every fused node, then the whole program. References are torch's operators, where torch is
installed, and written meanings of those that torch does not have; what has none is counted and named. Nodes run twice,
in memory full of NaN, at the bound and at smaller live shapes, up and down; plans are those of a fresh build at each.
Exit code 1: values differ.

Sizes come from the signature that `liveshape export` writes; for other files --input-shapes names them. A language
model is called with tokens of its vocabulary, prefill and decode by turns; then it is loaded as for generation, decode
is compared with prefill, and every kind of activations and KV cache with float32. Of more than four layers the first,
the last and one between are checked (--layers, --all).
{SOURCES}

--selftest needs no program and no torch: the operators of the package run on your adapter, at live shapes up and down,
and are compared with what torch gave, which travels along. It ends in a table by family, and in a file to attach to an
issue, liveshape-selftest-ADAPTER.json in this folder unless --report names another.

examples:
  liveshape check model.pte
  liveshape check story --shapes tokens=7,1,MAX
  liveshape check model.pte --shapes rows=1,7,64,MAX
  liveshape check model.pte --input-shapes 1x7x64 --input-shapes 1x64x64
  liveshape check model.Q4_K_M.gguf --layers 5
  liveshape check model.pte --against mymodel:build            the function that `liveshape export` took
  liveshape check model.pte --json | jq '.methods[].divergences'
  liveshape check model.pte --save case.npz; liveshape check --replay case.npz
  liveshape check --selftest                         does this adapter, with its driver, compute what torch computes?
  liveshape check --selftest --only attention --device nvidia --backend dawn"""

_DEVICES = """\
examples:
  liveshape devices
  liveshape devices --json
  LIVESHAPE_DEVICE=nvidia liveshape devices          which one would that be?
  liveshape devices --measure                        how fast is each at copying and computing?
  liveshape devices --install-software-driver        no GPU, or Mesa's driver is old: a new one, on Debian and Ubuntu

--install-software-driver unpacks the newest Mesa of this system's package archives (10 to 60 MB) into this virtual
environment, or into ~/.local/share where there is none, in place of what it unpacked there before. It takes no root and
installs nothing in the system; delete the folder to be rid of it.

--measure is cached per adapter and driver in the user's cache folder (LIVESHAPE_CACHE), for `liveshape profile`."""

_INSPECT = """\
Needs no GPU: without one the limits are those that every WebGPU device has.

examples:
  liveshape inspect model.pte
  liveshape inspect model.pte --data weights.ptd --method decode
  liveshape inspect model.pte --json | jq '.methods[].problems'
  liveshape inspect model.pte --html model.html       a page to find your way in: graph, shapes, kernels, memory
  liveshape profile model.pte --json > times.json && liveshape inspect model.pte --html model.html --profile times.json
  liveshape inspect model.pte --model-explorer graph.json && model-explorer graph.json"""

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


def add_commands(add: Add) -> None:
    """Add the subcommands' parsers.

    Example: `add_commands(add)`, before `parser.parse_args()`.
    """
    _add_check(add)
    _add_devices(add)
    _add_inspect(add)
    _add_ops(add)
    _add_run(add)


def _add_check(add: Add) -> None:
    checking = add("check", "compare every node of a program with a reference", _CHECK, _run_check)
    _add_program(checking, "a .pte file, a folder with one, or a checkpoint to convert", optional=True)
    checking.add_argument("--save", metavar="FILE", help="write what the first divergence reads (.npz)")
    checking.add_argument("--replay", metavar="FILE", help="run such a file alone, without a program")
    checking.add_argument("--selftest", action="store_true", help="check this adapter instead, without a program")
    checking.add_argument("--only", metavar="PATTERN", help="of --selftest: sweeps, operators or families named so")
    checking.add_argument("--report", metavar="FILE", help="of --selftest: where its report goes (.json)")
    checking.add_argument(
        "--input-shapes", metavar="SHAPES", action="append", default=[], help="of a call, such as 1x7x64,1; repeatable"
    )
    checking.add_argument(
        "--shapes",
        metavar="SIZES",
        help="of symbols of the signature, such as 'rows=1,7,MAX'; of a language model tokens",
    )
    checking.add_argument(
        "--tol", type=float, default=1e-4, help="of float32, relative to the largest number of a tensor (default 1e-4)"
    )
    checking.add_argument(
        "--against", metavar="FUNCTION", help="module:function or path.py:function that gives what the program should"
    )
    checking.add_argument(
        "--activations",
        metavar="KIND",
        choices=(FLOAT32, FLOAT16),
        default=FLOAT32,
        help="float16 checks what runs where matrix units round the inputs of products (default float32)",
    )
    checking.add_argument("--layers", metavar="N", type=positive, help="how many layers of a model are checked")
    checking.add_argument("--all", action="store_true", help="check every layer of a model")
    checking.add_argument("--seed", type=int, default=0, help="of the random inputs (default 0)")
    add_conversion(checking, context=False)


def _add_devices(add: Add) -> None:
    listing = add("devices", "list the adapters of this machine", _DEVICES, _run_devices)
    listing.add_argument("--json", action="store_true", help="print JSON")
    listing.add_argument(
        "--measure", action="store_true", help="measure memory bandwidth and arithmetic rates, or print the cached ones"
    )
    listing.add_argument("--remeasure", action="store_true", help="measure them again")
    listing.add_argument(
        "--install-software-driver",
        action="store_true",
        help="first unpack a driver by which the CPU is an adapter, from Debian's or Ubuntu's packages",
    )


def _add_inspect(add: Add) -> None:
    inspecting = add("inspect", "show what is in a program and what it needs", _INSPECT, _run_inspect)
    _add_program(inspecting)
    inspecting.add_argument(
        "--html",
        metavar="FILE",
        help="write one self-contained page: the graph, and live shapes, kernels, costs and memory at sizes to choose",
    )
    inspecting.add_argument("--profile", metavar="FILE", help="for the page: times, as liveshape profile --json prints")
    inspecting.add_argument("--check", metavar="FILE", help="for the page: errors, as liveshape check --json prints")
    inspecting.add_argument(
        "--model-explorer",
        metavar="FILE",
        help="write the planned graphs for model-explorer (.json), and beside it the bytes of each node as node data",
    )


def _add_ops(add: Add) -> None:
    names = add("ops", "list the operators, their dtypes and kernels", _OPS, _run_ops, False)
    names.add_argument("names", metavar="NAME", nargs="*", help="a name or a part of one")
    names.add_argument("--json", action="store_true", help="print JSON")
    names.add_argument("--markdown", action="store_true", help="print docs/operators.md")


def _add_run(add: Add) -> None:
    running = add("run", "run a program on given or random inputs", _RUN, _run_run)
    _add_program(running, "a .pte file, a folder with one, or a checkpoint to convert")
    running.add_argument("--input-shapes", metavar="SHAPES", help="such as 1x7x64,1: one shape per input")
    running.add_argument("--inputs", metavar="FILE", nargs="+", help=".npy, .npz or raw .bin, in order or NAME=FILE")
    running.add_argument("--seed", type=int, default=0, help="of the random inputs (default 0)")
    running.add_argument("--repeat", metavar="N", type=positive, default=1, help="how often to run (default 1)")
    running.add_argument("--output-file", metavar="FILE", help="write the outputs to a .npz, or a single one to a .npy")
    running.add_argument(
        "--print", choices=("none", "summary", "all"), default="summary", help="how much of the outputs to print"
    )
    add_activations(running)
    add_conversion(running, context=False)
    running.add_argument("--strict", action="store_true", help="refuse operators without a kernel (host fallback)")
    # Aliases for the flags of executor_runner.
    running.add_argument("--print-output", dest="print", choices=("none", "summary", "all"), help=argparse.SUPPRESS)
    running.add_argument("--num-executions", dest="repeat", type=positive, help=argparse.SUPPRESS)
    running.set_defaults(print="summary", repeat=1)


def _add_program(
    parser: argparse.ArgumentParser, what: str = "a .pte file, or a folder with one", optional: bool = False
) -> None:
    parser.add_argument("program", metavar="PROGRAM", nargs="?" if optional else None, help=what)
    parser.add_argument(
        "--data", "--data-path", metavar="FILE", action="append", default=[], help="a .ptd file of it; may be repeated"
    )
    parser.add_argument("--method", "--method-name", metavar="NAME", help="one method of it")
    parser.add_argument("--json", action="store_true", help="print JSON")


# Lazy imports: `--help` loads no command's modules.


def _run_check(arguments: argparse.Namespace) -> int:
    if arguments.selftest:
        return _run_selftest(arguments)
    if arguments.only is not None or arguments.report is not None:
        raise InputError("--only and --report belong to --selftest")
    from liveshape.tools.commands.check import ALL_LAYERS, check, replay

    if (arguments.program is None) == (arguments.replay is None):
        raise InputError("check takes a PROGRAM, or --replay with a file that --save wrote, or --selftest")
    if arguments.all and arguments.layers is not None:
        raise InputError("--all and --layers: give one of the two")
    if arguments.replay is not None:
        return replay(arguments.replay, device=arguments.device, as_json=arguments.json)
    return check(
        arguments.program,
        data=arguments.data,
        method=arguments.method,
        device=arguments.device,
        activations=arguments.activations,
        input_shapes=arguments.input_shapes,
        shapes=arguments.shapes,
        tolerance=arguments.tol,
        against=arguments.against,
        layers=ALL_LAYERS if arguments.all else arguments.layers,
        seed=arguments.seed,
        save=arguments.save,
        as_json=arguments.json,
        conversion=conversion_of(arguments),
    )


def _run_selftest(arguments: argparse.Namespace) -> int:
    from liveshape.tools.commands.check_adapter import check_adapter

    given = arguments.program or arguments.replay
    if given is not None:
        raise InputError(
            f"--selftest checks the adapter and takes no program, {given!r} was given: leave one of the two out"
        )
    return check_adapter(arguments.device, only=arguments.only, report=arguments.report, as_json=arguments.json)


def _run_devices(arguments: argparse.Namespace) -> int:
    from liveshape.tools.commands.devices import devices

    return devices(
        arguments.device,
        as_json=arguments.json,
        measure=arguments.measure,
        remeasure=arguments.remeasure,
        install_software_driver=arguments.install_software_driver,
    )


def _run_inspect(arguments: argparse.Namespace) -> int:
    from liveshape.tools.commands.inspect import inspect

    return inspect(
        arguments.program,
        data=arguments.data,
        method=arguments.method,
        device=arguments.device,
        as_json=arguments.json,
        model_explorer=arguments.model_explorer,
        html=arguments.html,
        profile=arguments.profile,
        check=arguments.check,
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
