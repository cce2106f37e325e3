"""The pages of a KV cache pool: free, in use by sequences, or kept for the next one with the same tokens. No GPU.

A full page is immutable and has a key, the digest of all tokens up to its end: a sequence that begins with these tokens
shares it. A page that nobody uses keeps its rows until another one is needed; the least recently used goes first.
Where no query sees further back than a window, the pages behind it are given back while a sequence goes on.
"""

from __future__ import annotations

from array import array
from collections import OrderedDict
from collections.abc import Sequence
from hashlib import blake2b
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from liveshape.errors import InputError

Slots = npt.NDArray[np.int32]
NO_PAGE = -1  # in a table: one that was given back, which no kernel reads


class PageCopy(NamedTuple):
    """Rows to be copied from one page to another before the next step writes there (copy on write)."""

    source: int
    target: int


class PagePool:
    """Which of `count` pages are free, and which are known by their tokens.

    >>> pool = PagePool(count=4, page_size=16)
    >>> pool.take(), pool.available
    (0, 3)
    """

    def __init__(self, count: int, page_size: int) -> None:
        if count < 1 or page_size < 1:
            raise InputError(f"a pool of {count} pages of {page_size} rows: it needs at least one of each")
        self.count, self.page_size = count, page_size
        self._users = [0] * count
        self._never_used = list(range(count - 1, -1, -1))
        self._keys: dict[int, bytes] = {}
        self._pages: dict[bytes, int] = {}
        self._idle: OrderedDict[int, None] = OrderedDict()  # nobody's, but known by a key; the next to go first

    @property
    def available(self) -> int:
        """How many pages can be taken."""
        return len(self._never_used) + len(self._idle)

    @property
    def in_use(self) -> int:
        """How many pages have a user."""
        return self.count - self.available

    def users(self, page: int) -> int:
        """How many sequences have a page."""
        return self._users[page]

    def is_shared(self, page: int) -> bool:
        """Whether a page must not be written: another sequence has it, too, or may find it by its key."""
        return self._users[page] > 1 or page in self._keys

    def take(self) -> int | None:
        """A page for one user, of no contents; None if every page has a user."""
        if self._never_used:
            page = self._never_used.pop()
        elif self._idle:
            page, _ = self._idle.popitem(last=False)
            del self._pages[self._keys.pop(page)]
        else:
            return None
        self._users[page] = 1
        return page

    def share(self, page: int) -> None:
        """One user more."""
        self._idle.pop(page, None)
        self._users[page] += 1

    def release(self, page: int) -> None:
        """One user less. A page that nobody has keeps its rows if it has a key."""
        self._users[page] -= 1
        if self._users[page] == 0:
            if page in self._keys:
                self._idle[page] = None
            else:
                self._never_used.append(page)

    def publish(self, page: int, key: bytes) -> None:
        """Make a full page known by its tokens; the first page with these tokens stays the one that is found."""
        if page not in self._keys and key not in self._pages:
            self._keys[page], self._pages[key] = key, page

    def find(self, key: bytes) -> int | None:
        """The page with these tokens, and all before them, if there is one."""
        return self._pages.get(key)


