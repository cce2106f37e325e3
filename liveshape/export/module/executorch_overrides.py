"""What of ExecuTorch and torch is replaced while a program of ours is lowered, and put back afterwards.

Two passes take every size for a number, and the writer of graphs takes no buffer that operators write in place beside
one of which they make the next value. Two searches make up most of the time of a small program: patterns of rotary
embeddings are exported anew for every delegate, and torch walks its whole registry of operators dozens of times.
Another thread that lowers with ExecuTorch meanwhile gets what it would have got, for programs of static sizes.
"""

from __future__ import annotations

import functools
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from executorch.backends.transforms.fuse_view_copy import FuseViewCopyTransform
from executorch.backends.vulkan import vulkan_preprocess
from executorch.backends.vulkan._passes import SqueezeUnsqueezeInputs
from executorch.backends.vulkan.patterns import fusable_patterns
from executorch.backends.vulkan.serialization.vulkan_graph_builder import VkGraphBuilder
from torch._export import utils as registry
from torch.fx import GraphModule, Node

# How often operators occur in the patterns that are slow to make: no program with fewer of them can match.
_LEAST_OPERATORS = {"export_llama_rope": {"aten.mul": 8, "aten.sub": 2}, "hf_rope": {"aten.mul": 4, "aten.neg": 2}}

_lowering = threading.Lock()
_graphs_of = {name: entry.get_graphs_fn for name, entry in fusable_patterns.items()}


class SqueezeStaticInputs(SqueezeUnsqueezeInputs):
    """Squeezes inputs whose sizes are all numbers: it writes sizes into views, where a symbol is no number."""

    def should_squeeze(self, op: Any, shape: Any) -> bool:
        """Whether to compute an operator on fewer dimensions."""
        return all(isinstance(size, int) for size in shape) and super().should_squeeze(op, shape)


class FuseViewsOfKnownSizes(FuseViewCopyTransform):
    """Fuses a chain of views up to the last one whose sizes are computed before the chain begins."""

    def _find_view_copy_chain(self, start_node: Node, ops: list[Any]) -> list[Node]:
        views = super()._find_view_copy_chain(start_node, ops)
        while views and any(isinstance(size, Node) and start_node < size for size in views[-1].args[1]):
            views.pop()
        return views


class AliasingGraphBuilder(VkGraphBuilder):
    """Writes graphs in which a buffer may be its own next value, which needs no alias."""

    def __init__(self, program: Any, *args: Any, **options: Any) -> None:
        super().__init__(program, *args, **options)
        for name in program.graph_signature.inputs_to_buffers:
            self.buffer_mutation_inputs.pop(name, None)


@contextmanager
def overrides(program: Any) -> Iterator[None]:
    """While an exported program is lowered; one program of a process at a time.

    Example: `with overrides(program): to_edge_transform_and_lower(program)`.
    """
    with _lowering, ExitStack() as stack:
        stack.enter_context(_replaced(vulkan_preprocess, "SqueezeUnsqueezeInputs", SqueezeStaticInputs))
        stack.enter_context(_replaced(vulkan_preprocess, "FuseViewCopyTransform", FuseViewsOfKnownSizes))
        stack.enter_context(_replaced(vulkan_preprocess, "VkGraphBuilder", AliasingGraphBuilder))
        registry._materialize_cpp_cia_ops()
        stack.enter_context(_replaced(registry, "_materialize_cpp_cia_ops", lambda: None))
        graphs = [part.graph for part in program.graph_module.modules() if isinstance(part, GraphModule)]
        counts = Counter(str(node.target).rpartition(".")[0].rstrip("_") for graph in graphs for node in graph.nodes)
        for name, entry in fusable_patterns.items():
            if _graphs_of.get(name) is not None:
                least = _LEAST_OPERATORS.get(name, {})
                can_match = all(counts[operator] >= count for operator, count in least.items())
                stack.enter_context(_replaced(entry, "get_graphs_fn", _remembered(name) if can_match else list))
        yield


@functools.cache
def _remembered(name: str) -> Callable[[], list[Any]]:
    return functools.cache(_graphs_of[name])


@contextmanager
def _replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    original = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, original)
