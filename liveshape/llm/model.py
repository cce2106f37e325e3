"""A language model: one graph for prompts of any length and for token after token, against the cache inside of it.

    model = LanguageModel.load("SmolLM2-135M-Instruct")
    for token in model.stream(ids, Sampling(temperature=0.7), max_tokens=100, stop_ids=model.eos_ids):
        ...

Not for several threads at once: a model has one cache, and one text in it.
"""

from __future__ import annotations

import functools
import hashlib
import os
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from liveshape.device.protocol import Buffer, Device
from liveshape.errors import FormatError, InputError, UnsupportedError
from liveshape.llm import cache
from liveshape.llm.engine import LOGITS, TOKEN, Engine, token_of
from liveshape.llm.half_cache import halve_caches
from liveshape.llm.program import constants_of, token_graph
from liveshape.llm.sampling import Sampling
from liveshape.llm.stream import Stream
from liveshape.lower.lowering import lower
from liveshape.run.executor import Pending
from liveshape.runtime import Memory, Program, Progress, Runtime, memory_of

_SAMPLES, _SAMPLE_BYTES = 64, 1 << 16  # of a file, for its checksum


class LanguageModel:
    """A text in the making: the tokens in the cache, and what may follow them.

    Example: `LanguageModel.load("model.pte").max_context`.
    """

    def __init__(self, engine: Engine, program: Program, path: Path) -> None:
        self._engine, self._program, self._path = engine, program, path
        self._tokens: list[int] = []
        self._copies: list[Buffer] = []  # of the cache, while another session is at home in it
        self._logits_at = -1  # the length whose logits lie on the device
        self._use = object()  # another one whenever somebody but a stream moves the text

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        *,
        device: Device | str | int | None = None,
        progress: Progress | None = None,
        half_cache: bool = False,
    ) -> LanguageModel:
        """A model from a `.pte`, or from a folder with a `model.pte` or with a single one of any name.

        `progress(done, total)` is told the bytes of weights uploaded. `half_cache` keeps a float32 cache as float16.

        Example: `LanguageModel.load("SmolLM2-135M-Instruct", device="nvidia")`.
        """
        file = _program_file(Path(path))
        runtime = Runtime(device)
        program = runtime.load_program(file)
        try:
            graph = lower(program.file, "forward", program.data, runtime.device.limits)
            if half_cache:
                halve_caches(graph)
            made = token_graph(graph, constants_of(program))
            return cls(Engine(made, runtime.device, progress), program, file)
        except UnsupportedError as error:
            program.close()
            raise UnsupportedError(f"{file}: {error}", error.details) from error
        except BaseException:
            program.close()
            raise

    # What it is

    @property
    def max_seq_len(self) -> int:
        """The most tokens of one call; longer texts are given in chunks."""
        return self._engine.description.max_seq_len

    @property
    def max_context(self) -> int:
        """The most tokens that the cache holds."""
        return self._engine.description.max_context

    @property
    def vocab_size(self) -> int:
        """Tokens are below this."""
        return self._engine.description.vocab_size

    @property
    def eos_ids(self) -> tuple[int, ...]:
        """The tokens that end a text, as the file names them."""
        return self._engine.description.eos_ids

    @property
    def bos_id(self) -> int | None:
        """The token that begins a text, if there is one."""
        return self._engine.description.bos_id

    @property
    def device(self) -> Device:
        """The device that it runs on."""
        return self._engine.executor.device

    @property
    def memory(self) -> Memory:
        """The GPU memory of the model and its cache, in bytes; forks have copies of the cache beside it."""
        return memory_of(self._engine.executor)

    @property
    def position(self) -> int:
        """How many tokens are in the cache."""
        return len(self._tokens)

    @property
    def tokens(self) -> tuple[int, ...]:
        """The tokens in the cache."""
        return tuple(self._tokens)

    # A text

    def prefill(self, ids: Sequence[int]) -> None:
        """Append tokens to the cache, in chunks where they are many. It does not wait for the device.

        Example: `model.prefill([1, 2, 3])`.
        """
        self._append(self._checked(ids), None)

    def next_token(self, sampling: Sampling | None = None) -> int:
        """The token that may follow; it is not in the cache until it is given to `prefill`.

        Example: `model.prefill(ids); token = model.next_token(Sampling(temperature=0.7))`.
        """
        self._need_logits()
        return token_of(self._engine.choose(sampling or Sampling()))

    def logits(self) -> Any:
        """The logits of what may follow, [vocabulary].

        Example: `model.prefill(ids); model.logits().argmax()`.
        """
        self._need_logits()
        return self._engine.last_logits()

    def evaluate(self, ids: Sequence[int]) -> Any:
        """Append tokens and give the logits after each of them, [tokens, vocabulary].

        Example: `logits = model.evaluate(ids)[:-1]`, which predict `ids[1:]`.
        """
        rows = list(self.evaluate_chunks(ids))
        return np.concatenate(rows) if rows else np.empty((0, self.vocab_size), np.float32)

    def evaluate_chunks(self, ids: Sequence[int]) -> Iterator[Any]:
        """The same in pieces, for long texts; one token at a time if the program gives the last logits alone.

        Example: `for logits in model.evaluate_chunks(ids): ...`.
        """
        return self._evaluated(self._checked(ids))

    def _evaluated(self, ids: list[int]) -> Iterator[Any]:
        self._use = object()
        engine = self._engine
        size = self.max_seq_len if engine.description.all_logits else 1
        for start in range(0, len(ids), size):
            yield engine.rows_of(self._run(ids[start : start + size], None, [LOGITS]))

    def stream(
        self,
        ids: Sequence[int],
        sampling: Sampling | None = None,
        max_tokens: int | None = None,
        stop_ids: Collection[int] = (),
    ) -> Stream:
        """Append tokens and generate what follows, until one of `stop_ids`, `max_tokens` or the end of the context.

        The prompt is on its way when this returns. Without ids it goes on from what is in the cache.

        Example: `list(model.stream(ids, Sampling(), max_tokens=20, stop_ids=model.eos_ids))`.
        """
        given = self._checked(ids)
        if max_tokens is not None and max_tokens < 0:
            raise InputError(f"max_tokens must be 0 or above, or None, {max_tokens} was given")
        self._use = object()
        chosen = sampling or Sampling()
        first = None
        if given:
            first = self._append(given, None if max_tokens == 0 else chosen)
        elif max_tokens != 0:
            self._need_logits()
            first = self._engine.choose(chosen)
        return Stream(self, None if max_tokens == 0 else first, chosen, max_tokens, frozenset(stop_ids))

    # The cache

    def reset(self) -> None:
        """Forget everything."""
        self.truncate(0)

    def truncate(self, length: int) -> None:
        """Forget the tokens from `length` on, as if they had never been there.

        Example: `model.truncate(len(system_prompt))`.
        """
        if not 0 <= length <= self.position:
            raise InputError(f"the cache holds {self.position} tokens and cannot be cut to {length}")
        if length == self.position and length:
            return
        if length and not self._engine.cache.positional:
            raise UnsupportedError(
                f"this program keeps state that is no entry per token: it can go back to the start, not to {length}"
            )
        self._use = object()
        del self._tokens[length:]
        self._logits_at = -1
        if length == 0 and self._engine.is_home(self):
            self._engine.cache.clear()

    def fork(self) -> LanguageModel:
        """Another text that begins with this one. Weights are shared; the two go on independently.

        One of them at a time is in the graph's own cache, and using the other swaps them: two copies on the device.

        Example: `other = model.fork(); other.prefill(ids)`.
        """
        self._engine.enter(self)
        other = LanguageModel(self._engine, self._program, self._path)
        other._tokens = list(self._tokens)
        other._copies = self._engine.cache.copy(self.position)
        return other

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the tokens and the cache to a file.

        Example: `model.save("system-prompt.cache")`.
        """
        self._engine.enter(self)
        states = self._engine.cache.read(self.position)
        cache.save(path, cache.Saved(self.checksum, self.tokens, states))

    def restore(self, path: str | os.PathLike[str]) -> None:
        """Take the tokens and the cache of a file that this same program saved.

        Example: `model.restore("system-prompt.cache")`.
        """
        saved = cache.load(path)
        self._engine.cache.check(saved, self.checksum)
        self._use = object()
        self._engine.enter(self)
        self._engine.cache.write(saved.states)
        self._tokens, self._logits_at = list(saved.tokens), -1

    @functools.cached_property
    def checksum(self) -> str:
        """Of the program's file: its size and samples from all over it."""
        size = self._path.stat().st_size
        digest = hashlib.sha256(f"{size}".encode())
        with open(self._path, "rb") as file:
            for place in range(_SAMPLES):
                file.seek(max(0, size - _SAMPLE_BYTES) * place // (_SAMPLES - 1))
                digest.update(file.read(_SAMPLE_BYTES))
        return digest.hexdigest()[:32]

    def close(self) -> None:
        """Let go of the file. The memory goes when the last fork is gone."""
        self._program.close()

    def __enter__(self) -> LanguageModel:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"LanguageModel({self._path.name}: {self.position} of {self.max_context} tokens)"

    # Inside

    def _checked(self, ids: Sequence[int]) -> list[int]:
        """Tokens as numbers, all of them known and few enough, before anything is computed."""
        tokens = [int(token) for token in ids]
        if self.position + len(tokens) > self.max_context:
            held = f"{self.position:,} are in the cache and " if self.position else ""
            raise InputError(
                f"{held}{len(tokens):,} tokens were given, the context holds {self.max_context:,}; shorten the text, "
                "or export the model with a larger context"
            )
        wrong = next((token for token in tokens if not 0 <= token < self.vocab_size), None)
        if wrong is not None:
            raise InputError(f"token {wrong} is outside the vocabulary of {self.vocab_size:,}")
        return tokens

    def _append(self, tokens: list[int], sampling: Sampling | None) -> Pending | None:
        """Run tokens chunk by chunk; the last chunk chooses the token after it if there is a sampling."""
        self._use = object()
        pending = None
        for start in range(0, len(tokens), self.max_seq_len):
            chunk = tokens[start : start + self.max_seq_len]
            last = start + len(chunk) == len(tokens) and sampling is not None
            pending = self._run(chunk, sampling if last else None, [TOKEN] if last else [])
        return pending

    def _run(self, chunk: list[int], sampling: Sampling | None, wanted: Sequence[int]) -> Pending:
        self._engine.enter(self)
        self._logits_at = -1
        pending = self._engine.run(chunk, self.position, sampling, wanted)
        self._tokens += chunk
        self._logits_at = self.position
        return pending

    def _need_logits(self) -> None:
        """Run the last token again if its logits are gone: after a cut, a swap or a restored cache."""
        self._engine.enter(self)
        if self._logits_at == self.position and self._tokens:
            return
        if not self._tokens:
            raise InputError("the cache is empty: give tokens to prefill first")
        if not self._engine.cache.positional:
            raise UnsupportedError("the logits are gone, and this program cannot take its last token back; prefill one")
        last = self._tokens.pop()
        self._run([last], None, [])

    # For streams

    @property
    def _looks_ahead(self) -> bool:
        """Whether a step may be undone, so that it can be submitted before it is known to be wanted."""
        return self._engine.cache.positional

    def _follow(self, pending: Pending, sampling: Sampling) -> Pending:
        """Submit the token of a step that may still be under way; `_accept` makes it part of the text."""
        engine = self._engine
        fresh = engine.is_home(self) and pending.is_latest
        engine.enter(self)
        token = pending.on_device(TOKEN) if fresh else [token_of(pending)]
        self._logits_at = -1
        return engine.run(token, self.position, sampling, [TOKEN])

    def _accept(self, token: int) -> None:
        self._tokens.append(token)
        self._logits_at = self.position

    def _forget_ahead(self) -> None:
        self._logits_at = -1

    # For the engine

    def _enter(self) -> None:
        self._logits_at = -1
        if self._tokens:
            self._engine.cache.bring(self._copies, self.position)
        else:
            self._engine.cache.clear()

    def _leave(self) -> None:
        self._copies = self._engine.cache.copy(self.position, self._copies)


def _program_file(path: Path) -> Path:
    if not path.is_dir():
        return path
    found = sorted(path.glob("*.pte"))
    usual = path / "model.pte"
    if usual in found or len(found) == 1:
        return usual if usual in found else found[0]
    names = ", ".join(file.name for file in found) or "none at all"
    raise FormatError(f"{path} must hold a model.pte or a single .pte, it has {names}")
