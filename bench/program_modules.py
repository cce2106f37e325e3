"""The programs of bench.programs as modules of plain torch.nn, of the sizes that people run, with dynamic shapes.

Weights repeat after PERIOD numbers, a pattern of its own for each tensor, so that a file of 440 MB compresses to less
than one; they are scaled so that activations neither explode nor vanish.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from bench.networks import Residual, layer, repeat_weights

Maker = Callable[[], nn.Module]
Inputs = tuple[torch.Tensor, ...]
QUIET = 0.2  # the scale of a residual branch, as if it had been trained: sums of many layers stay in range


@dataclass(frozen=True)
class Measured:
    """A program: its module, its inputs at given sizes, which of their axes are dynamic, and the sizes to measure."""

    make: Maker
    inputs: Callable[..., Inputs]  # of as many sizes as each row of `sizes` has
    dynamic: Callable[[], tuple[Any, ...] | None]  # of each input
    bound: tuple[int, ...]
    sizes: tuple[tuple[int, ...], ...]

    def module(self) -> nn.Module:
        """The module, the same at every call."""
        torch.manual_seed(0)
        made = repeat_weights(self.make())
        for each in made.modules():
            if isinstance(each, nn.BatchNorm2d):
                nn.init.uniform_(each.running_mean, -0.1, 0.1)  # type: ignore[arg-type]
                nn.init.uniform_(each.running_var, 0.5, 1.5)  # type: ignore[arg-type]
            elif isinstance(each, Plain):
                each.weight.data *= Plain.SCALE
        return made


# Transformers


class Attention(nn.Module):
    """Attention of heads, to the input itself or to another sequence."""

    def __init__(self, width: int, heads: int, other: int | None = None, bias: bool = True) -> None:
        super().__init__()
        self.heads = heads
        self.query = nn.Linear(width, width, bias)
        self.key, self.value = nn.Linear(other or width, width, bias), nn.Linear(other or width, width, bias)
        self.output = nn.Linear(width, width)

    def forward(self, x: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        parts = (self.query(x), self.key(key), self.value(value))
        split = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in parts)
        mixed: torch.Tensor = self.output(functional.scaled_dot_product_attention(*split).transpose(1, 2).flatten(2))
        return mixed


def feed_forward(width: int, hidden: int, activation: Maker = nn.GELU) -> nn.Sequential:
    return nn.Sequential(nn.Linear(width, hidden), activation(), nn.Linear(hidden, width))


class Layer(nn.Module):
    """A transformer layer, normed before its branches or after them."""

    def __init__(self, width: int, heads: int, hidden: int, before: bool, activation: Maker = nn.GELU) -> None:
        super().__init__()
        self.before = before
        self.attention, self.mlp = Attention(width, heads), feed_forward(width, hidden, activation)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))

    def forward(self, x: torch.Tensor, position: torch.Tensor | None = None) -> torch.Tensor:
        if self.before:
            y = self.norms[0](x)
            x = x + self.attention(y, y, y)
            return x + self.mlp(self.norms[1](x))
        y = x if position is None else x + position
        x = self.norms[0](x + self.attention(y, y, x))
        found: torch.Tensor = self.norms[1](x + self.mlp(x))
        return found


class Encoder(nn.Module):
    """Of BERT-base's size."""

    def __init__(
        self, layers: int = 12, width: int = 768, heads: int = 12, tokens: int = 30522, most: int = 512
    ) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(tokens, width), nn.Embedding(most, width)
        self.norm = nn.LayerNorm(width)
        self.layers = nn.ModuleList(Layer(width, heads, 4 * width, before=False) for _ in range(layers))

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.norm(self.tokens(ids) + self.positions(torch.arange(ids.shape[1], device=ids.device)))
        for each in self.layers:
            x = each(x)
        return x


