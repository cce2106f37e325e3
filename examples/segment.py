"""A U-Net learns to find discs in seconds, then paints mask.png. Run: python examples/segment.py (liveshape[export])"""

import zlib
from pathlib import Path

import torch
from torch import nn

import liveshape
from liveshape.export.lower import Source, lower


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
for _ in range(150):
    noisy, mask = disc(32)
    optimizer.zero_grad()
    nn.functional.binary_cross_entropy_with_logits(unet(noisy), mask).backward()
    optimizer.step()
lower(Source(unet, (torch.zeros(1, 1, 128, 128),), ({2: 2 * half, 3: 2 * half},)), Path("unet.pte"))
paint = liveshape.load("unet.pte")
for side in (32, 128, 76):
    noisy, mask = (tensor.numpy() for tensor in disc(side))
    painted = paint(noisy) > 0
    print(f"{side} x {side}: {(painted == mask).mean():.1%} of the pixels are right")
lines = zlib.compress(b"".join(b"\0" + row.tobytes() for row in painted[0, 0].astype("uint8") * 255))
header = side.to_bytes(4, "big") * 2 + bytes((8, 0, 0, 0, 0))
with open("mask.png", "wb") as file:
    file.write(b"\x89PNG\r\n\x1a\n")
    for kind, data in ((b"IHDR", header), (b"IDAT", lines), (b"IEND", b"")):
        file.write(len(data).to_bytes(4, "big") + kind + data + zlib.crc32(kind + data).to_bytes(4, "big"))
