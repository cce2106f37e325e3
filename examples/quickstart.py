"""One program, one graph, any length up to its bound. Run: python examples/quickstart.py"""

from importlib import resources

import numpy as np

import liveshape

model = liveshape.load(resources.files("liveshape.demo").joinpath("block.pte"))  # a path, bytes or an open file
for length in (128, 1, 7, 64):
    x = np.random.default_rng(0).standard_normal((1, length, 64), dtype=np.float32)
    y = model(x)
    print(f"{x.shape} -> {y.shape}, mean {y.mean():+.4f}")
