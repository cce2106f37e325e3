"""A U-Net learns to find discs in seconds, then paints mask.png. Run: python examples/segment.py (liveshape[torch])"""

import zlib
from pathlib import Path

import torch
from torch import nn

import liveshape
from liveshape.export.module.torch_export import ModuleSource, lower


class Beside(nn.Sequential):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cat((x, super().forward(x)), 1)


def disc(side: int) -> tuple[torch.Tensor, torch.Tensor]:
    away = torch.cartesian_prod(*[torch.arange(side) - torch.rand(1) * side for _ in "yx"]).square().sum(1)
    mask = (away < side * side / 16).float().reshape(1, 1, side, side)
    return mask + torch.randn_like(mask) / 2, mask


deeper = Beside(nn.MaxPool2d(2), nn.Conv2d(8, 16, 3, padding=1), nn.ReLU(), nn.ConvTranspose2d(16, 8, 2, 2))
unet = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), deeper, nn.Conv2d(16, 1, 3, padding=1))
optimizer, half = torch.optim.Adam(unet.parameters(), 0.02), torch.export.Dim("half", min=8, max=64)
for noisy, mask in map(disc, [32] * 150):
    optimizer.zero_grad()
    nn.functional.binary_cross_entropy_with_logits(unet(noisy), mask).backward()
    optimizer.step()
lower(ModuleSource(unet, (torch.zeros(1, 1, 128, 128),), ({2: 2 * half, 3: 2 * half},)), Path("unet.pte"))
paint = liveshape.load("unet.pte")
for noisy, mask in map(disc, (32, 128, 76)):
    painted = paint(noisy.numpy()) > 0
    print("{2} x {3}:".format(*mask.shape), f"{(painted == mask.numpy()).mean():.1%} of the pixels are right")
rows = b"".join(b"\0" + row.tobytes() for row in painted[0, 0].astype("uint8") * 255)
chunks = b"IHDR" + len(mask[0, 0]).to_bytes(4, "big") * 2 + b"\x08\0\0\0\0", b"IDAT" + zlib.compress(rows), b"IEND"
png = b"".join((len(chunk) - 4).to_bytes(4, "big") + chunk + zlib.crc32(chunk).to_bytes(4, "big") for chunk in chunks)
Path("mask.png").write_bytes(b"\x89PNG\r\n\x1a\n" + png)
