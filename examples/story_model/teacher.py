"""The teacher: Karpathy's stories15M (MIT), a llama2.c checkpoint, as plain torch with a static KV cache."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

# cuDNN would build a new plan for every cache length.
BACKENDS = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]
HEADER_BYTES = 28


@dataclass(frozen=True)
class Shape:
    """The seven integers at the head of a llama2.c file."""

    width: int
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    vocabulary: int
    length: int

    def __post_init__(self) -> None:
        assert self.kv_heads == self.heads, f"grouped heads are not supported: {self}"
        assert self.vocabulary > 0, f"only checkpoints that share embedding and head are supported: {self}"

    @property
    def head_width(self) -> int:
        return self.width // self.heads

    def tensors(self) -> dict[str, tuple[int, ...]]:
        """Names and shapes in file order (the rotary tables behind them are recomputed)."""
        width, hidden, layers = self.width, self.hidden, self.layers
        return {
            "embedding": (self.vocabulary, width),
            "attention_norm": (layers, width),
            "query": (layers, width, width),
            "key": (layers, width, width),
            "value": (layers, width, width),
            "mix": (layers, width, width),
            "feed_norm": (layers, width),
            "gate": (layers, hidden, width),
            "down": (layers, width, hidden),
            "up": (layers, hidden, width),
            "norm": (width,),
        }

    def numel(self) -> int:
        """How many weights the file holds."""
        return sum(int(np.prod(shape)) for shape in self.tensors().values())


def read_checkpoint(path: Path) -> tuple[Shape, dict[str, np.ndarray]]:
    """Read a llama2.c file, float32 as published or float16 as `pack_weights.py` writes it.

    >>> shape, weights = read_checkpoint(Path("stories15M.bin"))
    """
    shape = Shape(*np.fromfile(path, dtype=np.int32, count=7).tolist())
    half = path.stat().st_size == HEADER_BYTES + 2 * shape.numel()
    flat = np.fromfile(path, dtype=np.float16 if half else np.float32, count=shape.numel(), offset=HEADER_BYTES)
    if flat.size != shape.numel():
        raise ValueError(f"{path}: {flat.size} weights, {shape} needs {shape.numel()}; fetch the file again")
    weights, start = {}, 0
    for name, dims in shape.tensors().items():
        size = int(np.prod(dims))
        weights[name] = flat[start : start + size].reshape(dims)
        start += size
    return shape, weights


class Teacher:
    """A batch of stories in step: every row is at the same position of one static KV cache.

    >>> teacher = Teacher(Path("stories15M.bin"), batch=2, device="cpu", dtype=torch.float32)
    >>> logits = teacher.forward(torch.ones(2, 1, dtype=torch.long), 0)  # (2, 32000), of the last position
    """

    def __init__(self, path: Path, batch: int, device: str, dtype: torch.dtype) -> None:
        self.shape, weights = read_checkpoint(path)
        tensors = {name: torch.from_numpy(value).to(device, dtype) for name, value in weights.items()}
        self.embedding, self.norm = tensors["embedding"], tensors["norm"]
        self.attention_norm, self.feed_norm = tensors["attention_norm"], tensors["feed_norm"]
        self.mix, self.down = tensors["mix"], tensors["down"]
        # One GEMM for Q, K and V, one for gate and up.
        self.qkv = torch.cat([tensors["query"], tensors["key"], tensors["value"]], dim=1)
        self.gate_up = torch.cat([tensors["gate"], tensors["up"]], dim=1)

        shape = self.shape
        half = shape.head_width // 2
        angle = torch.outer(torch.arange(shape.length), 10000.0 ** (-torch.arange(half) / half))
        self.cos, self.sin = angle.cos().to(device, dtype), angle.sin().to(device, dtype)  # (length, half)
        cache = (shape.layers, batch, shape.heads, shape.length, shape.head_width)
        self.keys = torch.zeros(cache, device=device, dtype=dtype)
        self.values = torch.zeros(cache, device=device, dtype=dtype)

    def forward(self, tokens: torch.Tensor, start: int) -> torch.Tensor:
        """Logits after `tokens` (batch, S) at positions start..start+S; the KV cache is written on the way."""
        shape = self.shape
        batch, steps = tokens.shape
        stop = start + steps
        assert steps == 1 or start == 0, f"{steps} tokens at position {start}: several only at 0"
        x = self.embedding[tokens]  # (batch, S, width)
        cos, sin = self.cos[start:stop], self.sin[start:stop]
        with sdpa_kernel(BACKENDS):
            for layer in range(shape.layers):
                heads = F.linear(rms_norm(x, self.attention_norm[layer]), self.qkv[layer])
                heads = heads.view(batch, steps, 3, shape.heads, shape.head_width).permute(2, 0, 3, 1, 4)
                query, key = rotate(heads[:2], cos, sin)  # (batch, heads, S, head_width)
                keys, values = self.keys[layer, :, :, :stop], self.values[layer, :, :, :stop]
                keys[:, :, start:], values[:, :, start:] = key, heads[2]
                seen = F.scaled_dot_product_attention(query, keys, values, is_causal=steps > 1)
                x = x + F.linear(seen.transpose(1, 2).reshape(batch, steps, shape.width), self.mix[layer])
                gate, up = F.linear(rms_norm(x, self.feed_norm[layer]), self.gate_up[layer]).chunk(2, dim=-1)
                x = x + F.linear(F.silu(gate) * up, self.down[layer])
        return F.linear(rms_norm(x[:, -1], self.norm), self.embedding)


def rms_norm(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """RMSNorm, summed in float32."""
    return F.rms_norm(x.float(), (x.shape[-1],), None, 1e-5).to(x.dtype) * weight


def rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Rotary embedding over neighbouring pairs, as llama2.c lays them out; x is (..., S, head_width)."""
    even, odd = x[..., 0::2], x[..., 1::2]
    return torch.stack((even * cos - odd * sin, even * sin + odd * cos), dim=-1).flatten(-2)
