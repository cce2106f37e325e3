"""A sequence of a caller's own on an engine of many: generation goes on from its tokens; fork, truncate, save, restore.

All of these are cheap: sequences share pages, and of what two of them have in common at most one page is copied.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator, Sequence
from contextlib import aclosing, contextmanager
from functools import partial
from typing import Unpack

from liveshape.errors import InputError, counted
from liveshape.formats.whole_file import place_of
from liveshape.llm.arguments import token_ids
from liveshape.llm.batch.kept_sequence import KeptSequence
from liveshape.llm.batch.page_transfer import layout_of, read_rows, write_rows
from liveshape.llm.batch.pages import PageTable
from liveshape.llm.batch.runner import BatchRunner
from liveshape.llm.batch.scheduler import Scheduler
from liveshape.llm.engine import cache_file
from liveshape.llm.engine.cache_file import Expected, Saved
from liveshape.llm.generation.options import NAMES, GenerationOptions
from liveshape.llm.serving.async_engine import AsyncEngine
from liveshape.llm.serving.batch_engine import BatchEngine
from liveshape.llm.serving.deferred_answer import DeferredAnswer
from liveshape.llm.serving.queued_answer import QueuedAnswer
from liveshape.option_names import checks_options


class EngineSequence:
    """Tokens whose rows stay in the pages of an engine between requests, while there is room; else they are computed
    again. Like a LanguageModel it has all tokens of an answer but the last one, which the next call may give.

    Example: `sequence = EngineSequence(engine); answer = sequence.generate(ids, max_tokens=20)`.
    """

    def __init__(self, engine: AsyncEngine, kept: KeptSequence | None = None) -> None:
        if not isinstance(engine, BatchEngine):
            raise InputError(
                "this engine runs one sequence at a time and keeps none; a LanguageModel forks, saves, ..."
            )
        self._engine, self._kept = engine, kept or KeptSequence()
        self._answer: QueuedAnswer | DeferredAnswer | None = None
        self._transferring = False  # between the device and a file
        engine.locked(lambda scheduler: scheduler.kept.append(self._kept))

    @property
    def tokens(self) -> tuple[int, ...]:
        """Its tokens."""
        return self._engine.locked(lambda _: tuple(self._kept.tokens))

    @property
    def position(self) -> int:
        """The number of its tokens."""
        return len(self._kept.tokens)

    @checks_options(*NAMES)
    def generate(self, ids: Sequence[int] = (), **options: Unpack[GenerationOptions]) -> QueuedAnswer | DeferredAnswer:
        """Append token ids and what follows them, as `AsyncEngine.generate` does.

        An answer that fails, or is closed while the engine is at work on it, leaves the sequence as it was. The engine
        does not wait for its reader: one that it has ended is part of the sequence, however much of it was read.

        Example: `async for response in sequence.generate(tokenizer.encode(" there was")): ...`.
        """
        self._check_idle()
        answer = self._engine.generate([*self.tokens, *token_ids(ids)], continues=self._kept, **options)
        self._answer = answer
        return answer

    def fork(self) -> EngineSequence:
        """Another sequence with the same tokens in the same pages.

        Example: `other = sequence.fork()`.
        """
        self._check_idle()
        return EngineSequence(self._engine, self._engine.locked(lambda _: self._kept.fork()))

    def truncate(self, length: int) -> None:
        """Keep the first `length` tokens.

        Example: `sequence.truncate(len(system_prompt))`.
        """
        self._check_idle()
        if not 0 <= length <= self.position:
            raise InputError(f"the sequence has {counted(self.position, 'token')} and cannot be cut to {length}")
        self._engine.locked(lambda _: self._kept.truncate(length))

    def reset(self) -> None:
        """Remove all tokens."""
        self.truncate(0)

    async def save(self, path: str | os.PathLike[str]) -> None:
        """Save the tokens and their rows to a file, atomically; a LanguageModel of the same program may restore it.

        Example: `await sequence.save("system-prompt.cache")`.
        """
        with self._transfer():
            place_of(path, "a saved cache")  # before anything is read back from the device
            await self._engine.hash_model()
            while (saved := await self._engine.between_steps(self._read)) is None:
                self._check_open()
                # Pages were given back, to others or behind a window: one token more computes all rows again, and is
                # not kept.
                ids = [*self.tokens]
                answer = self._engine.generate(ids, continues=self._kept, keeps_all=True, max_tokens=1)
                async with aclosing(answer):
                    async for _ in answer:
                        pass
            await asyncio.to_thread(cache_file.save, path, saved)

    async def restore(self, path: str | os.PathLike[str]) -> None:
        """Restore what was saved with the same program and the same `activations`, by this or by a LanguageModel; a
        file that is refused changes nothing.

        Example: `await sequence.restore("system-prompt.cache")`.
        """
        with self._transfer():
            await self._engine.hash_model()
            expected = await self._engine.between_steps(self._expected)
            saved = await asyncio.to_thread(cache_file.load, path, expected)
            await self._engine.between_steps(partial(self._write, saved))

    def close(self) -> None:
        """Give its pages back; an answer that runs ends as it would, and is not kept.

        Example: `sequence.close()`.
        """

        def leave(scheduler: Scheduler) -> None:
            if self._kept in scheduler.kept:
                scheduler.kept.remove(self._kept)
            self._kept.drop()

        self._engine.locked(leave)

    @contextmanager
    def _transfer(self) -> Iterator[None]:
        """Do nothing else with the sequence meanwhile."""
        self._check_idle()
        self._transferring = True
        try:
            yield
        finally:
            self._transferring = False

    def _check_open(self) -> None:
        if not self._engine.locked(lambda scheduler: self._kept in scheduler.kept):
            raise InputError("this sequence was closed, and has no pages; make another one")

    def _check_idle(self) -> None:
        self._check_open()
        if self._transferring:
            raise InputError("this sequence is being saved or restored: wait for the end of that")
        if self._answer is not None and not (self._answer.ended or self._answer.closed):
            raise InputError("this sequence generates: wait for the end of its answer, close that, or fork before it")

    # In the thread of the engine

    def _read(self, scheduler: Scheduler, runner: BatchRunner) -> Saved | None:
        """What a file keeps; None where the rows have to be computed first."""
        kept = self._engine.locked(lambda _: self._kept.fork())
        tokens, origin = tuple(kept.tokens), runner.origin
        table = kept.table or PageTable(scheduler.pool)
        try:
            # A file has every row: whoever restores it may cut it, or look at the whole history.
            if tokens and (kept.table is None or not table.holds(0)):
                return None
            states = read_rows(runner, table, len(tokens))
        finally:
            self._engine.locked(lambda _: kept.drop())
        return Saved(origin.checksum, origin.activations, tokens, layout_of(runner, len(tokens)), states)

    def _expected(self, _: Scheduler, runner: BatchRunner) -> Expected:
        origin, engine = runner.origin, self._engine
        layout = partial(layout_of, runner)
        return Expected(origin.checksum, origin.activations, engine.vocab_size, engine.max_context, layout)

    def _write(self, saved: Saved, _: Scheduler, runner: BatchRunner) -> None:
        """Upload rows to pages of their own; without enough of these the tokens are computed when they are used."""
        made = KeptSequence()
        made.replace(saved.tokens, self._engine.locked(lambda scheduler: scheduler.room_for(len(saved.tokens))))
        try:
            if made.table is not None:
                write_rows(runner, made.table, saved.states)
        except BaseException:
            self._engine.locked(lambda _: made.drop())
            raise

        def take(scheduler: Scheduler) -> None:
            if self._kept in scheduler.kept:  # it may have been closed since
                self._kept.replace(made.tokens, made.table)
            else:
                made.drop()

        self._engine.locked(take)
