"""WGSL judged by Tint, without a GPU: shader modules on Dawn's null backend, in a process of their own.

Run: python -m tests.support.tint < TEXTS      a JSON list of [label, text]; the answer is a line of JSON for each
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parents[2]
FEATURES = ("shader-f16", "subgroups", "chromium-experimental-subgroup-matrix")


def refusals(texts: Mapping[str, str]) -> list[str]:
    """What Tint says about those texts that it does not take; `texts` gives the label of each.

    >>> len(refusals({"fn f() {}": "right", "fn f() { return 1; }": "wrong"}))
    1
    """
    rows = [(label, text) for text, label in texts.items()]
    command = [sys.executable, "-m", "tests.support.tint"]
    done = subprocess.run(command, input=json.dumps(rows), cwd=ROOT, capture_output=True, text=True, check=False)
    said = [json.loads(line) for line in done.stdout.splitlines()]
    if len(said) < len(rows):
        label, text = rows[len(said)]
        raise AssertionError(f"Dawn ended with {done.returncode} at {label}:\n{done.stderr[-4000:]}\n{text}")
    return [f"{label}: {error}" for (label, _), error in zip(rows, said, strict=True) if error]


def main() -> None:
    os.environ["WGPU_BACKEND_TYPE"] = "Null"
    import wgpudawn
    from wgpudawn.backends.dawn import extras

    extras.set_instance_extras(enable_toggles=["allow_unsafe_apis"])
    adapter = wgpudawn.gpu.request_adapter_sync()
    assert adapter.info["backend_type"] == "Null", adapter.info
    device = adapter.request_device_sync(required_features=list(FEATURES))
    for label, text in json.load(sys.stdin):
        error = ""
        try:
            device.create_shader_module(code=text, label=label)
        except wgpudawn.GPUValidationError as refusal:
            error = str(refusal)
        print(json.dumps(error), flush=True)


if __name__ == "__main__":
    main()
