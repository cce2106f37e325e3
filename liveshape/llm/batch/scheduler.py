"""The scheduler: which rows of which sequences the next step computes. No GPU.

Running sequences decode first, a row each; what is left of the step's rows goes to prompts, first come, first served.
Tokens of steps before may still be on the device: a row then names its line in the last one. When pages run out, the
youngest sequence is preempted: it gives its pages back, waits in front of all others and is computed again.
Sequences of one prompt, such as the answers to one request, compute it once: the first shares all of its pages.

In speculative decoding a sequence decodes several rows at once, its last token and draft tokens after it, where lines
are left over; it waits for what they sample before it goes on.
"""

from __future__ import annotations

import sys
from bisect import insort
from collections import deque
from collections.abc import Iterator
from collections.abc import Sequence as Tokens
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from liveshape.errors import InputError, counted
from liveshape.llm.batch.kept_sequence import KeptSequence
from liveshape.llm.batch.pages import PageCopy, PagePool, PageTable, page_key
from liveshape.llm.engine.common_prefix import common_prefix
from liveshape.llm.engine.speculative import ForcedDrafts, Lookahead

_IN_FLIGHT = 8  # steps at most


class Sequence:
    """One sequence: its tokens, and how far they are computed.

    `limit` is the most tokens that it may have, prompt included. `on_host`: each token is chosen on the host,
    so no step may be submitted before the last one is read. `lookahead` drafts tokens. `keeps_all`: its sampling reads
    all tokens of the history, so no page behind a window is given back. `continues`: it shares the pages of
    those of these tokens that its prompt begins with. `request` is whatever the owner keeps with it.
    """

    def __init__(
        self,
        tokens: list[int],
        limit: int,
        *,
        on_host: bool = False,
        lookahead: Lookahead | ForcedDrafts | None = None,
        keeps_all: bool = False,
        continues: KeptSequence | None = None,
        request: Any = None,
    ) -> None:
        self.tokens = list(tokens)
        self.prompt = page_key(b"", tokens)
        self.shared_rows = len(tokens) - 1  # of sequences with this prompt; the logits of the last are wanted
        self.limit, self.on_host, self.lookahead, self.keeps_all = limit, on_host, lookahead, keeps_all
        self.continues, self.request = continues, request
        self.table: PageTable | None = None  # None while it waits
        self.computed = 0  # rows that are submitted
        self.unread: deque[Piece] = deque()  # of steps in flight, which sample its next tokens
        self.done = False
        self.arrival = 0
        self.admitted = False  # once at least
        self.cached = 0  # tokens of its prompt that were in the pool when it was first admitted

    @property
    def length(self) -> int:
        """Its tokens, with those that are not read yet: one of each step, whatever becomes of draft tokens."""
        return len(self.tokens) + len(self.unread)

    @property
    def missing(self) -> int:
        """Rows that are to be computed before its next token can be sampled; none if that is not read yet."""
        return self.length - self.computed


@dataclass(eq=False, slots=True)  # frozen, it would take three times as long to make, once per token
class Piece:
    """Rows of one sequence in a step: `count` of them from position `start`; the last one samples if it has `lines`.

    `source` is the line of the step before that has the token of its one row, or None where the tokens are known.
    With a `draft`, its last rows are these tokens, and each of them samples, too, in the lines that follow.
    """

    sequence: Sequence
    start: int
    count: int
    source: int | None
    lines: range
    draft: tuple[int, ...] = ()

    @property
    def line(self) -> int | None:
        """The line of what its last row samples, or the last before a draft."""
        return self.lines.start if self.lines else None

    @property
    def table(self) -> PageTable:
        """The pages of its sequence, which runs."""
        assert self.sequence.table is not None
        return self.sequence.table


@dataclass(frozen=True, eq=False)
class Step:
    """What one step computes, decode rows first."""

    pieces: tuple[Piece, ...]
    copies: tuple[PageCopy, ...]

    @property
    def rows(self) -> int:
        """All its rows."""
        return sum(piece.count for piece in self.pieces)

    @property
    def lines(self) -> int:
        """How many tokens it samples."""
        return sum(len(piece.lines) for piece in self.pieces)


