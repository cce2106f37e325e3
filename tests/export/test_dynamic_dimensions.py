"""What lowering may not take away: sizes that were asked for. And what is said before anything slow begins."""

from __future__ import annotations

import operator
import threading
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from executorch.backends.vulkan import vulkan_preprocess
from executorch.backends.vulkan.patterns import fusable_patterns
from executorch.exir.dialects._ops import ops as exir_ops
from torch import nn
from torch.export import Dim

from liveshape.errors import UnsupportedError
from liveshape.export.module.dynamic_dimensions import LegalSizes, legal_sizes
from liveshape.export.module.executorch_overrides import overrides
from liveshape.export.module.executorch_road import _refuse_unwritable
from liveshape.export.module.size_decisions import shape_env_of, sizes_stay_dynamic
from liveshape.export.module.tensor_partitions import _refuse_old_reads, _refuse_written_views
from liveshape.export.module.torch_export import ModuleSource, lower
from liveshape.export.module.trace_advice import refuse_experts
from liveshape.export.module.traced_module import signature_of_inputs
from tests.export.live_programs import Cached


class Two(nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.relu(x), y * 2.0


def exported() -> tuple[Any, LegalSizes, Any]:
    """A program of two batches, what is legal, and the two sizes as torch's symbols."""
    shapes = ({0: Dim("batch", min=1, max=16)}, {0: Dim("rows", min=2, max=9)})
    source = ModuleSource(Two(), (torch.ones(16, 4), torch.ones(9, 4)), shapes)
    program = torch.export.export(source.module, source.args, dynamic_shapes=shapes)
    nodes = {node.name: node for node in program.graph.nodes}
    sizes = [nodes[name].meta["val"].shape[0] for name in ("x", "y")]
    return program, legal_sizes(program, signature_of_inputs(source, program)), sizes


PASS = "def decide(a, b): return bool(a(b))"


def asked_by(module: str, question: Any, size: Any) -> bool:
    """A comparison of sizes in the file of another package."""
    space: dict[str, Any] = {"__name__": module}
    exec(PASS, space)
    return bool(space["decide"](question, size))


@pytest.mark.parametrize(
    ("decide", "message"),
    [
        (lambda x, y: int(x), r"batch \(dimension 0 of x\): sizes from 1 to 16 .* made it the number 16"),
        (lambda x, y: x == 16, r"Eq\(batch, 16\) was decided.*ask for another upper bound than 16"),
        (lambda x, y: x > 4, r'made it 5 to 16.*ask for Dim\("batch", min=5, max=16\)'),
        (lambda x, y: 512 * y <= 512 * 9 - 1, r"takes 512\*rows > 4607 for granted in .*:\d+, and rows = 2 is legal"),
        (lambda x, y: x == y + 7, r"takes Eq\(batch, rows \+ 7\) for granted.*results would be wrong there"),
        (lambda x, y: x % 8 == 0, r"takes Eq\(Mod\(batch, 8\), 0\) for granted.*batch = 2 is legal as well"),
    ],
)
def test_a_size_that_lowering_takes_away_is_named(decide: Any, message: str) -> None:
    program, sizes, (x, y) = exported()
    bool(decide(x, y))
    with pytest.raises(UnsupportedError, match=f"(?s){message}"):
        sizes.refuse_lost(program)


def test_what_holds_for_every_size_is_no_loss() -> None:
    program, sizes, (x, y) = exported()
    assert 2 * ((x - 1) // 2) < x  # which torch cannot prove, and guards
    assert x * y >= y
    assert x - 1 != 1  # torch assumes it of every size
    sizes.refuse_lost(program)
    assert len(sizes.shape_env.guards) > sizes.guards


def test_comparisons_of_passes_leave_sizes_as_they_are() -> None:
    program, sizes, (x, y) = exported()
    shape_env = shape_env_of(program)
    own = "executorch.backends.anything"
    with sizes_stay_dynamic(shape_env):
        assert not asked_by(own, lambda size: size == 16, x)  # torch: yes, and from now on it is 16
        assert asked_by(own, lambda size: size != 16, x)
        assert not asked_by(own, lambda size: 512 * size <= 2048, x)  # decided at the upper bound
        assert asked_by(own, lambda size: size == x, x)
        assert asked_by(own, lambda size: size <= 16, x)  # known
        sizes.refuse_lost(program)
        assert not asked_by("torch.anything", lambda size: size < 9, y)  # operators of torch guard, and that is found
        with pytest.raises(UnsupportedError, match=r"rows .*decided in .*dimensions.py:\d+\."):
            sizes.refuse_lost(program)
    assert not {"evaluate_expr", "_get_user_frame"} & vars(shape_env).keys()


def test_overrides_are_put_back_and_wait_for_each_other() -> None:
    program, _, _ = exported()
    names = ("SqueezeUnsqueezeInputs", "FuseViewCopyTransform", "VkGraphBuilder")
    before = [getattr(vulkan_preprocess, name) for name in names]
    graphs = {name: entry.get_graphs_fn for name, entry in fusable_patterns.items()}
    inside, seen = threading.Event(), []

    def other() -> None:
        inside.wait()
        with overrides(program):
            seen.append("other")

    def interrupted() -> None:
        with overrides(program):
            inside.set()
            thread.join(0.05)
            seen.append("first")
            assert fusable_patterns["hf_rope"].get_graphs_fn() == []  # no rotary embedding can be in it
            raise KeyboardInterrupt

    thread = threading.Thread(target=other)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        interrupted()
    thread.join()
    assert seen == ["first", "other"]
    assert [getattr(vulkan_preprocess, name) for name in names] == before
    assert {name: entry.get_graphs_fn for name, entry in fusable_patterns.items()} == graphs


def refused(module: nn.Module, args: tuple[Any, ...], shapes: Any, tmp_path: Path) -> str:
    steps: list[str] = []
    with pytest.raises(UnsupportedError) as caught:
        lower(ModuleSource(module, args, shapes), tmp_path / "model.pte", step=steps.append)
    assert "lowering" not in steps  # the slow part
    return str(caught.value)


class Scripted(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.head = torch.jit.script(nn.Linear(4, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(x)


class Experts(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.histc(x, 4, 0, 4)


def test_what_to_write_instead(tmp_path: Path) -> None:
    rows = Dim("rows", min=1, max=8)
    message = refused(torch.jit.script(nn.Linear(4, 4)), (torch.ones(8, 4),), ({0: rows},), tmp_path)
    assert "the module is a RecursiveScriptModule of torch.jit" in message
    assert "load_state_dict(scripted.state_dict())" in message
    assert "head, a part of the module, is a Rec" in refused(Scripted(), (torch.ones(8, 4),), ({0: rows},), tmp_path)
    pool = nn.Sequential(nn.MaxPool2d(3, 2, ceil_mode=True))
    message = refused(pool, (torch.ones(1, 2, 32, 32),), ({2: Dim("height", min=8, max=32)},), tmp_path)
    assert "0 (MaxPool2d) has ceil_mode=True" in message
    assert "torch.finfo(x.dtype).min" in message
    message = refused(nn.LSTM(4, 3, batch_first=True), (torch.ones(1, 8, 4),), ({1: rows},), tmp_path)
    assert "LSTM is unrolled over time" in message
    assert "nn.LSTMCell" in message
    message = refused(nn.ReLU(), (torch.ones(8),), ({0: Dim("rows", min=1)},), tmp_path)
    assert "rows (dimension 0 of input) has no upper bound" in message
    message = refused(
        type("Experts", (Experts,), {"__module__": "transformers.models.any"})(), (torch.ones(8),), None, tmp_path
    )
    assert 'experts_implementation="batched_mm"' in message
    refuse_experts(Experts(), torch.export.export(Experts(), (torch.ones(8),)))  # histc of one's own may stay


class OldKeys(Cached):
    def forward(self, x: torch.Tensor) -> Any:
        old = self.keys.clone()
        return super().forward(x), old * 2


def test_an_old_value_of_what_is_written_in_place_is_refused() -> None:
    fresh, old = (torch.export.export(each(), (torch.ones(3, 4),)).run_decompositions({}) for each in (Cached, OldKeys))
    _refuse_old_reads(old)  # outside of delegates copies are kept
    for node in (*fresh.graph.nodes, *old.graph.nodes):
        node.meta["delegation_tag"] = "tag0"
    _refuse_old_reads(fresh)
    with pytest.raises(UnsupportedError, match=r"sdpa_with_kv_cache\.default writes keys in place, and clone would"):
        _refuse_old_reads(old)


class WrittenView(nn.Module):
    """Writes a part of a cache of all layers, the cache in another shape, or the cache."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.register_buffer("keys", torch.zeros((1, 8, 16) if kind == "reshaped" else (2, 8, 2, 8)))
        self.kind = kind

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        whole = {"sliced": self.keys[1:2], "reshaped": self.keys.view(-1, 8, 2, 8)}
        torch.ops.llama.update_cache(x, whole.get(self.kind, self.keys), 0)
        return x + self.keys.sum()


@pytest.mark.parametrize("kind", ["sliced", "reshaped", "whole"])
def test_a_view_that_an_operator_writes_in_place_is_refused(kind: str) -> None:
    x = torch.ones(2 if kind == "whole" else 1, 3, 2, 8)
    program = torch.export.export(WrittenView(kind), (x,)).run_decompositions({})
    for node in program.graph.nodes:
        node.meta["delegation_tag"] = "tag0"
    view = r"update_cache\.default writes a view of keys in place \(its argument "
    with nullcontext() if kind == "whole" else pytest.raises(UnsupportedError, match=view):
        _refuse_written_views(program)


def test_operators_that_no_file_can_call() -> None:
    targets = (exir_ops.edge.aten._fft_c2c.default, exir_ops.edge.aten._grouped_mm.default, operator.getitem)
    nodes = [SimpleNamespace(target=target) for target in targets]
    with pytest.raises(UnsupportedError, match=r"torch has none of aten\._grouped_mm\.default: write"):
        _refuse_unwritable(nodes, 1)


def test_the_padding_that_replaces_ceil_mode() -> None:
    for kernel, stride, padding in ((3, 2, 0), (2, 2, 0), (3, 2, 1), (3, 1, 1), (5, 3, 2)):
        for size in range(6, 20):
            x = torch.randn(1, 2, size, size + 1)
            wanted = nn.MaxPool2d(kernel, stride, padding, ceil_mode=True)(x)
            more = (0, stride - 1, 0, stride - 1)
            padded = nn.functional.pad(x, more, value=torch.finfo(x.dtype).min)
            assert torch.equal(nn.MaxPool2d(kernel, stride, padding)(padded), wanted)
