"""Sequences of one's own that fork, are cut, saved to files and restored from those of others, at random, beside each
other, on pools that are too small for all of them: windows, drafts, penalties and half caches among them."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Any

import pytest

from liveshape.llm.batch.loading import load_runner
from liveshape.llm.language_model import LanguageModel
from liveshape.llm.sampling_settings import Sampling
from liveshape.llm.serving.batch_engine import BatchEngine
from liveshape.llm.serving.engine_sequence import EngineSequence
from liveshape.llm.text.tokenizer import Tokenizer
from liveshape.shipped import shipped_model
from tests.llm.batch.crowd import Subject, page_bytes
from tests.llm.batch.test_families import exported
from tests.support.llamas import Tiny, program

TOKENIZER = Tokenizer.load(shipped_model())  # of other words, which nobody reads
FULL = Tiny("long context", max_context=96)
CONTEXT = 96
PAGES = 7
KINDS = ("full", "mistral", "gemma2", "qwen3", "ministral", "mistral half")


def subject_of(kind: str, path: Path) -> Subject:
    """`mistral` has a window in every layer, so that pages behind it are given back; the others in some."""
    if kind == "full":
        return Subject(program(FULL))
    name, _, half = kind.partition(" ")
    return Subject(exported(name, path), half_cache=bool(half))


class Sequences:
    """Sequences, the ids that each must have, and the model that answers alone."""

    def __init__(self, subject: Subject, model: LanguageModel, path: Path, seed: int) -> None:
        options = {"cache_bytes": PAGES * page_bytes(subject), "max_context": CONTEXT, **subject.options}
        runner, description = load_runner(subject.file, sequences=4, **options)
        self.engine = BatchEngine(runner, TOKENIZER, description)
        self.model, self.path, self.draw = model, path, random.Random(seed)
        self.files: list[tuple[Path, list[int]]] = []
        self.all: list[tuple[EngineSequence, list[int]]] = [(EngineSequence(self.engine), [])]

    def alone(self, ids: list[int], count: int, penalty: float) -> list[int]:
        self.model.reset()
        sampling, ends = Sampling(repetition_penalty=penalty), {*TOKENIZER.eos_ids, *self.engine.eos_ids}
        return list(self.model.stream(ids, sampling, max_tokens=count, stop_ids=ends))

    async def change(self) -> None:
        """One of them is forked, cut, saved, or goes on from a file of any other, a model's among them."""
        sequence, ids = self.draw.choice(self.all)
        action = self.draw.choice(("fork", "cut", "save", "save", "restore", "restore", "of a model", "none"))
        if action == "fork" and len(self.all) < 5:
            self.all.append((sequence.fork(), list(ids)))
        elif action == "cut":
            del ids[self.draw.randint(0, len(ids)) :]
            sequence.truncate(len(ids))
        elif action == "save" and ids:
            self.files.append((self.path / f"saved{len(self.files)}", list(ids)))
            await sequence.save(self.files[-1][0])
        elif action == "of a model" and ids:
            self.files.append((self.path / f"saved{len(self.files)}", list(ids)))
            self.model.reset()
            self.model.prefill(ids)
            self.model.save(self.files[-1][0])
        elif action == "restore" and self.files:
            file, saved = self.draw.choice(self.files)
            await sequence.restore(file)
            ids[:] = saved

    async def answer(self) -> None:
        """Some of them, beside each other."""
        asked: list[tuple[EngineSequence, list[int], int, float, Any]] = []
        for sequence, ids in self.draw.sample(self.all, self.draw.randint(1, len(self.all))):
            if len(ids) > 60:
                del ids[20:]
                sequence.truncate(20)
            position = len(ids)
            ids += [self.draw.randint(4, 90) for _ in range(self.draw.randint(1, 24))]
            penalty, count = self.draw.choice((1.0, 1.0, 1.7)), self.draw.randint(1, 8)
            lookahead = self.draw.choice((None, "ngram"))
            answer = sequence.generate(
                ids[position:], max_tokens=count, temperature=0, repetition_penalty=penalty, lookahead=lookahead
            )
            asked.append((sequence, ids, count, penalty, answer))

        async def read(answer: Any) -> list[int]:
            return [response.token async for response in answer]

        told = await asyncio.gather(*(read(answer) for *_, answer in asked))
        for (sequence, ids, count, penalty, _), tokens in zip(asked, told, strict=True):
            assert tokens == self.alone(ids, count, penalty)
            ids += tokens[:-1]
            assert sequence.tokens == tuple(ids)

    async def run(self, turns: int) -> None:
        for _ in range(turns):
            await self.change()
            await self.answer()
        for sequence, _ in self.all:
            sequence.close()
        assert self.engine.status.pages_in_use == 0
        await self.engine.close()


def check(kind: str, path: Path, seeds: range, turns: int = 12) -> None:
    subject = subject_of(kind, path)
    with LanguageModel.load(subject.file, max_context=CONTEXT, **subject.options) as model:
        for seed in seeds:
            asyncio.run(Sequences(subject, model, path, seed).run(turns))


@pytest.mark.parametrize("kind", ["full", "mistral"])
def test_random_sequences(kind: str, tmp_path: Path) -> None:
    check(kind, tmp_path, range(1))


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_many_random_sequences(kind: str, tmp_path: Path) -> None:
    check(kind, tmp_path, range(1, 12), 20)
