"""Threads that share what they use, in processes of their own: right results or an error of the package, no abort."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.survival.subjects import ROOT
from tests.survival.threads import SCENES

# That in which most is shared.
QUICK = ("forks",)


@pytest.mark.parametrize("raw", ["1", pytest.param("0", marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "scene", [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in SCENES]
)
def test_threads(scene: str, raw: str) -> None:
    command = [sys.executable, "-m", "tests.survival.threads", scene]
    done = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, "LIVESHAPE_RAW": raw},
        timeout=900,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{done.returncode}: {done.stderr[-3000:]}"