class PageTable:
    """The pages of one sequence, in the order of its tokens.

    >>> table = PageTable(PagePool(count=4, page_size=2))
    >>> table.reserve(0, 3), table.slots(0, 3).tolist()
    ([], [0, 1, 2])
    """

    def __init__(self, pool: PagePool) -> None:
        self.pool = pool
        self.pages = array("i")
        self._behind = 0  # pages at its beginning that were given back
        self._keys: list[bytes] = []  # of the pages that are full, in order

    def reuse(self, tokens: Sequence[int]) -> int:
        """Share the known pages that begin a sequence; returns how many of its tokens they hold.

        The last token is never among them: its logits are wanted.
        """
        size = self.pool.page_size
        for start in range(0, len(tokens) - size, size):
            key = page_key(self._last_key, tokens[start : start + size])
            page = self.pool.find(key)
            if page is None:
                break
            self.pool.share(page)
            self.pages.append(page)
            self._keys.append(key)
        return len(self._keys) * size

    def next_key(self, tokens: Sequence[int]) -> bytes | None:
        """The key of the first page that `reuse` did not find; None if the tokens end before it is full."""
        start = len(self._keys) * self.pool.page_size
        chunk = tokens[start : start + self.pool.page_size]
        return page_key(self._last_key, chunk) if len(chunk) == self.pool.page_size else None

    def has_room(self, start: int, stop: int) -> bool:
        """Whether the pool has what `reserve` would take."""
        shared, missing = self._needed(start, stop)
        return len(shared) + missing <= self.pool.available

    def _needed(self, start: int, stop: int) -> tuple[list[int], int]:
        """Which pages of the table must be copied to write these rows, and how many are missing."""
        size = self.pool.page_size
        last = min(-(-stop // size), len(self.pages))
        shared = [place for place in range(start // size, last) if self.pool.is_shared(self.pages[place])]
        return shared, max(-(-stop // size) - len(self.pages), 0)

    def reserve(self, start: int, stop: int) -> list[PageCopy] | None:
        """Pages to write the rows from `start` to `stop` in, and the copies to be made first.

        None, and nothing taken, if the pool has not enough.
        """
        size = self.pool.page_size
        if start // size + 1 == -(-stop // size) == len(self.pages) and not self.pool.is_shared(self.pages[-1]):
            return []  # as for most rows of decode
        shared, missing = self._needed(start, stop)
        if len(shared) + missing > self.pool.available:
            return None
        copies = []
        for place in shared:
            copies.append(PageCopy(self.pages[place], self._taken()))
            self.pool.release(self.pages[place])
            self.pages[place] = copies[-1].target
        self.pages.extend(self._taken() for _ in range(missing))
        return copies

    def _taken(self) -> int:
        page = self.pool.take()
        assert page is not None
        return page

    def slot(self, position: int) -> int:
        """The row of the pool at a position."""
        page, row = divmod(position, self.pool.page_size)
        return self.pages[page] * self.pool.page_size + row

    def slots(self, start: int, stop: int) -> Slots:
        """The rows of the pool at these positions."""
        size = self.pool.page_size
        positions = np.arange(start, stop)
        return (np.asarray(self.pages, np.int64)[positions // size] * size + positions % size).astype(np.int32)

    def publish(self, tokens: Sequence[int], computed: int | None = None) -> None:
        """Make the pages known that tokens fill; so many of them are computed, or all."""
        size = self.pool.page_size
        length = len(tokens) if computed is None else min(computed, len(tokens))
        for start in range(len(self._keys) * size, length - size + 1, size):
            key = page_key(self._last_key, tokens[start : start + size])
            self._keys.append(key)
            if start // size >= self._behind:
                self.pool.publish(self.pages[start // size], key)

    def give_up(self, position: int) -> None:
        """Give the pages before a position back: no query will see them again."""
        last = min(position // self.pool.page_size, len(self.pages))
        for place in range(self._behind, last):
            self.pool.release(self.pages[place])
            self.pages[place] = NO_PAGE
        self._behind = max(self._behind, last)

    def holds(self, position: int) -> bool:
        """Whether no row from a position on was given back."""
        return self._behind * self.pool.page_size <= max(position, 0)

    def truncate(self, length: int) -> None:
        """Keep the pages of the first `length` tokens."""
        keep = -(-length // self.pool.page_size)
        for page in reversed(self.pages[max(keep, self._behind) :]):
            self.pool.release(page)
        del self.pages[keep:], self._keys[length // self.pool.page_size :]
        self._behind = min(self._behind, keep)

    def fork(self) -> PageTable:
        """A sequence with the same pages; the one that is not full is copied when either writes to it."""
        other = PageTable(self.pool)
        for page in self.pages[self._behind :]:
            self.pool.share(page)
        other.pages, other._behind, other._keys = self.pages[:], self._behind, list(self._keys)
        return other

    def release(self) -> None:
        """Give every page back. The last goes first: without those before it, a page is of no use."""
        self.truncate(0)

    @property
    def _last_key(self) -> bytes:
        return self._keys[-1] if self._keys else b""


def page_key(before: bytes, tokens: Sequence[int]) -> bytes:
    """The digest of a page's tokens and of all before them.

    >>> page_key(b"", [1, 2]) == page_key(b"", (1, 2))
    True
    """
    return blake2b(before + np.asarray(tokens, np.int64).tobytes(), digest_size=16).digest()
