"""Several texts of one model in any order: forks with a stream each, saved, restored, cut and asked in between."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from liveshape.errors import InputError
from liveshape.llm.engine.stream import Stream
from liveshape.llm.language_model import LanguageModel
from tests.llm.sessions import after
from tests.llm.test_model import DRAWN, IDS, close, stepwise

MOST_TOKENS = 18  # of the 40 of the context, before something is added: no stream ends by itself


class Texts:
    """A model and its forks: what each must hold, and its stream, if nothing has moved the text since it began."""

    def __init__(self, model: LanguageModel, folder: Path, seed: int) -> None:
        self.root, self.folder, self.draw = model, folder, random.Random(seed)
        self.held: dict[LanguageModel, list[int]] = {model: []}
        self.streams: dict[LanguageModel, Stream] = {}
        self.saved: list[tuple[Path, list[int]]] = []

    def moved(self, text: LanguageModel) -> None:
        """Whatever moves a text ends its stream."""
        stream = self.streams.pop(text, None)
        if stream is not None:
            with pytest.raises(InputError, match="used otherwise"):
                next(stream)

    # What people do

    def begin(self, text: LanguageModel) -> None:
        ids = self.draw.sample(IDS, self.draw.randint(0 if self.held[text] else 1, 9))
        stream = text.stream(ids, DRAWN, logits=True)
        self.moved(text)
        self.held[text] += ids
        self.streams[text] = stream

    def go_on(self, text: LanguageModel) -> None:
        if text not in self.streams:
            self.begin(text)
        for _ in range(self.draw.randint(1, 6)):  # more than there are steps ahead
            token = next(self.streams[text])
            close(self.streams[text].logits, after(self.held[text]))
            self.held[text].append(token)
        assert text.tokens == tuple(self.held[text])

    def fork(self, text: LanguageModel) -> None:
        if len(self.held) == 4:
            text.fork().close()
        else:
            self.held[text.fork()] = list(self.held[text])

    def leave(self, text: LanguageModel) -> None:
        if text is not self.root:
            text.close()
            del self.held[text]
            self.streams.pop(text, None)

    def visit(self, text: LanguageModel) -> None:
        """A longer text comes in and one with a stream again, without a step in between; then that stream goes on."""
        text = self.draw.choice(list(self.streams) or [text])
        for each in (max(self.held, key=lambda other: len(self.held[other])), text):
            self.draw.choice([self.fork, self.save])(each)
        self.go_on(text)

    def save(self, text: LanguageModel) -> None:
        path = self.folder / f"{len(self.saved)}.cache"
        text.save(path)
        self.saved.append((path, list(self.held[text])))

    def restore(self, text: LanguageModel) -> None:
        if self.saved:
            path, tokens = self.draw.choice(self.saved)
            text.restore(path)
            self.held[text] = list(tokens)
            self.moved(text)

    def cut(self, text: LanguageModel) -> None:
        length = self.draw.randint(0, len(self.held[text]))
        moves = length < len(self.held[text])
        text.truncate(length)
        del self.held[text][length:]
        if moves:
            self.moved(text)

    def reset(self, text: LanguageModel) -> None:
        text.reset()
        self.held[text].clear()
        self.moved(text)

    def prefill(self, text: LanguageModel) -> None:
        ids = self.draw.sample(IDS, 2)
        text.prefill(ids)
        self.held[text] += ids
        self.moved(text)

    def ask(self, text: LanguageModel) -> None:
        """Questions do not move a text."""
        if self.held[text]:
            token = text.next_token(DRAWN)
            close(text.logits(), after(self.held[text]))
            assert text.next_token(DRAWN) == token

    def run(self, actions: int) -> None:
        """So many of them, mostly tokens and what swaps texts without a step."""
        often: list[Callable[[LanguageModel], None]] = [self.go_on, self.visit, self.fork, self.save, self.ask]
        rare: list[Callable[[LanguageModel], None]] = [
            *(self.cut, self.reset, self.prefill, self.restore, self.begin, self.leave)
        ]
        for _ in range(actions):
            text = self.draw.choice(list(self.held))
            if len(self.held[text]) > MOST_TOKENS:
                self.reset(text)
            self.draw.choice(often if self.draw.random() < 0.85 else rare)(text)
        for text, tokens in self.held.items():
            assert text.tokens == tuple(tokens)
        for text in [each for each in self.held if each is not self.root]:
            text.close()


@pytest.mark.parametrize("seed", range(3))
def test_texts_in_any_order_agree_with_torch(model: LanguageModel, tmp_path: Path, seed: int) -> None:
    Texts(model, tmp_path, seed).run(60)


@pytest.mark.parametrize("how", ["fork", "save"])
def test_a_swap_between_two_tokens_of_a_stream(model: LanguageModel, tmp_path: Path, how: str) -> None:
    """Another text comes in and goes without a step: rows of steps ahead are lost, though nothing ran since."""
    expected = stepwise(model, IDS[:4], DRAWN, 12)
    model.reset()
    other = model.fork()
    other.prefill(IDS[8:28])
    stream = model.stream(IDS[:4], DRAWN, max_tokens=12)
    got = [next(stream) for _ in range(3)]
    for text in (other, model):
        if how == "fork":
            text.fork().close()
        else:
            text.save(tmp_path / "cache")
    assert got + list(stream) == expected
