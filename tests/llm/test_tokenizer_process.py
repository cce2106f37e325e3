"""Long texts in a process of its own: the same ids, its errors, an end when the reader leaves, and another process."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator

import pytest

from liveshape.errors import InputError, LiveshapeError
from liveshape.llm.serving.tokenizer_process import ReaderLeft, TokenizerProcess
from liveshape.llm.text.tokenizer import Tokenizer
from tests.llm.texts import END, START, byte_level


class Odd(Tokenizer):
    """One that stops for ever, or dies, at some texts."""

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        while text == "slow":
            time.sleep(1)
        if text == "dies":
            os._exit(9)
        return super().encode(text, add_special_tokens)


@pytest.fixture(scope="module")
def process() -> Iterator[TokenizerProcess]:
    made = TokenizerProcess(Odd(byte_level(), {"bos_token": START, "eos_token": END}))
    yield made
    made.close()
    with pytest.raises(LiveshapeError):
        made.encode("late", True, None, threading.Event())


def test_ids_errors_and_readers_that_leave(process: TokenizerProcess) -> None:
    stays, left = threading.Event(), threading.Event()
    tokenizer = process.tokenizer

    def check(text: str) -> None:
        assert process.encode(text, True, None, stays) == tokenizer.encode(text)
        rendered = f"{text}<\ufdd0{END[1:]}{END}"
        assert process.encode(rendered, False, "\ufdd0", stays) == tokenizer.encode_marked(rendered, "\ufdd0")

    check("Once upon a time")
    with pytest.raises(InputError, match="no text"):
        process.encode("\ud800", True, None, stays)
    ended = []

    def read(text: str) -> None:
        try:
            process.encode(text, True, None, left)
        except ReaderLeft:
            ended.append(text)

    threads = [threading.Thread(target=read, args=(text,)) for text in ("slow", "waits")]
    for thread in threads:
        thread.start()
    left.set()
    for thread in threads:
        thread.join()
    assert "slow" in ended or "waits" in ended
    with pytest.raises(LiveshapeError, match="died"):
        process.encode("dies", True, None, stays)
    check("Once more")
