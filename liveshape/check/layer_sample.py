"""Which layers of a model are checked: all of few, and of many the first, the last and some between."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from liveshape.errors import InputError
from liveshape.graph import Graph, Limits
from liveshape.plan.compiling import compile
from liveshape.plan.layers import layers_of
from liveshape.plan.plan import Choices
from liveshape.run.host import compile_with_host

SAMPLED = 3  # layers of a model with more than FEW of them
FEW = 4


@dataclass(frozen=True)
class LayerSample:
    """The layers whose nodes run alone, and those nodes: every other node of the layers is left to the whole."""

    layers: int  # of the model; 0 where none were told apart
    chosen: tuple[int, ...]
    nodes: frozenset[int]  # of the unfused graph, by index


def evenly(layers: int, count: int) -> tuple[int, ...]:
    """The first, the last and layers between, as evenly as can be.

    >>> evenly(30, 3), evenly(8, 1), evenly(2, 5)
    ((0, 14, 29), (0,), (0, 1))
    """
    if count >= layers:
        return tuple(range(layers))
    return (0,) if count == 1 else tuple(place * (layers - 1) // (count - 1) for place in range(count))


def layer_sample(graph: Graph, limits: Limits, count: int | None = None) -> LayerSample:
    """The sample of an unfused graph: `count` layers, or as many as its size suggests.

    Example: `layer_sample(graph, device.limits).chosen`.
    """
    if count is not None and count < 1:
        raise InputError(f"--layers {count}: at least one layer is checked")
    names = None if graph.controls else layers_of(compile_with_host(graph, limits, Choices(warm=False), compile))
    return sample_of(names or [""] * len(graph.nodes), count)


def sample_of(names: Sequence[str], count: int | None) -> LayerSample:
    """The sample of nodes that are in layers of these names, in order; other names are of nodes outside of layers.

    >>> sample_of(["before", *(f"layer {n}" for n in range(9))], None).chosen
    (0, 4, 8)
    """
    layers = list(dict.fromkeys(name for name in names if name.startswith("layer ")))
    wanted = (SAMPLED if len(layers) > FEW else len(layers)) if count is None else count
    chosen = evenly(len(layers), wanted) if layers else ()
    left = {layers[place] for place in range(len(layers)) if place not in chosen}
    return LayerSample(len(layers), chosen, frozenset(index for index, name in enumerate(names) if name not in left))
