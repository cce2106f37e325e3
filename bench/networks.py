"""Whole image networks end to end beside ONNX Runtime's WebGPU backend and torch's CUDA, in one run: an image in, its
logits out.

    python -m bench.networks --write FOLDER     exports the programs (liveshape[torch], docs/export.md)
    python -m bench.networks FOLDER             runs them (needs torch; onnxruntime-webgpu and CUDA where they are)

The weights repeat after 1,021 numbers, so that a program compresses well, for a machine that cannot export.
"""

from __future__ import annotations

import argparse
import lzma
import tempfile
from collections.abc import Callable, Collection
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from torch import nn

from bench.calls import milliseconds

PERIOD = 1021
SIDE = 224
SECONDS = 3.0  # of calls, for each side


def layer(inside: int, outside: int, kernel: int, stride: int = 1, groups: int = 1, after: Any = nn.ReLU) -> nn.Module:
    convolution = nn.Conv2d(inside, outside, kernel, stride, kernel // 2, groups=groups, bias=False)
    return nn.Sequential(convolution, nn.BatchNorm2d(outside), *([after()] if after else []))


class Residual(nn.Module):
    """A residual block, with a projection on the skip path where shapes differ."""

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


class Unet(nn.Module):
    """Four levels of two convolutions, down by pooling and up by transposed convolutions, with skip connections."""

    WIDTHS = (32, 64, 128, 256)

    def __init__(self) -> None:
        super().__init__()
        widths, pairs = self.WIDTHS, [*zip(self.WIDTHS, self.WIDTHS[1:], strict=False)]
        self.pool = nn.MaxPool2d(2)
        self.down = nn.ModuleList(self.level(low, high) for low, high in ((3, widths[0]), *pairs))
        self.widen = nn.ModuleList(nn.ConvTranspose2d(high, low, 2, 2) for low, high in reversed(pairs))
        self.up = nn.ModuleList(self.level(2 * low, low) for low, _ in reversed(pairs))
        self.head = nn.Conv2d(widths[0], 2, 1)

    @staticmethod
    def level(inside: int, outside: int) -> nn.Module:
        return nn.Sequential(layer(inside, outside, 3), layer(outside, outside, 3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        beside: list[torch.Tensor] = []
        for place, level in enumerate(self.down):
            x = level(self.pool(x) if place else x)
            beside.append(x)
        beside.pop()
        for widen, level in zip(self.widen, self.up, strict=True):
            x = level(torch.cat((widen(x), beside.pop()), 1))
        found: torch.Tensor = self.head(x)
        return found


NETWORKS: dict[str, Callable[[], nn.Module]] = {"mobilenet_v2": mobilenet_v2, "resnet18": resnet18, "unet": Unet}


def made(name: str) -> nn.Module:
    """A network of repeating weights."""
    torch.manual_seed(0)
    return repeat_weights(NETWORKS[name]())


def repeat_weights(model: nn.Module) -> nn.Module:
    """Repeating weights, scaled so that activations neither explode nor vanish."""
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                # A pattern of its own for each: the exporter deduplicates equal constants.
                pattern = torch.randn(PERIOD) * (2 / parameter[0].numel()) ** 0.5
                repeats = -(-parameter.numel() // PERIOD)
                parameter.copy_(pattern.repeat(repeats)[: parameter.numel()].reshape(parameter.shape))
    return model.eval()


def write(folder: Path) -> None:
    """Export every network and compress it."""
    from liveshape.export.module.torch_export import ModuleSource, lower

    for name in NETWORKS:
        path = folder / f"{name}.pte"
        lower(ModuleSource(made(name), (torch.zeros(1, 3, SIDE, SIDE),)), path)
        (folder / f"{name}.pte.xz").write_bytes(lzma.compress(path.read_bytes(), preset=1))
        path.unlink()
        print(f"{name}: {(folder / f'{name}.pte.xz').stat().st_size / 1e6:.1f} MB")


# The sides

LIVESHAPE, ONNXRUNTIME, TORCH = "liveshape", "onnxruntime-webgpu", "torch CUDA"
TENSOR_FLOATS = f"{TORCH}, TF32"  # torch's default for convolutions: 10 bits of each factor
HALVES = f"{LIVESHAPE}, float16"  # as many bits, by matrix units where the device has such
SIDES = (LIVESHAPE, HALVES, ONNXRUNTIME, TORCH, TENSOR_FLOATS)


def onnx_session(model: nn.Module) -> Any:
    """The same network in ONNX Runtime, every node of it on the GPU."""
    import onnxruntime

    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "network.onnx")
        torch.onnx.export(model, (torch.zeros(1, 3, SIDE, SIDE),), path, input_names=["x"], dynamo=False)
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        return onnxruntime.InferenceSession(path, options, providers=["WebGpuExecutionProvider"])


def on_cuda(model: nn.Module, tensor_floats: bool, picture: Any) -> Any:
    """One call, from host memory and back."""
    torch.backends.cudnn.allow_tf32 = tensor_floats
    with torch.inference_mode():
        return model(torch.from_numpy(picture).cuda()).cpu().numpy()


def call_of(side: str, name: str, folder: Path) -> Callable[[Any], Any]:
    """An image in, its logits out."""
    if side in (LIVESHAPE, HALVES):
        import liveshape

        program = lzma.decompress((folder / f"{name}.pte.xz").read_bytes())
        return liveshape.load(program, activations="float16" if side == HALVES else "float32")
    model = made(name)
    if side == ONNXRUNTIME:
        session = onnx_session(model)
        return lambda picture: session.run(None, {"x": picture})[0]
    return partial(on_cuda, model.cuda(), side == TENSOR_FLOATS)


def picture_of() -> Any:
    """The same image at every call."""
    return np.random.default_rng(0).random((1, 3, SIDE, SIDE), np.float32)


def why_not(side: str, folder: Path) -> str:
    """Why a side cannot run here, or nothing."""
    if side == ONNXRUNTIME:
        try:
            import onnxruntime
        except ImportError:
            return "there is no onnxruntime (pip install onnxruntime-webgpu)"
        if "WebGpuExecutionProvider" not in onnxruntime.get_available_providers():
            return f"onnxruntime {onnxruntime.__version__} has no WebGPU"
    if side in (TORCH, TENSOR_FLOATS) and not torch.cuda.is_available():
        return f"torch {torch.__version__} has no CUDA here"
    if side not in (LIVESHAPE, HALVES):
        try:
            call_of(side, "resnet18", folder)(picture_of())
        except Exception as error:
            return f"{type(error).__name__}: {error}".split("\n")[0]
    return ""


def measured(name: str, folder: Path, sides: Collection[str]) -> dict[str, tuple[float, float]]:
    """Milliseconds of a call on each side, and the error of its logits against torch's, relative to the largest."""
    picture = picture_of()
    golden = made(name)(torch.from_numpy(picture)).detach().numpy()
    calls = {side: call_of(side, name, folder) for side in sides}
    # Interleaved, so that other load on the machine affects all sides alike.
    rounds = [{side: milliseconds(partial(call, picture), SECONDS) for side, call in calls.items()} for _ in range(2)]
    return {
        side: (min(times[side] for times in rounds), float(abs(call(picture) - golden).max() / abs(golden).max()))
        for side, call in calls.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0] if __doc__ else None)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--write", action="store_true", help="export the programs into the folder")
    options = parser.parse_args()
    if options.write:
        options.folder.mkdir(parents=True, exist_ok=True)
        write(options.folder)
        return
    reasons = {side: why_not(side, options.folder) for side in SIDES}
    sides = [side for side, why in reasons.items() if not why]
    table = Table("network", *sides)
    for name in NETWORKS:
        found = measured(name, options.folder, sides)
        table.add_row(name, *(f"{cost:.2f} ms, off by {off:.0e}" for cost, off in found.values()))
    Console().print(table)
    for side, why in reasons.items():
        if why:
            print(f"{side}: not here: {why}")


if __name__ == "__main__":
    main()
