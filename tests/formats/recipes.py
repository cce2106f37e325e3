"""The programs that the format tests read, made by ExecuTorch; torch is imported only when one has to be made."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def export_rms_norm(folder: Path) -> None:
    """One delegate with a dynamic dimension."""
    import torch

    class Module(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.rand(64))

        def forward(self, x: Any) -> Any:
            return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6) * self.weight

    _write(folder, _lower(_export(Module(), 64)))


def export_split(folder: Path) -> None:
    """Two delegates around operators that stay portable."""
    _write(folder, _lower(_export(_split_module(), 64)))


def export_inline(folder: Path) -> None:
    """The split program with its delegates inside of the flatbuffer."""
    _write(folder, _lower(_export(_split_module(), 64)), extract_delegate_segments=False)


def export_kv_cache(folder: Path) -> None:
    """Buffers that an operator mutates, and an integer read from a tensor."""
    import torch
    from executorch.extension.llm.custom_ops import custom_ops  # noqa: F401

    class Module(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("k_cache", torch.zeros(1, 32, 2, 8))
            self.register_buffer("v_cache", torch.zeros(1, 32, 2, 8))

        def forward(self, q: Any, k: Any, v: Any, position: Any) -> Any:
            start = position[0].item()
            torch._check(start >= 0)
            torch._check(start + q.size(1) <= 32)
            return torch.ops.llama.sdpa_with_kv_cache(
                q, k, v, self.k_cache, self.v_cache, start, q.size(1), None, 0.0, True, None
            )

    rows = torch.export.Dim("s", min=1, max=16)
    dynamic = {"q": {1: rows}, "k": {1: rows}, "v": {1: rows}, "position": None}
    inputs = (torch.randn(1, 16, 4, 8), torch.randn(1, 16, 2, 8), torch.randn(1, 16, 2, 8), torch.tensor([0]))
    _write(folder, _lower(torch.export.export(Module(), inputs, dynamic_shapes=dynamic)))


def export_methods(folder: Path) -> None:
    """Two methods that share weights, and methods that only return a constant."""
    import torch

    linear = torch.nn.Linear(64, 32)

    class First(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = linear

        def forward(self, x: Any) -> Any:
            return self.linear(x)

    class Second(First):
        def forward(self, x: Any) -> Any:
            return torch.sigmoid(self.linear(x)) * 2.0

    programs = {"forward": _export(First(), 64), "gate": _export(Second(), 64)}
    constants = {"get_max_seq_len": 128, "get_name": "liveshape", "get_scale": 0.5, "use_kv_cache": True}
    _write(folder, _lower(programs, constant_methods={**constants, "get_eos_ids": [1, 2, 3]}))


def export_portable(folder: Path) -> None:
    """No delegate: constants, a buffer with an initial state, lists of every kind, and a branch."""
    import torch
    from executorch.exir import to_edge
    from executorch.exir.passes.init_mutable_pass import InitializedMutableBufferPass

    class Module(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("state", torch.arange(6, dtype=torch.float32).reshape(2, 3))
            self.register_buffer("rows", torch.tensor([1, 0]))
            self.weight = torch.nn.Parameter(torch.rand(3, 3))

        def forward(self, x: Any, flag: Any) -> Any:
            self.state.add_(x)
            y = torch.cat([self.state @ self.weight, x], dim=0)
            y = torch.cond(flag, lambda t: t + 1, lambda t: t * 2, (y,))
            return y[self.rows], y[:, self.rows].mean([0, 1]), y.repeat_interleave(2).view(2, 12)

    flag = torch.tensor(True)
    edge = to_edge(torch.export.export(Module(), (torch.randn(2, 3), flag)))
    _write(folder, edge, passes=[InitializedMutableBufferPass(["state"])], emit_mutable_buffer_names=True)


def export_external(folder: Path) -> None:
    """A portable program whose weights are in a `.ptd`, with layouts."""
    import torch
    from executorch.exir import to_edge

    _write(folder, to_edge(torch.export.export(torch.nn.Linear(5, 3), (torch.randn(2, 5),))), external_constants=True)


def export_external_delegate(folder: Path) -> None:
    """A delegate whose weights are in a `.ptd`, as plain bytes."""
    _write(folder, _lower(_export(_split_module(), 64), options={"external_constants_max_data_bytes": 1 << 30}))


def export_fp16(folder: Path) -> None:
    """A delegate that computes in half precision, with lists of every kind and an empty buffer."""
    import torch

    class Module(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("tail", torch.arange(128, dtype=torch.float32)[64:])
            self.register_buffer("nothing", torch.zeros(0, 64))

        def forward(self, x: Any) -> Any:
            x = x.view(x.size(0), x.size(1), 4, 16).permute(0, 2, 1, 3)
            head, rest = torch.split(x, [1, 3], dim=1)
            return torch.cat([rest, head], dim=1) + self.tail.view(4, 1, 16), x.to(torch.int32).to(torch.bool)

    _write(folder, _lower(_export(Module(), 64), options={"force_fp16": True}))


def export_view_constant(folder: Path) -> None:
    """A buffer that starts in the middle of its storage: the exporter writes the storage from its beginning, whole."""
    import torch

    class Module(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("tail", torch.arange(128, dtype=torch.float32)[64:])

        def forward(self, x: Any) -> Any:
            return x + self.tail

    _write(folder, _lower(_export(Module(), 64)))


def make(name: str, folder: Path) -> None:
    """Export the program of this name as `program.pte` in a folder, with its `.ptd` files beside it."""
    import torch

    from tests.support.exporting import quiet

    torch.manual_seed(0)
    with quiet():
        RECIPES[name](folder)


RECIPES = {
    "rms_norm": export_rms_norm,
    "split": export_split,
    "inline": export_inline,
    "kv_cache": export_kv_cache,
    "methods": export_methods,
    "portable": export_portable,
    "external": export_external,
    "external_delegate": export_external_delegate,
    "fp16": export_fp16,
    "view_constant": export_view_constant,
}


def _split_module() -> Any:
    import torch

    class Module(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.rand(64))
            self.linear = torch.nn.Linear(64, 64)

        def forward(self, x: Any) -> Any:
            return x + self.linear(torch.nn.functional.rms_norm(x, (64,), self.weight, 1e-5))

    return Module()


def _export(module: Any, width: int) -> Any:
    import torch

    rows = torch.export.Dim("s", min=1, max=128)
    return torch.export.export(module, (torch.randn(1, 128, width),), dynamic_shapes={"x": {1: rows}})


def _lower(program: Any, options: dict[str, Any] | None = None, **keywords: Any) -> Any:
    from executorch.backends.vulkan.partitioner.vulkan_partitioner import VulkanPartitioner
    from executorch.exir import to_edge_transform_and_lower

    from tests.support.exporting import remember_patterns

    remember_patterns()
    return to_edge_transform_and_lower(program, partitioner=[VulkanPartitioner(options or {})], **keywords)


def _write(folder: Path, edge: Any, **config: Any) -> None:
    from executorch.exir import ExecutorchBackendConfig

    program = edge.to_executorch(ExecutorchBackendConfig(**config))
    with open(folder / "program.pte", "wb") as file:
        program.write_to_file(file)
    program.write_tensor_data_to_file(str(folder))
