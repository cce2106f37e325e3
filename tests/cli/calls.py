"""A command called in this process, with its exit code and what it printed."""

from __future__ import annotations

import pytest

from liveshape.cli import main

Capture = pytest.CaptureFixture[str]


def call(capsys: Capture, *arguments: object) -> tuple[int, str, str]:
    code = main([str(argument) for argument in arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err
