"""`liveshape inspect` needs no GPU, and not the library for one either; commands that do say what is missing."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import liveshape

BLOCK = Path(liveshape.__file__).parent / "demo" / "block.pte"
WITHOUT = """
import sys
sys.modules["wgpu"] = None
from liveshape.cli import main
code = main(sys.argv[1:])
assert not {"torch", "cffi"} & set(sys.modules)
sys.exit(code)
"""


def call(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", WITHOUT, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("options", [(), ("--json",)], ids=" ".join)
def test_inspect_needs_no_wgpu(options: tuple[str, ...]) -> None:
    done = call("inspect", BLOCK, *options)
    assert (done.returncode, done.stderr) == (0, "")
    if "--json" in options:
        assert json.loads(done.stdout)["device"] is None
    else:
        assert "no adapter here: limits are the least that every WebGPU device has" in done.stdout


@pytest.mark.parametrize("arguments", [("inspect", BLOCK, "--device", "nvidia"), ("run", BLOCK)])
def test_commands_that_need_a_device_say_what_is_missing(arguments: tuple[object, ...]) -> None:
    done = call(*arguments)
    assert done.returncode == 3
    assert "wgpu could not be loaded" in done.stderr
    assert "Traceback" not in done.stderr
