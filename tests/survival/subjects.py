"""What is disturbed: a method and a language model, each with what it gives when nobody disturbs it.

A text is fixed beforehand, with the logits after every token of it. Whatever happens to a model, its tokens must be a
prefix of that text, and its logits those of the prefix.
"""

from __future__ import annotations

import gc
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from liveshape.device.protocol import Device
from liveshape.errors import InputError
from liveshape.formats.source import Source
from liveshape.llm.engine.engine import Engine
from liveshape.llm.language_model import LanguageModel, Origin
from liveshape.llm.program.token_graph import token_graph
from liveshape.llm.sampling_settings import Sampling
from liveshape.runtime import Method, Runtime
from liveshape.tools.measuring.random_llamas import Shape, llama_graph

ROOT = Path(__file__).parents[2]
BLOCK, STORY = ROOT / "liveshape/demo/block.pte", ROOT / "liveshape/demo/story"
TINY = Shape(2, 64, 128, 4, 2, 16, 256, 32, 16, 96)
DRAWN = Sampling(temperature=0.8, top_k=40, repetition_penalty=1.1, seed=5)
LENGTHS = (1, 2, 3, 7, 16, 29, 41, 64, 100, 128)
PROMPT = 6


def tiny_model(device: Device) -> LanguageModel:
    """A Llama that computes a token in a millisecond, with a cache that can be saved."""
    graph = token_graph(llama_graph(TINY, device.limits), {})
    return LanguageModel(Engine(graph, device), Origin("tiny", Source(b"tiny")))


def live_bytes(device: Device) -> int:
    """Bytes of the device that are in use, without those that only wait to be collected."""
    gc.collect()
    return device.counters.live_bytes


class Block:
    """The method of `block.pte` at a few lengths."""

    def __init__(self, device: Device) -> None:
        self.device = device
        draw = np.random.default_rng(0)
        self.inputs = {length: draw.standard_normal((1, length, 64)).astype(np.float32) for length in LENGTHS}
        self.method = self.load()
        self.expected = {length: self.method.execute([x])[0] for length, x in self.inputs.items()}

    def load(self) -> Method:
        return Runtime(self.device).load_program(BLOCK).load_method("forward")

    def call(self, length: int, method: Method | None = None) -> None:
        """Run, and compare with the undisturbed result: the same kernels give the same bytes."""
        np.testing.assert_array_equal((method or self.method).execute([self.inputs[length]])[0], self.expected[length])


class Text:
    """A language model, the text that it writes, and the logits after each of its tokens."""

    def __init__(self, model: LanguageModel, folder: Path, length: int = 24) -> None:
        self.model, self.file = model, folder / "text.cache"
        prompt = [(37 * place + 11) % model.vocab_size for place in range(PROMPT)]
        self.tokens = prompt + list(model.stream(prompt, DRAWN, max_tokens=length - PROMPT))
        model.reset()
        self.logits = [None, *model.evaluate(self.tokens)]
        self.forks: list[LanguageModel] = []
        self.stream: Iterator[int] | None = None
        self._fill()

    def _fill(self) -> None:
        """Memory that comes with the first use and then stays, such as that of a text which waits for another."""
        other = self.model.fork()
        for each in (other, self.model, other, self.model):
            self.check(each)
        other.close()
        self.model.reset()

    def check(self, model: LanguageModel | None = None) -> None:
        """The model holds a prefix of the text, and knows what follows."""
        model = model or self.model
        held = model.tokens
        assert held == tuple(self.tokens[: len(held)]), f"{held} are no prefix of {self.tokens}"
        if held:
            np.testing.assert_allclose(model.logits(), self.logits[len(held)], 1e-3, 1e-4)

    def follows(self, model: LanguageModel | None = None) -> None:
        """A stream from here writes the rest of the text, three tokens at most."""
        model = model or self.model
        begin = model.position
        if PROMPT <= begin < len(self.tokens):
            rest = self.tokens[begin : begin + 3]
            assert list(model.stream([], DRAWN, max_tokens=len(rest))) == rest

    # Things that people do, each at random

    def actions(self) -> list[Callable[[random.Random], None]]:
        """Each leaves the model, and its forks, with a prefix of the text."""
        return [
            self.prefill,
            self.generate,
            self.go_on,
            self.choose,
            self.cut,
            self.reset,
            self.fork,
            self.use_fork,
            self.save,
            self.restore,
        ]

    def prefill(self, draw: random.Random) -> None:
        begin = self.model.position
        self.model.prefill(self.tokens[begin : begin + draw.randint(1, 8)])

    def generate(self, draw: random.Random) -> None:
        self._ready(draw)
        count, begin = draw.randint(1, 4), self.model.position
        self.stream = self.model.stream([], DRAWN, max_tokens=count)
        assert list(self.stream) == self.tokens[begin : begin + count]

    def go_on(self, draw: random.Random) -> None:
        """A stream that was left alone or interrupted says the next token of its text, or that it is over."""
        if self.stream is None or self.model.position > len(self.tokens) - 2:
            self._ready(draw)
            self.stream = self.model.stream([], DRAWN)
        begin = self.model.position
        try:
            token = next(self.stream)
        except StopIteration:
            self.stream = None
        except InputError as error:
            if "used otherwise" not in str(error):
                raise
            self.stream = None
        else:
            # After an interrupt the token may be in the cache already, and comes again.
            assert token in (self.tokens[begin], self.tokens[begin - 1])

    def choose(self, draw: random.Random) -> None:
        self._ready(draw)
        assert self.model.next_token(DRAWN) == self.tokens[self.model.position]

    def cut(self, draw: random.Random) -> None:
        self.model.truncate(draw.randint(0, self.model.position))

    def reset(self, draw: random.Random) -> None:
        self.model.reset()

    def fork(self, draw: random.Random) -> None:
        if len(self.forks) == 3:
            if draw.random() < 0.5:
                self.forks[0].close()
            del self.forks[0]
        self.forks.append(self.model.fork())

    def use_fork(self, draw: random.Random) -> None:
        if self.forks:
            other = draw.choice(self.forks)
            begin = other.position
            other.prefill(self.tokens[begin : begin + draw.randint(1, 3)])

    def save(self, draw: random.Random) -> None:
        self.model.save(self.file)

    def restore(self, draw: random.Random) -> None:
        if self.file.exists():
            self.model.restore(self.file)

    def _ready(self, draw: random.Random) -> None:
        """A text that begins with the prompt, and does not end with the text."""
        if self.model.position > len(self.tokens) - 5:
            self.model.truncate(draw.randint(PROMPT, len(self.tokens) - 5))
        if self.model.position < PROMPT:
            self.model.prefill(self.tokens[self.model.position : PROMPT])

    def leave(self) -> None:
        """End everything but the model."""
        for fork in self.forks:
            fork.close()
        self.forks.clear()
        self.stream = None
        self.model.reset()


def pick(draw: random.Random, text: Text) -> Any:
    """One of the actions."""
    return draw.choice(text.actions())
