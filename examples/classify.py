"""Images of any size through one MobileNet. Run: python examples/classify.py (needs liveshape[torch])"""

from pathlib import Path

import numpy as np
import torch
from torch import nn

import liveshape
from liveshape.export.module.torch_export import ModuleSource, lower

LAYERS = ((64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), *[(512, 1)] * 5, (1024, 2), (1024, 1))


def layer(inside: int, outside: int, kernel: int, stride: int, groups: int) -> nn.Sequential:
    convolution = nn.Conv2d(inside, outside, kernel, stride, kernel // 2, groups=groups, bias=False)
    nn.init.kaiming_normal_(convolution.weight)  # keeps the scale of activations through all layers
    return nn.Sequential(convolution, nn.BatchNorm2d(outside), nn.ReLU())


torch.manual_seed(0)  # random weights: load your own with model.load_state_dict
separable, inside = [], 32
for outside, stride in LAYERS:
    separable += [layer(inside, inside, 3, stride, inside), layer(inside, outside, 1, 1, 1)]
    inside = outside
head = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(1024, 1000))
model = nn.Sequential(layer(3, 32, 3, 2, 1), *separable, head).eval()
side = torch.export.Dim("side", min=64, max=224)
lower(ModuleSource(model, (torch.zeros(1, 3, 224, 224),), ({2: side, 3: side},)), Path("mobilenet.pte"))
classify = liveshape.load("mobilenet.pte")
for pixels in (224, 97, 160):
    picture = np.random.default_rng(pixels).random((1, 3, pixels, pixels), np.float32)
    logits, golden = classify(picture), model(torch.from_numpy(picture)).detach().numpy()
    print(
        f"{pixels} x {pixels}: class {logits.argmax()}, torch {golden.argmax()}, {abs(logits - golden).max():.1e} off"
    )
