"""Small programs of which ExecuTorch's lowering used to lose a dynamic dimension, a buffer or an operator."""

from __future__ import annotations

import functools
import math
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.export import Dim
from torch.nn import functional

from liveshape.export.module.torch_export import Road
from tests.support.exporting import cached, exporter_sources, quick, quiet


class GatedUnit(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 16)

    def forward(self, x: Tensor) -> Tensor:
        values, gates = self.linear(x).chunk(2, -1)
        return values * gates.sigmoid()


class Split(nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        a, b, c = torch.split(x, [2, 3, 3], 1)
        return torch.relu(a) * 2, b + c


class Lstm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.LSTMCell(6, 7)

    def forward(self, x: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
        return self.cell(x, (h, c))


class Residual(nn.Module):
    """The operators of a ResNet."""

    def __init__(self, channels: int, groups: int) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, channels, 3, 2, 1), nn.BatchNorm2d(channels), nn.ReLU(), nn.MaxPool2d(3, 2, 1)
        )
        self.body = nn.Sequential(nn.Conv2d(channels, channels, 3, 1, 1, groups=groups), nn.BatchNorm2d(channels))
        self.head = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 5))

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        return self.head(torch.relu(x + self.body(x)))


class Attention(nn.Module):
    """A layer of a transformer; where a mask leaves a row nothing, torch guards it with any, mul and where."""

    def __init__(self, size: int = 16, heads: int = 2) -> None:
        super().__init__()
        self.heads = heads
        self.norm, self.into, self.out = nn.LayerNorm(size), nn.Linear(size, 3 * size), nn.Linear(size, size)
        self.inner, self.outer = nn.Linear(size, 2 * size), nn.Linear(2 * size, size)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        b, t, d = x.shape
        parts = [each.reshape(b, t, self.heads, -1).transpose(1, 2) for each in self.into(self.norm(x)).chunk(3, -1)]
        y = functional.scaled_dot_product_attention(*parts, attn_mask=mask[:, None, None, :])
        x = x + self.out(y.transpose(1, 2).reshape(b, t, d))
        return x + self.outer(functional.gelu(self.inner(x)))


