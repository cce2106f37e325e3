"""Attention layers with KV caches in the graph, as language models have them: live rows at live positions."""

import torch
from torch import nn

from tests.support.exporting import quiet
from tests.support.programs import MAX, Input, TestProgram, integers, value_of

CAPACITY = 300  # more keys than one workgroup attends to: split-K


class CachedLayers(nn.Module):
    """Neighbours that turn, then attention in one operator; halves that turn, then a cache update and attention."""

    def __init__(self) -> None:
        super().__init__()
        with quiet():
            from executorch.extension.llm.custom_ops import custom_ops  # noqa: F401  (registers torch.ops.llama)
        angles = torch.outer(torch.arange(CAPACITY), 0.5 ** torch.arange(4))
        self.register_buffer("cosine", angles.cos())
        self.register_buffer("sine", angles.sin())
        self.register_buffer("cosine_twice", torch.cat((angles, angles), -1).cos())
        self.register_buffer("sine_twice", torch.cat((angles, angles), -1).sin())
        for name in ("k_first", "v_first", "k_second", "v_second"):
            self.register_buffer(name, torch.zeros(1, CAPACITY, 2, 8))

    def forward(self, q, k, v, pos):
        from executorch.examples.models.llama.rope import apply_rotary_emb, hf_apply_rotary_emb

        p, rows = pos[0].item(), q.shape[1]
        torch._check(p >= 0)
        torch._check(p < CAPACITY)
        torch._check(p + rows <= CAPACITY)
        turned_q, turned_k = apply_rotary_emb(q, k, self.cosine.narrow(0, p, rows), self.sine.narrow(0, p, rows))
        first = torch.ops.llama.sdpa_with_kv_cache(
            turned_q, turned_k, v, self.k_first, self.v_first, p, rows, None, 0.0, True, None
        )
        tables = (table.narrow(0, p, rows) for table in (self.cosine_twice, self.sine_twice))
        turned_q, turned_k = hf_apply_rotary_emb(first, k, *tables)
        torch.ops.llama.update_cache(turned_k, self.k_second, p)
        torch.ops.llama.update_cache(v, self.v_second, p)
        return first, torch.ops.llama.custom_sdpa(turned_q, self.k_second, self.v_second, p, None, 0.0, True)


class PartialRotary(nn.Module):
    """Heads before rows and angles per sequence of a batch, of which a head turns a part: phi, gpt_neox, stablelm."""

    def __init__(self, heads: int, key_heads: int, size: int, turning: int) -> None:
        super().__init__()
        self.heads, self.key_heads, self.size, self.turning = heads, key_heads, size, turning
        self.qkv = nn.Linear(24, (heads + 2 * key_heads) * size)
        self.register_buffer("speeds", 0.5 ** torch.arange(turning // 2))

    def turn(self, x, cosine, sine):
        part, rest = x[..., : self.turning], x[..., self.turning :]
        other = torch.cat((-part[..., self.turning // 2 :], part[..., : self.turning // 2]), dim=-1)
        return torch.cat((part * cosine + other * sine, rest), dim=-1)

    def forward(self, x, positions):
        angles = torch.cat((positions[..., None] * self.speeds,) * 2, dim=-1)
        cosine, sine = angles.cos().unsqueeze(1), angles.sin().unsqueeze(1)
        counts = (self.heads, self.key_heads, self.key_heads)
        parts = self.qkv(x).split([count * self.size for count in counts], dim=-1)
        q, k, v = (part.unflatten(-1, (-1, self.size)).transpose(1, 2) for part in parts)
        q, k = self.turn(q, cosine, sine), self.turn(k, cosine, sine)
        return (q @ k.transpose(2, 3)).softmax(-1) @ v if self.heads == self.key_heads else (q, k)


PROGRAMS = [
    TestProgram(
        "attention/partial_rotary",
        lambda: PartialRotary(heads=2, key_heads=2, size=10, turning=4),
        (Input((2, "S", 24)), Input((2, "S"), torch.int64, integers(0, 90))),
        dims={"S": (1, MAX)},
    ),
    TestProgram(
        "attention/partial_rotary_of_one",
        lambda: PartialRotary(heads=3, key_heads=1, size=8, turning=6),
        (Input((1, "S", 24)), Input((1, "S"), torch.int64, integers(0, 90))),
        dims={"S": (1, MAX)},
    ),
    TestProgram(
        "attention/cached_layers",
        CachedLayers,
        (
            Input((1, "S", 6, 8)),
            Input((1, "S", 2, 8)),
            Input((1, "S", 2, 8)),
            Input((1,), torch.int64, value_of(f"(S * 29) % ({CAPACITY + 1} - S)")),
        ),
        dims={"S": (1, MAX)},
        stateful=True,
    ),
]
