"""A node keeps the nodes of the file that it came from, through fusion and common subexpressions. No GPU."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from liveshape.formats import DelegateCall, KernelCall, open_program, parse_vkgraph
from liveshape.graph import Graph, Limits
from liveshape.graph.sources import NodeSource, united
from liveshape.graph.traits import Role
from liveshape.llm.program.token_graph import token_graph
from liveshape.lower.activations import with_activations
from liveshape.lower.lowering import lower
from liveshape.lower.pattern_operators import RMS_NORM_LAYERS
from liveshape.ops import OPS
from tests.formats.conftest import exported
from tests.support.llamas import Tiny
from tests.support.llamas import program as written_llama
from tests.support.programs import programs

ROOT = Path(__file__).parents[2]
STORY = ROOT / "liveshape" / "demo" / "story" / "model.pte"
LIMITS = Limits(max_invocations=1024, max_bindings=16, max_workgroup_bytes=32768, max_cooperating_threads=256)


def file_nodes(path: Path) -> set[NodeSource]:
    """What the file computes: portable operators and those of delegates, without what packs constants at load."""
    found: set[NodeSource] = set()
    with open_program(path) as program:
        plan = program.method("forward")
        for position, each in enumerate(plan.instructions):
            if isinstance(each, KernelCall):
                found.add(NodeSource("forward", position, each.op))
            elif isinstance(each, DelegateCall):
                for call in parse_vkgraph(plan.delegates[each.delegate].blob).chain:
                    if OPS[call.name].traits.role is not Role.PREPACK:
                        found.add(NodeSource("forward", position, call.name, each.delegate, call.node_id))
    return found


def lowered(path: Path) -> Graph:
    with open_program(path) as program:
        return lower(program, "forward", {}, LIMITS)


def kept(graph: Graph) -> set[NodeSource]:
    return {source for node in graph.nodes for source in node.sources}


PATHS: Mapping[str, Callable[[], Path]] = {
    "story": lambda: STORY,
    "llama": lambda: written_llama(Tiny("sources_4w")),
    "llama_8da4w": lambda: written_llama(Tiny("sources_8da4w", quantization="8da4w")),
    "portable": lambda: exported("portable") / "program.pte",
    "views": lambda: programs()["views"].pte(),
}


def test_a_fused_layer_leads_back_to_its_file_nodes() -> None:
    graph = with_activations(lowered(STORY), "int8", LIMITS)
    layer = next(node for node in graph.nodes if node.name == RMS_NORM_LAYERS["liveshape.gated_linear_q4gsw"])
    operators = [source.operator for source in layer.sources]
    assert operators.count("et_vk.linear_q4gsw.default") == 2
    assert {"et_vk.rms_norm.default", "aten.sigmoid.default", "aten.mul.Tensor"} <= {*operators}
    assert [source.node for source in layer.sources] == sorted(source.node or 0 for source in layer.sources)
    assert all(str(source).startswith(f"{source.operator} (forward, instruction") for source in layer.sources)


@pytest.mark.parametrize("name", PATHS)
def test_no_node_of_a_file_is_lost(name: str) -> None:
    """What packs constants is dropped at load; everything else is in a node, views and equal nodes among it."""
    path = PATHS[name]()
    graph = lowered(path)
    assert kept(graph) >= file_nodes(path)
    if name == "story":
        assert kept(token_graph(graph, {}).graph) >= file_nodes(path)


def test_equal_nodes_become_one_with_all_sources() -> None:
    graph = lowered(PATHS["llama_8da4w"]())
    shared = [node for node in graph.nodes if node.traits.cheap_to_keep]
    assert any(len(node.sources) > 1 for node in shared)


def test_sources_come_in_the_order_of_the_file_and_once() -> None:
    late, early = NodeSource("forward", 3, "b"), NodeSource("forward", 1, "a", 0, 7)
    assert united([late, early, late]) == (early, late)
