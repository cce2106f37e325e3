"""Whole image networks end to end beside ONNX Runtime's WebGPU backend, in one run: one picture in, its logits out.

    python -m bench.networks --write FOLDER     exports the programs (needs liveshape[export])
    python -m bench.networks FOLDER             runs them (needs torch and onnxruntime-webgpu)

The weights repeat after 1,021 numbers, so that a program travels in a small file to a machine that cannot export.
"""

from __future__ import annotations

import argparse
import lzma
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from torch import nn

PERIOD = 1021
SIDE = 224
SECONDS = 3.0  # of calls, for each side


def layer(inside: int, outside: int, kernel: int, stride: int = 1, groups: int = 1, after: Any = nn.ReLU) -> nn.Module:
    convolution = nn.Conv2d(inside, outside, kernel, stride, kernel // 2, groups=groups, bias=False)
    return nn.Sequential(convolution, nn.BatchNorm2d(outside), *([after()] if after else []))


class Residual(nn.Module):
    """What a block adds to its input, or to another view of it."""

    def __init__(self, block: nn.Module, around: nn.Module | None, after: nn.Module) -> None:
        super().__init__()
        self.block, self.around, self.after = block, around or nn.Identity(), after

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.after(self.block(x) + self.around(x))
        return found


def resnet18() -> nn.Module:
    rows: list[nn.Module] = [layer(3, 64, 7, 2), nn.MaxPool2d(3, 2, 1)]
    channels = 64
    for outputs in (64, 64, 128, 128, 256, 256, 512, 512):
        stride = 1 if outputs == channels else 2
        block = nn.Sequential(layer(channels, outputs, 3, stride), layer(outputs, outputs, 3, after=None))
        rows.append(Residual(block, layer(channels, outputs, 1, 2, after=None) if stride == 2 else None, nn.ReLU()))
        channels = outputs
    return nn.Sequential(*rows, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 1000))


def mobilenet_v2() -> nn.Module:
    rows: list[nn.Module] = [layer(3, 32, 3, 2, after=nn.ReLU6)]
    blocks = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))
    channels = 32
    for wider, outputs, count, first in blocks:
        for stride in (first, *(1,) * (count - 1)):
            hidden = channels * wider
            widen = [layer(channels, hidden, 1, after=nn.ReLU6)] if wider > 1 else []
            block = nn.Sequential(
                *widen, layer(hidden, hidden, 3, stride, hidden, nn.ReLU6), layer(hidden, outputs, 1, after=None)
            )
            rows.append(Residual(block, None, nn.Identity()) if stride == 1 and channels == outputs else block)
            channels = outputs
    rows.append(layer(channels, 1280, 1, after=nn.ReLU6))
    return nn.Sequential(*rows, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(1280, 1000))


NETWORKS: dict[str, Callable[[], nn.Module]] = {"mobilenet_v2": mobilenet_v2, "resnet18": resnet18}


def made(name: str) -> nn.Module:
    """A network whose weights repeat, scaled so that numbers neither grow nor vanish on their way."""
    torch.manual_seed(0)
    model = NETWORKS[name]()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                # A pattern of its own for each: the exporter stores what is equal only once.
                pattern = torch.randn(PERIOD) * (2 / parameter[0].numel()) ** 0.5
                repeats = -(-parameter.numel() // PERIOD)
                parameter.copy_(pattern.repeat(repeats)[: parameter.numel()].reshape(parameter.shape))
    return model.eval()


def write(folder: Path) -> None:
    """Export every network and compress it."""
    from liveshape.export.lower import Source, lower

    for name in NETWORKS:
        path = folder / f"{name}.pte"
        lower(Source(made(name), (torch.zeros(1, 3, SIDE, SIDE),)), path)
        (folder / f"{name}.pte.xz").write_bytes(lzma.compress(path.read_bytes(), preset=1))
        path.unlink()
        print(f"{name}: {(folder / f'{name}.pte.xz').stat().st_size / 1e6:.1f} MB")


def milliseconds(call: Callable[[], Any]) -> float:
    """The median of calls that follow each other."""
    for _ in range(3):
        call()
    times: list[float] = []
    while sum(times) < SECONDS:
        begin = time.perf_counter()
        call()
        times.append(time.perf_counter() - begin)
    return statistics.median(times) * 1e3


def onnx_session(model: nn.Module) -> Any:
    """The same network in ONNX Runtime, every node of it on the GPU."""
    import onnxruntime

    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "network.onnx")
        torch.onnx.export(model, (torch.zeros(1, 3, SIDE, SIDE),), path, input_names=["x"], dynamo=False)
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        return onnxruntime.InferenceSession(path, options, providers=["WebGpuExecutionProvider"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--write", action="store_true", help="export the programs into the folder")
    options = parser.parse_args()
    if options.write:
        options.folder.mkdir(parents=True, exist_ok=True)
        write(options.folder)
        return
    import liveshape

    table = Table("network", "liveshape", "onnxruntime-webgpu", "ratio", "largest difference")
    picture = np.random.default_rng(0).random((1, 3, SIDE, SIDE), np.float32)
    for name in NETWORKS:
        ours = liveshape.load(lzma.decompress((options.folder / f"{name}.pte.xz").read_bytes()))
        model = made(name)
        session = onnx_session(model)
        golden = model(torch.from_numpy(picture)).detach().numpy()
        # One after the other and again: what else the machine does meets both.
        calls = (partial(ours, picture), partial(session.run, None, {"x": picture}))
        mine, theirs = (min(times) for times in zip(*(map(milliseconds, calls) for _ in range(2)), strict=True))
        off = np.abs(ours(picture) - golden).max() / np.abs(golden).max()
        table.add_row(name, f"{mine:.2f} ms", f"{theirs:.2f} ms", f"{mine / theirs:.2f}", f"{off:.1e} of the largest")
    Console().print(table)


if __name__ == "__main__":
    main()
