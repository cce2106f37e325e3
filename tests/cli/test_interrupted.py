"""Ctrl-C ends the command with 130 and without a trace, in its imports, too, and once."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

SCRIPT = """
import signal, sys, liveshape.__main__ as command, liveshape.cli as cli
def interrupted():
    try:
        signal.raise_signal(signal.SIGINT)
    except KeyboardInterrupt:
        if not {wrapped}: raise
        raise ImportError("as numpy does")
cli.main = interrupted
code = command.run()
signal.raise_signal(signal.SIGINT)  # on the way out
sys.exit(code)
"""


@pytest.mark.parametrize("wrapped", [False, True])
def test_an_interrupt_is_a_code_and_no_trace(wrapped: bool) -> None:
    words = [sys.executable, "-c", SCRIPT.format(wrapped=wrapped)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=600)
    assert (done.returncode, done.stderr) == (130, "")
    assert signal.getsignal(signal.SIGINT) is not signal.SIG_IGN