@dataclass
class _Building:
    """A step under construction: rows, what of them prompts may take, and lines for drafts are still to give."""

    rows: int
    prompt_rows: int
    draft_lines: int
    pieces: dict[Sequence, tuple[int, int, tuple[int, ...]]] = field(default_factory=dict)  # start, count and draft
    copies: dict[Sequence, list[PageCopy]] = field(default_factory=dict)

    def drop(self, sequence: Sequence) -> None:
        """Take the rows of a sequence back."""
        _, count, draft = self.pieces.pop(sequence, (0, 0, ()))
        self.rows += count
        self.draft_lines += len(draft)
        self.copies.pop(sequence, None)


class Scheduler:
    """Admits, continues and preempts sequences on a pool of pages.

    `rows` bounds a step, `prompt_rows` what of it prompts may take, `sequences` those that run at once. No query sees
    more than the last `window` keys, if there is one: pages behind it are given back. The pages of sequences that are
    `kept` between requests go before anyone is preempted, the least recently used first.
    """

    def __init__(
        self,
        pool: PagePool,
        rows: int,
        sequences: int,
        prompt_rows: int | None = None,
        window: int | None = None,
        kept: list[KeptSequence] | None = None,
    ) -> None:
        self.pool, self.rows, self.window = pool, rows, window
        self.kept = [] if kept is None else kept
        self.prompt_rows = min(rows, prompt_rows or rows)
        self.sequences = min(sequences, rows)
        self.running: list[Sequence] = []  # the oldest first
        self.waiting: list[Sequence] = []  # the oldest first
        self.preemptions = 0
        self._arrivals = count()
        self._last: Step | None = None  # the last step, whose tokens are on the device

    @property
    def longest(self) -> int:
        """The most tokens of a sequence: as many as the pool has rows for, or any number where a window moves along."""
        if self.window is not None:
            # Of a step, and of those before it whose tokens are not read yet.
            seen = self.window + 2 * self.rows + _IN_FLIGHT
            if -(-seen // self.pool.page_size) < self.pool.count:
                return sys.maxsize
        return self._slots

    @property
    def _slots(self) -> int:
        return self.pool.count * self.pool.page_size

    def check(self, sequence: Sequence) -> None:
        """Raise for a sequence that can never fit; its last token needs no row."""
        if not sequence.tokens:
            raise InputError("a sequence needs at least one token")
        most = self._slots if sequence.keeps_all else self.longest
        if sequence.limit - 1 > most:
            raise InputError(
                f"{counted(len(sequence.tokens), 'token')} and up to {sequence.limit - len(sequence.tokens):,} more: "
                f"the cache holds {most:,} in all; ask for fewer, or give it more memory (--cache-size)"
            )

    def add(self, sequence: Sequence) -> None:
        """Queue a sequence; one that can never fit is refused."""
        self.check(sequence)
        sequence.arrival = next(self._arrivals)
        self.waiting.append(sequence)

    def finish(self, sequence: Sequence) -> None:
        """Free the pages of a sequence, which is done or cancelled, wherever it is."""
        sequence.done = True
        if sequence.table is not None:
            sequence.table.release()
            sequence.table = None
            self.running.remove(sequence)
        elif sequence in self.waiting:
            self.waiting.remove(sequence)

    def keep(self, sequence: Sequence) -> None:
        """Let what a sequence continues, if it is still kept, have its rows: those of all tokens but the last, which
        may have none yet."""
        kept, rows = sequence.continues, len(sequence.tokens) - 1
        if kept is None or kept not in self.kept:
            return
        table = None if sequence.table is None else sequence.table.fork()
        if table is not None:
            table.truncate(rows)
        kept.replace(sequence.tokens[:rows], table)
        self._use(kept)

    def _use(self, kept: KeptSequence) -> None:
        """The pages of others go first from now on."""
        if kept in self.kept:
            self.kept.remove(kept)
            self.kept.append(kept)

    def reclaim(self) -> bool:
        """Take the pages of a kept sequence; False if none has any."""
        kept = next((each for each in self.kept if each.table is not None), None)
        if kept is not None:
            kept.drop()
        return kept is not None

    def room_for(self, length: int) -> PageTable | None:
        """Pages for rows that are computed already; None if there are not enough."""
        table = PageTable(self.pool)
        return table if self._makes_room(table, 0, length) and table.reserve(0, length) is not None else None

    def schedule(self) -> Step | None:
        """The next step; None if every sequence waits for a token that is in flight, or there is none."""
        # Each sequence may sample one token, and has a row at least; drafts take what is left.
        requests = min(len(self.running) + len(self.waiting), self.sequences)
        building = _Building(self.rows, self.prompt_rows, self.sequences - requests)
        for sequence in list(self.running):
            if sequence.missing == 1 and sequence.table is not None and self._may_go_on(sequence):
                draft = () if sequence.lookahead is None else self._draft(building, sequence)
                self._place(building, sequence, 1, draft)
        for sequence in self._prompts(building):
            rows = min(sequence.missing, building.rows, building.prompt_rows)
            if self._place(building, sequence, rows):
                building.prompt_rows -= rows
        return self._committed(building)

    def read(self, step: Step, sampled: Tokens[int]) -> list[tuple[Sequence, range]]:
        """Append the tokens that a step sampled, by line; returns the sequences that got some, and their lines.

        Steps are read in their order.
        """
        found = []
        for piece in step.pieces:
            sequence = piece.sequence
            lines = piece.lines
            if not lines:
                continue
            if sequence.unread and sequence.unread[0] is piece:
                sequence.unread.popleft()
            if not sequence.done:
                if piece.draft:
                    lines = lines[: 1 + self._accepted(piece, sampled)]
                sequence.tokens += sampled[lines.start : lines.stop]
                if piece.draft and sequence.table is not None:
                    sequence.computed = len(sequence.tokens) - 1  # rows of what was not accepted are written again
                found.append((sequence, lines))
        return found

    def _accepted(self, piece: Piece, sampled: Tokens[int]) -> int:
        """How many draft tokens are those that were sampled."""
        accepted = common_prefix(piece.draft, [sampled[line] for line in piece.lines])
        assert piece.sequence.lookahead is not None
        piece.sequence.lookahead.record(len(piece.sequence.tokens), len(piece.draft), accepted)
        return accepted

    def _draft(self, building: _Building, sequence: Sequence) -> tuple[int, ...]:
        """Draft tokens of a sequence, as far as lines, rows and pages are there for nothing."""
        if sequence.unread:
            return ()
        assert sequence.table is not None
        assert sequence.lookahead is not None
        length = len(sequence.tokens)
        room = min(building.draft_lines, sequence.limit - length - 1)
        draft = sequence.lookahead.draft(sequence.tokens[:-1], sequence.tokens[-1], room)
        start = sequence.computed
        return draft if sequence.table.has_room(start, start + 1 + len(draft)) else ()

    def _may_go_on(self, sequence: Sequence) -> bool:
        """Whether a row can be submitted: its token is known, or may be taken on the device and more may follow."""
        if not sequence.unread:
            return True
        piece = sequence.unread[-1]
        if sequence.on_host or piece.draft or sequence.length >= sequence.limit:
            return False
        if sequence.lookahead is None:
            return True
        # A sequence that waited for a draft may be of a step before the last, whose tokens are no more on the device.
        on_device = self._last is not None and piece in self._last.pieces
        return on_device and not sequence.lookahead.may_draft(sequence.tokens)

    def _prompts(self, building: _Building) -> Iterator[Sequence]:
        """Sequences with a piece of a prompt to compute, while there are rows: those that run, then those that wait."""
        for sequence in list(self.running):
            if building.rows and building.prompt_rows and sequence.table is not None and sequence.missing > 1:
                yield sequence
        if not self.waiting:
            return
        # Pages that this step computes: who could share them soon waits for the next step.
        computing = {_next_key(sequence) for sequence in building.pieces}
        for sequence in list(self.waiting):
            if not building.rows or not building.prompt_rows or len(self.running) >= self.sequences:
                return
            if sequence.unread:
                continue
            found = self._beginning(sequence)
            if found is None:
                continue
            table, cached = found
            key = table.next_key(sequence.tokens)
            rows = min(len(sequence.tokens) - cached, building.rows, building.prompt_rows)
            shared_soon = key is not None and key in computing and len(sequence.tokens) - cached > 1
            if shared_soon or not self._makes_room(table, cached, cached + rows):
                table.release()
                if shared_soon:
                    continue
                return  # nor is there room for those behind it
            computing.add(key)
            self._admit(sequence, table, cached)
            yield sequence

    def _beginning(self, sequence: Sequence) -> tuple[PageTable, int] | None:
        """What the pool has of a sequence, and how many tokens that are; None while its prompt is being computed.

        Pages that are full are known by their tokens; the last of a prompt is shared with a sequence that runs, or
        with the one that it continues.
        """
        rows, kept = sequence.shared_rows, sequence.continues
        same = [each for each in self.running if each.prompt == sequence.prompt]
        known = [(each.table, rows) for each in same if each.computed >= rows]
        if kept is not None:
            known.append((kept.table, min(common_prefix(kept.tokens, sequence.tokens), rows)))
            self._use(kept)
        back = None if sequence.keeps_all else self.window
        found = [
            (table, count)
            for table, count in known
            if table is not None and table.holds(0 if back is None else count + 1 - back)
        ]
        if not found and any(each.computed < rows for each in same):
            return None
        table = PageTable(self.pool)
        cached = table.reuse(sequence.tokens)
        fork, count = max(found, key=lambda each: each[1], default=(table, 0))
        if cached < count:
            table.release()
            table, cached = fork.fork(), count
            table.truncate(count)
        self._give_up(sequence, table, cached)
        return table, cached

    def _makes_room(self, table: PageTable, start: int, stop: int) -> bool:
        """Whether there are pages to write rows in, those of kept sequences if need be."""
        while not table.has_room(start, stop):
            if not self.reclaim():
                return False
        return True

    def _admit(self, sequence: Sequence, table: PageTable, cached: int) -> None:
        """Let a sequence run, from what the pool has of it."""
        sequence.table, sequence.computed = table, cached
        if not sequence.admitted:
            sequence.admitted, sequence.cached = True, cached
        self.waiting.remove(sequence)
        insort(self.running, sequence, key=_arrival)

    def _place(self, building: _Building, sequence: Sequence, rows: int, draft: tuple[int, ...] = ()) -> bool:
        """Give a sequence rows of the step, and pages for them; preempts the youngest where pages run out."""
        assert sequence.table is not None
        start, rows = sequence.computed, rows + len(draft)
        # Steps that are not read yet may have to be taken back to the last token that is known.
        self._give_up(sequence, sequence.table, min(start, len(sequence.tokens) - 1))
        while (copies := sequence.table.reserve(start, start + rows)) is None:
            if self.reclaim():
                continue
            youngest = self.running[-1]
            building.drop(youngest)
            self._preempt(youngest)
            if youngest is sequence:
                return False
        building.pieces[sequence], building.copies[sequence] = (start, rows, draft), copies
        building.rows -= rows
        building.draft_lines -= len(draft)
        return True

    def _give_up(self, sequence: Sequence, table: PageTable, position: int) -> None:
        """Give the pages back that no query from a position on sees."""
        if self.window is not None and not sequence.keeps_all:
            table.give_up(position + 1 - self.window)

    def _preempt(self, sequence: Sequence) -> None:
        """Take the pages of a sequence; it is computed again as soon as there are some."""
        assert sequence.table is not None
        sequence.table.release()
        sequence.table, sequence.computed = None, 0
        self.running.remove(sequence)
        insort(self.waiting, sequence, key=_arrival)
        self.preemptions += 1

    def _committed(self, building: _Building) -> Step | None:
        """The step that was built; its rows count as computed, since whatever reads them is submitted after it."""
        pieces, lines = [], 0
        for sequence, (start, rows, draft) in building.pieces.items():
            samples = start + rows - len(draft) == sequence.length < sequence.limit
            source = sequence.unread[-1].line if sequence.unread else None
            last = lines + 1 + len(draft) if samples else lines
            piece = Piece(sequence, start, rows, source, range(lines, last), draft)
            pieces.append(piece)
            lines = last
            assert sequence.table is not None
            sequence.computed = start + rows
            if samples:
                sequence.unread.append(piece)
            sequence.table.publish(sequence.tokens, sequence.computed)
        copies = tuple(copy for each in building.copies.values() for copy in each)
        if not pieces:
            return None
        self._last = Step(tuple(pieces), copies)
        return self._last


def _next_key(sequence: Sequence) -> bytes | None:
    return None if sequence.table is None else sequence.table.next_key(sequence.tokens)


def _arrival(sequence: Sequence) -> int:
    return sequence.arrival
