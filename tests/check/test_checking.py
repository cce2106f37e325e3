"""Kernels and fusions broken on purpose, one at a time: the check names the node, and never a right one."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from liveshape.check.cases import Case
from liveshape.check.checking import Check
from liveshape.check.differences import difference
from liveshape.check.findings import FUSION, OPERATOR, PLAN, PROGRAM, REPEATED, Found
from liveshape.check.meanings import TWICE
from liveshape.check.node_arguments import read
from liveshape.check.references import expected
from liveshape.device.backends import open_device
from liveshape.errors import FormatError, InputError
from liveshape.graph import Graph, Tensor
from liveshape.kernels import Variant
from liveshape.ops import OPS
from tests.check.broken_fusions import curves
from tests.support.chains import Chain

ROWS, DEPTH, COLUMNS, GROUP = 19, 64, 24, 32
SIZES = (ROWS, 1, 7, 16, ROWS - 1, 2)


def block() -> Graph:
    """An RMSNorm, a 4-bit linear, its activation, a residual add, a softmax, a mean and a matmul."""
    random, chain = np.random.default_rng(0), Chain()
    x, shape = chain.input((1, ROWS, DEPTH)), (1, ROWS, DEPTH)
    norm = chain.node(
        "et_vk.rms_norm.default", x, chain.constant(random.random(DEPTH, np.float32)), 0.1, chain.tensor(shape)
    )
    packed = chain.constant(random.integers(0, 256, (DEPTH, DEPTH // 2), np.uint8))
    scales = chain.constant(random.random((DEPTH // GROUP, DEPTH), np.float32))
    linear = chain.node("et_vk.linear_q4gsw.default", norm, packed, scales, GROUP, None, chain.tensor(shape))
    gelu = chain.node("aten.gelu.default", linear, "none", chain.tensor(shape))
    total = chain.node("aten.add.Tensor", gelu, x, 1, chain.tensor(shape))
    weights = chain.node("aten._softmax.default", total, -1, False, chain.tensor(shape))
    mean = chain.node("aten.mean.dim", weights, (-1,), True, None, chain.tensor((1, ROWS, 1)))
    less = chain.node("aten.sub.Tensor", weights, mean, 1, chain.tensor(shape))
    head = chain.constant(random.standard_normal((COLUMNS, DEPTH)).astype(np.float32))
    return chain.graph(chain.node("aten.linear.default", less, head, None, chain.tensor((1, ROWS, COLUMNS))))


def found_in(graph: Graph, sizes: tuple[int, ...] = SIZES) -> Found:
    device = open_device()
    device._pipelines.clear()  # right kernels of another test
    check = Check(graph, device, device.limits)
    for size in sizes:
        check.call([np.random.default_rng(size).standard_normal((1, size, DEPTH)).astype(np.float32)])
    check.close()
    return check.found


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str, str, str], None]]:
    """Replaces a part of the text of a kernel."""
    source = Variant.source

    def replaced(kernel: str, old: str, new: str) -> None:
        def text(variant: Variant) -> str:
            made: str = source.fget(variant)  # type: ignore[attr-defined]
            if not variant.kernel.name.startswith(kernel):
                return made
            assert old in made, f"{variant.label} has no {old!r}"
            return made.replace(old, new, 1)

        monkeypatch.setattr(Variant, "source", property(text))

    yield replaced
    open_device()._pipelines.clear()


def test_a_right_program_is_right() -> None:
    found = found_in(block())
    assert found.right, found.divergences
    assert (len(found.checked), found.calls) == (8, len(SIZES))
    assert not found.unknown


class Mutant(NamedTuple):
    kernel: str
    old: str
    new: str
    operator: str


MUTANTS = {
    "constant": Mutant("normalization/rms_norm", "inverseSqrt(total", "1.001 * inverseSqrt(total", "rms_norm"),
    "missing term": Mutant("normalization/rms_norm", "+ params.eps", "", "rms_norm"),
    "nibble": Mutant("q4/", "0xf000u", "0x7000u", "linear_q4gsw"),
    "scale": Mutant("q4/", "k / GROUP * params.scale_stride", "0u * params.scale_stride", "linear_q4gsw"),
    "tail": Mutant("pointwise/add", "(params.count - 1u) / 4u", "(params.count - 5u) / 4u", "add.Tensor"),
    "sign": Mutant("pointwise/add", "x0 + x1", "x0 - x1", "add.Tensor"),
}


@pytest.mark.parametrize("mutant", MUTANTS.values(), ids=MUTANTS)
def test_a_broken_kernel_is_named(mutant: Mutant, broken: Callable[[str, str, str], None]) -> None:
    broken(mutant.kernel, mutant.old, mutant.new)
    found = found_in(block(), (ROWS, 7, 1))
    first = found.divergences[0]
    assert (first.kind, mutant.operator in first.operator) == (OPERATOR, True), first
    assert first.kernels[0].startswith(mutant.kernel)
    assert all(each.kernels[0].startswith(mutant.kernel) for each in found.divergences if each.kind != PROGRAM)


def test_a_broken_fusion_is_told_from_a_broken_operator(broken: Callable[[str, str, str], None]) -> None:
    random, chain = np.random.default_rng(0), Chain()
    x, shape = chain.input((1, ROWS, DEPTH)), (1, ROWS, DEPTH)
    packed = chain.constant(random.integers(0, 256, (DEPTH, DEPTH // 2), np.uint8))
    scales = chain.constant(random.random((DEPTH // GROUP, DEPTH), np.float32))
    linear = chain.node("et_vk.linear_q4gsw.default", x, packed, scales, GROUP, None, chain.tensor(shape))
    graph = chain.graph(chain.node("aten.add.Tensor", linear, x, 1, chain.tensor(shape)))
    right = found_in(graph)
    assert (right.right, len(right.checked), len(right.fused)) == (True, 2, 1)
    broken("q4/few_rows+residual", "f32(residual[", "2.0 * f32(residual[")
    first, *others = found_in(graph, (ROWS,)).divergences
    assert (first.kind, first.operator) == (FUSION, "liveshape.residual_linear_q4gsw")
    assert [each.kind for each in others] == [PROGRAM]


def test_a_broken_epilogue_is_named_with_the_nodes_inside_and_replayed(
    broken: Callable[[str, str, str], None], tmp_path: Path
) -> None:
    """The expression of a fused node is generated text as any other; the case of one goes to a file and back."""
    graph, calls = curves()
    broken("matmul/lane_tiles + gelu", "1.0 + epilogue_hyperbolic", "1.5 + epilogue_hyperbolic")
    device = open_device()
    device._pipelines.clear()
    check = Check(graph, device, device.limits)
    check.call(calls[0])
    check.close()
    first = next(each for each in check.found.divergences if each.kind == FUSION)
    assert first.operator == "liveshape.composed"
    assert all(part in first.node for part in ("aten.linear.default (node 0)", "aten.add.Tensor (node 2)"))
    assert "gelu_tanh+add" in first.kernels[0]
    assert not any(each.kind == OPERATOR for each in check.found.divergences)
    assert first.case is not None
    first.case.save(tmp_path / "case.npz")
    _, found = Case.load(tmp_path / "case.npz").replay(device)
    assert [each for each in found.values() if each is not None] == [first.difference]


def loads_and_keeps() -> Any:
    """A norm that loads an expression, and stores its result beside another expression of that."""
    chain = Chain()
    x = chain.input((ROWS, 12))

    def node(operator: str, *given: Any) -> Any:
        return chain.node(operator, *given, chain.tensor((ROWS, 12)))

    normed = node("liveshape.layer_norm", node("aten.abs.default", x), (12,), None, None, 1e-5)
    return chain.graph(normed, node("aten.hardswish.default", normed))


@pytest.mark.parametrize(
    ("old", "new"),
    [("abs(prologue_x0)", "abs(prologue_x0 + 1.0)"), ("clamp(", "2.0 * clamp(")],
    ids=["prologue", "epilogue"],
)
def test_a_broken_prologue_or_second_result_is_named_and_replayed(
    broken: Callable[[str, str, str], None], tmp_path: Path, old: str, new: str
) -> None:
    device = open_device()
    device._pipelines.clear()
    check = Check(loads_and_keeps(), device, device.limits)
    inputs = [np.random.default_rng(0).standard_normal((ROWS, 12)).astype(np.float32)]
    check.call(inputs)
    check.close()
    assert check.found.right
    assert not check.found.unknown, "a norm without statistics has the reference of the whole one"
    assert [len(node.outputs) for node in check.fused.nodes] == [2]
    kernel = "normalization/layer_norm+nothing of abs + "
    broken(kernel, old, new)
    device._pipelines.clear()
    check = Check(loads_and_keeps(), device, device.limits)
    check.call(inputs)
    check.close()
    (first,) = (each for each in check.found.divergences if each.kind == FUSION)
    assert "aten.abs.default (node 0)" in first.node
    assert first.kernels[0].startswith(kernel)
    assert first.case is not None
    first.case.save(tmp_path / "case.npz")
    _, found = Case.load(tmp_path / "case.npz").replay(device)
    assert first.difference in found.values()


def test_what_a_fused_node_means_is_what_its_nodes_mean() -> None:
    """By the table of functions, the reference of the anchor, and the views between."""
    graph, calls = curves()
    device = open_device()
    check = Check(graph, device, device.limits)
    for inputs in calls:
        check.call(inputs)
        known = {**check.known}
        for node in check.fused.nodes:
            if not node.alias:
                found = expected(node, known, {})
                assert all(difference(found[value], known[value], "float32") is None for value in node.written), node
    check.close()
    assert check.found.right
    assert len(check.found.fused) == 3


@pytest.mark.parametrize(
    "argument",
    [
        {"Expression": [{"row": ["int7"]}, {"row": []}, {"row": [{"Applied": ["neg", {"row": [0]}, "int32"]}]}]},
        {"Expression": [{"row": ["int32"]}, {"row": []}, {"row": [{"Applied": ["neg", {"row": [1]}, "int32"]}]}]},
        {"Expression": [{"row": ["int32"]}, {"row": []}, {"row": []}]},
        {"Anchor": ["no.such", {"row": []}, "float32", {"row": []}]},
    ],
    ids=["dtype", "argument", "no calls", "operator"],
)
def test_a_fused_node_of_a_damaged_case_is_refused(argument: Any) -> None:
    with pytest.raises(FormatError):
        read(argument, [])


def test_a_kernel_that_changes_its_mind_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a race does: another result at every call."""
    from liveshape.check import single_node

    run, calls = single_node.SingleNode.run, [0]

    def racing(self: Any, known: Any) -> Any:
        got = run(self, known)
        if self.node.name == "aten.gelu.default":
            calls[0] += 1
            got = {value: array + np.float32(1e-7) * calls[0] for value, array in got.items()}
        return got

    monkeypatch.setattr(single_node.SingleNode, "run", racing)
    (divergence,) = found_in(block(), (ROWS,)).divergences
    assert (divergence.reason, divergence.operator, divergence.kind) == (REPEATED, "aten.gelu.default", OPERATOR)


