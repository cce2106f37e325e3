"""`liveshape ops`: the list says what the registry has, and what the kernels of an operator really are."""

from __future__ import annotations

import json

import pytest

from liveshape.cli import main
from liveshape.ops import OPS, callable_by_files
from liveshape.plan.compiling import compile
from liveshape.plan.groups import tensors_of
from liveshape.plan.plan import Choices
from liveshape.tools.commands.ops import described, listed
from tests.cli.calls import Capture
from tests.ops.cases import CASES
from tests.support.graphs import build


def test_every_name_that_a_file_may_call_is_listed(capsys: Capture) -> None:
    assert main(["ops", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert {row["name"] for row in rows} == {name for name in OPS if callable_by_files(name)}
    assert all(row["takes"] and row["gives"] and row["dynamic"] and not row["host"] for row in rows)
    assert {row["kind"] for row in rows} == {"delegate", "portable"}


def test_names_and_parts_of_names(capsys: Capture) -> None:
    assert main(["ops", "softmax", "aten::mm.out"]) == 0
    out = capsys.readouterr().out
    assert "aten._softmax.default" in out
    assert "aten::mm.out" in out
    assert "relu" not in out
    assert main(["ops", "aten::linalg_inv_ex.inverse"]) == 0
    assert "ON THE HOST, by torch" in capsys.readouterr().out
    assert main(["ops", "no_such_name"]) == 2
    assert "no operator has 'no_such_name'" in capsys.readouterr().err


def test_an_operator_that_reads_data_and_one_of_numbers() -> None:
    (item,) = listed(["aten::item"])
    assert item.reads_data
    assert item.gives == ("number",)
    assert described(OPS["aten.mm.default"]).takes == ("float32", "float64", "float16", "bfloat16")
    assert described(OPS["aten.mm.default"]).kernels == (
        "matmul/combine_splits", "matmul/few_rows", "matmul/half_lines", "matmul/lane_tiles", "matmul/matrix_tiles",
        "matmul/register_tiles",
        "matmul/tiled",
    )  # fmt: skip


def test_the_document_comes_from_the_command(capsys: Capture) -> None:
    from liveshape.tools.commands.ops import markdown

    assert main(["ops", "--markdown"]) == 0
    assert capsys.readouterr().out == markdown()


@pytest.mark.parametrize("op", sorted({case.op for case in CASES if callable_by_files(case.op)}))
def test_kernels_and_dtypes_are_those_that_an_operator_is_seen_to_use(op: str) -> None:
    told = described(OPS[op])
    case = next(case for case in CASES if case.op == op)
    plan = compile(build(case, max(case.sizes)), choices=Choices(warm=False))
    files = {variant.kernel.file for variant in plan.kernels}
    used = {file.partition("/")[0] if file.startswith("pointwise/") else file for file in files}
    assert used <= set(told.kernels), f"{used - set(told.kernels)} are not listed"
    tensors = tensors_of(plan.graph.nodes[0], plan.scratch[0])
    bound = {tensors[place].dtype for route in plan.routes for _, places in route.dispatched for place in places}
    assert bound <= {*told.takes, *told.gives}, f"{bound} are not all listed"
