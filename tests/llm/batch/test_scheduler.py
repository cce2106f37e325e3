"""Steps of many sequences against a device of paper: every row reads what its own sequence wrote. No GPU."""

from __future__ import annotations

import itertools
import random
from collections import deque
from collections.abc import Sequence as Tokens

import pytest

from liveshape.errors import InputError
from liveshape.llm.batch.kept_sequence import KeptSequence
from liveshape.llm.batch.pages import PagePool
from liveshape.llm.batch.scheduler import Scheduler, Sequence, Step
from liveshape.llm.engine.speculative import Lookahead

VOCABULARY = 5


def next_token(tokens: Tokens[int]) -> int:
    """A model of paper: depends on every token before."""
    return hash(tuple(tokens)) % VOCABULARY


class Paper:
    """Runs steps: a row of the pool holds all tokens up to its own, if those before it were where the pages say."""

    def __init__(self, pool: PagePool, window: int | None = None) -> None:
        self.pool, self.window = pool, window
        self.rows: dict[int, tuple[int, ...]] = {}
        self.sampled: list[int] = []  # of the step before

    def run(self, step: Step) -> list[int]:
        """The sampled tokens, by line; rows of a step that was not read yet are there."""
        size = self.pool.page_size
        for source, target in step.copies:
            self.rows |= {
                target * size + row: self.rows[source * size + row]
                for row in range(size)
                if source * size + row in self.rows
            }
        found: dict[int, int] = {}
        written: set[int] = set()
        for piece in step.pieces:
            table, tokens = piece.sequence.table, piece.sequence.tokens
            assert table is not None
            stop = piece.start + piece.count
            first = 0 if self.window is None else max(piece.start + 1 - self.window, 0)
            slots = {place: int(slot) for place, slot in enumerate(table.slots(first, stop), first)}
            if piece.source is None:
                given = [*tokens[piece.start : piece.start + piece.count - len(piece.draft)], *piece.draft]
            else:
                assert piece.count == 1
                given = [self.sampled[piece.source]]
            assert len(given) == piece.count
            before = self.rows[slots[piece.start - 1]] if piece.start else ()
            wanted = piece.count - len(piece.lines)
            for place, token in enumerate(given, piece.start):
                before = (*before, token)
                assert slots[place] not in written
                written.add(slots[place])
                assert self.pool.users(slots[place] // size) == 1
                self.rows[slots[place]] = before
                if place - piece.start >= wanted:
                    found[piece.lines[place - piece.start - wanted]] = next_token(before)
            assert {place: self.rows[slot] for place, slot in slots.items()} == {
                place: before[: place + 1] for place in slots
            }
        assert sorted(found) == list(range(step.lines))
        self.sampled = [found[line] for line in range(step.lines)]
        return self.sampled


def alone(prompt: list[int], limit: int) -> list[int]:
    tokens = list(prompt)
    while len(tokens) < limit:
        tokens.append(next_token(tokens))
    return tokens


class Guess:
    """Drafts now and then, right up to some token."""

    def __init__(self, draw: random.Random) -> None:
        self._draw = draw

    def may_draft(self, tokens: Tokens[int]) -> bool:
        return len(tokens) % 3 == 0

    def draft(self, tokens: Tokens[int], token: int, most: int) -> list[int]:
        found = [*tokens, token]
        for _ in range(self._draw.randint(0, most)):
            found.append(next_token(found) if self._draw.random() < 0.8 else self._draw.randrange(VOCABULARY))
        return found[len(tokens) + 1 :]


@pytest.mark.parametrize("seed", range(60))
def test_each_sequence_gets_the_tokens_that_it_has_alone(seed: int) -> None:
    draw = random.Random(seed)
    size = draw.choice([1, 2, 4, 16])
    pool = PagePool(draw.randint(6, 40), size)
    window = draw.choice([None, None, 2, 9])
    scheduler = Scheduler(pool, draw.randint(1, 24), draw.randint(1, 8), draw.choice([None, 3]), window)
    paper = Paper(pool, window)
    prompts = [[draw.randint(0, 1) for _ in range(draw.randint(1, 3 * size + 3))] for _ in range(4)]
    sequences: list[tuple[Sequence, list[int]]] = []
    flights: deque[tuple[Step, list[int]]] = deque()
    ahead = draw.randint(1, 4)
    for turn in itertools.count():
        if turn < 200 and draw.random() < 0.3:
            prompt = draw.choice(prompts) + [draw.randint(0, 1) for _ in range(draw.randint(0, 2))]
            keeps_all = draw.random() < 0.2
            longest = pool.count * size if keeps_all else scheduler.longest
            limit = min(len(prompt) + draw.randint(1, 12), longest + 1)
            if len(prompt) < limit:
                lookahead = Lookahead(Guess(draw), draw.randint(1, 5)) if draw.random() < 0.3 else None
                on_host = draw.random() < 0.2
                sequence = Sequence(prompt, limit, on_host=on_host, lookahead=lookahead, keeps_all=keeps_all)
                scheduler.add(sequence)
                sequences.append((sequence, prompt))
        if draw.random() < 0.03 and sequences:
            scheduler.finish(draw.choice(sequences)[0])
        step = scheduler.schedule()
        if step is not None:
            flights.append((step, paper.run(step)))
            assert step.rows <= scheduler.rows
            assert step.lines <= scheduler.sequences
            assert len(scheduler.running) <= scheduler.sequences
        assert flights or not (scheduler.running or scheduler.waiting)
        # Steps before are read only now: their tokens were on the device.
        while len(flights) > (ahead if step is not None else draw.randint(0, ahead)):
            for sequence, lines in scheduler.read(*flights.popleft()):
                assert lines
                assert len(sequence.tokens) <= sequence.limit
                if len(sequence.tokens) == sequence.limit:
                    scheduler.finish(sequence)
        if turn > 200 and not flights and not scheduler.running and not scheduler.waiting:
            break
    for sequence, prompt in sequences:
        assert sequence.done
        wanted = alone(prompt, sequence.limit)
        assert sequence.tokens == wanted[: len(sequence.tokens)]
    assert pool.in_use == 0


def test_only_rows_of_the_same_tokens_are_shared_with_what_is_continued() -> None:
    pool, kept = PagePool(8, 4), KeptSequence()
    scheduler, paper = Scheduler(pool, 16, 2, kept=[kept]), Paper(pool)
    for tokens, cached in ([1, 2, 3, 4, 1, 2], 0), ([1, 2, 3, 0, 4, 4, 4], 3):
        sequence = Sequence(tokens, len(tokens) + 1, continues=kept)
        scheduler.add(sequence)
        step = scheduler.schedule()
        assert step is not None
        scheduler.read(step, paper.run(step))
        assert (sequence.cached, sequence.tokens[-1]) == (cached, next_token(tokens))
        scheduler.keep(sequence)
        scheduler.finish(sequence)


def test_pages_behind_a_window_are_given_back_unless_sampling_reads_them() -> None:
    pool = PagePool(12, 2)
    scheduler = Scheduler(pool, 3, 1, window=4)
    sequence = Sequence(list(range(40)), 50)
    with pytest.raises(InputError, match="the cache holds 24 in all"):
        scheduler.add(Sequence(sequence.tokens, sequence.limit, keeps_all=True))
    scheduler.add(sequence)
    paper = Paper(pool, 4)
    used = []
    while not sequence.done:
        step = scheduler.schedule()
        assert step is not None
        scheduler.read(step, paper.run(step))
        used.append(pool.in_use)
        if len(sequence.tokens) == sequence.limit:
            scheduler.finish(sequence)
    assert sequence.tokens == alone(list(range(40)), 50)
    assert max(used) <= 4  # three keys before a piece, its three rows, and what of their pages is not seen
    assert pool.in_use == 0


def test_decode_comes_before_prompts_and_prompts_in_their_order() -> None:
    scheduler = Scheduler(PagePool(64, 4), 8, 8)
    first, second, third = (Sequence([number] * 10, 20) for number in range(3))
    for sequence in (first, second, third):
        scheduler.add(sequence)
    assert [(piece.sequence, piece.count) for piece in scheduler.schedule().pieces] == [(first, 8)]  # type: ignore[union-attr]
    step = scheduler.schedule()
    assert step is not None
    assert [(piece.sequence, piece.count, piece.line) for piece in step.pieces] == [(first, 2, 0), (second, 6, None)]
    step = scheduler.schedule()
    assert step is not None
    found = [(piece.sequence, piece.count, piece.source, piece.line) for piece in step.pieces]
    assert found == [(first, 1, 0, 0), (second, 4, None, 1), (third, 3, None, None)]


def test_a_beginning_that_is_being_computed_is_waited_for_and_shared() -> None:
    scheduler = Scheduler(PagePool(64, 4), 64, 8)
    sequences = [Sequence([1] * 12 + [number], 20) for number in range(3)]
    other = Sequence([7] * 5, 9)
    for sequence in (*sequences, other):
        scheduler.add(sequence)
    step = scheduler.schedule()
    assert step is not None
    assert [piece.sequence for piece in step.pieces] == [sequences[0], other]
    step = scheduler.schedule()
    assert step is not None
    assert [(piece.sequence, piece.count) for piece in step.pieces[2:]] == [(each, 1) for each in sequences[1:]]
    assert [sequence.cached for sequence in sequences] == [0, 12, 12]


@pytest.mark.parametrize("length", [1, 2, 8, 10])
def test_answers_to_one_prompt_compute_it_once_and_share_its_pages(length: int) -> None:
    pool = PagePool(64, 4)
    scheduler, paper = Scheduler(pool, 64, 8), Paper(pool)
    prompt = list(range(length))
    sequences = [Sequence(prompt, 20) for _ in range(3)]
    for sequence in sequences:
        scheduler.add(sequence)
    step = scheduler.schedule()
    assert step is not None
    paper.run(step)
    if length == 1:
        assert step.rows == 3
        return
    assert [(piece.sequence, piece.count) for piece in step.pieces] == [(sequences[0], length)]
    step = scheduler.schedule()
    assert step is not None
    paper.run(step)
    assert [(piece.sequence, piece.start) for piece in step.pieces] == [
        (sequences[0], length), (sequences[1], length - 1), (sequences[2], length - 1),
    ]  # fmt: skip
    assert [source for source, _ in step.copies] == [step.pieces[0].table.pages[(length - 1) // 4]] * 2
    full = (length - 1) // 4
    assert len({tuple(piece.table.pages[:full]) for piece in step.pieces}) == 1
    assert [sequence.cached for sequence in sequences] == [0, length - 1, length - 1]


def test_the_youngest_gives_its_pages_and_what_can_never_fit_is_refused() -> None:
    scheduler = Scheduler(PagePool(4, 2), 8, 4)
    with pytest.raises(InputError, match="the cache holds 8 in all"):
        scheduler.add(Sequence([1], 10))
    old, young = Sequence([1, 2, 3], 8), Sequence([4, 5, 6], 8)
    scheduler.add(old)
    scheduler.add(young)
    for _ in range(2):
        step = scheduler.schedule()
        assert step is not None
        scheduler.read(step, [9] * step.lines)
    step = scheduler.schedule()
    assert step is not None
    assert [piece.sequence for piece in step.pieces] == [old]
    assert scheduler.waiting == [young]
    assert scheduler.preemptions == 1
    scheduler.finish(old)
    step = scheduler.schedule()
    assert step is not None
    assert [(piece.sequence, piece.start + piece.count, piece.line) for piece in step.pieces] == [(young, 5, 0)]
