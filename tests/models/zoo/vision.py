"""Models of images from torchvision, transformers and diffusers, with real layers at small sizes."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from tests.support.programs import Input, TestProgram


def torchvision() -> Any:
    import torchvision.models

    return torchvision.models


class Only(nn.Module):
    """One tensor of what a model returns."""

    def __init__(self, model: nn.Module, field: str) -> None:
        super().__init__()
        self.model, self.field = model, field

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = getattr(self.model(x), self.field)
        return found


class Denoiser(nn.Module):
    """A model that is told how noisy its image is."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, image: torch.Tensor, step: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.model(image, step).sample
        return found


def settled(module: nn.Module) -> nn.Module:
    """Normalization layers as after training: with means, variances and weights that are not their first."""
    for each in module.modules():
        if isinstance(each, nn.BatchNorm2d):
            nn.init.uniform_(each.running_mean, -0.2, 0.2)  # type: ignore[arg-type]
            nn.init.uniform_(each.running_var, 0.5, 1.5)  # type: ignore[arg-type]
            nn.init.uniform_(each.weight, 0.5, 1.5)
            nn.init.uniform_(each.bias, -0.2, 0.2)
    return module


def image(height: int | str, width: int | str, batch: int | str = 1) -> tuple[Input, ...]:
    return (Input((batch, 3, height, width)),)


def clip_vision() -> nn.Module:
    from transformers import CLIPVisionConfig, CLIPVisionModel

    config = CLIPVisionConfig(
        hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4, image_size=64, patch_size=16
    )
    return Only(CLIPVisionModel(config), "pooler_output")


def sam() -> nn.Module:
    from transformers.models.sam.configuration_sam import SamVisionConfig
    from transformers.models.sam.modeling_sam import SamVisionEncoder

    config = SamVisionConfig(
        hidden_size=48, num_hidden_layers=2, num_attention_heads=4, image_size=64, patch_size=8, window_size=4,
        global_attn_indexes=[1], output_channels=16, mlp_dim=96,
    )  # fmt: skip
    return Only(SamVisionEncoder(config), "last_hidden_state")


class Detector(nn.Module):
    """The transformer of a detector over features of a convolutional trunk, with a fixed number of queries."""

    def __init__(self) -> None:
        super().__init__()
        self.trunk = nn.Sequential(
            nn.Conv2d(3, 16, 3, 2, 1), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 32, 3, 2, 1), nn.ReLU()
        )
        self.rows, self.columns = nn.Parameter(torch.rand(16, 16)), nn.Parameter(torch.rand(16, 16))
        self.queries = nn.Parameter(torch.rand(10, 32))
        self.transformer = nn.Transformer(32, 4, 2, 2, 64, dropout=0.0, batch_first=True)
        self.classes, self.boxes = nn.Linear(32, 7), nn.Linear(32, 4)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        features = self.trunk(x)
        height, width = features.shape[-2:]
        place = torch.cat(
            (
                self.columns[:width].unsqueeze(0).expand(height, -1, -1),
                self.rows[:height].unsqueeze(1).expand(-1, width, -1),
            ),
            -1,
        )
        tokens = features.flatten(2).transpose(1, 2) + place.flatten(0, 1)
        found = self.transformer(tokens, self.queries.expand(x.shape[0], -1, -1))
        return self.classes(found), self.boxes(found).sigmoid()


class Contracting(nn.Module):
    """A U-Net of two levels with transposed convolutions, as for segmentation."""

    def __init__(self) -> None:
        super().__init__()

        def block(inside: int, outside: int) -> nn.Module:
            return nn.Sequential(
                nn.Conv2d(inside, outside, 3, padding=1), nn.BatchNorm2d(outside), nn.ReLU(),
                nn.Conv2d(outside, outside, 3, padding=1), nn.BatchNorm2d(outside), nn.ReLU(),
            )  # fmt: skip

        self.first, self.second, self.lowest = block(3, 8), block(8, 16), block(16, 32)
        self.pool = nn.MaxPool2d(2)
        self.up_second, self.up_first = nn.ConvTranspose2d(32, 16, 2, 2), nn.ConvTranspose2d(16, 8, 2, 2)
        self.back_second, self.back_first = block(32, 16), block(16, 8)
        self.head = nn.Conv2d(8, 2, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        first = self.first(x)
        second = self.second(self.pool(first))
        low = self.lowest(self.pool(second))
        low = self.back_second(torch.cat((self.up_second(low), second), 1))
        found: torch.Tensor = self.head(self.back_first(torch.cat((self.up_first(low), first), 1)))
        return found


def diffusion() -> nn.Module:
    from diffusers import UNet2DModel

    model = UNet2DModel(
        sample_size=32, in_channels=3, out_channels=3, layers_per_block=1, block_out_channels=(16, 32),
        norm_num_groups=8, attention_head_dim=8, down_block_types=("DownBlock2D", "AttnDownBlock2D"),
        up_block_types=("AttnUpBlock2D", "UpBlock2D"),
    )  # fmt: skip
    return Denoiser(model)


def swin() -> nn.Module:
    model: nn.Module = torchvision().SwinTransformer(
        patch_size=[4, 4], embed_dim=24, depths=[2, 2], num_heads=[2, 4], window_size=[4, 4], num_classes=10
    )
    return model


def vit() -> nn.Module:
    model: nn.Module = torchvision().VisionTransformer(
        image_size=64, patch_size=16, num_layers=2, num_heads=4, hidden_dim=64, mlp_dim=128, num_classes=10
    )
    nn.init.normal_(model.heads.head.weight)  # type: ignore[union-attr, arg-type]
    return model


LIVE = {"H": (2, 6), "W": (2, 6)}
BATCH = {"B": (1, 3)}

# torch.export keeps the size of an image fixed where a model asks for it (ViT, Swin); those have a live batch.
PROGRAMS = [
    *(
        TestProgram(name, lambda name=name: settled(getattr(torchvision(), name)()), images, dims, 2e-3, 1e-3)  # type: ignore[misc]
        for name, images, dims in (
            ("resnet18", image("16*H", "16*W"), LIVE),
            ("mobilenet_v2", image("16*H", "16*W"), LIVE),
            ("mobilenet_v3_small", image("16*H", "16*W"), LIVE),
            ("efficientnet_b0", image(64, 64, "B"), BATCH),
            ("convnext_tiny", image(64, 64, "B"), BATCH),
        )
    ),
    TestProgram("vit", vit, image(64, 64, "B"), BATCH, 1e-3, 1e-3),
    TestProgram("swin", swin, image(64, 64, "B"), BATCH, 1e-3, 1e-3),
    TestProgram("clip_vision", clip_vision, image(64, 64, "B"), BATCH, 1e-3, 1e-3),
    TestProgram("sam_encoder", sam, image(64, 64), {}, 1e-3, 1e-3),
    TestProgram("detector", lambda: settled(Detector()), image("8*H", "8*W"), {"H": (2, 8), "W": (2, 8)}, 1e-3, 1e-3),
    TestProgram("unet", lambda: settled(Contracting()), image("8*H", "8*W"), LIVE, 1e-3, 1e-3),
    TestProgram("diffusion_unet", diffusion, (Input((1, 3, 32, 32)), Input((1,))), {}, 1e-3, 1e-3),
]
