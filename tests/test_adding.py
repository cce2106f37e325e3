"""The walk of docs/adding.md: a stranger's operator, in the lines that the page has, is planned at every live shape, is
known to do the same to each row, and computes what numpy does.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from liveshape.device.backends import open_device
from liveshape.graph import Graph, SymInt, Tensor
from liveshape.graph.live import LiveTensor
from liveshape.graph.traits import CacheRows
from liveshape.llm.program.hoist_last_rows import hoist_last_rows
from liveshape.llm.program.last_logits import keep_last_logits
from liveshape.ops import OPS, op
from tests.support.chains import Chain, executor_of

PAGE = Path(__file__).parent.parent / "docs" / "adding.md"
NAME, OUTSIDE = "mylib.scale_shift.default", "mylib::scale_shift.out"  # inside of a delegate, and outside
ROWS, WIDTH, WORDS = 16, 12, 20
MOST_LINES = 50
random = np.random.default_rng(5)
FACTORS = {name: random.standard_normal(WIDTH).astype(np.float32) for name in ("scale", "shift", "scale 2", "shift 2")}
WEIGHT = random.standard_normal((WORDS, WIDTH)).astype(np.float32)
TABLE = random.standard_normal((30, WIDTH)).astype(np.float32)


@pytest.fixture(scope="module", autouse=True)
def _strangers() -> Any:
    """The lines of the page, run as a module of somebody else's would be."""
    code, *_ = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)  # others export it: test_blocks.py
    assert len(code.splitlines()) <= MOST_LINES
    known = {*OPS}
    exec(compile(code, str(PAGE), "exec"), {"__name__": "mylib"})
    assert OPS.keys() - known == {NAME, OUTSIDE}
    yield
    del OPS[NAME], OPS[OUTSIDE]


def program() -> tuple[Graph, Tensor]:
    """Rows of ids through the operator, the last of them once more, and logits of that."""
    chain = Chain()
    factors = {name: chain.constant(array) for name, array in FACTORS.items()}
    ids = chain.input((1, ROWS), "int64")
    x = chain.node(
        "aten.embedding.default", chain.constant(TABLE), ids, -1, False, False, chain.tensor((1, ROWS, WIDTH))
    )
    y = chain.node(NAME, x, factors["scale"], factors["shift"], chain.tensor((1, ROWS, WIDTH)))
    last = chain.node("aten.select_copy.int", y, 1, -1, chain.tensor((1, WIDTH)))
    z = chain.node(NAME, last, factors["scale 2"], factors["shift 2"], chain.tensor((1, WIDTH)))
    logits = chain.node("aten.linear.default", z, chain.constant(WEIGHT), None, chain.tensor((1, WORDS)))
    return chain.graph(logits), logits


def expected(ids: np.ndarray, rows: int) -> np.ndarray:
    y = TABLE[ids[0]] * FACTORS["scale"] + FACTORS["shift"]
    logits: np.ndarray = ((y * FACTORS["scale 2"] + FACTORS["shift 2"]) @ WEIGHT.T)[-rows:]
    return logits


def test_it_computes_what_numpy_does_at_every_live_shape() -> None:
    graph, _ = program()
    executor = executor_of(graph, open_device())
    for size in (1, 2, 3, 7, 11, ROWS, 5, 1):
        ids = random.integers(0, len(TABLE), (1, size))
        executor.poison()
        np.testing.assert_allclose(executor.execute([ids])[0], expected(ids, 1), rtol=1e-4, atol=1e-4)


def test_its_neighbours_are_rewritten_by_its_trait() -> None:
    """Logits of several rows need every operator behind the last row, and rows are taken before the one in front."""
    graph, logits = program()
    rows = SymInt("rows", 1)
    wide, found = keep_last_logits(graph, logits, rows, 4)
    assert found.max_shape == (4, WORDS)
    early = hoist_last_rows(wide)
    names = [node.name for node in early.nodes]
    assert names.index("liveshape.last_rows") < names.index(NAME)
    given = Graph(early.name, early.nodes, early.values, (*early.inputs, rows), early.outputs)
    executor = executor_of(given, open_device())
    for size, count in ((1, 1), (7, 3), (ROWS, 4), (3, 2), (7, 1)):
        ids = random.integers(0, len(TABLE), (1, size))
        executor.poison()
        np.testing.assert_allclose(executor.execute([ids, count])[0], expected(ids, count), rtol=1e-4, atol=1e-4)
    assert not any("mylib" in path.read_text() for path in (PAGE.parent.parent / "liveshape").rglob("*.py"))


def test_without_the_trait_nothing_is_assumed(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = OPS[NAME]
    monkeypatch.setitem(OPS, NAME, replace(entry, traits=replace(entry.traits, rows=None)))
    graph, logits = program()
    assert keep_last_logits(graph, logits, SymInt("rows", 1), 4) == (graph, logits)


def test_a_trait_that_names_no_parameter_is_an_error_at_import() -> None:
    with pytest.raises(ValueError, match=r"mylib.wrong.default has no parameters \['cache'\]"):

        @op("mylib.wrong.default", cache=CacheRows({"cache": 1}))
        def wrong(x: LiveTensor, out: LiveTensor) -> None: ...
