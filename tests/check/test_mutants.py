"""The table of broken kernels, in short: `python -m tests.check.mutants` has all of it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from liveshape.graph import Graph
from tests.check.broken_fusions import Inputs, curves, gated, llama
from tests.check.broken_fusions import verdicts as fusion_verdicts
from tests.check.mutants import KINDS, broken, bytes_of, is_named, mutant_of, operators
from tests.support.graphs import OpCase

QUICK = (
    *("aten.relu.default", "aten::cumsum.out", "aten.embedding.default", "aten._softmax.default"),
    "aten::fmod.Tensor_out",  # far quotients, where torch's own float32 gives NaN in some places
)

LAYERS = {"liveshape.residual_linear_q4gsw", "liveshape.gated_linear_q4gsw", "custom_sdpa.default"}


@pytest.mark.parametrize("case", [case for case in operators() if case.op in QUICK], ids=lambda case: case.op)
def test_a_mutant_is_named_and_the_right_operator_is_not(case: OpCase) -> None:
    assert is_named(case) is False
    verdict = mutant_of(case, ())
    assert verdict is not None
    assert verdict.named, verdict
    assert is_named(case) is False, "the right kernel is back"


def test_a_mutant_that_changes_nothing_does_not_count() -> None:
    case = next(case for case in operators() if case.op == "aten::cumsum.out")
    right, kernels = bytes_of(case)
    with broken(kernels[0], KINDS[0][1], KINDS[0][1]):
        assert bytes_of(case)[0] == right


@pytest.mark.parametrize(
    ("made", "operators"),
    [
        (curves, {"liveshape.pointwise", "liveshape.composed"}),
        (gated, {"liveshape.composed", "liveshape.add_rms_norm"}),
        pytest.param(llama, LAYERS, marks=pytest.mark.slow),
    ],
    ids=["curves", "gated", "llama"],
)
def test_a_broken_fusion_is_named(made: Callable[[], tuple[Graph, Inputs]], operators: set[str]) -> None:
    found = list(fusion_verdicts(*made()))
    assert {verdict.operator for verdict in found} >= operators
    assert all(verdict.named for verdict in found), found


@pytest.mark.slow
@pytest.mark.parametrize("case", operators(), ids=lambda case: case.op)
def test_no_right_operator_is_named(case: OpCase) -> None:
    assert not is_named(case)
