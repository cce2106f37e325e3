"""The `liveshape` command line: parser, help and exit codes. The commands are in liveshape/tools."""

from __future__ import annotations

import argparse
import io
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress

from liveshape import __version__
from liveshape.errors import (
    FormatError,
    InputError,
    LiveshapeError,
    NoAdapterError,
    ShapeError,
    UnsupportedError,
)
from liveshape.tools.console import stage
from liveshape.tools.parsers import (
    export_parsers,
    measuring_parsers,
    program_parsers,
    serve_parsers,
    text_parsers,
    web_parsers,
)
from liveshape.tools.suggesting import Parser
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
  liveshape serve model.gguf                         the APIs of OpenAI and Anthropic (the extra `serve`)
  liveshape web model.gguf -o site                   a web page that runs it on the GPU of whoever opens it
  liveshape export SmolLM2-135M-Instruct -o smollm   convert to such a folder (the extra `llm`)
  liveshape perplexity model-folder book.txt         perplexity on a text
  liveshape bench --shape 1b                         tokens per second
  liveshape profile --shape 1b                       and where the time goes
  liveshape scale --shape 8b --memory 80GiB          how many sequences fit, how fast at most
  liveshape demo                                     one graph at several live shapes

exit codes: {codes}

environment: LIVESHAPE_DEVICE (index or name), LIVESHAPE_BACKEND (wgpu or dawn), LIVESHAPE_CACHE (a folder),
LIVESHAPE_DEBUG=1..4 (tracebacks; adapter and memory, calls, plans, shaders)"""

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

# Exit codes; docs/commands.md has the same table.
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
        if getattr(arguments, "backend", None) is not None:
            from liveshape.device.backends import name_backend

            arguments.device = name_backend(arguments.device, arguments.backend)
        code: int = arguments.command(arguments)
        sys.stdout.flush()
        return code
    except SystemExit as done:  # --help, --version, or a usage error that argparse has printed
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
    """Replace closed standard streams by /dev/null; unencodable characters on stdout become `?`."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115  # stays open until exit
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors in ("strict", "surrogateescape"):
        sys.stdout.reconfigure(errors="replace")


def _abandon_stdout(code: int) -> int:
    """After a broken pipe or a full disk: redirect stdout to /dev/null, so that the flush at exit does not fail."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return code


def _message(error: Exception) -> str:
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    return str(error)


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
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
            made.add_argument(
                "--backend",
                choices=("wgpu", "dawn"),
                help="library that reaches it; dawn (pip install 'liveshape[dawn]') has matrix units. By default the "
                "faster one there, or LIVESHAPE_BACKEND",
            )
        made.set_defaults(command=command)
        return made

    program_parsers.add_commands(add)
    text_parsers.add_commands(add)
    serve_parsers.add_commands(add)
    web_parsers.add_commands(add)
    export_parsers.add_commands(add)
    measuring_parsers.add_commands(add)
    add("demo", "generate a story with the shipped model, and run one graph at several live shapes", _DEMO, _run_demo)

    completing = add("completion", "print a shell completion script", _COMPLETION, _run_completion, False)
    completing.add_argument("shell", choices=("bash", "zsh", "fish"), help="the shell to print it for")
    return parser


# Lazy imports: `--help` loads no command's modules.


def _run_completion(arguments: argparse.Namespace) -> int:
    from liveshape.tools.commands.completion import completion

    return completion(arguments.shell, _parser())


def _run_demo(arguments: argparse.Namespace) -> int:
    with stage("starting"):
        from liveshape.tools.commands.demo import demo

    return demo(arguments.device)
