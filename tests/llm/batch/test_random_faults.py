"""Random requests while the device fails at random calls: those that ran are told, and asked again they have the tokens
that each has alone; nothing is mixed up, and every page is free at the end."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from liveshape.device.backends import open_device
from liveshape.errors import DeviceError
from liveshape.llm.batch.loading import load_runner
from liveshape.llm.language_model import LanguageModel
from liveshape.llm.serving.batch_engine import BatchEngine
from liveshape.llm.text.tokenizer import Tokenizer
from liveshape.shipped import shipped_model
from tests.llm.batch.crowd import Subject, page_bytes
from tests.support.llamas import Tiny, program
from tests.survival.faulty import FaultyDevice
from tests.survival.subjects import live_bytes

CONTEXT = 40
TOKENIZER = Tokenizer.load(shipped_model())  # of other words, which nobody reads
ENDS = TOKENIZER.eos_ids | {2, 3}


class Faults:
    """An engine on a device that fails now and then, and requests that are asked until they are answered."""

    def __init__(self, subject: Subject, seed: int) -> None:
        self.subject, self.draw = subject, random.Random(seed)
        self.device = FaultyDevice(open_device())
        self.told: list[str] = []  # what requests heard of failures
        prompts = [[self.draw.randint(4, 90) for _ in range(self.draw.randint(2, 26))] for _ in range(4)]
        self.prompts = [self._cut(self.draw.choice(prompts)) for _ in range(40)]

    def _cut(self, prompt: list[int]) -> list[int]:
        """A part of a prompt that others begin with, too, and a token of its own."""
        return [*prompt[: self.draw.randint(1, len(prompt))], self.draw.randint(4, 90)]

    def arm(self) -> None:
        """Let one of the next calls fail, before it is done or after."""
        self.device.fail_at(self.draw.randint(1, 120), DeviceError("injected"), after=self.draw.random() < 0.5)

    async def answer(self, engine: BatchEngine, prompt: list[int], lookahead: Any) -> list[int]:
        while True:
            try:
                count = CONTEXT - len(prompt)
                answer = engine.generate(prompt, max_tokens=min(count, 12), temperature=0, lookahead=lookahead)
                if self.draw.random() < 0.1:
                    await answer.aclose()  # and asked again
                    continue
                return [response.token async for response in answer]
            except DeviceError as error:
                self.told.append(str(error))
                if self.device.has_failed and len(self.told) < 100:
                    self.arm()

    async def run(self, pages: int) -> list[list[int]]:
        cache_bytes = pages * page_bytes(self.subject)
        runner, description = load_runner(
            self.subject.file, sequences=5, cache_bytes=cache_bytes, **{**self.subject.options, "device": self.device}
        )
        engine = BatchEngine(runner, TOKENIZER, description)
        self.arm()
        asked = []
        for prompt in self.prompts:
            asked.append(asyncio.create_task(self.answer(engine, prompt, self.draw.choice([None, "ngram"]))))
            await asyncio.sleep(self.draw.choice([0, 0, 0.01]))
        got = await asyncio.gather(*asked)
        self.device.count()  # nothing fails from here
        status = engine.status
        assert (status.running, status.waiting, status.pages_in_use) == (0, 0, 0)
        await engine.close()
        return got


def check(subject: Subject, pages: int, seed: int) -> None:
    faults = Faults(subject, seed)
    before = live_bytes(faults.device)
    got = asyncio.run(faults.run(pages))
    assert {"injected"} == set(faults.told)
    assert live_bytes(faults.device) == before
    with LanguageModel.load(subject.file, **subject.options) as model:
        for prompt, found in zip(faults.prompts, got, strict=True):
            model.reset()
            assert found == list(model.stream(prompt, max_tokens=min(CONTEXT - len(prompt), 12), stop_ids=ENDS))


def test_forty_requests() -> None:
    check(Subject(program(Tiny("last"))), 7, 1)


@pytest.mark.slow
@pytest.mark.parametrize("pages", [4, 9, 30])
@pytest.mark.parametrize("half_cache", [False, True])
def test_five_hundred_requests(pages: int, half_cache: bool) -> None:
    for tiny in (Tiny("last"), Tiny("qwen", qwen=True)):
        for seed in range(2):
            check(Subject(program(tiny), half_cache), pages, seed)
