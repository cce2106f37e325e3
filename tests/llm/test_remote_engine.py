"""An engine in a process of its own is the engine: texts, errors, cancels, its end, and another one when it died."""

from __future__ import annotations

import asyncio
import os
import pickle
import signal
import threading
import time
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from liveshape.errors import DeviceError, EngineClosed, EngineDied, InputError, QueueFull
from liveshape.llm.generation.responses import GenerationResponse
from liveshape.llm.serving.answer_channel import AnswerChannel
from liveshape.llm.serving.async_engine import AsyncEngine
from liveshape.llm.serving.engine_process import PipeChannel
from liveshape.llm.serving.remote_engine import RemoteEngine
from liveshape.serve.refusals import refusal_of
from tests.llm.batch.fake_runner import FakeRunner, fake_engine


def following(tokens: list[int]) -> int:
    return ord("a") + (7 * tokens[0] + len(tokens)) % 26


def wanted(first: int, count: int, prompt: int = 1) -> list[int]:
    return [following([first] * (prompt + place)) for place in range(count)]


def opened(channel: AnswerChannel, **options: Any) -> AsyncEngine:
    """An engine without a device, in the other process."""
    return fake_engine(FakeRunner(following), channel=channel, **options)


def held(file: Path, channel: AnswerChannel, **options: Any) -> AsyncEngine:
    """One whose steps wait for a file."""

    def later(tokens: list[int]) -> int:
        while not file.exists():
            time.sleep(0.001)
        return following(tokens)

    return fake_engine(FakeRunner(later), channel=channel, **options)


def hurried(channel: AnswerChannel) -> AsyncEngine:
    """One whose answers end before it has said that they were accepted."""
    engine: Any = opened(channel)
    generate = engine.generate

    def ended(prompt: Any, **options: Any) -> Any:
        answer = generate(prompt, **options)
        while not answer.ended:
            time.sleep(0.001)
        return answer

    engine.generate = ended
    return engine  # type: ignore[no-any-return]


