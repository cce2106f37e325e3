"""A language model: one graph for prefill of any length and for decode, with the KV cache inside of it.

    model = LanguageModel.load("SmolLM2-135M-Instruct")
    for token in model.stream(ids, Sampling(temperature=0.7), max_tokens=100, stop_ids=model.eos_ids):
        ...

Thread-safe: each call takes the lock that a model shares with its forks. A model has one sequence in its KV cache, so
threads with sequences of their own use a fork each, or hold the lock (`lock`).
"""

from __future__ import annotations

import operator
import os
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from liveshape.device.protocol import Device
from liveshape.errors import FormatError, InputError, UnsupportedError, counted
from liveshape.formats.source import Source
from liveshape.formats.whole_file import place_of
from liveshape.graph import Graph
from liveshape.graph.activation_kinds import AUTO
from liveshape.llm.arguments import LOOKAHEAD_TOKENS
from liveshape.llm.engine import cache_file
from liveshape.llm.engine.draft_model import DraftModel, check_draft
from liveshape.llm.engine.engine import Engine, token_of
from liveshape.llm.engine.fair_lock import FairLock, synchronized
from liveshape.llm.engine.origin import Origin
from liveshape.llm.engine.session import Session
from liveshape.llm.engine.speculative import NGRAM, Lookahead, Ngrams, max_draft_tokens
from liveshape.llm.engine.stream import Stream
from liveshape.llm.program.context import checked_context, larger_context, rotation_of, with_context
from liveshape.llm.program.half_cache import halve_caches
from liveshape.llm.program.prefill_chunk import prefill_chunk, with_chunk, with_chunk_of_context
from liveshape.llm.program.token_graph import CONTEXT, constants_of, token_graph
from liveshape.llm.sampling_settings import Sampling
from liveshape.program.compile_target import CompileTarget
from liveshape.program.files import program_file
from liveshape.program.memory_use import Memory
from liveshape.program.program import Program, load_program, tell_host
from liveshape.progress import Progress


