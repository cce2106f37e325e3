"""Engines end by `with`, `async with`, `close_sync` and with the process; misspelled options are told."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import liveshape
from liveshape import llm
from liveshape.errors import EngineClosed, InputError
from liveshape.llm.serving.engine_sequence import EngineSequence
from tests.llm.test_deferred_answer import serial, text_of, together

NOT_CLOSED = """
from liveshape.llm.serving.remote_engine import RemoteEngine
from tests.llm.batch.fake_runner import FakeRunner, fake_engine


def opened(channel):
    return fake_engine(FakeRunner(lambda tokens: 0), channel=channel)


if __name__ == "__main__":
    print(RemoteEngine(opened).facts.sequences)
"""


def slowly(tokens: Any, logits: Any) -> Any:
    time.sleep(0.05)
    return logits


@pytest.mark.parametrize("make", [together, serial])
def test_engines_end_with_their_block(make: Callable[[], Any]) -> None:
    with make() as engine:
        assert len(asyncio.run(text_of(engine.generate([1], max_tokens=3)))) == 3
    with pytest.raises(EngineClosed):
        engine.generate([1])
    engine.close_sync()  # once more

    async def steps() -> None:
        async with make() as engine:
            assert len(await text_of(engine.generate([1], max_tokens=4))) == 4
        with pytest.raises(EngineClosed):
            engine.generate([1])
        with make() as engine:  # the event loop stands until it is closed
            answer = engine.generate([1], max_tokens=1000, logits_processors=[slowly])
        with pytest.raises(EngineClosed):
            await text_of(answer)

    asyncio.run(steps())


def test_an_engine_that_nobody_closed_ends_with_its_process(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(NOT_CLOSED)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path))}
    done = subprocess.run(
        [sys.executable, str(tmp_path / "script.py")], env=environment, capture_output=True, text=True, timeout=600
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "4\n", "")


@pytest.mark.parametrize(
    ("call", "given", "meant"),
    [
        (llm.load, {"max_contxt": 3}, "load has no option max_contxt; did you mean max_context?"),
        (llm.open_engine, {"sequence": 1}, "open_engine has no option sequence; did you mean sequences?"),
        (llm.open_engine, {"halfcache": True}, "did you mean half_cache?"),
        (llm.generate, {"max_token": 1}, "generate has no option max_token; did you mean max_tokens?"),
        (llm.stream_generate, {"temprature": 1}, "did you mean temperature?"),
        (liveshape.load, {"colour": 1}, "load has no option colour; it has device"),
    ],
)
def test_misspelled_options(call: Callable[..., Any], given: dict[str, Any], meant: str) -> None:
    with pytest.raises(InputError) as told:
        call("nothing", **given)
    assert meant in str(told.value)
    assert isinstance(told.value, TypeError)


@pytest.mark.parametrize("make", [together, serial])
def test_misspelled_options_of_engines(make: Callable[[], Any]) -> None:
    with make() as engine:
        with pytest.raises(TypeError, match="generate has no option max_new_tokens; did you mean max_tokens"):
            engine.generate([1], max_new_tokens=3)
        if make is together:
            with pytest.raises(TypeError, match="did you mean seed"):
                EngineSequence(engine).generate([1], sead=3)
