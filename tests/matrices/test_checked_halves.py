"""`liveshape check --activations float16`: nodes that matrix units round, and halves between fused nodes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from liveshape.check.cases import Case
from liveshape.check.checking import Check
from liveshape.check.findings import FUSION, PROGRAM
from liveshape.graph import Graph
from tests.check.mutants import broken
from tests.matrices.opened import with_matrices
from tests.support.blocks import Blocks

pytestmark = pytest.mark.slow
WIDTH, HEADS, LENGTH = 256, 4, 64
CALLS = [(2, LENGTH), (1, 7)]


def block() -> Graph:
    """Attention and a unit with a curve, each behind a norm, whose results products round."""
    chain = Blocks(3)
    x = chain.input((2, LENGTH, WIDTH))
    attended = chain.add(x, chain.linear(chain.attention(chain.layer_norm(x), HEADS), WIDTH))
    unit = chain.gelu(chain.linear(chain.layer_norm(attended), 4 * WIDTH))
    return chain.graph(chain.add(attended, chain.linear(unit, WIDTH)))


def checked() -> Check:
    """A check at every call, with float16 activations."""
    device, limits = with_matrices()
    check = Check(block(), device, limits)
    for batch, length in CALLS:
        check.call([np.random.default_rng(length).standard_normal((batch, length, WIDTH)).astype(np.float32)])
    check.close()
    return check


def test_halves_that_fusion_makes_are_checked() -> None:
    check = checked()
    halves = {each for each in check.fused.tensors if each.dtype == "float16"}
    assert halves, "what products read is stored as float16"
    assert check.found.right, check.found.divergences
    assert not check.found.unknown
    fused = {node.label for node in check.fused.nodes if not halves.isdisjoint((*node.inputs, *node.written))}
    assert fused <= check.found.fused | check.found.checked


def test_a_wrong_kernel_of_halves_is_named_and_replayed(tmp_path: Path) -> None:
    """A norm that rounds its results for products: what the unfused program has of them is no half."""
    device, _ = with_matrices()
    with broken("normalization/layer_norm+nothing + copy", "inverseSqrt(", "1.02 * inverseSqrt("):
        device._pipelines.clear()  # type: ignore[attr-defined]
        found = checked().found
        first = found.divergences[0]
        assert (first.kind, first.node) == (FUSION, "liveshape.layer_norm (node 0)")
        others = [each.node for each in found.divergences if each.kind != PROGRAM]
        assert others == ["liveshape.layer_norm (node 0)", "liveshape.layer_norm (node 21)"]
        assert first.case is not None
        first.case.save(tmp_path / "case.npz")
        case = Case.load(tmp_path / "case.npz")
        assert case.activations == "float16"
        kernels, again = case.replay(device)
        assert [each for each in again.values() if each is not None] == [first.difference]
        assert kernels[0].startswith("normalization/layer_norm+nothing + copy")
    device._pipelines.clear()  # type: ignore[attr-defined]
