"""Pages: none is lost or given twice, shared ones are never written, and the least recently used go first. No GPU."""

from __future__ import annotations

import random

import pytest

from liveshape.errors import InputError
from liveshape.llm.batch.pages import PagePool, PageTable


def test_a_beginning_is_shared_and_its_last_token_is_computed_again() -> None:
    pool = PagePool(8, 2)
    first = PageTable(pool)
    assert first.reuse([1, 2, 3, 4, 5]) == 0
    assert first.reserve(0, 5) == []
    first.publish([1, 2, 3, 4, 5])
    other = PageTable(pool)
    assert other.reuse([1, 2, 3, 4]) == 2  # the page of 3 and 4 would leave nothing to compute
    assert other.pages == first.pages[:1]
    same = PageTable(pool)
    assert same.reuse([1, 2, 3, 4, 9]) == 4
    assert same.pages == first.pages[:2]
    assert PageTable(pool).reuse([1, 3, 3, 4]) == 0
    assert PageTable(pool).reuse([3, 4, 5]) == 0  # the same tokens behind others
    assert pool.in_use == 3


def test_a_page_that_nobody_uses_is_found_until_it_is_needed() -> None:
    pool = PagePool(3, 2)
    table = PageTable(pool)
    table.reserve(0, 6)
    table.publish([1, 2, 3, 4, 5, 6])
    table.release()
    assert (pool.in_use, pool.available) == (0, 3)
    other = PageTable(pool)
    assert other.reserve(0, 2) == []  # takes the tail: the first pages are of no use without those before them
    again = PageTable(pool)
    assert again.reuse([1, 2, 3, 4, 5, 6, 7]) == 4
    assert PageTable(pool).reserve(0, 1) is None


def test_a_shared_page_is_copied_before_it_is_written() -> None:
    pool = PagePool(4, 4)
    table = PageTable(pool)
    table.reserve(0, 6)
    fork = table.fork()
    ((source, target),) = fork.reserve(6, 7) or []
    assert (source, target) == (table.pages[1], fork.pages[1])
    assert table.reserve(6, 7) == []  # alone again
    assert fork.pages[0] == table.pages[0]
    full = [1, 2, 3, 4]
    table.publish(full)
    table.truncate(3)
    ((source, target),) = table.reserve(3, 4) or []  # its key may be found: it is immutable
    assert source == fork.pages[0] != target
    assert pool.find(next(iter(pool._pages))) == source


def test_pages_behind_a_window_are_free_for_others() -> None:
    pool = PagePool(4, 2)
    table = PageTable(pool)
    table.reserve(0, 7)
    table.publish([1, 2, 3, 4, 5, 6])
    table.give_up(5)
    assert (pool.in_use, table.holds(4), table.holds(3)) == (2, True, False)
    assert PageTable(pool).reuse([1, 2, 3, 4, 5]) == 4  # known until somebody takes them
    fork = table.fork()
    assert [pool.users(page) for page in table.pages[2:]] == [2, 2]
    fork.truncate(5)
    table.release()
    fork.release()
    assert pool.in_use == 2  # those that were found


def test_nothing_is_taken_where_there_is_not_enough() -> None:
    pool = PagePool(3, 2)
    table = PageTable(pool)
    assert table.reserve(0, 4) == []
    assert table.reserve(4, 8) is None
    assert (len(table.pages), pool.available) == (2, 1)
    with pytest.raises(InputError, match="at least one"):
        PagePool(0, 16)


@pytest.mark.parametrize("seed", range(20))
def test_random_sequences_keep_every_page_accounted_for(seed: int) -> None:
    """Each slot that is written belongs to the writer alone, and reads give what was written there."""
    draw = random.Random(seed)
    size = draw.choice([1, 2, 3, 16])
    pool = PagePool(draw.randint(4, 24), size)
    rows: dict[int, tuple[int, ...]] = {}  # by slot: all tokens up to this one
    tables: list[tuple[PageTable, list[int]]] = []

    def check(table: PageTable, tokens: list[int]) -> None:
        assert [rows[slot] for slot in table.slots(0, len(tokens))] == [
            tuple(tokens[: place + 1]) for place in range(len(tokens))
        ]

    for _ in range(300):
        action = draw.random()
        if action < 0.3 or not tables:
            tokens = [draw.randint(0, 1) for _ in range(draw.randint(1, 4 * size))]
            table = PageTable(pool)
            cached = table.reuse(tokens)
            assert cached < len(tokens)
            check(table, tokens[:cached])
            tables.append((table, tokens[:cached]))
            more = tokens[cached:]
        else:
            table, tokens = draw.choice(tables)
            more = [draw.randint(0, 1) for _ in range(draw.randint(0, 2 * size))]
            if action < 0.5:
                tables.append((table.fork(), list(tokens)))
                more = []
            elif action < 0.6:
                del tokens[draw.randint(0, len(tokens)) :]
                table.truncate(len(tokens))
            elif action < 0.75:
                table.release()
                tables = [row for row in tables if row[0] is not table]
                continue
        table, tokens = next(row for row in tables if row[0] is table) if action >= 0.3 else tables[-1]
        copies = table.reserve(len(tokens), len(tokens) + len(more))
        if copies is None:
            continue
        for source, target in copies:
            for row in range(size):
                if source * size + row in rows:
                    rows[target * size + row] = rows[source * size + row]
        start = len(tokens)
        tokens += more
        for place, slot in enumerate(table.slots(start, len(tokens)), start):
            assert pool.users(slot // size) == 1
            rows[int(slot)] = tuple(tokens[: place + 1])
        if draw.random() < 0.7:
            table.publish(tokens)
        for other, held in tables:
            check(other, held)
        used = {page for other, _ in tables for page in other.pages}
        assert pool.in_use == len(used)
    for table, _ in tables:
        table.release()
    assert (pool.in_use, pool.available) == (0, pool.count)
