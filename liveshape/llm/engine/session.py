"""A session: one sequence of an engine, its tokens, whether their logits are on the device, and the steps ahead of it.

What an interrupt or an error leaves behind follows from one rule: tokens count when they are in the list. Rows of the
KV cache past its end are never read, so a step that did not end needs no rollback. State that is not positional
(recurrent) is unknown after such a step, and the session raises until it is reset.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from liveshape.errors import InputError, UnsupportedError
from liveshape.llm.engine.cache_file import Expected, Saved
from liveshape.llm.engine.engine import LOGITS, TOKEN, Engine, token_of
from liveshape.llm.engine.fair_lock import FairLock
from liveshape.llm.engine.kv_cache import Contents
from liveshape.llm.program.token_graph import Description
from liveshape.llm.sampling_settings import Sampling
from liveshape.run.pending import Pending


class Session:
    """One sequence of an engine: prefill, decode, verify, truncate, fork. Callers hold the lock (`lock`).

    Example: `session.append([1, 2, 3], None); session.lock.run(session.logits)`.
    """

    def __init__(self, engine: Engine, contents: Contents | None = None) -> None:
        self.engine = engine
        self._contents = engine.register(contents or Contents())
        self._closed = False
        self._version = object()

    # Metadata and state

    @property
    def lock(self) -> FairLock:
        """The lock of the engine, shared by all its sessions."""
        return self.engine.lock

    @property
    def description(self) -> Description:
        """Context length, vocabulary size and special tokens of the model."""
        return self.engine.description

    @property
    def tokens(self) -> tuple[int, ...]:
        """The tokens in the KV cache, as a copy."""
        return tuple(self._contents.tokens)

    def tokens_from(self, length: int) -> list[int]:
        """The tokens after the first `length`.

        Example: `session.tokens_from(session.position - 1)`.
        """
        return self._contents.tokens[length:]

    @property
    def tokens_view(self) -> Sequence[int]:
        """The tokens in the KV cache, not copied: read it now, do not keep it."""
        return self._contents.tokens

    @property
    def position(self) -> int:
        """The number of tokens in the KV cache."""
        return len(self._contents.tokens)

    @property
    def version(self) -> object:
        """Version of the sequence: a new object whenever anything but a stream changes it."""
        return self._version

    def check_open(self) -> None:
        """Raise an InputError once the session or its engine is closed.

        Example: `session.check_open()`.
        """
        if self._closed:
            raise InputError("this text was closed; fork the model again, or load it")
        _ = self.engine.executor

    # Prefill and sampling

    def append(self, tokens: Sequence[int], sampling: Sampling | None) -> Pending | None:
        """Prefill tokens in chunks; with `sampling`, the last chunk samples the next token.

        All tokens are appended, or none.

        Example: `token_of(session.append(ids, Sampling()))`.
        """
        contents, size = self._ready(), self.description.max_seq_len
        before, pending = len(contents.tokens), None
        self._new_version()
        try:
            for start in range(0, len(tokens), size):
                chunk = tokens[start : start + size]
                last = start + len(chunk) == len(tokens) and sampling is not None
                pending = self._run(contents, chunk, sampling if last else None, [TOKEN] if last else [])
        except BaseException:
            self._truncate_tokens(contents, before)
            raise
        return pending

    def evaluate(self, chunk: Sequence[int]) -> Any:
        """Append at most one chunk of tokens and return the logits after each, [tokens, vocabulary].

        Example: `session.evaluate(ids[: session.max_evaluated_tokens])`.
        """
        contents = self._ready()
        before = len(contents.tokens)
        self._new_version()
        try:
            return self.engine.rows_of(self._run(contents, chunk, None, [LOGITS], len(chunk)))
        except BaseException:
            self._truncate_tokens(contents, before)
            raise

    @property
    def max_evaluated_tokens(self) -> int:
        """The most tokens of `evaluate`: one, if the program computes only the last token's logits."""
        return self.description.logit_rows

    def sample(self, sampling: Sampling) -> Pending:
        """Sample the next token; it is not appended.

        Example: `token_of(session.sample(Sampling()))`.
        """
        self._ensure_logits()
        return self.engine.sample(sampling)

    def logits(self) -> Any:
        """The logits of the next token, [vocabulary].

        Example: `session.logits().argmax()`.
        """
        self._ensure_logits()
        return self.engine.last_logits()

    # Steps ahead and speculative decoding

    @property
    def can_rollback(self) -> bool:
        """Whether steps can be rolled back, so that they may be submitted speculatively."""
        return self.engine.cache.positional

    @property
    def steps_ahead(self) -> int:
        """How many decode steps may be in flight after the one whose token is read."""
        return self.engine.device.steps_ahead

    def submit_next(self, pending: Pending, sampling: Sampling, logits: bool = False, in_flight: int = 0) -> Pending:
        """Submit the next decode step, with the token of a step that may still be in flight; `accept` appends it.

        `in_flight` steps come before it. With `logits`, the logits of the token that it samples are an output,
        too.

        Example: `ahead = session.submit_next(pending, sampling); session.accept(token_of(pending))`.
        """
        contents = self._ready()
        tokens = pending.on_device(TOKEN) if self.holds(pending) else [token_of(pending)]
        return self._submit(contents, tokens, sampling, 1, logits, in_flight)

    def verify(self, tokens: Sequence[int], sampling: Sampling, logits: bool = False) -> Pending:
        """Verify draft tokens: submit a token and its draft in one call, and sample a token after each of them.

        `accept` appends the accepted ones in order; the rejected ones need no rollback.

        Example: `tokens_of(session.verify([token, *draft], sampling))`.
        """
        return self._submit(self._ready(), tokens, sampling, len(tokens), logits)

    @property
    def max_verified_tokens(self) -> int:
        """The most tokens of `verify`; one if draft tokens cannot be verified."""
        return self.description.sampled_rows if self.can_rollback else 1

    def holds(self, pending: Pending) -> bool:
        """Whether what a step wrote is still on the device: nothing ran since, and no other sequence was swapped in.

        Example: `session.holds(pending)`.
        """
        return self.engine.holds(self._contents, pending)

    def accept(self, token: int, *, last: bool = True) -> None:
        """Append a token of the step that was submitted last; its logits are on the device if it is the `last` one.

        Example: see `submit_next`.
        """
        contents = self._contents
        contents.tokens.append(token)
        contents.valid = True
        contents.logits_at = len(contents.tokens) if last else -1

    def rollback(self, position: int) -> None:
        """Roll back a step that was accepted, but whose token the caller never got because of an interrupt.

        Example: `session.rollback(position_of_the_last_token_that_was_read)`.
        """
        contents = self._contents
        if len(contents.tokens) > position:
            self._truncate_tokens(contents, position)

    # The KV cache

    def truncate(self, length: int) -> None:
        """Truncate the KV cache to `length` tokens; 0 works for every kind of state.

        Example: `session.truncate(0)`.
        """
        if length and length == self.position:
            return
        positional = self.engine.cache.positional
        if length and not positional:
            raise UnsupportedError(
                f"this program keeps state that is no entry per token: it can go back to the start, not to {length}"
            )
        self.check_open()
        self._new_version()
        if positional:
            self._truncate_tokens(self._contents, length)
        else:
            self._replace_contents(self.engine.register(Contents()))

    def fork(self) -> Session:
        """Copy the sequence to another session.

        Example: `other = session.fork()`.
        """
        contents = self._ready()
        self.engine.swap_in(contents)
        copies = self.engine.cache.copy(len(contents.tokens))
        return Session(self.engine, Contents(contents.tokens, copies))

    def snapshot(self, program: str, activations: str) -> Saved:
        """The tokens and states on the host, to be saved with the program's checksum and its activations.

        Example: `save(path, session.snapshot(checksum, "float32"))`.
        """
        contents, cache = self._ready(), self.engine.cache
        self.engine.swap_in(contents)
        tokens = tuple(contents.tokens)
        return Saved(program, activations, tokens, cache.layout(len(tokens)), cache.read(len(tokens)))

    def expected(self, program: str, activations: str) -> Expected:
        """What a saved KV cache must match to be restored here.

        Example: `session.restore(load(path, session.expected(checksum, "float32")))`.
        """
        self.check_open()
        description, layout = self.description, self.engine.cache.layout
        return Expected(program, activations, description.vocab_size, description.max_context, layout)

    def restore(self, saved: Saved) -> None:
        """Restore a saved KV cache, atomically: if the upload fails, the sequence is unchanged.

        Example: see `expected`.
        """
        self.check_open()
        copies = self.engine.cache.upload(saved.states, len(saved.tokens))
        contents = self.engine.register(Contents(saved.tokens, copies))
        self._new_version()
        self._replace_contents(contents)

    def close(self) -> None:
        """Free this session's swapped-out copies.

        Example: `session.fork().close()`.
        """
        self._closed = True
        contents, self._contents = self._contents, Contents()
        contents.free(self.engine.device)

    # Internals

    def _ready(self) -> Contents:
        """The contents, if the session is open and its state valid."""
        self.check_open()
        if not self._contents.valid:
            raise InputError(
                "a call was interrupted or failed, and this program keeps state that is no entry per token: what it "
                "holds now is unknown; reset() and give the text again, or restore() a saved cache"
            )
        return self._contents

    def _replace_contents(self, contents: Contents) -> None:
        before, self._contents = self._contents, contents
        before.free(self.engine.device)

    def _new_version(self) -> None:
        self._version = object()

    def _submit(
        self, contents: Contents, tokens: Any, sampling: Sampling, rows: int, logits: bool, in_flight: int = 0
    ) -> Pending:
        """Run tokens after the sequence and `in_flight` others, without appending them."""
        self.engine.swap_in(contents)
        contents.logits_at = -1
        contents.valid = self.engine.cache.positional
        wanted = [TOKEN, LOGITS] if logits else [TOKEN]
        return self.engine.run(tokens, len(contents.tokens) + in_flight, sampling, wanted, rows)

    def _run(
        self,
        contents: Contents,
        chunk: Sequence[int],
        sampling: Sampling | None,
        wanted: Sequence[int],
        rows: int = 1,
    ) -> Pending:
        self.engine.swap_in(contents)
        contents.logits_at = -1
        contents.valid = self.engine.cache.positional
        pending = self.engine.run(chunk, len(contents.tokens), sampling, wanted, rows)
        contents.tokens.extend(chunk)
        contents.valid = True
        contents.logits_at = len(contents.tokens)
        return pending

    def _truncate_tokens(self, contents: Contents, length: int) -> None:
        """Truncate the tokens. State that is not positional becomes unknown, unless nothing is cut."""
        contents.logits_at = -1
        if len(contents.tokens) > length and not self.engine.cache.positional:
            contents.valid = False
        del contents.tokens[length:]

    def _ensure_logits(self) -> None:
        """Run the last token again if its logits are gone: after a truncate, a swap or a restore."""
        contents = self._ready()
        self.engine.swap_in(contents)
        length = len(contents.tokens)
        if not length:
            raise InputError("the cache is empty: give tokens to prefill first")
        if contents.logits_at == length and self.engine.has_logits:
            return
        if not self.engine.cache.positional:
            raise UnsupportedError("the logits are gone, and this program cannot take its last token back; prefill one")
        self.engine.run(contents.tokens[-1:], length - 1, None, [])
        contents.logits_at = length
