"""liveshape and its peers side by side, in one run on one adapter: language models of random 4-bit weights beside
llama.cpp's Vulkan backend, image networks beside ONNX Runtime's WebGPU backend and torch's CUDA.

    python -m bench.peers [--shape 1b] [--llamacpp FOLDER] [--networks FOLDER] [--out docs/performance/NAME.json]

FOLDER of llama.cpp has the run.sh that bench/llamacpp.py describes; that of networks is written by `python -m
bench.networks --write FOLDER`. A missing peer is reported in a line. torch has no language model in the table: a
Llama in bfloat16 would read four times the bytes.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from statistics import mean
from typing import Any

from wgpu.backends.wgpu_native import lib_version_info

from bench.llamacpp import NotHere, Settings, measure
from bench.performance import tables
from bench.rows import command_of, costs_of, numbers
from liveshape.device.backends import open_device
from liveshape.device.protocol import Device
from liveshape.graph.activation_kinds import ACTIVATIONS
from liveshape.plan.cost import Cost, costs
from liveshape.tools.commands.bench import described, deviation, rows_of
from liveshape.tools.measuring.random_llamas import SHAPES
from liveshape.tools.measuring.rates import rates_of
from liveshape.tools.measuring.subject import Subject, Work, do, go_to_depth, works

SIDES = ("liveshape", "llamacpp", "onnxruntime", "torch")
VISION = {
    "liveshape": ("liveshape", "liveshape, float16"),
    "onnxruntime": ("onnxruntime-webgpu",),
    "torch": ("torch CUDA", "torch CUDA, TF32"),
}
PACKAGES = ("wgpu", "wgpudawn", "numpy", "onnxruntime-webgpu", "torch")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--shape", choices=SHAPES, default="1b")
    parser.add_argument("--llamacpp", type=Path, help="the folder of llama.cpp's run.sh")
    parser.add_argument("--networks", type=Path, help="the folder of the exported image networks")
    parser.add_argument("--only", default=",".join(SIDES), help=f"some of {','.join(SIDES)}")
    parser.add_argument("-p", "--prompts", type=numbers, default=[512, 8192], help="the first one at every depth")
    parser.add_argument("-n", "--tokens", type=int, default=128)
    parser.add_argument("-d", "--depths", type=numbers, default=[0, 512, 8192])
    parser.add_argument("--rows", type=numbers, default=[1, 8, 32, 64, 128])
    parser.add_argument("--rows-depth", type=int, default=256)
    parser.add_argument("-r", "--repeats", type=int, default=5)
    parser.add_argument("--half-cache", action="store_true", help="a float16 KV cache, as llama.cpp has it")
    parser.add_argument("--device")
    parser.add_argument("--out", type=Path, help="a .json file, for bench.performance")
    options = parser.parse_args(arguments)
    only = options.only.split(",")
    if not set(only) <= set(SIDES):
        parser.error(f"--only {options.only}: there are {','.join(SIDES)}")
    device = open_device(options.device)
    document = described(options.shape, device, 0) | {
        "kind": "peers",
        "command": command_of("bench.peers", arguments),
        "half_cache": options.half_cache,
        "rows_depth": options.rows_depth,
        "copy": rates_of(device).copy,
        "versions": _versions(device),
        "cores": _cores(),
        "absent": {},
        "speeds": {},
        "rows": {},
        "vision": {},
    }
    if "liveshape" in only:
        _add_liveshape(document, options)
        _write(document, options.out)
    if "llamacpp" in only:
        _add_llamacpp(document, options)
        _write(document, options.out)
    _add_vision(document, options, only)
    _write(document, options.out)
    print(tables(document))


def _write(document: dict[str, Any], file: Path | None) -> None:
    """Write the results so far: a peer may take longer than somebody waits."""
    if file is not None:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")


def _add_liveshape(document: dict[str, Any], options: argparse.Namespace) -> None:
    tests = works(options.prompts[:1], [options.tokens], options.depths)
    tests += [Work(prompt=prompt) for prompt in options.prompts[1:]]
    room = [*tests, Work(prompt=max(options.rows), depth=options.rows_depth)]
    for activations in ACTIVATIONS:
        name = f"liveshape {activations}"
        subject = Subject(None, options.shape, options.half_cache, activations)
        with subject.open(room, subject.device(options.device)) as model:
            rows = rows_of(model, tests, options.repeats)
            document["speeds"][name] = {row.test.name: (mean(row.values), deviation(row.values)) for row in rows}
            document["rows"][name] = costs_of(model, options.rows, options.rows_depth)
            document["weight_bytes"] = model.memory.weights
            go_to_depth(model, 0)
            do(model, Work(tokens=2))
            executor = model.engine.executor
            half = executor.plan.limits.half
            moved = sum((cost for node in executor.live.nodes for cost in costs(node, half)), Cost())
            document.setdefault("token_bytes", {})[name] = moved.read


def _add_llamacpp(document: dict[str, Any], options: argparse.Namespace) -> None:
    settings = Settings(
        options.shape,
        options.prompts,
        options.tokens,
        options.depths,
        options.rows,
        options.rows_depth,
        options.repeats,
    )
    try:
        if options.llamacpp is None:
            raise NotHere("no --llamacpp FOLDER was given")
        found = measure(options.llamacpp, settings)
    except NotHere as error:
        document["absent"]["llama.cpp"] = str(error)
        return
    document["speeds"] |= found.speeds
    document["rows"] |= found.rows
    document["dropped"] = found.dropped
    document["versions"]["llama.cpp"] = found.version


def _add_vision(document: dict[str, Any], options: argparse.Namespace, only: Sequence[str]) -> None:
    wanted = [side for name in only for side in VISION.get(name, ())]
    try:
        from bench import networks
    except ImportError as error:
        document["absent"]["image networks"] = f"they need torch ({error})"
        return
    if options.networks is None:
        document["absent"]["image networks"] = "no --networks FOLDER was given"
        return
    reasons = {side: networks.why_not(side, options.networks) for side in wanted}
    document["absent"] |= {side: why for side, why in reasons.items() if why}
    sides = [side for side, why in reasons.items() if not why]
    if sides:
        document["vision"] = {name: networks.measured(name, options.networks, sides) for name in networks.NETWORKS}


def _cores() -> str:
    """The CPU cores that this process may use, such as `2 of 16`."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return f"{allowed} of {os.cpu_count()}"


def _versions(device: Device) -> dict[str, str]:
    native = ".".join(map(str, lib_version_info))
    found = {"driver": device.adapter.driver, "wgpu-native": native, "python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


if __name__ == "__main__":
    main()
