"""The error for what cannot run: by operator, with counts, and no advice that does not help."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from liveshape import ops
from liveshape.errors import UnsupportedError
from liveshape.formats import open_program
from liveshape.lower.lowering import examine, lower
from liveshape.lower.problems import Problem, by_operator, portable_name, unsupported
from liveshape.ops import OPS
from tests.runtime.files import portable, several


def problem(operator: str, node: int, reason: str = "no kernel") -> Problem:
    return Problem(f"{operator} (node {node})", operator, reason)


def test_problems_are_grouped_and_counted() -> None:
    rare = [problem("aten.rare.default", node) for node in range(7)]
    refused = [problem("aten.mm.default", node, f"kernel takes f32, not int8 (value {node})") for node in (9, 11)]
    tensors = [Problem(f"value {place}", "", "tensors of dtype complex64 are not supported") for place in (1, 2)]
    error = unsupported("forward", [*refused, *rare, *tensors])
    assert str(error).splitlines() == [
        "forward cannot run: 11 parts of it are not supported",
        "  7 x aten.rare.default (node 0, node 1, node 2, and 4 more): no kernel; "
        "it would not run outside of the delegate either",
        "  2 x aten.mm.default (node 9, node 11): kernel takes f32, not int8 (value 9); "
        "it would not run outside of the delegate either",
        "  value 1, value 2: tensors of dtype complex64 are not supported",
    ]
    assert len(error.details) == 11
    assert error.details[0] == ("aten.mm.default (node 9)", "kernel takes f32, not int8 (value 9)")


def test_one_problem_is_one() -> None:
    told = str(unsupported("forward", [problem("aten::rare.out", 3)]))
    assert told == (
        "forward cannot run: 1 part of it is not supported\n  1 x aten::rare.out (node 3): no kernel; "
        "compute it in your module by operators that `liveshape ops` lists"
    )
    # One that is there is refused for a reason of its own, which the list of operators does not lift.
    assert str(unsupported("forward", [problem("aten::mm.out", 3, "not of int8")])).endswith("(node 3): not of int8")


@pytest.mark.parametrize(
    "operator", ["", "move", "constant", "XnnpackBackend", "aten::rare.out", "liveshape.pointwise"]
)
def test_no_word_about_delegates_where_there_is_none(operator: str) -> None:
    assert by_operator([problem(operator, 1)])[0].outside is None


def test_reasons_that_differ_are_all_told_up_to_three() -> None:
    problems = [problem("aten::rare.out", place, f"reason {'abcde'[place]}") for place in range(5)]
    assert "reason a; reason b; reason c; and 2 more" in str(by_operator(problems)[0])


def test_the_name_outside_is_that_of_the_same_operator() -> None:
    """Where one generator has a name of a delegate and one that the rule makes of it, the two are a pair."""
    named = {name: found for name in OPS if "." in name and "::" not in name and (found := portable_name(name))}
    assert len(named) > 60
    assert all(ops.callable_by_files(found) is not None for found in named.values())
    assert portable_name("aten.relu.default") == "aten::relu.out"
    assert portable_name("aten.index_put_.default") == "aten::index_put_"
    assert portable_name("aten.sum.dim_IntList") == "aten::sum.IntList_out"
    assert portable_name("aten.none.default") is None
    assert portable_name("add") is None


def without(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    for name in names:
        monkeypatch.delitem(OPS, name)


def refused(path: Path) -> str:
    with open_program(path) as program, pytest.raises(UnsupportedError) as error:
        lower(program, "forward", {})
    return str(error.value)


def test_a_real_file_is_told_what_leaving_the_delegate_does(monkeypatch: pytest.MonkeyPatch) -> None:
    without(monkeypatch, "aten.add.Tensor", "et_vk.rms_norm.default")
    told = refused(several())
    blocked = r"VulkanPartitioner(operator_blocklist=[exir_ops.edge.aten.add.Tensor])"
    assert f"outside of the delegate it would run: export with {blocked}" in told
    assert "et_vk.rms_norm.default (node" in told
    assert told.count("would not run outside of the delegate either") == 1
    without(monkeypatch, "aten::add.out")
    told = refused(several())
    assert "it would run" not in told
    assert told.count("would not run outside of the delegate either") == 2


def test_the_advice_helps() -> None:
    """What `operator_blocklist` takes out of the delegate is called by the name that was promised."""
    import torch

    from tests.support.exporting import cached
    from tests.support.exporting import lower as export

    def make() -> bytes:
        from executorch.exir.dialects._ops import ops as exir_ops

        return export(torch.nn.Sigmoid(), (torch.randn(4),), operator_blocklist=[exir_ops.edge.aten.sigmoid.default])

    with open_program(cached("problems_blocked", "sigmoid", make)) as program:
        graph, problems = examine(program, "forward", {})
    assert not problems
    assert portable_name("aten.sigmoid.default") in [node.name for node in graph.nodes]


def test_a_portable_file_gets_no_word_about_delegates(monkeypatch: pytest.MonkeyPatch) -> None:
    without(monkeypatch, "aten::add.out")
    told = refused(portable())
    assert "x aten::add.out (instruction" in told
    assert "delegate" not in told


def test_details_name_every_node(monkeypatch: pytest.MonkeyPatch) -> None:
    without(monkeypatch, "aten::add.out")
    with open_program(portable()) as program:
        _, problems = examine(program, "forward", {})
        with pytest.raises(UnsupportedError) as error:
            lower(program, "forward", {})
    pairs: Any = tuple((each.node, each.reason) for each in problems)
    assert error.value.details == pairs
    assert pairs
