"""What a shell completes is what the parser knows."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from liveshape.cli import _parser, main
from liveshape.tools.commands.completion import SHELLS, commands_of

COMMANDS = commands_of(_parser())


def completed(*words: str) -> list[str]:
    """What bash offers for the last of these words."""
    given = " ".join(f"'{word}'" for word in words)
    script = SHELLS["bash"](COMMANDS) + f"COMP_WORDS=({given}) COMP_CWORD={len(words) - 1}; _liveshape\n"
    script += 'printf "%s\\n" "${COMPREPLY[@]}"'
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
    assert not done.stderr
    return done.stdout.split()


def test_every_command_is_there_with_what_it_does() -> None:
    assert {"run", "chat", "export", "completion"} <= {command.name for command in COMMANDS}
    assert all(command.summary for command in COMMANDS)
    assert all(flag.summary for command in COMMANDS for flag in command.flags)


@pytest.mark.parametrize(
    ("words", "some"),
    [
        (("liveshape", "ge"), ["generate"]),
        (("liveshape", "completion", ""), ["bash", "zsh", "fish"]),
        (("liveshape", "export", "--quant", "8"), ["8da4w", "8w"]),
        (("liveshape", "chat", "--sys"), ["--system", "--system-prompt"]),
        (("liveshape", "chat", ""), []),
    ],
)
def test_bash_completes(words: tuple[str, ...], some: list[str]) -> None:
    assert sorted(completed(*words)) == sorted(some)


@pytest.mark.parametrize("shell", SHELLS)
def test_the_command_prints_a_script_that_the_shell_reads(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    assert all(command.name in script for command in COMMANDS)
    # Shells that are not here are not asked.
    if shutil.which(shell):
        checked = subprocess.run([shell, "-n"], input=script, capture_output=True, text=True, check=False)
        assert checked.returncode == 0, checked.stderr