def test_what_is_not_checked_is_said() -> None:
    chain = Chain()
    x = chain.input((3, 4))
    noise = chain.node("aten.rand_like.default", x, None, None, None, None, None, chain.tensor((3, 4)))
    found = Check(chain.graph(noise), open_device(), open_device().limits)
    found.call([np.ones((2, 4), np.float32)])
    assert not found.found.checked
    assert "nobody can foresee" in next(iter(found.found.unknown.values()))


@pytest.mark.parametrize(
    ("got", "want", "dtype", "same"),
    [
        ([1.0, 2.0], [1.0, 2.0 + 1e-5], "float32", True),
        ([1.0, 2.0], [1.0, 2.01], "float32", False),
        ([np.nan, 1.0], [np.nan, 1.0], "float32", True),
        ([np.nan, 1.0], [0.0, 1.0], "float32", False),
        ([np.inf, 1.0], [-np.inf, 1.0], "float32", False),
        ([0.0, 1.0], [np.inf, 1.0], "float32", False),
        ([1.0], [1.0, 2.0], "float32", False),
        ([], [], "float32", True),
    ],
)
def test_differences(got: list[float], want: list[float], dtype: str, same: bool) -> None:
    assert (difference(np.array(got, np.float32), np.array(want), dtype) is None) == same