class Modulated(nn.Module):
    """A block of a diffusion transformer."""

    def __init__(self, size: int = 16) -> None:
        super().__init__()
        self.patches, self.norm = nn.Conv2d(4, size, 2, 2), nn.LayerNorm(size, elementwise_affine=False)
        self.condition = nn.Sequential(nn.SiLU(), nn.Linear(size, 3 * size))
        self.into, self.out = nn.Linear(size, 3 * size), nn.Linear(size, size)

    def forward(self, image: Tensor, condition: Tensor) -> Tensor:
        x = self.patches(image).flatten(2).transpose(1, 2)
        shift, scale, gate = self.condition(condition).chunk(3, 1)
        y = self.norm(x) * (1 + scale[:, None]) + shift[:, None]
        b, t, d = y.shape
        parts = self.into(y).reshape(b, t, 3, 2, d // 2).permute(2, 0, 3, 1, 4).unbind(0)
        y = functional.scaled_dot_product_attention(*parts).transpose(1, 2).reshape(b, t, d)
        return x + gate[:, None] * self.out(y)


class Fourier(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(x + torch.fft.fftn(x, dim=(1, 2)).real)


class FourierOperator(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(4, 4, 3, 2))

    def forward(self, x: Tensor) -> Tensor:
        z = torch.fft.rfft(x)
        y = torch.einsum("bim,iom->bom", z[..., :3], torch.view_as_complex(self.weight))
        return torch.fft.irfft(functional.pad(y, (0, z.shape[-1] - 3)), n=x.shape[-1]) + x


class Radiance(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.field = nn.Linear(12, 4)

    def forward(self, points: Tensor) -> Tensor:
        angles = (points[..., None] * 2.0 ** torch.arange(2)).flatten(-2)
        y = self.field(torch.cat([angles.sin(), angles.cos()], -1))
        alpha = 1 - torch.exp(-functional.softplus(y[..., 3]) * 0.1)
        kept = torch.cumprod(torch.cat([torch.ones_like(alpha[:, :1]), 1 - alpha], -1), -1)[:, :-1]
        return ((alpha * kept)[..., None] * y[..., :3].sigmoid()).sum(1)


class Spectrum(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("window", torch.hann_window(16, periodic=False))

    def forward(self, x: Tensor) -> Tensor:
        return torch.log(torch.stft(x, 16, 8, window=self.window, center=False, return_complex=True).abs() + 1e-3)


class Rotation(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        angles = torch.outer(torch.arange(x.shape[1]), 1.0 / 100 ** (torch.arange(4) / 4))
        turns = torch.polar(torch.ones_like(angles), angles)
        return torch.view_as_real(torch.view_as_complex(x.reshape(*x.shape[:2], -1, 2)) * turns).flatten(2)


class Buckets(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(9, 6)
        self.register_buffer("edges", torch.linspace(-2, 2, 8))

    def forward(self, x: Tensor) -> Tensor:
        return self.table(torch.bucketize(x, self.edges))


class Windows(nn.Module):
    """Attention in windows of an image, with relative positions: views of sizes that are computed in between."""

    def __init__(self, size: int = 8, window: int = 4) -> None:
        super().__init__()
        self.window, self.into = window, nn.Linear(size, 3 * size)
        self.rows = nn.Parameter(torch.zeros(window, window, size))

    def forward(self, x: Tensor) -> Tensor:
        b, height, width, size = x.shape
        w = self.window
        y = x.view(b, height // w, w, width // w, w, size).permute(0, 1, 3, 2, 4, 5).reshape(-1, w * w, size)
        q, k, v = self.into(y).chunk(3, -1)
        scores = q @ k.transpose(1, 2) / math.sqrt(size)
        places = torch.einsum("bhwc,hkc->bhwk", q.reshape(-1, w, w, size), self.rows)
        scores = (scores.view(-1, w, w, w, w) + places[..., None]).view(-1, w * w, w * w)
        y = (scores.softmax(-1) @ v).view(b, height // w, width // w, w, w, size)
        return x + y.permute(0, 1, 3, 2, 4, 5).reshape(b, height, width, size)


class Squeezed(nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return functional.gelu(x[:, None, :] * 2).squeeze(1), torch.relu(x[:, :, None, None]) * 2


class Total(nn.Module):
    """State that a delegate can own."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.zeros(4))

    def forward(self, x: Tensor) -> Tensor:
        self.total.add_(x.sum(0))
        return x + self.total


class Between(Total):
    """State that two delegates read, with an operator between them that none takes."""

    def forward(self, x: Tensor) -> Tensor:
        y = torch.sort(torch.relu(x) + self.total, 0)[0] * 2.0
        self.total.add_(x.sum(0))
        return y + self.total


class Before(Total):
    """Reads the old state after the new one was computed, by way of a copy."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        old = self.total.clone()
        self.total.add_(x.sum(0))
        return old * 2, x + self.total


class Returned(Total):
    """Returns its state beside another output of the same shape."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        self.total.add_(x.sum(0))
        return x.mean(0), self.total


class Late(Total):
    """Computes the next state early, reads the old one, then stores."""

    def forward(self, x: Tensor) -> Tensor:
        following = torch.tanh(self.total + x.sum(0))
        y = self.total * 2 + x
        self.total.copy_(following)
        return y + following


class Recent(nn.Module):
    """The last rows of all calls, and how many there were."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("rows", torch.zeros(6, 4))
        self.register_buffer("count", torch.zeros(1, dtype=torch.int64))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        self.rows.copy_(torch.cat([self.rows, x], 0)[-6:])
        self.count.add_(x.shape[0])
        return self.rows.mean(0), self.count + 1


class Cached(Total):
    """State that an operator writes in place, beside state of which operators make the next value."""

    def __init__(self) -> None:
        super().__init__()
        # Registers torch.ops.llama.sdpa_with_kv_cache.
        from executorch.extension.llm.custom_ops import custom_ops  # noqa: F401

        self.register_buffer("keys", torch.zeros(1, 12, 1, 4))
        self.register_buffer("values", torch.zeros(1, 12, 1, 4))

    def forward(self, x: Tensor) -> Tensor:
        rows, length = x.reshape(1, x.shape[0], 1, 4), x.shape[0]
        y = torch.ops.llama.sdpa_with_kv_cache(
            rows, rows * 2, rows * 3, self.keys, self.values, 2, length, None, 0.0, True, None
        )
        self.total.add_(x.sum(0))
        return y.reshape(length, 4) + self.total


@dataclass(frozen=True)
class LiveProgram:
    """A program with a dynamic size, which is the first dimension of every input unless `axis` says otherwise."""

    module: Callable[[], nn.Module]
    shapes: tuple[tuple[int | None, ...], ...]  # of the inputs; None is the dynamic size
    most: int
    least: int = 1
    example: int | None = None  # the bound, unless it is another
    scale: tuple[int, int] = (1, 0)  # a size of `scale[0] * n + scale[1]`
    masks: int = 0  # so many of the last inputs are boolean

    def inputs(self, size: int) -> list[Tensor]:
        """Random inputs with `size` in place of the dynamic dimension."""
        rng = np.random.default_rng(size)
        live = self.scale[0] * size + self.scale[1]
        shapes = [tuple(live if each is None else each for each in shape) for shape in self.shapes]
        arrays = [rng.standard_normal(shape, np.float32) for shape in shapes]
        first = len(arrays) - self.masks
        return [torch.from_numpy(each if place < first else each > -1) for place, each in enumerate(arrays)]

    def dynamic_shapes(self) -> tuple[dict[int, Any], ...]:
        size = Dim("size", min=self.least, max=self.most)
        scale, offset = self.scale
        live = size if (scale, offset) == (1, 0) else scale * size + offset if offset else scale * size
        return tuple({axis: live for axis, each in enumerate(shape) if each is None} for shape in self.shapes)


def program(module: Callable[[], nn.Module], *shapes: tuple[int | None, ...], **options: Any) -> LiveProgram:
    return LiveProgram(module, shapes, **options)


PROGRAMS = {
    "gated unit": program(GatedUnit, (None, 8), most=9),
    "split": program(Split, (None, 8), most=9),
    "lstm cell": program(Lstm, (None, 6), (None, 7), (None, 7), most=9),
    "residual, 512 channels": program(lambda: Residual(512, 512), (None, 3, 8, 8), most=5),
    "residual, as many images as channels": program(lambda: Residual(16, 1), (None, 3, 16, 16), most=16),
    "residual, example below the bound": program(lambda: Residual(64, 64), (None, 3, 16, 16), most=33, example=4),
    "images, small and large": program(lambda: nn.Conv2d(3, 4, 3, padding=1), (1, 3, None, None), most=90, least=4),
    "attention": program(Attention, (None, 7, 16), (None, 7), most=6, masks=1),
    "modulated": program(Modulated, (None, 4, 8, 8), (None, 16), most=5),
    "fourier": program(Fourier, (1, None, 16), most=12),
    "fourier operator": program(FourierOperator, (None, 4, 16), most=6),
    "radiance": program(Radiance, (None, 5, 3), most=12),
    "spectrum": program(Spectrum, (1, None), most=14, least=3, scale=(8, 0)),
    "rotation": program(Rotation, (1, None, 8), most=12),
    "buckets": program(Buckets, (None, 6), most=9),
    "windows": program(Windows, (None, 8, 8, 8), most=4),
    "squeezed": program(Squeezed, (None, 6), most=6),
    "total": program(Total, (None, 4), most=9),
    "between": program(Between, (None, 4), most=9),
    "before": program(Before, (None, 4), most=9),
    "returned": program(Returned, (None, 4), most=9),
    "late": program(Late, (None, 4), most=9),
    "recent": program(Recent, (None, 4), most=9),
    "cached": program(Cached, (None, 4), most=9),
}


def module_of(name: str) -> nn.Module:
    """The module with weights that are the same on every machine."""
    module, rng = PROGRAMS[name].module().eval(), np.random.default_rng(0)
    with torch.no_grad():
        for parameter in module.parameters():
            width = math.sqrt(max(1, parameter.numel() // parameter.shape[0]))
            parameter.copy_(torch.from_numpy(rng.standard_normal(parameter.shape, np.float32) / np.float32(width)))
    return module


@functools.cache
def exported(name: str, via: Road = "torch") -> Path:
    """The file that `liveshape export` writes of it."""

    def make() -> bytes:
        from liveshape.export.module.torch_export import ModuleSource, lower  # slow, and seldom needed

        case = PROGRAMS[name]
        args = tuple(case.inputs(case.example or case.most))
        with quiet(), quick(), tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "model.pte"
            lower(ModuleSource(module_of(name), args, case.dynamic_shapes()), path, via=via)
            return path.read_bytes()

    return cached(
        f"live_{via}_{name.replace(' ', '_').replace(',', '')}", (sys.modules[__name__], *exporter_sources()), make
    )
