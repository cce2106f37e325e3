"""A speech encoder shaped as Whisper's, at any length. Run: python examples/listen.py (needs liveshape[torch])"""

from pathlib import Path

import numpy as np
import torch
from torch import nn

import liveshape
from liveshape.export.module.torch_export import ModuleSource, lower

MELS, WIDTH, FRAMES = 80, 128, 600  # 600 frames of a spectrogram are six seconds


class Encoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv1d(MELS, WIDTH, 3, padding=1), nn.Conv1d(WIDTH, WIDTH, 3, 2, 1)
        self.places = nn.Parameter(torch.randn(FRAMES // 2, WIDTH) / 10)
        layer = nn.TransformerEncoderLayer(WIDTH, 4, 4 * WIDTH, 0.0, "gelu", batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, nn.LayerNorm(WIDTH), enable_nested_tensor=False)

    def forward(self, mels: torch.Tensor) -> torch.Tensor:
        x = nn.functional.gelu(self.second(nn.functional.gelu(self.first(mels)))).transpose(1, 2)
        return self.layers(x + self.places[: x.shape[1]])


torch.manual_seed(0)  # random weights; a decoder would attend to what this gives
encoder, half = Encoder().eval(), torch.export.Dim("half", min=8, max=FRAMES // 2)
lower(ModuleSource(encoder, (torch.zeros(1, MELS, FRAMES),), ({2: 2 * half},)), Path("encoder.pte"))
listen = liveshape.load("encoder.pte")
for frames in (600, 34, 218):
    mels = np.random.default_rng(frames).standard_normal((1, MELS, frames), np.float32)
    states, golden = listen(mels), encoder(torch.from_numpy(mels)).detach().numpy()
    print(f"{frames} frames -> {states.shape}, {abs(states - golden).max():.1e} off torch's")