def test_integers_differ_by_any_amount_and_quantized_ones_may_round() -> None:
    many = np.zeros(1000, np.int8)
    one = many.copy()
    one[7] = 1
    assert difference(one, many, "int8") is None
    assert difference(one * 2, many, "int8").index == (7,)  # type: ignore[union-attr]
    assert difference(one.astype(np.int32), many.astype(np.int32), "int32").wrong == 1  # type: ignore[union-attr]


def loop() -> Graph:
    """x added up as often as a number says, and made positive where that is more than two."""
    chain = Chain()
    x, count = chain.input((4,)), chain.scalar(given=True, value=1)
    turn, done, many = chain.scalar(), chain.scalar(value=False), chain.scalar(value=False)
    total, more = chain.tensor((4,)), chain.tensor((4,))
    chain.node("aten.sub.Tensor", x, x, 1, total)
    chain.node("aten.add.Tensor", total, x, 1, more)  # node 1, where the loop begins
    chain.node("liveshape.move", more, total)
    chain.node("add", turn, 1, turn)
    chain.node("ge", turn, count, done)
    chain.node("liveshape.jump_false", done, 1, None)
    chain.node("gt", count, 2, many)
    chain.node("liveshape.jump_false", many, 10, None)
    chain.node("aten.abs.default", total, more)
    chain.node("liveshape.move", more, total)
    result = chain.node("aten.relu.default", total, chain.tensor((4,)))
    return chain.graph(result)


