"""Every way in which exporters spell attention is one operator, right at every live size, rows that see nothing too."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from liveshape.check.meanings.meaning_table import MEANINGS
from liveshape.device.backends import open_device
from liveshape.graph import Graph, Tensor
from liveshape.lower.fusion import fuse
from tests.support.attention_chains import CALLS, HEADS, KEYS, ROWS, Spelled, Spelling, drawn
from tests.support.attention_modules import KINDS, MultiHead
from tests.support.attention_spellings import LEAST, SPELLINGS, eager, golden, multihead, windows, written
from tests.support.chains import executor_of
from tests.support.model_attention import MODELS
from tests.support.movements import Movements


@pytest.mark.parametrize("name", SPELLINGS)
def test_each_spelling_is_one_operator_and_right(name: str) -> None:
    case = SPELLINGS[name]
    chain, graph = written(case)
    fused = fuse(graph, open_device().limits)
    kinds = [node.name for node in fused.nodes]
    assert kinds.count("liveshape.attention") == 1
    copies = [kind for kind in kinds if kind in ("aten.permute_copy.default", "aten.expand_copy.default")]
    # The program never asks for the sizes of the one's values; the other cuts images into windows and joins them.
    assert len(copies) == {multihead: 1, windows: 4}.get(case.write, 0), kinds
    assert not [kind for kind in kinds if "bmm" in kind or "softmax" in kind or "where" in kind or "add" in kind]
    executor = executor_of(fused, open_device())
    tolerance = 4e-3 if case.floats == "float16" else 2e-5
    generator = np.random.default_rng(len(name))
    for batch, rows, keys in (*CALLS, *reversed(CALLS)):
        batch = min(batch, case.batch)
        inputs = drawn(case, generator, batch, rows, rows if case.itself else keys)
        executor.poison()
        result = executor.execute(inputs)[0].astype(np.float64)
        expected = golden(case, inputs[: len(chain.operands)], *inputs[len(chain.operands) :] or [None])
        np.testing.assert_allclose(result, expected, tolerance, tolerance, err_msg=f"at {(batch, rows, keys)}")
        meant = meaning_of(fused, inputs)
        if meant is not None:
            np.testing.assert_allclose(meant.reshape(expected.shape), expected, tolerance, tolerance)


def meaning_of(graph: Graph, inputs: list[Any]) -> Any:
    """What `check` takes the operator to mean, where it reads inputs."""
    (node,) = (node for node in graph.nodes if node.name == "liveshape.attention")
    given = dict(zip(graph.inputs, inputs, strict=True))
    args = [given.get(each, each) for each in node.args[:-1]]
    if any(isinstance(each, Tensor) for each in args):
        return None
    return MEANINGS[node.name](*args)[0]


def kinds_of(case: Spelling, chain: Spelled, *outputs: Tensor) -> list[str]:
    return [node.name for node in fuse(chain.graph(*outputs), open_device().limits).nodes]


@pytest.mark.parametrize("name", ["sdpa", "eager", "processor"])
def test_scores_that_something_else_reads_are_kept(name: str) -> None:
    case = SPELLINGS[name]
    chain = Spelled(case)
    out = case.write(chain)
    shares = next(node.args[-1] for node in chain.nodes if node.name == "aten._softmax.default")
    assert "liveshape.attention" not in kinds_of(case, chain, out, shares)
    chain = Spelled(case)
    out = case.write(chain)
    scores = next(node.args[-1] for node in chain.nodes if node.name in ("aten.bmm.default", "aten.baddbmm.default"))
    doubled = chain.broadcast("aten.add.Tensor", scores, scores, 1)
    assert "liveshape.attention" not in kinds_of(case, chain, out, doubled)


def masked_before_scaled(chain: Spelled) -> Tensor:
    q, k, v = (chain.split(place) for place in range(3))
    scores = chain.broadcast("aten.add.Tensor", chain.scores(q, chain.permute(k, 0, 1, 3, 2)), chain.mask, 1)
    return chain.merged(chain.mixed(chain.softmax(chain.scaled(scores, 0.5)), v))


def guarded_by_others(chain: Spelled) -> Tensor:
    """A guard that looks at the scores before their mask."""
    q, k, v = (chain.split(place) for place in range(3))
    scores = chain.scores(q, chain.permute(k, 0, 1, 3, 2))
    guard = chain.guarded(scores)
    where = chain.nodes[-1]
    shares = chain.softmax(chain.broadcast("aten.add.Tensor", scores, chain.mask, 1))
    guarded = chain.broadcast("aten.where.self", where.args[0], where.args[1], shares)
    assert guard is not guarded
    return chain.merged(chain.mixed(guarded, v))


def along_rows(chain: Spelled) -> Tensor:
    q, k, v = (chain.split(place) for place in range(3))
    scores = chain.broadcast("aten.add.Tensor", chain.scores(q, chain.permute(k, 0, 1, 3, 2)), chain.mask, 1)
    shares = chain.node("aten._softmax.default", scores, 2, False, chain.tensor(scores.max_shape))
    return chain.merged(chain.mixed(shares, v))


def capped(chain: Spelled) -> Tensor:
    """Gemma 2."""
    q, k, v = (chain.split(place) for place in range(3))
    scores = chain.scaled(chain.scores(q, chain.permute(k, 0, 1, 3, 2)), chain.scale / 50)
    bounded = chain.scaled(chain.node("aten.tanh.default", scores, chain.tensor(scores.max_shape)), 50.0)
    return chain.merged(chain.mixed(chain.softmax(chain.broadcast("aten.add.Tensor", bounded, chain.mask, 1)), v))


def with_sinks(chain: Spelled) -> Tensor:
    """gpt-oss: a score of each head that has no value, and the largest score subtracted."""
    q, k, v = (chain.split(place) for place in range(3))
    scores = chain.scaled(chain.scores(q, chain.permute(k, 0, 1, 3, 2)), chain.scale)
    sinks = chain.expand(chain.constant(np.ones((1, HEADS, 1, 1), np.float32)), chain.batch, HEADS, chain.rows, 1)
    wide = (*scores.max_shape[:-1], KEYS + 1)
    whole = chain.node("aten.cat.default", (scores, sinks), -1, chain.tensor(wide))
    most = chain.node("aten.amax.default", whole, (-1,), True, chain.tensor((*wide[:-1], 1)))
    shares = chain.softmax(chain.broadcast("aten.sub.Tensor", whole, most, 1))
    return chain.merged(chain.mixed(chain.slice(shares, 3, 0, -1), v))


def scaled_by_heads(chain: Spelled) -> Tensor:
    """Swin v2: a learned scale of each head."""
    q, k, v = (chain.split(place) for place in range(3))
    scales = chain.input((HEADS, 1, 1))
    scores = chain.broadcast("aten.mul.Tensor", chain.scores(q, chain.permute(k, 0, 1, 3, 2)), scales)
    return chain.merged(chain.mixed(chain.softmax(scores), v))


def hidden_then_masked(chain: Spelled) -> Tensor:
    """GPT-2 with padding: the least number, and a mask of padding added to it."""
    q, k, v = (chain.split(place) for place in range(3))
    scores = chain.scores(q, chain.permute(k, 0, 1, 3, 2))
    below = chain.input((ROWS, KEYS), "bool")
    scores = chain.broadcast("aten.where.self", below, scores, chain.constant(np.full((), LEAST, np.float32)))
    return chain.merged(chain.mixed(chain.softmax(chain.broadcast("aten.add.Tensor", scores, chain.mask, 1)), v))


def heads_left_out(chain: Spelled) -> Tensor:
    """head_mask: weights are multiplied before the values are."""
    q, k, v = (chain.split(place) for place in range(3))
    shares = chain.softmax(chain.scores(q, chain.permute(k, 0, 1, 3, 2)))
    kept = chain.input((1, HEADS, 1, 1))
    return chain.merged(chain.mixed(chain.broadcast("aten.mul.Tensor", shares, kept), v))


NEARLY = {
    "scores within a bound": capped,
    "sinks": with_sinks,
    "a scale of each head": scaled_by_heads,
    "a mask that is scaled with the scores": masked_before_scaled,
    "the least number, then a mask": hidden_then_masked,
    "a factor of the weights": heads_left_out,
    "a guard of other scores": guarded_by_others,
    "softmax along rows": along_rows,
}


@pytest.mark.parametrize("name", NEARLY)
def test_what_is_nearly_attention_stays(name: str) -> None:
    case = Spelling("", NEARLY[name], ("b", "1", "1", "k"))
    chain = Spelled(case)
    assert "liveshape.attention" not in kinds_of(case, chain, NEARLY[name](chain))


def table_of(title: str) -> list[list[str]]:
    """The cells of the table under a title of docs/attention.md."""
    page = (Path(__file__).parents[2] / "docs/attention.md").read_text(encoding="utf-8")
    section = page.split(f"## {title}\n")[1].split("\n## ")[0]
    rows = [line.strip("| ").split(" | ") for line in section.splitlines() if line.startswith("|")]
    return rows[2:]


def test_the_list_of_spellings_is_what_is_tested() -> None:
    known = set(SPELLINGS) | {kind.__name__ for kind in (*KINDS, *MODELS, MultiHead)}
    rows = table_of("One operator")
    named = [name for row in rows for name in row[2].split(", ")]
    assert set(named) == known, set(named) ^ known
    assert len(named) == len(set(named))
    assert all(len(row) == 3 and row[0] and row[1] for row in rows)
    others = [row[2] for row in table_of("Not one operator, because")]
    assert sorted(others) == sorted(NEARLY | {"test_scores_that_something_else_reads_are_kept": None})


def test_keys_that_are_written_in_between_are_copied_before() -> None:
    case = Spelling("", eager, scale=1.0)
    chain = Spelled(case)
    q, k, v = (chain.split(place) for place in range(3))
    other = chain.input(chain.operands[1].max_shape)
    scores = chain.scores(q, chain.permute(k, 0, 1, 3, 2))
    chain.node("liveshape.move", other, chain.operands[1])
    graph = fuse(chain.graph(chain.merged(chain.mixed(chain.softmax(scores), v))), open_device().limits)
    kinds = [node.name for node in graph.nodes]
    assert kinds.index("liveshape.move") < kinds.index("liveshape.attention")
    (attention,) = (node for node in graph.nodes if node.name == "liveshape.attention")
    assert chain.operands[1] not in attention.inputs
    generator = np.random.default_rng(0)
    first, second = drawn(case, generator, 3, 21, 13), drawn(case, generator, 3, 21, 13)
    result = executor_of(graph, open_device()).execute([*first, second[1]])[0]
    np.testing.assert_allclose(result, golden(case, first, None), 2e-5, 2e-5)


# What GPUs run: blocks of few rows, tiles, by shuffles and without; and sums in one order.
WAYS = {
    "many threads": {"max_cooperating_threads": 256, "lanes": 0, "max_invocations": 128},
    "shuffles": {"max_cooperating_threads": 256, "lanes": 0, "subgroup": 8, "max_invocations": 128},
    "one order": {"one_order": True},
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    "name",
    [
        "sdpa of odd heads", "eager with grouped heads", "one projection", "sdpa of narrow values",
        "sdpa of wide values", "a bias and masked_fill", "windows",
    ],
)  # fmt: skip
def test_every_kernel_reads_along_strides(name: str, way: str) -> None:
    case = SPELLINGS[name]
    chain, graph = written(case)
    limits = replace(open_device().limits, **WAYS[way])
    executor = executor_of(fuse(graph, limits), open_device(limits=limits))
    generator = np.random.default_rng(1)
    for batch, rows, keys in CALLS:
        inputs = drawn(case, generator, batch, rows, rows if case.itself else keys)
        executor.poison()
        expected = golden(case, inputs[: len(chain.operands)], *inputs[len(chain.operands) :] or [None])
        np.testing.assert_allclose(executor.execute(inputs)[0], expected, 2e-5, 2e-5, err_msg=f"{(batch, rows, keys)}")


def test_scores_of_an_operator_with_several_results_stay() -> None:
    chain = Movements()
    scores, values = chain.input((3, 21, 26)), chain.input((3, 13, 8))
    half = chain.tensor((3, 21, 13))
    chain.node("aten.split_with_sizes_copy.default", scores, (13, 13), -1, (half, chain.tensor((3, 21, 13))))
    shares = chain.node("aten._softmax.default", half, -1, False, chain.tensor((3, 21, 13)))
    graph = chain.graph(chain.node("aten.bmm.default", shares, values, chain.tensor((3, 21, 8))))
    assert [node.name for node in fuse(graph, open_device().limits).nodes] == [node.name for node in graph.nodes]
