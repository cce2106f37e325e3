"""Threads that share a method, a model or its forks, and one that closes what the others use, as a program of its own:
an abort or a hang is then a failure of the test alone.

Run: python -m tests.survival.threads method
"""

from __future__ import annotations

import random
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from liveshape.device.backends import open_device
from liveshape.errors import LiveshapeError
from liveshape.llm.language_model import LanguageModel
from liveshape.runtime import Runtime
from tests.survival.subjects import BLOCK, DRAWN, LENGTHS, PROMPT, Block, Text, live_bytes, tiny_model

_STEPS = 25
_CLOSINGS = 6


class Crew:
    """Threads that do something again and again; what they raise is kept."""

    def __init__(self) -> None:
        self.seen = Counter[str]()
        self.wrong: list[BaseException] = []
        self._threads: list[threading.Thread] = []

    def add(self, work: Callable[[random.Random], object], may_refuse: bool, steps: int = _STEPS) -> None:
        """One more thread; an error of the package is an answer where it `may_refuse`."""
        draw = random.Random(len(self._threads))

        def run() -> None:
            for _ in range(steps):
                try:
                    work(draw)
                    self.seen["right"] += 1
                except LiveshapeError as error:
                    self.seen["refused"] += 1
                    if not may_refuse:
                        self.wrong.append(error)
                except BaseException as error:
                    self.wrong.append(error)

        self._threads.append(threading.Thread(target=run, daemon=True))

    def work(self, meanwhile: Callable[[], object] = lambda: None) -> None:
        """All at once, until the last is done."""
        for thread in self._threads:
            thread.start()
        meanwhile()
        for thread in self._threads:
            thread.join()
        if self.wrong:
            raise self.wrong[0]


def streamed(text: Text, model: LanguageModel) -> None:
    """A text of its own from the start, as far as nobody else comes in between."""
    stream = model.lock.run(lambda: (model.reset(), model.stream(text.tokens[:PROMPT], DRAWN, max_tokens=4))[1])
    for place, token in enumerate(stream, PROMPT):
        assert token == text.tokens[place]


def checked(text: Text, model: LanguageModel, draw: random.Random) -> None:
    """A text that nobody else can touch, since the thread holds the lock."""

    def work() -> None:
        model.reset()
        model.prefill(text.tokens[: draw.randint(1, len(text.tokens))])
        text.check(model)

    model.lock.run(work)


def one_method(folder: Path) -> Counter[str]:
    block, crew = Block(open_device()), Crew()
    for _ in range(4):
        crew.add(lambda draw: block.call(draw.choice(LENGTHS)), may_refuse=False)
    crew.work()
    return crew.seen


def one_model(folder: Path) -> Counter[str]:
    text, crew = Text(tiny_model(open_device()), folder), Crew()
    crew.add(lambda draw: streamed(text, text.model), may_refuse=True)
    crew.add(lambda draw: checked(text, text.model, draw), may_refuse=False)
    crew.work()
    return crew.seen


def forks(folder: Path) -> Counter[str]:
    text, crew = Text(tiny_model(open_device()), folder), Crew()
    for fork in (text.model.fork(), text.model.fork(), text.model):
        crew.add(lambda draw, fork=fork: (streamed(text, fork), checked(text, fork, draw)), may_refuse=False, steps=10)
    crew.add(lambda draw: text.check(text.model.fork()), may_refuse=False)  # whatever is there now, as a fork
    crew.work()
    return crew.seen


def closing(folder: Path) -> Counter[str]:
    """A method and a model are closed while others use them: right, or refused, and all memory comes back."""
    device, seen, draw = open_device(), Counter[str](), random.Random(7)
    known = Block(device)
    before = live_bytes(device)
    for _ in range(_CLOSINGS):
        text, crew = Text(tiny_model(device), folder), Crew()
        program = Runtime(device).load_program(BLOCK)
        method, fork = program.load_method("forward"), text.model.fork()
        crew.add(lambda draw, text=text: streamed(text, text.model), may_refuse=True)
        crew.add(lambda draw, text=text, fork=fork: checked(text, fork, draw), may_refuse=True)
        crew.add(lambda draw, text=text: text.model.save(text.file), may_refuse=True)
        crew.add(lambda draw, text=text: text.model.restore(text.file), may_refuse=True)
        crew.add(lambda draw, method=method: known.call(draw.choice(LENGTHS), method), may_refuse=True)

        def close(text: Text = text, program: object = program, crew: Crew = crew) -> None:
            while not crew.seen["right"]:
                time.sleep(0.001)
            time.sleep(draw.uniform(0, 0.1))
            program.close()  # type: ignore[attr-defined]
            text.model.close()

        text.model.save(text.file)
        crew.work(close)
        seen += crew.seen
        left = live_bytes(device)
        assert left == before, f"{before:,} bytes were live, {left:,} are after closing"
    assert seen["refused"], "nothing was closed while it was used"
    return seen


SCENES = {"method": one_method, "model": one_model, "forks": forks, "closing": closing}


if __name__ == "__main__":
    sys.setswitchinterval(1e-5)
    with tempfile.TemporaryDirectory() as made:
        print(dict(SCENES[sys.argv[1]](Path(made))), flush=True)