class LanguageModel:
    """A language model and one sequence in its KV cache: prefill, sampling, logits, streaming, fork, save and restore.

    Example: `LanguageModel.load("model.pte").max_context`.
    """

    def __init__(self, engine: Engine, origin: Origin, fork: Session | None = None) -> None:
        self._engine, self._origin = engine, origin
        self._session = fork or Session(engine)
        self._is_fork = fork is not None

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        *,
        device: Device | str | int | None = None,
        backend: str | None = None,
        progress: Progress | None = None,
        half_cache: bool = False,
        activations: str = AUTO,
        deterministic: bool = False,
        max_context: int | None = None,
    ) -> LanguageModel:
        """Load a model from a `.pte`, or from a folder with a `model.pte` or with a single `.pte` of any name.

        `backend` and `device` are as of `liveshape.load`. `max_context` is the size of the KV cache in tokens, if it is
        not that of the file.
        `progress(done, total)` gets the bytes of weights uploaded. `half_cache` keeps a float32 KV cache as float16.
        `activations="int8"` quantizes the activations of 4- and 8-bit layers: faster on a GPU, less accurate.
        `"float16"` permits that inputs of products are rounded to float16 for the matrix units of a device, and
        `"auto"` is that where it has some; `"float32"` rounds nothing.
        With `deterministic` logits have the same bytes however a text is cut into calls: slower.

        Example: `LanguageModel.load("SmolLM2-135M-Instruct", device="nvidia")`.
        """
        context = checked_context(max_context)
        file = program_file(Path(path))
        target = CompileTarget(device, backend=backend, activations=activations, deterministic=deterministic)
        # Opened here and not by the program: the checksum must be of these bytes, even if the file is replaced later.
        source = Source(file)
        program: Program | None = None
        try:
            program = load_program(target, source.view)
            constants = constants_of(program)
            known = constants if context is None else {**constants, CONTEXT: context}

            def rewrite(lowered: Graph) -> Graph:
                nonlocal known
                shorter, known = with_chunk_of_context(lowered, known, context)
                resized = with_context(shorter, constants, context)
                longer, known = with_chunk(resized, known, prefill_chunk(target.limits))
                return longer

            graph = program.graph("forward", rewrite)
            tell_host(graph)
            if half_cache:
                graph = halve_caches(graph, limits=target.limits)
            made = token_graph(graph, known)
            program.close()
            turned = rotation_of(constants, made.description.max_context)
            options = {
                "half_cache": half_cache,
                "activations": target.activations,
                "deterministic": deterministic,
                "max_context": max_context,
            }
            origin = Origin(file.name, source, program.data, target.activations, turned, options)
            return cls(Engine(made, target.device, progress, target.limits), origin)
        except UnsupportedError as error:
            _close(program, source)
            raise UnsupportedError(f"{file}: {error}", error.details) from error
        except FormatError as error:
            _close(program, source)
            raise FormatError(f"{file}: {error}") from error
        except BaseException:
            _close(program, source)
            raise

    # Metadata and state

    @property
    def lock(self) -> FairLock:
        """The lock of this model and its forks: `lock.run(function)` calls a function while holding it.

        Example: `model.lock.run(lambda: (model.reset(), model.evaluate(ids)))`.
        """
        return self._engine.lock

    @property
    def turn(self) -> FairLock:
        """Alias of `lock`, its former name."""
        return self.lock

    @property
    def activations(self) -> str:
        """The kind of activations that it was loaded with, which saved KV caches carry: "auto" is resolved."""
        return self._origin.activations

    @property
    def max_seq_len(self) -> int:
        """The most tokens of one call; longer prompts are prefilled in chunks."""
        return self._engine.description.max_seq_len

    @property
    def max_context(self) -> int:
        """The context length: the most tokens that the KV cache holds."""
        return self._engine.description.max_context

    @property
    def trained_context(self) -> int | None:
        """The context length that the model was trained for, if its file says: `max_context` can be raised up to it."""
        return self._engine.description.trained_context

    @property
    def vocab_size(self) -> int:
        """The size of the vocabulary."""
        return self._engine.description.vocab_size

    @property
    def eos_ids(self) -> tuple[int, ...]:
        """The EOS tokens, as the file lists them."""
        return self._engine.description.eos_ids

    @property
    def bos_id(self) -> int | None:
        """The BOS token, if there is one."""
        return self._engine.description.bos_id

    @property
    def engine(self) -> Engine:
        """The engine: graph, weights and KV cache; for inspection."""
        return self._engine

    @property
    def origin(self) -> Origin:
        """The identity of the program: its bytes, and how it was loaded."""
        return self._origin

    @property
    def device(self) -> Device:
        """The device that the model runs on."""
        return self._engine.device

    @property
    def memory(self) -> Memory:
        """The GPU memory of the model and its KV cache, in bytes; the copies of forks are not included."""
        return self._engine.memory

    @property
    def position(self) -> int:
        """The number of tokens in the KV cache."""
        return self._session.position

    @property
    def tokens(self) -> tuple[int, ...]:
        """The tokens in the KV cache."""
        return self._session.tokens

    @synchronized
    def warm_up(self, samplings: Sequence[Sampling] = (), progress: Progress | None = None) -> None:
        """Compile what prompts and decode with these settings take, greedy by default: the first call is quick then.

        Only software adapters have anything to do here: a load compiles all that a GPU takes. Their driver keeps what
        it compiled on disk. `progress(done, total)` counts kernels.

        Example: `model.warm_up([Sampling(temperature=0.7)])`.
        """
        self._engine.warm_up([_sampling(each) for each in samplings] or [Sampling()], progress)

    # Prefill and decode

    @synchronized
    def prefill(self, ids: Sequence[int]) -> None:
        """Prefill: append tokens to the KV cache, in chunks of `max_seq_len`; all of them, or none. Does not wait for
        the device.

        Example: `model.prefill([1, 2, 3])`.
        """
        self._session.append(self._checked(ids), None)

    @synchronized
    def next_token(self, sampling: Sampling | None = None) -> int:
        """Sample the next token; it is not in the KV cache until it is given to `prefill`.

        Example: `model.prefill(ids); token = model.next_token(Sampling(temperature=0.7))`.
        """
        return token_of(self._session.sample(_sampling(sampling)))

    @synchronized
    def logits(self) -> Any:
        """The logits of the next token, [vocabulary].

        Example: `model.prefill(ids); model.logits().argmax()`.
        """
        return self._session.logits()

    @synchronized
    def evaluate(self, ids: Sequence[int]) -> Any:
        """Append tokens and return the logits after each of them, [tokens, vocabulary].

        Example: `logits = model.evaluate(ids)[:-1]`, which predict `ids[1:]`.
        """
        rows = list(self.evaluate_chunks(ids))
        return np.concatenate(rows) if rows else np.empty((0, self.vocab_size), np.float32)

    @synchronized
    def evaluate_chunks(self, ids: Sequence[int]) -> Iterator[Any]:
        """`evaluate` as an iterator of chunks; one token each if the program computes only the last token's logits.

        If the model is used otherwise between two chunks, the next one raises.

        Example: `for logits in model.evaluate_chunks(ids): ...`.
        """
        return self._evaluated(self._checked(ids))

    def _evaluated(self, ids: list[int]) -> Iterator[Any]:
        size, version = self._session.max_evaluated_tokens, None
        for start in range(0, len(ids), size):
            if version is None:
                self.lock.run(self._checked, ids)  # again: the sequence may have grown since
            rows, version = self._evaluate(ids[start : start + size], version)
            yield rows

    @synchronized
    def _evaluate(self, chunk: list[int], version: object) -> tuple[Any, object]:
        if version is not None and version is not self._session.version:
            raise InputError("the model was used otherwise since the last piece; evaluate the text again")
        return self._session.evaluate(chunk), self._session.version

    @synchronized
    def stream(
        self,
        ids: Sequence[int],
        sampling: Sampling | None = None,
        max_tokens: int | None = None,
        stop_ids: Collection[int] = (),
        lookahead: str | LanguageModel | None = None,
        lookahead_tokens: int = LOOKAHEAD_TOKENS,
        logits: bool = False,
    ) -> Stream:
        """Append tokens and stream the generated ones, until one of `stop_ids`, `max_tokens` or the end of the context.

        Prefill is submitted when this returns. Without ids it continues from the KV cache. `lookahead` is speculative
        decoding: "ngram" (prompt lookup) or a draft model with the same vocabulary. With `logits`, the stream has the
        logits of its last token, too.

        Example: `list(model.stream(ids, Sampling(), max_tokens=20, stop_ids=model.eos_ids))`.
        """
        given, stops, chosen = self._checked(ids), frozenset(_numbers(stop_ids, "stop_ids")), _sampling(sampling)
        if max_tokens is not None:
            (max_tokens,) = _numbers([max_tokens], "max_tokens")
            if max_tokens < 0:
                raise InputError(f"max_tokens must be 0 or above, or None, {max_tokens} was given")
        if not chosen.prompt_tokens:
            chosen = chosen.after(self._session.position + len(given))
        ahead = None if lookahead is None else self._lookahead(lookahead, lookahead_tokens, chosen)
        first = self._session.append(given, None if max_tokens == 0 else chosen)
        if not given and max_tokens != 0:
            first = self._session.sample(chosen)
        if max_tokens == 0:
            first = None
        logits_now = self._session.logits() if logits and first is not None else None
        return Stream(self._session, first, chosen, max_tokens, stops, ahead, logits_now)

    def check_lookahead(self, lookahead: str | LanguageModel, lookahead_tokens: int = LOOKAHEAD_TOKENS) -> None:
        """Raise where `stream` with this lookahead would.

        Example: `model.check_lookahead("ngram")`.
        """
        self._lookahead(lookahead, lookahead_tokens, Sampling())

    def _lookahead(self, lookahead: str | LanguageModel, tokens: int, sampling: Sampling) -> Lookahead:
        most = max_draft_tokens(self._session, tokens)
        if lookahead == NGRAM:
            return Lookahead(Ngrams(), most)
        if not isinstance(lookahead, LanguageModel):
            raise InputError(f"lookahead must be {NGRAM!r} or a LanguageModel, {_short(lookahead)} was given")
        check_draft(self._session, lookahead._session)
        return Lookahead(DraftModel(lookahead._session, sampling), most)

    # The KV cache

    def reset(self) -> None:
        """Clear the KV cache."""
        self.truncate(0)

    @synchronized
    def truncate(self, length: int) -> None:
        """Truncate the KV cache to its first `length` tokens.

        Example: `model.truncate(len(system_prompt))`.
        """
        (length,) = _numbers([length], "length")
        if not 0 <= length <= self._session.position:
            raise InputError(
                f"the cache holds {counted(self._session.position, 'token')} and cannot be cut to {length}"
            )
        self._session.truncate(length)

    @synchronized
    def fork(self) -> LanguageModel:
        """Fork the sequence: a model that shares the weights and has a copy of the KV cache.

        One sequence at a time is resident in the KV cache; using another swaps them, with two copies on the device.

        Example: `other = model.fork(); other.prefill(ids)`.
        """
        return LanguageModel(self._engine, self._origin, self._session.fork())

    def save(self, path: str | os.PathLike[str]) -> None:
        """Save the tokens and the KV cache to a file, atomically.

        Example: `model.save("system-prompt.cache")`.
        """
        place_of(path, "a saved cache")  # before the cache is read back from the device
        cache_file.save(path, self.lock.run(self._session.snapshot, self.checksum, self._origin.activations))

    def restore(self, path: str | os.PathLike[str]) -> None:
        """Restore the tokens and the KV cache from a file saved by the same program with the same `activations`; a file
        that is refused changes nothing.

        Example: `model.restore("system-prompt.cache")`.
        """
        expected = self.lock.run(self._session.expected, self.checksum, self._origin.activations)
        saved = cache_file.load(path, expected)
        self.lock.run(self._session.restore, saved)

    @property
    def checksum(self) -> str:
        """Checksum of the program that was loaded, which saved KV caches carry. Computed lazily."""
        return self._origin.checksum

    def close(self) -> None:
        """Free the GPU memory of the model and of all its forks, which cannot be used any more.

        Closing a fork frees its swapped-out copies alone.

        Example: `with LanguageModel.load("model.pte") as model: ...`.
        """
        self.lock.run_or_defer(self._close)

    def _close(self) -> None:
        self._session.close()
        if not self._is_fork:
            self._engine.close()
            self._origin.close()

    def __enter__(self) -> LanguageModel:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"LanguageModel({self._origin.name}: {self._session.position} of {self.max_context} tokens)"

    def _checked(self, ids: Sequence[int]) -> list[int]:
        """Validate token ids against the vocabulary and the context."""
        tokens, held = _numbers(ids, "tokens"), self._session.position
        if held + len(tokens) > self.max_context:
            there = f"{held:,} in the cache and " if held else ""
            raise InputError(
                f"{there}{counted(len(tokens), 'token')} given, the context holds {self.max_context:,}; shorten the "
                f"text, or {larger_context(self.trained_context, held + len(tokens))}"
            )
        wrong = next((token for token in tokens if not 0 <= token < self.vocab_size), None)
        if wrong is not None:
            raise InputError(f"token {wrong} is outside the vocabulary of {self.vocab_size:,}")
        return tokens


def _numbers(given: Any, what: str) -> list[int]:
    """Integers of any type as Python's int."""
    try:
        return [operator.index(each) for each in given]
    except TypeError as error:
        kind = type(given).__name__
        raise InputError(f"{what} must be whole numbers, {kind} {_short(given)} was given: {error}") from error


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _sampling(given: Sampling | None) -> Sampling:
    if given is not None and not isinstance(given, Sampling):
        raise InputError(f"sampling must be a Sampling or None, {_short(given)} was given")
    return given or Sampling()


def _close(program: Program | None, source: Source) -> None:
    if program is not None:
        program.close()
    source.close()
