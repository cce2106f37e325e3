"""Shared by the argument parsers: argparse types for numbers, and flags that several commands have."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol, get_args

from liveshape.export.model.config import Mode
from liveshape.graph.activation_kinds import ACTIVATIONS, AUTO, FLOAT32

if TYPE_CHECKING:
    from liveshape.export.runnable import Conversion

_SIZE = re.compile(r"(\d+(?:\.\d+)?) *(?:([KMGT])iB|B)?", re.ASCII | re.IGNORECASE)
_PORTS = 65535
_PREFIXES = ("", "K", "M", "G", "T")

# Help epilogs of several commands.
SOURCES = """\
A GGUF file, a Hugging Face folder, a llama2.c .bin, or the name of a model on the Hub (owner/name, the extra `hub`) is
converted at its first use, as `liveshape export` does, and kept in the cache folder: `liveshape cache` lists it."""


class Add(Protocol):
    """Adds the parser of a subcommand: name, one-line help, epilog, and the function that runs it."""

    def __call__(
        self, name: str, summary: str, epilog: str, command: Callable[[argparse.Namespace], int], on_device: bool = True
    ) -> argparse.ArgumentParser: ...


def positive(text: str) -> int:
    """argparse type: an integer above 0.

    >>> positive("7")
    7
    """
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return int(text)


def natural(text: str) -> int:
    """argparse type: an integer of 0 or more.

    >>> natural("0")
    0
    """
    if not text.isdigit():
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 0 on")
    return int(text)


def port(text: str) -> int:
    """argparse type: a port to listen at, 0 for any.

    >>> port("8000")
    8000
    """
    if not text.isdigit() or int(text) > _PORTS:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port: a whole number from 0 to {_PORTS}")
    return int(text)


def positive_or_all(text: str) -> int:
    """argparse type: an integer above 0, or -1 for as many as fit.

    >>> positive_or_all("-1")
    -1
    """
    if text != "-1" and (not text.isdigit() or int(text) < 1):
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a whole number above 0, nor -1, which is all there is room for"
        )
    return int(text)


def size(text: str) -> int:
    """argparse type: a size in bytes, with a binary prefix or without.

    >>> size("4GiB"), size("1.5 MiB"), size("65536")
    (4294967296, 1572864, 65536)
    """
    found = _SIZE.fullmatch(text.strip())
    number = 0 if found is None else int(float(found[1]) * (1 << 10 * _PREFIXES.index((found[2] or "").upper())))
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a size: give bytes, or a number with KiB, MiB, GiB or TiB")
    return number


def seed(text: str) -> int:
    """argparse type: an integer of 0 or more, or -1 for a random seed.

    >>> seed("0")
    0
    """
    if text != "-1" and not text.isdigit():
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 0 on, nor -1, which draws one")
    return int(text)


def bias(text: str) -> tuple[int, float]:
    """argparse type: a token id and what is added to its logit.

    >>> bias("5:-100")
    (5, -100.0)
    """
    token, _, number = text.partition(":")
    try:
        return natural(token), float(number)
    except (ValueError, argparse.ArgumentTypeError):
        raise argparse.ArgumentTypeError(f"{text!r} is no TOKEN:BIAS, such as 5:-100") from None


def counts(text: str) -> list[int]:
    """argparse type: comma-separated integers.

    >>> counts("0,4096")
    [0, 4096]
    """
    if not all(part.isdigit() for part in text.split(",")):
        raise argparse.ArgumentTypeError(f"{text!r} is not a row of whole numbers, such as 0,4096")
    return [int(part) for part in text.split(",")]


def add_activations(parser: argparse.ArgumentParser, default: str = FLOAT32) -> None:
    """Add `--activations`: what the inputs of products may be rounded to."""
    parser.add_argument(
        "--activations",
        metavar="KIND",
        choices=(*ACTIVATIONS, AUTO),
        default=default,
        help="inputs of products: float32; float16, rounded for matrix units; int8, quantized for 4- and 8-bit layers: "
        "faster on a GPU, a little less exact; auto: float16 where there are matrix units, else float32 "
        f"(default {default})",
    )


def add_conversion(parser: argparse.ArgumentParser, context: bool = True) -> None:
    """Add flags for converting a checkpoint, and `--max-context` where the command generates."""
    parser.add_argument(
        "--quant",
        metavar="HOW",
        choices=get_args(Mode),
        help=f"weights of a MODEL that is converted, as of `export`: {', '.join(get_args(Mode))} (default auto)",
    )
    if context:
        parser.add_argument(
            "--max-context",
            metavar="C",
            type=positive,
            help="context length: tokens in the KV cache (default 2048, or the model's)",
        )
    parser.add_argument("--no-cache", action="store_true", help="do not keep the conversion")


def conversion_of(arguments: argparse.Namespace) -> Conversion:
    """The conversion settings from the parsed arguments."""
    from liveshape.export.runnable import Conversion

    return Conversion(arguments.quant, getattr(arguments, "max_context", None), not arguments.no_cache)