class HeldSends:
    """A pipe that takes nothing until `go`."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self.begun, self.go, self.sent = threading.Event(), threading.Event(), threading.Event()

    def send_bytes(self, data: bytes) -> None:
        self.begun.set()
        assert self.go.wait(1800), "the test never let it be sent"
        self._connection.send_bytes(data)
        self.sent.set()


class FullPipe:
    """A pipe that is full while there is one file and not the other."""

    def __init__(self, connection: Any, folder: Path) -> None:
        self._connection, self._folder = connection, folder

    def send_bytes(self, data: bytes) -> None:
        while (self._folder / "full").exists() and not (self._folder / "read").exists():
            time.sleep(0.001)
        self._connection.send_bytes(data)


def unheard(folder: Path, channel: Any) -> AsyncEngine:
    """One whose steps wait for a file, and whose server reads nothing for a while."""
    channel.connection = FullPipe(channel.connection, folder)
    return held(folder / "go", channel)


def refusing(channel: AnswerChannel) -> AsyncEngine:
    raise InputError("there is no such model")


def dying(channel: AnswerChannel) -> AsyncEngine:
    os._exit(3)


@pytest.fixture(scope="module")
def engine() -> Iterator[RemoteEngine]:
    made = RemoteEngine(opened)
    yield made
    asyncio.run(made.close())


async def whole(answer: AsyncGenerator[GenerationResponse, None]) -> list[int]:
    return [response.token async for response in answer]


def run(steps: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(steps(), 1800))


def test_tokens_of_many_and_what_is_refused(engine: RemoteEngine) -> None:
    async def steps() -> None:
        answers = [engine.generate([each], max_tokens=9) for each in range(4)]
        found = await asyncio.gather(*(whole(answer) for answer in answers))
        assert list(found) == [wanted(each, 9) for each in range(4)]
        with pytest.raises(InputError, match="temperature"):
            engine.generate([1], temperature=-1)
        with pytest.raises(InputError, match="functions cannot be sent"):
            engine.generate([1], sampler=lambda logits: 0)
        assert engine.status.requests == 0
        assert engine.status.generated_tokens == 36
        assert engine.facts.sequences == 4
        assert engine.tokenizer.vocab_size > 0

    run(steps)


def test_an_answer_may_end_before_it_is_known_to_be_accepted() -> None:
    async def steps() -> None:
        engine = RemoteEngine(hurried)
        for first in range(3):
            assert await whole(engine.generate([first], max_tokens=5)) == wanted(first, 5)
        assert engine.status.requests == 0
        await engine.close()

    run(steps)


def test_one_who_leaves_frees_and_disturbs_nobody(engine: RemoteEngine) -> None:
    async def steps() -> None:
        stays = engine.generate([5], max_tokens=40)
        for _ in range(12):
            leaves = engine.generate([6], max_tokens=60)
            await anext(leaves)
            await leaves.aclose()
        assert await whole(stays) == wanted(5, 40)
        # What left is free before the next one is answered.
        assert await whole(engine.generate([7], max_tokens=3)) == wanted(7, 3)
        while engine.status.pages_in_use:
            assert await whole(engine.generate([8], max_tokens=1)) == wanted(8, 1)

    run(steps)


def test_answers_arrive_while_a_request_is_being_sent(tmp_path: Path) -> None:
    async def steps() -> None:
        engine: Any = RemoteEngine(partial(held, tmp_path / "go"))
        first = engine.generate([1], max_tokens=5)
        pipe = engine._connection = HeldSends(engine._connection)
        asked = asyncio.create_task(asyncio.to_thread(engine.generate, [2], max_tokens=3))
        await asyncio.to_thread(pipe.begun.wait, 1800)
        (tmp_path / "go").touch()
        assert await whole(first) == wanted(1, 5)
        assert engine.status.requests == 1
        pipe.go.set()
        assert await whole(await asked) == wanted(2, 3)
        await engine.close()

    run(steps)


def test_requests_are_read_while_the_pipe_of_answers_is_full(tmp_path: Path) -> None:
    async def steps() -> None:
        engine: Any = RemoteEngine(partial(unheard, tmp_path))
        running = [engine.generate([each], max_tokens=3) for each in range(4)]
        leaves = engine.generate([4], max_tokens=3)
        (tmp_path / "full").touch()
        await leaves.aclose()  # it waits, and so ends in the thread that hears of it
        pipe = engine._connection = HeldSends(engine._connection)
        pipe.go.set()
        # More than a pipe holds: it is sent once the other process reads.
        asked = asyncio.create_task(asyncio.to_thread(engine.generate, [5], max_tokens=3, stop=["x" * 2_000_000]))
        assert await asyncio.to_thread(pipe.sent.wait, 1800), "the other process does not read"
        for name in ("read", "go"):
            (tmp_path / name).touch()
        assert [await whole(answer) for answer in running] == [wanted(each, 3) for each in range(4)]
        assert await whole(await asked) == wanted(5, 3)
        await engine.close()

    run(steps)


def test_what_one_thread_took_is_sent_before_what_follows_it() -> None:
    """One that ends an answer takes the responses of others along, and may be slow to send them."""
    sent: list[Any] = []

    class Slow:
        def __reduce__(self) -> Any:
            following.start()
            following.join(0.2)  # as far as it comes
            return str, ("first",)

    def put(item: Any) -> None:
        channel.add(1, item)
        channel.flush([])

    pipe: Any = SimpleNamespace(send_bytes=lambda data: sent.extend(item for _, item in pickle.loads(data).items))
    engine: Any = SimpleNamespace(status=None)
    channel = PipeChannel(pipe, engine)
    following = threading.Thread(target=put, args=("second",))
    put(Slow())
    following.join()
    assert sent == ["first", "second"]


def test_a_full_queue_is_told(tmp_path: Path) -> None:
    async def steps() -> None:
        engine = RemoteEngine(partial(held, tmp_path / "go", max_waiting=3))
        answers = [engine.generate([each], max_tokens=3) for each in range(4 + 3)]
        with pytest.raises(QueueFull):
            engine.generate([1])
        (tmp_path / "go").touch()
        assert [await whole(answer) for answer in answers] == [wanted(each, 3) for each in range(4 + 3)]
        await engine.close()

    run(steps)


def test_a_process_that_dies_is_told_and_another_one_serves(tmp_path: Path) -> None:
    async def steps() -> None:
        engine = RemoteEngine(partial(held, tmp_path / "go"))
        first = engine._process
        assert first is not None
        assert first.pid is not None
        running = engine.generate([1], max_tokens=60)
        os.kill(first.pid, signal.SIGKILL)
        with pytest.raises(EngineDied, match="ended with -9") as died:
            await whole(running)
        refusal = refusal_of(died.value)
        assert (refusal.status, refusal.headers) == (503, {"Retry-After": "1"})
        (tmp_path / "go").touch()
        assert engine.status.requests == 0
        assert await whole(await asyncio.to_thread(engine.generate, [2], max_tokens=5)) == wanted(2, 5)
        assert engine._process is not first
        last = engine.generate([3], max_tokens=50)
        await anext(last)
        closing = asyncio.create_task(engine.close(grace=100))
        assert await whole(last) == wanted(3, 50)[1:]
        await closing

    run(steps)


def test_closing_waits_for_answers_and_takes_no_more() -> None:
    async def steps() -> None:
        engine = RemoteEngine(opened)
        process = engine._process
        assert process is not None
        answer = engine.generate([3], max_tokens=50)
        await anext(answer)
        closing = asyncio.create_task(engine.close(grace=100))
        await asyncio.sleep(0)
        with pytest.raises(EngineClosed):
            engine.generate([4])
        assert await whole(answer) == wanted(3, 50)[1:]
        await closing
        assert not process.is_alive()
        await engine.close()

    run(steps)


def test_signals_of_the_terminal_are_the_servers_affair(engine: RemoteEngine) -> None:
    async def steps() -> None:
        process = engine._process
        assert process is not None
        assert process.pid is not None
        for number in (signal.SIGINT, signal.SIGTERM):
            os.kill(process.pid, number)
        assert await whole(engine.generate([9], max_tokens=5)) == wanted(9, 5)

    run(steps)


@pytest.mark.parametrize(("opening", "error"), [(refusing, "no such model"), (dying, "ended with 3")])
def test_what_cannot_be_opened_is_told(opening: Any, error: str) -> None:
    with pytest.raises((InputError, DeviceError), match=error):
        RemoteEngine(opening)
