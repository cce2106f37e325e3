"""The `liveshape` command: its words, its help and its exit codes. What a command does is in liveshape/tools.

Exit codes: 0 ok, 1 values differ or something failed, 2 wrong usage or input, 3 no adapter, 4 unsupported program.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence

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
  liveshape run model.pte --input-shapes 1x7x64      run it on random inputs
  liveshape demo                                     one graph at several live shapes

exit codes: 0 ok, 1 values differ or something failed, 2 wrong usage or input, 3 no adapter, 4 unsupported program
environment: LIVESHAPE_DEVICE (index or name), LIVESHAPE_DEBUG=1 (tracebacks)"""

_DEVICES = """\
examples:
  liveshape devices
  liveshape devices --json
  LIVESHAPE_DEVICE=nvidia liveshape devices          which one would that be?"""

_INSPECT = """\
Needs no GPU: without one the limits are those that every WebGPU device has.

examples:
  liveshape inspect model.pte
  liveshape inspect model.pte --data weights.ptd --method decode
  liveshape inspect model.pte --json | jq '.methods[].problems'"""

_RUN = """\
Inputs are random unless given: floats are normal, integers small and not negative, single integers 0.
Shapes are one per input, sizes joined by x, inputs by commas; without them every input has its largest shape.

examples:
  liveshape run model.pte
  liveshape run model.pte --input-shapes 1x7x64,1 --repeat 20
  liveshape run model.pte --inputs tokens.npy position.npy --output-file logits.npz --print none
  liveshape run model.pte --method get_max_seq_len"""

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
        name: str, summary: str, epilog: str, command: Callable[[argparse.Namespace], int]
    ) -> argparse.ArgumentParser:
        made = commands.add_parser(
            name,
            help=summary,
            description=f"{summary[0].upper()}{summary[1:]}.",
            epilog=epilog,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        made.add_argument("--device", metavar="WHICH", help="adapter by index or by a part of its name")
        made.set_defaults(command=command)
        return made

    listing = add("devices", "list the adapters of this machine", _DEVICES, _run_devices)
    listing.add_argument("--json", action="store_true", help="print JSON")

    inspecting = add("inspect", "show what is in a program and what it needs", _INSPECT, _run_inspect)
    _add_program(inspecting)

    running = add("run", "run a program on given or random inputs", _RUN, _run_run)
    _add_program(running)
    running.add_argument("--input-shapes", metavar="SHAPES", help="such as 1x7x64,1: one shape per input")
    running.add_argument("--inputs", metavar="FILE", nargs="+", help=".npy, .npz, or raw .bin files, in order")
    running.add_argument("--seed", type=int, default=0, help="of the random inputs (default 0)")
    running.add_argument("--repeat", metavar="N", type=_positive, default=1, help="how often to run (default 1)")
    running.add_argument("--output-file", metavar="FILE", help="write the outputs to a .npz, or a single one to a .npy")
    running.add_argument("--print", choices=("none", "summary", "all"), default="summary", help="what to show of them")
    # The words of executor_runner, for habits and scripts.
    running.add_argument("--print-output", dest="print", choices=("none", "summary", "all"), help=argparse.SUPPRESS)
    running.add_argument("--num-executions", dest="repeat", type=_positive, help=argparse.SUPPRESS)
    running.set_defaults(print="summary", repeat=1)

    add("demo", "run one shipped program at several live shapes", _DEMO, _run_demo)
    return parser


def _add_program(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("program", metavar="PROGRAM", help="a .pte file")
    parser.add_argument(
        "--data", "--data-path", metavar="FILE", action="append", default=[], help="a .ptd file of it; may be repeated"
    )
    parser.add_argument("--method", "--method-name", metavar="NAME", help="one method of it")
    parser.add_argument("--json", action="store_true", help="print JSON")


def _positive(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return int(text)


# Each command brings its modules along only when it is the one that runs: `--help` needs none of them.


def _run_devices(arguments: argparse.Namespace) -> int:
    from liveshape.tools.devices import devices

    return devices(arguments.device, as_json=arguments.json)


def _run_inspect(arguments: argparse.Namespace) -> int:
    from liveshape.tools.inspect import inspect

    return inspect(
        arguments.program,
        data=arguments.data,
        method=arguments.method,
        device=arguments.device,
        as_json=arguments.json,
    )


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
    )


def _run_demo(arguments: argparse.Namespace) -> int:
    from liveshape.tools.demo import demo

    return demo(arguments.device)
