"""Tokens of many sequences at once: each row by its own settings and history gives what `sample` gives it alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from liveshape.device.backends import open_device
from liveshape.errors import ShapeError
from liveshape.llm.sampling_settings import Sampling
from liveshape.ops.sampling import SETTING_COLUMNS
from tests.llm.test_sampling import SETTINGS, Sampler
from tests.support.chains import Chain, executor_of

MOST, SEQUENCES, PAGES, PAGE = 9, 5, 6, 4
CONTEXT = PAGES * PAGE
POOL = 40  # pages
PENALIZED = [Sampling(repetition_penalty=1.4), Sampling(frequency_penalty=1.4, prompt_tokens=3)]
MIXED = [Sampling(), *PENALIZED, *SETTINGS]


class RowSampler:
    """A graph of one sampling operator for rows of many sequences, whose histories lie in pages."""

    def __init__(self, width: int, dtype: str = "float32") -> None:
        chain = Chain()
        logits = chain.input((1, MOST, width), dtype)
        history = chain.input((1, POOL * PAGE), "int32")
        table = chain.input((SEQUENCES, PAGES), "int32")
        settings = chain.input((MOST, len(SETTING_COLUMNS)), "int32")
        flags = [chain.scalar(given=True, value=False) for _ in range(3)]
        rows = chain.scalar(given=True)
        out = chain.tensor((1, MOST), "int32")
        chain.node("liveshape.sample_rows", logits, history, table, PAGE, settings, *flags, rows, out)
        self.executor = executor_of(chain.graph(out), open_device())
        random = np.random.default_rng(width)
        self.history = random.integers(-2, width + 2, (1, POOL * PAGE)).astype(np.int32)
        self.table = random.permutation(POOL)[: SEQUENCES * PAGES].reshape(SEQUENCES, PAGES).astype(np.int32)

    def __call__(self, logits: Any, lines: list[tuple[Sampling, int, int, int]], rows: int | None = None) -> list[int]:
        """The tokens of rows by (settings, number of the draw, sequence, length of its history)."""
        drawn = [sampling for sampling, *_ in lines if not sampling.greedy]
        limited = any(each.top_k or each.top_p < 1 or each.min_p for each in drawn)
        penalized = any(each.penalized and length for each, *_, length in lines)
        self.executor.poison()
        given = [logits, self.history, self.table, settings_of(lines), bool(drawn), limited, penalized]
        found: list[int] = self.executor.execute([*given, len(lines) if rows is None else rows])[0].reshape(-1).tolist()
        return found

    def text(self, sequence: int) -> np.ndarray:
        """The history of a sequence, page by page."""
        return self.history.reshape(-1, PAGE)[self.table[sequence]].reshape(1, -1)


def settings_of(lines: list[tuple[Sampling, int, int, int]]) -> np.ndarray:
    found = np.empty((len(lines), len(SETTING_COLUMNS)), np.int32)
    for line, (sampling, *rest) in zip(found, lines, strict=True):
        for column, name in enumerate(SETTING_COLUMNS[: -len(rest)]):
            value = getattr(sampling, name)
            line[column] = np.array(value, np.float32 if isinstance(value, float) else np.uint32).view(np.int32)
        line[-len(rest) :] = rest
    return found


def sweep(width: int, dtype: str, turns: int) -> None:
    """Random settings beside each other, live rows up and down on one graph, against `sample` for each row alone."""
    by_row, alone = RowSampler(width, dtype), Sampler(width, 1, dtype, CONTEXT)
    random = np.random.default_rng(5)
    for turn in range(turns):
        rows = int(random.integers(1, MOST + 1))
        logits = (random.standard_normal((1, rows, width)) * (0.5, 3, 12)[turn % 3]).astype(dtype)
        logits[0, :, random.integers(0, width, 3)] = np.array([-np.inf, np.nan, np.inf])[turn % 3]
        lines = []
        for _ in range(rows):
            chosen = MIXED[random.integers(len(MIXED))]
            # The first turns have greedy rows alone, and penalized ones beside these.
            sampling = MIXED[turn % 3] if turn < 6 else replace(chosen, seed=int(random.integers(1 << 32)))
            length = int(random.integers(0, CONTEXT + 1))
            lines.append((sampling, length, int(random.integers(SEQUENCES)), length))
        expected = [
            alone(logits[:, [row]], sampling, by_row.text(sequence), length)
            for row, (sampling, length, sequence, _) in enumerate(lines)
        ]
        assert by_row(logits, lines) == expected, f"turn {turn}: {lines}"


def test_rows_are_sampled_as_each_alone() -> None:
    sweep(5003, "float32", 12)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("width", [3, 300, 5003, 40000])
def test_rows_are_sampled_as_each_alone_at_every_width(width: int, dtype: str) -> None:
    sweep(width, dtype, 60)


def test_the_number_of_a_draw_is_its_own() -> None:
    """Rows that differ in the position alone, which is not the length of their history, draw as at that position."""
    by_row, alone = RowSampler(300), Sampler(300)
    logits = np.random.default_rng(1).standard_normal((1, 1, 300)).astype(np.float32).repeat(MOST, 1)
    sampling = Sampling(1.5, seed=7)
    tokens = by_row(logits, [(sampling, 1000 + row, 0, 3) for row in range(MOST)])
    assert tokens == [alone(logits[0, [row]], sampling, length=1000 + row) for row in range(MOST)]
    assert len(set(tokens)) > 2


def test_only_the_first_rows_are_sampled() -> None:
    by_row = RowSampler(300)
    logits = np.random.default_rng(2).standard_normal((1, MOST, 300)).astype(np.float32)
    lines = [(Sampling(), 0, 0, 0)] * MOST
    for rows in (MOST, 3, 1, 0, 5):
        assert by_row(logits, lines, rows) == np.argmax(logits[0, :rows], -1).tolist()


def test_pages_and_sequences_that_are_none_penalize_nothing() -> None:
    by_row = RowSampler(300)
    logits = np.random.default_rng(3).standard_normal((1, 4, 300)).astype(np.float32)
    by_row.table[0] = [-1, POOL, 1 << 30, -(1 << 31), POOL + 1, -5]
    lines = [(Sampling(repetition_penalty=9.0), 1, sequence, CONTEXT) for sequence in (0, -1, SEQUENCES, 0)]
    assert by_row(logits, lines) == np.argmax(logits[0], -1).tolist()


def test_settings_need_a_line_for_every_row() -> None:
    by_row = RowSampler(300)
    with pytest.raises(ShapeError, match=r"settings \(2, 12\): a line of 12 for each of 3 rows is needed"):
        by_row(np.zeros((1, 3, 300), np.float32), [(Sampling(), 0, 0, 0)] * 2, 3)
