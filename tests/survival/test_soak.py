"""Memory that stays flat, and results that stay right, over many steps; in a process that does nothing else."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.survival.subjects import ROOT


def soaked(steps: int, seconds: float) -> None:
    command = [sys.executable, "-m", "tests.survival.soak", "--steps", str(steps)]
    done = subprocess.run(command, cwd=ROOT, timeout=seconds, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]


@pytest.mark.skipif(sys.platform != "linux", reason="resident memory is read from /proc")
def test_some_steps() -> None:
    soaked(150, 900)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="resident memory is read from /proc")
def test_twenty_thousand_steps() -> None:
    soaked(20000, 3000)