def looped(counts: tuple[int, ...]) -> Found:
    device = open_device()
    device._pipelines.clear()
    check = Check(loop(), device, device.limits)
    for count in counts:
        check.call([np.arange(4, dtype=np.float32) - 2, count])
    check.close()
    return check.found


def test_jumps_are_taken_as_the_reference_decides() -> None:
    found = looped((1, 5, 2))
    assert found.right, found.divergences
    assert (found.unreached, len(found.checked)) == (0, 9)
    assert looped((1, 2)).unreached == 2, "the branch of many"


def test_a_wrong_node_in_a_branch_is_named(broken: Callable[[str, str, str], None]) -> None:
    broken("pointwise/abs", "abs(x0)", "1.5 * abs(x0)")
    assert looped((2,)).right, "it is not reached"
    kinds = [(each.kind, each.operator) for each in looped((3,)).divergences]
    assert kinds == [(OPERATOR, "aten.abs.default"), (PROGRAM, "")]


def test_a_plan_that_remembers_an_earlier_call_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a cache does whose key lacks something: the workgroups of the first call, at every later one."""
    from liveshape.plan.plan_state import PlanState

    store = PlanState._store

    def stale(self: Any, slots: Any, computed: Any) -> None:
        pairs = zip(slots, computed, strict=True)
        store(self, slots, [(params, slot.grid if any(slot.grid) else grid) for slot, (params, grid) in pairs])

    assert found_in(block(), (7, ROWS)).planned
    monkeypatch.setattr(PlanState, "_store", stale)
    found = found_in(block(), (7, ROWS))
    first = next(each for each in found.divergences if each.kind == PLAN)
    assert "workgroups of" in first.reason
    assert "in a fresh build" in first.reason
    assert first.kernels
    assert found_in(block(), (7,)).right, "a first call is a fresh build"


def test_a_divergence_is_replayed_alone(broken: Callable[[str, str, str], None], tmp_path: Path) -> None:
    broken("q4/", "0xf000u", "0x7000u")
    first = found_in(block(), (7,)).divergences[0]
    assert first.case is not None
    first.case.save(tmp_path / "case.npz")
    kernels, found = Case.load(tmp_path / "case.npz").replay(open_device())
    assert kernels == list(first.kernels)
    assert [each for each in found.values() if each is not None] == [first.difference]


def test_a_replayed_node_that_is_right_is_right(broken: Callable[[str, str, str], None], tmp_path: Path) -> None:
    broken("normalization/rms_norm", "inverseSqrt(total", "1.001 * inverseSqrt(total")
    first = found_in(block(), (7,)).divergences[0]
    assert first.case is not None
    first.case.save(tmp_path / "case.npz")
    broken("normalization/rms_norm", "inverseSqrt(total", "inverseSqrt(total")
    open_device()._pipelines.clear()
    _, found = Case.load(tmp_path / "case.npz").replay(open_device())
    assert list(found.values()) == [None]


@pytest.mark.parametrize("damage", ["nothing", "text", "meta", "version", "operator", "value"])
def test_a_damaged_case_is_refused(damage: str, tmp_path: Path) -> None:
    path = tmp_path / "case.npz"
    meta: dict[str, Any] = {"version": 1, "operator": "aten.relu.default", "label": "x", "tolerance": 1e-4}
    meta |= {"values": [], "args": [{"value": 7}]}
    if damage == "text":
        path.write_text("no archive")
    elif damage != "nothing":
        meta |= {"version": {"version": 2}, "operator": {"operator": "no.such", "args": []}}.get(damage, {})
        data = b"{" if damage == "meta" else json.dumps(meta).encode()
        np.savez(path, case=np.frombuffer(data, np.uint8))
    with pytest.raises((FormatError, InputError)):
        Case.load(path)


@pytest.mark.parametrize("first", [np.arange(4, dtype=np.float32), None], ids=["of the file", "zeros"])
def test_every_call_begins_with_the_state_of_the_file(first: np.ndarray | None) -> None:
    chain = Chain()
    x = chain.input((4,))
    state = chain.tensor((4,)) if first is None else chain.constant(first)
    total = chain.node("aten.add.Tensor", x, state, 1, chain.tensor((4,)))
    chain.node("liveshape.move", total, state)
    device = open_device()
    check = Check(chain.graph(total), device, device.limits)
    for _ in range(3):
        check.call([np.full(4, 7, np.float32)])
    check.close()
    assert check.found.right, check.found.divergences


def test_a_case_keeps_constants_as_the_file_has_them(tmp_path: Path) -> None:
    """bfloat16 is 16 bits in a file, and float32 in an array."""
    bits = np.array([0x3F80, 0xC000, 0x4040], np.uint16)
    x, out = Tensor("x", "bfloat16", (3,)), Tensor("out", "bfloat16", (3,))
    weight = Tensor("weight", "bfloat16", (3,), constant=memoryview(bits.tobytes()))
    node = OPS["aten.mul.Tensor"].bind(0, "mul", (x, weight, out))
    Case(node, {x: np.ones(3, np.float32)}, {out: np.array([1, -2, 3], np.float32)}, 1e-4).save(tmp_path / "case.npz")
    _, found = Case.load(tmp_path / "case.npz").replay(open_device())
    assert found == {"out": None}


def test_a_graph_without_tensors_has_a_tolerance() -> None:
    chain = Chain()
    number = chain.scalar(given=True)
    graph = chain.graph(chain.node("add", number, 1, chain.scalar()))
    check = Check(graph, open_device(), open_device().limits)
    check.call([3])
    assert check.found.right


@pytest.mark.parametrize(("indices", "compared"), [((0, 3, 2), True), ((0, 3, 0), False)], ids=["apart", "twice"])
def test_one_place_that_is_written_twice_is_left_open(indices: tuple[int, ...], compared: bool) -> None:
    chain = Chain()
    x, index, values = chain.input((5, 4)), chain.input((3,), "int64"), chain.input((3, 4))
    put = chain.node("aten.index_put.default", x, (index,), values, False, chain.tensor((5, 4)))
    device = open_device()
    check = Check(chain.graph(put), device, device.limits)
    random = np.random.default_rng(0)
    rows = [random.standard_normal(shape).astype(np.float32) for shape in ((5, 4), (3, 4))]
    check.call([rows[0], np.array(indices), rows[1]])
    check.close()
    assert check.found.right
    assert bool(check.found.checked) == compared
    assert any(TWICE in why for why in check.found.unknown.values()) != compared
