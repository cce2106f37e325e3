"""Make the program that `liveshape demo` runs: one transformer block, exported with a dynamic sequence length.

Writes liveshape/demo/block.pte, and liveshape/demo/golden.npz: an input, and torch's answers to its first n rows,
computed in float64.
Run: python examples/make_demo.py (needs liveshape[export], docs/export.md)
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from executorch.backends.vulkan.partitioner.vulkan_partitioner import VulkanPartitioner
from executorch.exir import to_edge_transform_and_lower
from torch import nn

MAX, WIDTH, HEADS, HIDDEN = 128, 64, 4, 172
LENGTHS = (1, 7, 31, 64, 128)


class Norm(nn.Module):
    """RMSNorm in the form that the exporter fuses."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.rand(WIDTH) + 0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6)) * self.weight


class Block(nn.Module):
    """Attention over the whole sequence, then a gated feed-forward, both with a residual."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = Norm(), Norm()
        self.query, self.key, self.value, self.mix = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(4))
        self.gate, self.up = nn.Linear(WIDTH, HIDDEN, bias=False), nn.Linear(WIDTH, HIDDEN, bias=False)
        self.down = nn.Linear(HIDDEN, WIDTH, bias=False)

    def heads(self, x: torch.Tensor) -> torch.Tensor:
        return x.view(x.shape[1], HEADS, WIDTH // HEADS).permute(1, 0, 2)  # (H, S, D)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.first(x)
        q, k, v = self.heads(self.query(h)), self.heads(self.key(h)), self.heads(self.value(h))
        scores = torch.softmax(torch.bmm(q, k.permute(0, 2, 1)) * (WIDTH // HEADS) ** -0.5, dim=-1)  # (H, S, S)
        mixed = torch.bmm(scores, v).permute(1, 0, 2).reshape(1, x.shape[1], WIDTH)
        x = x + self.mix(mixed)
        h = self.second(x)
        gate = self.gate(h)
        return x + self.down(gate * torch.sigmoid(gate) * self.up(h))


def main() -> None:
    torch.manual_seed(0)
    block = Block().eval()
    x = torch.randn(1, MAX, WIDTH)
    length = torch.export.Dim("length", min=1, max=MAX)
    exported = torch.export.export(block, (x,), dynamic_shapes={"x": {1: length}})
    program = to_edge_transform_and_lower(exported, partitioner=[VulkanPartitioner()]).to_executorch()
    folder = Path(__file__).parent.parent / "liveshape" / "demo"
    folder.mkdir(exist_ok=True)
    (folder / "block.pte").write_bytes(program.buffer)
    exact = block.double()
    with torch.no_grad():
        answers = {f"answer {n}": exact(x[:, :n].double()).float().numpy() for n in LENGTHS}
    np.savez_compressed(folder / "golden.npz", input=x.numpy(), **answers)
    print(f"wrote {folder / 'block.pte'} ({len(program.buffer):,} bytes) and golden.npz")


if __name__ == "__main__":
    main()