class VisionTransformer(nn.Module):
    """ViT-B/16."""

    def __init__(self, layers: int = 12, width: int = 768, heads: int = 12, side: int = 224, patch: int = 16) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, patch, patch)
        self.first = nn.Parameter(torch.zeros(1, 1, width))
        self.positions = nn.Parameter(torch.zeros(1, (side // patch) ** 2 + 1, width))
        self.layers = nn.Sequential(*(Layer(width, heads, 4 * width, before=True) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 1000)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        x = self.patches(images).flatten(2).transpose(1, 2)
        x = torch.cat((self.first.expand(x.shape[0], -1, -1), x), 1) + self.positions
        found: torch.Tensor = self.head(self.norm(self.layers(x))[:, 0])
        return found


class SpeechEncoder(nn.Module):
    """The encoder of Whisper-base, of 30 seconds."""

    def __init__(self, layers: int = 6, width: int = 512, heads: int = 8, bands: int = 80, frames: int = 1500) -> None:
        super().__init__()
        self.narrow = nn.Conv1d(bands, width, 3, padding=1)
        self.halve = nn.Conv1d(width, width, 3, 2, 1)
        self.positions = nn.Parameter(torch.zeros(frames, width))
        self.layers = nn.Sequential(*(Layer(width, heads, 4 * width, before=True) for _ in range(layers)))
        self.norm = nn.LayerNorm(width)

    def forward(self, bands: torch.Tensor) -> torch.Tensor:
        x = functional.gelu(self.halve(functional.gelu(self.narrow(bands)))).transpose(1, 2)
        found: torch.Tensor = self.norm(self.layers(x + self.positions))
        return found


# Images


def quiet(block: nn.Sequential) -> nn.Sequential:
    """A residual branch whose last norm is small."""
    nn.init.constant_(block[-1][-1].weight, QUIET)
    return block


def resnet50_body() -> tuple[nn.Module, ...]:
    rows: list[nn.Module] = [layer(3, 64, 7, 2), nn.MaxPool2d(3, 2, 1)]
    channels = 64
    for hidden, count, first in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for stride in (first, *(1,) * (count - 1)):
            block = quiet(
                nn.Sequential(
                    layer(channels, hidden, 1),
                    layer(hidden, hidden, 3, stride),
                    layer(hidden, 4 * hidden, 1, after=None),
                )
            )
            around = None if channels == 4 * hidden else layer(channels, 4 * hidden, 1, stride, after=None)
            rows.append(Residual(block, around, nn.ReLU()))
            channels = 4 * hidden
    return tuple(rows)


def resnet50() -> nn.Module:
    return nn.Sequential(*resnet50_body(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2048, 1000))


class DecoderLayer(nn.Module):
    """A layer of DETR's decoder: queries attend to each other, then to the image."""

    def __init__(self, width: int, heads: int, hidden: int) -> None:
        super().__init__()
        self.own, self.image = Attention(width, heads), Attention(width, heads)
        self.mlp = feed_forward(width, hidden, nn.ReLU)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(3))

    def forward(
        self, x: torch.Tensor, image: torch.Tensor, queries: torch.Tensor, places: torch.Tensor
    ) -> torch.Tensor:
        y = x + queries
        x = self.norms[0](x + self.own(y, y, x))
        x = self.norms[1](x + self.image(x + queries, image + places, image))
        found: torch.Tensor = self.norms[2](x + self.mlp(x))
        return found


class Detr(nn.Module):
    """DETR with ResNet-50: classes and boxes of 100 queries."""

    def __init__(
        self, side: int = 800, width: int = 256, heads: int = 8, hidden: int = 2048, queries: int = 100
    ) -> None:
        super().__init__()
        self.body, self.narrow = nn.Sequential(*resnet50_body()), nn.Conv2d(2048, width, 1)
        self.queries = nn.Parameter(torch.zeros(queries, width))
        self.places = nn.Parameter(torch.zeros((side // 32) ** 2, width))
        self.encoder = nn.ModuleList(Layer(width, heads, hidden, False, nn.ReLU) for _ in range(6))
        self.decoder = nn.ModuleList(DecoderLayer(width, heads, hidden) for _ in range(6))
        self.norm, self.classes = nn.LayerNorm(width), nn.Linear(width, 92)
        self.boxes = nn.Sequential(feed_forward(width, width, nn.ReLU), nn.ReLU(), nn.Linear(width, 4))

    def forward(self, images: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x = self.narrow(self.body(images)).flatten(2).transpose(1, 2)
        for each in self.encoder:
            x = each(x, self.places)
        queries = self.queries.expand(x.shape[0], -1, -1)
        y = torch.zeros_like(queries)
        for each in self.decoder:
            y = each(y, x, queries, self.places)
        y = self.norm(y)
        return self.classes(y), self.boxes(y).sigmoid()


# Diffusion


class Plain(nn.Conv2d):
    """A convolution of an image that nothing has normed, nor an activation halved: it would make it larger each time,
    until float16 held it no more."""

    SCALE = 0.5


def normed(channels: int, following: nn.Module) -> nn.Sequential:
    """Group norm and SiLU before a convolution."""
    return nn.Sequential(nn.GroupNorm(32, channels, 1e-6), nn.SiLU(), following)


class ImageBlock(nn.Module):
    """Two convolutions around the embedding of a time step, where there is one."""

    def __init__(self, inside: int, outside: int, time: int = 0) -> None:
        super().__init__()
        self.first = normed(inside, nn.Conv2d(inside, outside, 3, padding=1))
        self.second = normed(outside, nn.Conv2d(outside, outside, 3, padding=1))
        self.time = nn.Sequential(nn.SiLU(), nn.Linear(time, outside)) if time else None
        self.around = nn.Identity() if inside == outside else Plain(inside, outside, 1)

    def forward(self, x: torch.Tensor, time: torch.Tensor | None = None) -> torch.Tensor:
        y = self.first(x)
        if self.time is not None:
            y = y + self.time(time)[:, :, None, None]
        found: torch.Tensor = self.around(x) + self.second(y)
        return found


class GatedLinear(nn.Module):
    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.both = nn.Linear(width, 2 * hidden)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x, gate = self.both(x).chunk(2, -1)
        return x * functional.gelu(gate)


class TextBlock(nn.Module):
    """Attention among pixels, from pixels to a text, and a gated unit."""

    def __init__(self, width: int, heads: int, text: int) -> None:
        super().__init__()
        self.norm, self.inside, self.outside = (
            nn.GroupNorm(32, width, 1e-6),
            nn.Conv2d(width, width, 1),
            nn.Conv2d(width, width, 1),
        )
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(3))
        self.own, self.text = Attention(width, heads, bias=False), Attention(width, heads, text, bias=False)
        self.mlp = nn.Sequential(GatedLinear(width, 4 * width), nn.Linear(4 * width, width))

    def forward(self, image: torch.Tensor, text: torch.Tensor) -> torch.Tensor:
        height, width = image.shape[2:]
        x = self.inside(self.norm(image)).flatten(2).transpose(1, 2)
        y = self.norms[0](x)
        x = x + self.own(y, y, y)
        x = x + self.text(self.norms[1](x), text, text)
        x = x + self.mlp(self.norms[2](x))
        found: torch.Tensor = image + self.outside(x.transpose(1, 2).unflatten(2, (height, width)))
        return found


class Upsample(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.convolution = Plain(channels, channels, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.convolution(functional.interpolate(x, scale_factor=2.0, mode="nearest"))
        return found


class Diffusion(nn.Module):
    """A step of a UNet of Stable Diffusion's size: noise of 4 x 64 x 64, a time step, and a text of 77 tokens."""

    WIDTHS, HEADS, TEXT, TIME = (320, 640, 1280, 1280), 8, 768, 1280

    def __init__(self) -> None:
        super().__init__()
        widths, last = self.WIDTHS, len(self.WIDTHS) - 1
        self.time = nn.Sequential(nn.Linear(widths[0], self.TIME), nn.SiLU(), nn.Linear(self.TIME, self.TIME))
        self.first = nn.Conv2d(4, widths[0], 3, padding=1)
        self.down, self.up = nn.ModuleList(), nn.ModuleList()
        beside, channels = [widths[0]], widths[0]
        for level, width in enumerate(widths):
            for _ in range(2):
                self.down.append(self.block(channels, width, level < last))
                beside.append(width)
                channels = width
            if level < last:
                self.down.append(nn.ModuleList([Plain(width, width, 3, 2, 1)]))
                beside.append(width)
        self.middle = nn.ModuleList((self.block(channels, channels, True), self.block(channels, channels, False)))
        for level, width in reversed([*enumerate(widths)]):
            for turn in range(3):
                parts = self.block(channels + beside.pop(), width, level < last)
                self.up.append(nn.ModuleList([*parts, Upsample(width)]) if turn == 2 and level else parts)
                channels = width
        self.last = normed(channels, nn.Conv2d(channels, 4, 3, padding=1))

    def block(self, inside: int, outside: int, text: bool) -> nn.ModuleList:
        parts: list[nn.Module] = [ImageBlock(inside, outside, self.TIME)]
        return nn.ModuleList([*parts, TextBlock(outside, self.HEADS, self.TEXT)] if text else parts)

    def run(self, parts: Any, x: torch.Tensor, time: torch.Tensor, text: torch.Tensor) -> torch.Tensor:
        for part in parts:
            if isinstance(part, ImageBlock):
                x = part(x, time)
            else:
                x = part(x, text) if isinstance(part, TextBlock) else part(x)
        return x

    def forward(self, noise: torch.Tensor, step: torch.Tensor, text: torch.Tensor) -> torch.Tensor:
        half = self.WIDTHS[0] // 2
        rates = torch.exp(torch.arange(half, device=noise.device) * (-9.21034 / half))
        angles = step[:, None] * rates
        time = self.time(torch.cat((angles.cos(), angles.sin()), 1).to(noise.dtype))
        x = self.first(noise)
        beside = [x]
        for parts in self.down:
            x = self.run(parts, x, time, text)
            beside.append(x)
        for parts in self.middle:
            x = self.run(parts, x, time, text)
        for parts in self.up:
            x = self.run(parts, torch.cat((x, beside.pop()), 1), time, text)
        found: torch.Tensor = self.last(x)
        return found


class PixelAttention(nn.Module):
    """Attention of one head among all pixels."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.attention = nn.GroupNorm(32, width, 1e-6), Attention(width, 1)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        height, width = image.shape[2:]
        x = self.norm(image).flatten(2).transpose(1, 2)
        return image + self.attention(x, x, x).transpose(1, 2).unflatten(2, (height, width))


class ImageDecoder(nn.Module):
    """The decoder of Stable Diffusion's autoencoder: latents of 4 x 64 x 64 to an image of 512 x 512."""

    def __init__(self) -> None:
        super().__init__()
        rows: list[nn.Module] = [nn.Conv2d(4, 512, 3, padding=1)]
        rows += [ImageBlock(512, 512), PixelAttention(512), ImageBlock(512, 512)]
        channels = 512
        for level, width in enumerate((512, 512, 256, 128)):
            for _ in range(3):
                rows.append(ImageBlock(channels, width))
                channels = width
            if level < 3:
                rows.append(Upsample(width))
        self.rows = nn.Sequential(*rows, normed(channels, nn.Conv2d(channels, 3, 3, padding=1)))

    def forward(self, latents: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.rows(latents)
        return found


# Single operators, of which a software adapter is measured


class Product(nn.Module):
    def forward(self, x: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        return x @ other


class Heads(nn.Module):
    def forward(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        return functional.scaled_dot_product_attention(query, key, value)


class Largest(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.topk(10)[0]


class Sum(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.sum(0)


# The table


def batches(most: int, *inputs: int) -> Callable[[], tuple[Any, ...]]:
    """The first axis of each input is the batch, up to a bound."""

    def dynamic() -> tuple[Any, ...]:
        batch = torch.export.Dim("batch", min=1, max=most)
        return tuple({0: batch} for _ in inputs)

    return dynamic


def batch_and_length() -> tuple[Any, ...]:
    return ({0: torch.export.Dim("batch", min=1, max=32), 1: torch.export.Dim("length", min=2, max=512)},)


def of_images(*shape: int) -> Callable[[int], Inputs]:
    return lambda batch: (torch.randn(batch, *shape),)


def of_tokens(batch: int, length: int) -> Inputs:
    return (torch.randint(0, 30522, (batch, length)),)


def of_diffusion(batch: int) -> Inputs:
    return torch.randn(batch, 4, 64, 64), torch.full((batch,), 500.0), torch.randn(batch, 77, Diffusion.TEXT)


def single(most: int) -> Callable[[], tuple[Any, ...]]:
    return batches(most, 1)


BATCHES = ((1,), (8,), (32,))
PROGRAMS: dict[str, Measured] = {
    "encoder": Measured(
        Encoder, of_tokens, batch_and_length, (32, 512), ((1, 16), (1, 128), (1, 512), (32, 128), (32, 512))
    ),
    "vit": Measured(VisionTransformer, of_images(3, 224, 224), single(32), (32,), BATCHES),
    "resnet50": Measured(resnet50, of_images(3, 224, 224), single(32), (32,), BATCHES),
    "whisper": Measured(SpeechEncoder, of_images(80, 3000), single(8), (8,), ((1,), (8,))),
    "detr": Measured(Detr, of_images(3, 800, 800), single(4), (4,), ((1,), (4,))),
    "vae": Measured(ImageDecoder, of_images(4, 64, 64), single(2), (2,), ((1,), (2,))),
    "unet": Measured(Diffusion, of_diffusion, batches(4, 1, 2, 3), (4,), ((1,), (2,))),
}


def static() -> None:
    """No dynamic axis."""


def of_product(rows: int, depth: int, columns: int) -> Inputs:
    return torch.randn(rows, depth), torch.randn(depth, columns)


def of_heads(heads: int, length: int, width: int) -> Inputs:
    return tuple(torch.randn(1, heads, length, width) for _ in range(3))


def of_matrix(rows: int, columns: int) -> Inputs:
    return (torch.randn(rows, columns),)


OPERATORS: dict[str, Measured] = {
    "product": Measured(Product, of_product, static, (256, 1024, 1024), ()),
    "attention": Measured(Heads, of_heads, static, (8, 512, 64), ()),
    "topk": Measured(Largest, of_matrix, static, (16, 10_000), ()),
    "sum": Measured(Sum, of_matrix, static, (4000, 1000), ()),
}
