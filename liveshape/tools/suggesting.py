"""The argument parser of commands: a misspelled command, option or choice gets the one that was probably meant."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from typing import Any, NoReturn


class Parser(argparse.ArgumentParser):
    """An ArgumentParser whose errors suggest names, with the usage of the command that was called.

    Example: `Parser(prog="liveshape").add_subparsers().add_parser("devices")`.
    """

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> tuple[Any, list[str]]:
        """As argparse does, but a command refuses what it does not know: its caller would print another usage."""
        parsed, extras = super().parse_known_args(args, namespace)
        if extras:
            self._refuse(extras)
        return parsed, extras

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            near = did_you_mean(str(value), map(str, action.choices))
            allowed = ", ".join(map(repr, action.choices))
            raise argparse.ArgumentError(action, f"invalid choice: {value!r}{near} (choose from {allowed})")

    def _refuse(self, extras: Sequence[str]) -> NoReturn:
        options = [each.split("=")[0] for each in extras if each.startswith("-") and each != "-"]
        if options:
            known = [name for action in self._actions for name in action.option_strings]
            told = "; ".join(f"there is no option {each}{did_you_mean(each, known)}" for each in options)
            self.error(f"{told} ({self.prog} --help lists them)")
        taken = " ".join(str(action.metavar) for action in self._actions if not action.option_strings) or "no arguments"
        self.error(f"{' '.join(extras)}: too many arguments, it takes {taken}; quote a text that has spaces")


def did_you_mean(given: str, names: Iterable[str]) -> str:
    """The name that was probably meant, as the end of a sentence; nothing where none is close.

    >>> did_you_mean("genrate", ["generate", "chat"]), did_you_mean("x", ["chat"])
    (', did you mean generate?', '')
    """
    near = get_close_matches(given, list(names), 1)
    return f", did you mean {near[0]}?" if near else ""
