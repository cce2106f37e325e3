"""Which dimensions may be smaller: those that the program plans with, and the results that follow them. No GPU."""

from __future__ import annotations

from dataclasses import replace

from liveshape.formats.signature import InputSignature, Signature, Size
from liveshape.graph import Graph, Tensor
from liveshape.plan.compiling import compile
from liveshape.plan.dimensions import dimensions, literals_like, static_below
from tests.plan.test_engine import add, rms
from tests.support.chains import Chain


def statuses(graph: Graph, signature: Signature | None = None) -> dict[Tensor, str]:
    """The statuses of a tensor as letters: s, d and u."""
    found = dimensions(compile(graph), signature)
    return {tensor: "".join(each.status[0] for each in known) for tensor, known in found.items()}


def test_a_dimension_that_has_the_size_of_another_is_tried_by_itself() -> None:
    chain = Chain()
    x = chain.input((3, 8, 8))
    y = rms(chain, x)
    assert statuses(chain.graph(y)) == {x: "uus", y: "uus"}


def test_the_last_candidate_of_a_dynamic_tensor_is_dynamic_and_others_follow() -> None:
    chain = Chain()
    a, b = chain.input((1, 43, 8)), chain.input((1, 43, 8))
    y = rms(chain, add(chain, a, b))
    assert statuses(chain.graph(y)) == {a: "sds", b: "sds", y: "sds"}


def test_a_size_that_the_program_asks_for_is_dynamic() -> None:
    chain = Chain()
    x = chain.input((6, 7))
    rows = chain.node("sym_size.int", x, 0, chain.scalar())
    y = chain.node("aten.view_copy.default", x, (rows, -1), chain.tensor((6, 7)))
    assert statuses(chain.graph(y)) == {x: "du", y: "du"}


def test_sizes_that_go_in_steps_are_not_static() -> None:
    chain = Chain()
    x = chain.input((24,))
    y = chain.node("aten.view_copy.default", x, (-1, 8), chain.tensor((3, 8)))
    (found,) = dimensions(compile(chain.graph(y)))[x]
    assert (found.status, found.multiple) == ("dynamic", 8)


def test_a_result_that_the_file_calls_static_proves_a_dimension() -> None:
    chain = Chain()
    x = chain.input((6, 8))
    total = chain.node("aten.sum.dim_IntList", x, (0,), False, None, chain.tensor((8,)))
    made = chain.graph(total)
    fixed = replace(total, static=True)
    nodes = tuple(replace(node, args=(*node.args[:-1], fixed)) for node in made.nodes)
    graph = replace(made, nodes=nodes, values=(x, fixed), outputs=(fixed,))
    assert statuses(graph) == {x: "ds", fixed: "s"}
    plan = compile(graph)
    assert static_below(plan, {x: (3, 7)}) == [(x, 1)]
    assert static_below(plan, {x: (3, 8)}) == []


def test_a_signature_is_taken_at_its_word() -> None:
    chain = Chain()
    a, b = chain.input((6, 8)), chain.input((12,))
    y = add(chain, a, a)
    z = add(chain, b, b)
    rows = InputSignature("a", (Size(1, 6, "rows"), Size(8, 8)))
    signature = Signature((rows, InputSignature("b", (Size(2, 12, "rows", 2),))))
    assert statuses(chain.graph(y, z), signature) == {a: "ds", b: "d", y: "ds", z: "d"}


def test_numbers_that_are_a_bound_are_pointed_at() -> None:
    chain = Chain()
    x = chain.input((6, 8))
    y = chain.node("aten.mul.Scalar", x, 8.0, chain.tensor((6, 8)))
    found = literals_like(chain.graph(y), [(x, 0), (x, 1)])
    assert list(found) == [(x, 1)]
    assert found[x, 1].endswith("computes with 8")


def test_a_size_of_a_dimension_that_is_computed_proves_nothing() -> None:
    """The dimension was taken for a number: a foreign error."""
    chain = Chain()
    x = chain.input((6, 7))
    which = chain.node("sym_size.int", x, 1, chain.scalar())
    size = chain.node("sym_size.int", x, which, chain.scalar())
    y = chain.node("aten.view_copy.default", x, (size, -1), chain.tensor((6, 7)))
    assert dimensions(compile(chain.graph(y)))[x][1].status == "dynamic"
