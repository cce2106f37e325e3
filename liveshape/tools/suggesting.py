"""The argument parser of commands: a misspelled command, option or choice gets the one that was probably meant."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from typing import Any, NoReturn


class Parser(argparse.ArgumentParser):
    """An ArgumentParser whose errors suggest names, with the usage of the command that was called.

    Example: `Parser(prog="liveshape").add_subparsers().add_parser("devices")`.
    """

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> tuple[Any, list[str]]:
        """As argparse does, but a command refuses what it does not know: its caller would print another usage."""
        self._check_leading(sys.argv[1:] if args is None else args)
        parsed, extras = super().parse_known_args(args, namespace)
        if extras:
            self._refuse(extras)
        return parsed, extras

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            near = did_you_mean(str(value), map(str, action.choices))
            allowed = ", ".join(map(repr, action.choices))
            raise argparse.ArgumentError(action, f"invalid choice: {value!r}{near} (choose from {allowed})")

    def _check_leading(self, args: Sequence[str]) -> None:
        """Refuse an option before the command, which argparse would take what follows for, or miss."""
        commands = next((each for each in self._actions if isinstance(each, argparse._SubParsersAction)), None)
        given = args[0].split("=")[0] if args else ""
        if commands is None or not given.startswith("-") or any(name.startswith(given) for name in _names(self)):
            return
        taking = [name for name, parser in commands.choices.items() if given in _names(parser)]
        if taking:
            called = next((each for each in args if each in taking), taking[0])
            self.error(f"{given} comes after the command: {self.prog} {called} {given}")
        near = did_you_mean(given, dict.fromkeys(name for each in commands.choices.values() for name in _names(each)))
        self.error(f"there is no option {given}{near}; options come after the command ({self.prog} --help has both)")

    def _refuse(self, extras: Sequence[str]) -> NoReturn:
        options = [each.split("=")[0] for each in extras if each.startswith("-") and each != "-"]
        if options:
            told = "; ".join(f"there is no option {each}{did_you_mean(each, _names(self))}" for each in options)
            self.error(f"{told} ({self.prog} --help lists them)")
        taken = " ".join(str(action.metavar) for action in self._actions if not action.option_strings) or "no arguments"
        self.error(f"{' '.join(extras)}: too many arguments, it takes {taken}; quote a text that has spaces")


def _names(parser: argparse.ArgumentParser) -> list[str]:
    return [name for action in parser._actions for name in action.option_strings]


def did_you_mean(given: str, names: Iterable[str]) -> str:
    """The name that was probably meant, as the end of a sentence; nothing where none is close.

    >>> did_you_mean("genrate", ["generate", "chat"]), did_you_mean("x", ["chat"])
    (', did you mean generate?', '')
    """
    near = get_close_matches(given, list(names), 1)
    return f", did you mean {near[0]}?" if near else ""
