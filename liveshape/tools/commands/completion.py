"""`liveshape completion`: shell completion script for commands, flags and choices, generated from the parser."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Flag:
    """A flag of a command: its spellings, help, and the values that it takes."""

    names: tuple[str, ...]
    summary: str
    takes_value: bool
    choices: tuple[str, ...]


@dataclass(frozen=True)
class CommandWords:
    """A command and its flags."""

    name: str
    summary: str
    flags: tuple[Flag, ...]
    choices: tuple[str, ...]  # of its positional arguments


def completion(shell: str, parser: argparse.ArgumentParser) -> int:
    """Print the completion script for a shell.

    Example: `completion("bash", parser)`.
    """
    print(SHELLS[shell](commands_of(parser)), end="")
    return 0


def commands_of(parser: argparse.ArgumentParser) -> list[CommandWords]:
    """The subcommands of a parser, in order.

    Example: `[command.name for command in commands_of(parser)]`.
    """
    (group,) = (action for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    summaries = {choice.dest: choice.help or "" for choice in group._choices_actions}
    return [CommandWords(name, summaries[name], *_words(made)) for name, made in group.choices.items()]


def _words(parser: argparse.ArgumentParser) -> tuple[tuple[Flag, ...], tuple[str, ...]]:
    flags: list[Flag] = []
    positional: list[str] = []
    for action in parser._actions:
        choices = tuple(map(str, action.choices or ()))
        if not action.option_strings:
            positional += choices
        elif action.help != argparse.SUPPRESS:
            summary = parser._get_formatter()._expand_help(action)
            flags.append(Flag(tuple(action.option_strings), summary, action.nargs != 0, choices))
    return tuple(flags), tuple(positional)


def _bash(commands: Sequence[CommandWords]) -> str:
    lines = [
        "# bash completion of liveshape; `liveshape completion --help` says where it goes",
        "_liveshape() {",
        '    local current=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} words=""',
        "    if [ $COMP_CWORD -eq 1 ]; then",
        f'        COMPREPLY=($(compgen -W "{" ".join(command.name for command in commands)} --help --version"'
        ' -- "$current"))',
        "        return",
        "    fi",
        '    case "${COMP_WORDS[1]} $before" in',
    ]
    for command in commands:
        for flag in command.flags:
            if flag.choices:
                spelled = "|".join(f'"{command.name} {name}"' for name in flag.names)
                lines.append(f'        {spelled}) words="{" ".join(flag.choices)}" ;;')
    lines += ["    esac", '    if [ -z "$words" ]; then', '        case "${COMP_WORDS[1]}" in']
    for command in commands:
        words = " ".join((*command.choices, *(name for flag in command.flags for name in flag.names)))
        lines.append(f'            {command.name}) words="{words}" ;;')
    lines += [
        "        esac",
        "        # Names of files are completed where no flag is begun.",
        '        if [ "${current#-}" = "$current" ]; then',
        '            words=$(printf "%s\\n" $words | grep -v "^-")',
        "        fi",
        "    fi",
        '    COMPREPLY=($(compgen -W "$words" -- "$current"))',
        "}",
        "complete -o default -F _liveshape liveshape",
    ]
    return "\n".join(lines) + "\n"


def _zsh(commands: Sequence[CommandWords]) -> str:
    lines = [
        "#compdef liveshape",
        "# zsh completion of liveshape; `liveshape completion --help` says where it goes",
        "_liveshape() {",
        "    local -a commands",
        "    commands=(",
        *(f"        {shlex.quote(f'{each.name}:{each.summary}')}" for each in commands),
        "    )",
        "    if (( CURRENT == 2 )); then",
        "        _describe command commands",
        "        return",
        "    fi",
        '    case "$words[2]" in',
    ]
    for command in commands:
        specs = " ".join(shlex.quote(spec) for flag in command.flags for spec in _zsh_specs(flag))
        rest = shlex.quote(f"*:argument:({' '.join(command.choices)})" if command.choices else "*:file:_files")
        lines.append(f"        {command.name}) _arguments {specs} {rest} ;;")
    lines += ["    esac", "}", '_liveshape "$@"']
    return "\n".join(lines) + "\n"


def _zsh_specs(flag: Flag) -> Iterator[str]:
    summary = flag.summary.replace("[", "(").replace("]", ")").replace(":", ";")
    for name in flag.names:
        value = f":value:({' '.join(flag.choices)})" if flag.choices else ":value:_files" if flag.takes_value else ""
        yield f"{name}[{summary}]{value}"


def _fish(commands: Sequence[CommandWords]) -> str:
    lines = ["# fish completion of liveshape; `liveshape completion --help` says where it goes"]
    for command in commands:
        summary = shlex.quote(command.summary)
        lines.append(f"complete -c liveshape -f -n __fish_use_subcommand -a {command.name} -d {summary}")
        condition = shlex.quote(f"__fish_seen_subcommand_from {command.name}")
        if command.choices:
            lines.append(f"complete -c liveshape -f -n {condition} -a {shlex.quote(' '.join(command.choices))}")
        for flag in command.flags:
            names = " ".join(f"-l {name[2:]}" if name.startswith("--") else _fish_short(name) for name in flag.names)
            value = f" -x -a {shlex.quote(' '.join(flag.choices))}" if flag.choices else " -r" * flag.takes_value
            lines.append(f"complete -c liveshape -n {condition} {names}{value} -d {shlex.quote(flag.summary)}")
    return "\n".join(lines) + "\n"


def _fish_short(name: str) -> str:
    return f"-s {name[1:]}" if len(name) == 2 else f"-o {name[1:]}"


SHELLS: dict[str, Callable[[Sequence[CommandWords]], str]] = {"bash": _bash, "zsh": _zsh, "fish": _fish}
