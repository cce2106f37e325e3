"""The engine of many sequences when things go wrong, on a runner without a device: every request alone with its errors,
nothing lost, all pages free."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from liveshape.errors import DeviceError, EngineClosed
from liveshape.llm.generation.responses import GenerationResponse
from liveshape.llm.serving.batch_engine import BatchEngine
from liveshape.llm.serving.engine_sequence import EngineSequence
from tests.llm.batch.fake_runner import FakeRunner, fake_engine


def following(first: int, position: int) -> int:
    """The token at a position of the sequence with this first token."""
    return ord("a") + (7 * first + position) % 26


def wanted(first: int, count: int, prompt: int = 1) -> list[int]:
    return [following(first, prompt + place) for place in range(count)]


def runner_of(**bounds: int) -> FakeRunner:
    return FakeRunner(lambda cache: following(cache[0], len(cache)), **bounds)


async def whole(answer: AsyncGenerator[GenerationResponse, None]) -> list[int]:
    return [response.token async for response in answer]


async def until(holds: Callable[[], bool]) -> None:
    while not holds():
        await asyncio.sleep(0.001)


def run(steps: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(steps(), 1800))


def free(engine: BatchEngine) -> bool:
    status = engine.status
    return (status.running, status.waiting, status.pages_in_use) == (0, 0, 0)


def test_a_request_that_waits_is_free_at_once_and_before_a_response_was_read() -> None:
    async def steps() -> None:
        runner = runner_of(sequences=1)
        engine = fake_engine(runner)
        runner.gate.clear()
        first, second, third = (engine.generate([each], max_tokens=3) for each in (1, 2, 3))
        await until(runner.reading.is_set)
        await second.aclose()
        assert (engine.status.running, engine.status.waiting) == (1, 1)
        runner.gate.set()
        assert [await whole(answer) for answer in (first, second, third)] == [wanted(1, 3), [], wanted(3, 3)]
        assert free(engine)
        await engine.close()

    run(steps)


def test_one_that_leaves_before_the_engine_has_seen_it_never_runs() -> None:
    async def steps() -> None:
        runner = runner_of()
        engine = fake_engine(runner)
        runner.gate.clear()
        first = engine.generate([1], max_tokens=3)
        await until(runner.reading.is_set)
        await engine.generate([2], max_tokens=40).aclose()
        assert engine.status.requests == 1
        runner.gate.set()
        assert await whole(first) == wanted(1, 3)
        assert await whole(engine.generate([3], max_tokens=3)) == wanted(3, 3)
        assert free(engine)
        await engine.close()

    run(steps)


def test_one_that_leaves_while_its_step_is_in_flight_gets_nothing_more_and_frees_its_pages() -> None:
    async def steps() -> None:
        runner = runner_of()
        engine = fake_engine(runner)
        runner.gate.clear()
        left, stays = engine.generate([1], max_tokens=40), engine.generate([2], max_tokens=5)
        reader = asyncio.create_task(whole(left))
        await until(runner.reading.is_set)
        await left.aclose()
        runner.gate.set()
        assert await reader == []
        assert await whole(stays) == wanted(2, 5)
        await until(lambda: free(engine))
        with pytest.raises(StopAsyncIteration):
            await anext(left)
        await engine.close()

    run(steps)


@pytest.mark.parametrize("where", ["submit", "result"])
def test_an_error_in_a_step_ends_those_that_run_and_the_next_find_an_empty_pool(where: str) -> None:
    async def steps() -> None:
        runner = runner_of()
        engine = fake_engine(runner)
        runner.gate.clear()
        answers = [engine.generate([each] * 5, max_tokens=9) for each in range(6)]
        await until(runner.reading.is_set)
        runner.fails[where] = [DeviceError("injected")]
        runner.gate.set()
        for answer in answers:
            with pytest.raises(DeviceError, match="injected"):
                await whole(answer)
        assert free(engine)
        assert await whole(engine.generate([1] * 5, max_tokens=4)) == wanted(1, 4, 5)
        await engine.close()

    run(steps)


def test_after_a_device_loss_those_that_had_begun_are_told_and_the_others_are_served() -> None:
    async def steps() -> None:
        runner, other = runner_of(sequences=2), runner_of(sequences=2)
        tries: list[Any] = [other]
        engine = fake_engine(runner, reload=lambda: tries.pop())
        runner.gate.clear()
        with engine._changed:  # so that the first step has two of them
            answers = [engine.generate([each], max_tokens=9) for each in range(5)]
        await until(runner.reading.is_set)
        runner.device.lost = True
        runner.gate.set()
        for answer in answers[:2]:
            with pytest.raises(DeviceError, match="lost"):
                await whole(answer)
        assert [await whole(answer) for answer in answers[2:]] == [wanted(each, 9) for each in (2, 3, 4)]
        assert runner.closed == 1
        assert free(engine)
        await engine.close()
        assert other.closed == 1

    run(steps)


def test_a_loss_between_two_steps_is_told_to_those_that_run() -> None:
    async def steps() -> None:
        def dying(cache: list[int]) -> int:
            runner.device.lost = True
            return following(cache[0], len(cache))

        runner = FakeRunner(dying)
        engine = fake_engine(runner, reload=runner_of)
        with pytest.raises(DeviceError, match="lost"):
            await whole(engine.generate([1], max_tokens=9))
        assert await whole(engine.generate([1], max_tokens=9)) == wanted(1, 9)
        await engine.close()

    run(steps)


def test_a_device_that_is_lost_while_nothing_runs_costs_nobody_and_is_opened_until_it_can_be() -> None:
    async def steps() -> None:
        runner, other = runner_of(), runner_of()
        tries: list[Any] = [other, DeviceError("no adapter yet")]

        def reload() -> Any:
            found = tries.pop()
            if isinstance(found, Exception):
                raise found
            return found

        engine = fake_engine(runner, reload=reload)
        runner.device.lost = True
        with pytest.raises(DeviceError, match="no adapter yet"):
            await whole(engine.generate([1], max_tokens=3))
        assert await whole(engine.generate([1], max_tokens=3)) == wanted(1, 3)
        await engine.close()

    run(steps)


def test_closing_lets_requests_end_within_the_grace_and_ends_the_others() -> None:
    async def steps() -> None:
        runner = runner_of()
        engine = fake_engine(runner)
        runner.gate.clear()
        answer = engine.generate([1], max_tokens=5)
        closing = asyncio.create_task(engine.close(grace=60))
        await asyncio.sleep(0)
        with pytest.raises(EngineClosed):
            engine.generate([2])
        runner.gate.set()
        assert await whole(answer) == wanted(1, 5)
        await closing
        await engine.close()
        assert runner.closed == 1

        runner = runner_of(sequences=1)
        engine = fake_engine(runner)
        runner.gate.clear()
        answers = [engine.generate([each], max_tokens=5) for each in (1, 2)]
        await until(runner.reading.is_set)
        first = asyncio.create_task(engine.close(grace=60))
        await asyncio.sleep(0)
        first.cancel()  # as by a second signal
        last = asyncio.create_task(engine.close())
        await asyncio.sleep(0)
        runner.gate.set()
        await last
        for answer in answers:
            with pytest.raises(EngineClosed, match="before this answer ended"):
                await whole(answer)
        assert free(engine)
        assert runner.closed == 1

    run(steps)


def test_an_event_loop_that_is_closed_takes_nobody_with_it() -> None:
    runner = runner_of()
    engine = fake_engine(runner)
    runner.gate.clear()
    lost = engine.generate([1], max_tokens=9)
    loop = asyncio.new_event_loop()
    reader = loop.create_task(whole(lost))
    loop.run_until_complete(asyncio.sleep(0.01))
    loop.close()  # while its reader waits
    runner.gate.set()

    async def steps() -> None:
        assert await whole(engine.generate([2], max_tokens=4)) == wanted(2, 4)
        # What was said meanwhile is there for a reader in another loop.
        assert await whole(lost) == wanted(1, 9)
        assert free(engine)
        await engine.close()

    run(steps)
    assert not reader.done()
    reader.get_coro().close()  # type: ignore[union-attr]


def test_errors_of_one_request_are_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    async def steps() -> None:
        def leaves(tokens: Any, logits: Any) -> Any:
            raise SystemExit

        runner = runner_of()
        engine = fake_engine(runner)
        runner.gate.clear()
        plain_one, broken = engine.generate([1], max_tokens=8), engine.generate([2], max_tokens=8)
        out = engine.generate([3], max_tokens=8, logits_processors=[leaves])
        request = engine._requests[broken]  # type: ignore[index]
        monkeypatch.setattr(request.assembler, "put", lambda *given: 1 // 0)
        runner.gate.set()
        for answer, error in ((broken, ZeroDivisionError), (out, SystemExit)):
            with pytest.raises(error):
                await whole(answer)
        assert await whole(plain_one) == wanted(1, 8)
        assert free(engine)
        await engine.close()

    run(steps)


def test_any_thread_may_ask_while_others_look_at_the_status() -> None:
    runner = runner_of(sequences=3, pages=12)
    engine = fake_engine(runner)
    done = threading.Event()

    def look() -> None:
        while not done.is_set():
            status = engine.status
            assert 0 <= status.pages_in_use <= 12
            assert status.running <= 3

    def ask(first: int) -> list[int]:
        return asyncio.run(whole(engine.generate([first] * 3, max_tokens=20)))

    with ThreadPoolExecutor(9) as threads:
        looking = threads.submit(look)
        found = list(threads.map(ask, range(40)))
        done.set()
        looking.result()
    assert found == [wanted(first, 20, 3) for first in range(40)]
    assert free(engine)
    asyncio.run(engine.close())


def test_a_pool_that_is_smaller_than_the_context_is_the_context() -> None:
    async def steps() -> None:
        engine = fake_engine(runner_of(pages=3))
        assert engine.max_context == 12
        assert engine.facts.context == 12
        # The last token needs no row, as without pages.
        assert await whole(engine.generate([1, 1])) == wanted(1, 11, 2)
        await engine.close()

    run(steps)


def test_a_prompt_that_is_longer_than_a_step_comes_in_pieces() -> None:
    async def steps() -> None:
        engine = fake_engine(runner_of(rows=8))
        answers = [engine.generate([each] * 30, max_tokens=6) for each in (1, 2, 3)]
        assert [await whole(answer) for answer in answers] == [wanted(each, 6, 30) for each in (1, 2, 3)]
        await engine.close()

    run(steps)


def test_a_sequence_of_ones_own_outlives_a_device_and_an_answer_that_fails() -> None:
    async def steps() -> None:
        runner, other = runner_of(), runner_of()
        engine = fake_engine(runner, reload=lambda: other)
        sequence = EngineSequence(engine)
        assert await whole(sequence.generate([1, 5, 5], max_tokens=4)) == wanted(1, 4, prompt=3)
        kept = (1, 5, 5, *wanted(1, 3, prompt=3))
        assert sequence.tokens == kept
        runner.fails["submit"] = [ValueError("of a bug")]
        with pytest.raises(ValueError, match="of a bug"):
            await whole(sequence.generate([9], max_tokens=2))
        assert sequence.tokens == kept
        runner.device.lost = True
        fork = sequence.fork()
        responses = [response async for response in fork.generate([9], max_tokens=2)]
        assert [response.token for response in responses] == wanted(1, 2, prompt=7)
        assert responses[0].cached_tokens == 0, "its pages were lost with the device"
        assert sequence.tokens == kept
        for each in (fork, sequence):
            each.close()
        assert free(engine)
        await engine.close()

    run(steps)


def test_calls_between_steps_are_each_ones_own_and_end_with_the_engine() -> None:
    async def steps() -> None:
        runner = runner_of()
        engine = fake_engine(runner)
        assert await engine.between_steps(lambda scheduler, _: scheduler.longest) == 64
        with pytest.raises(ZeroDivisionError):
            await engine.between_steps(lambda _, __: 1 // 0)
        runner.gate.clear()
        answer = engine.generate([1], max_tokens=5)
        await until(runner.reading.is_set)
        made: list[str] = []
        left, right = (
            asyncio.create_task(engine.between_steps(lambda _, __, name=name: made.append(name))) for name in "ab"
        )
        await asyncio.sleep(0.01)
        left.cancel()
        with pytest.raises(asyncio.CancelledError):
            await left
        runner.gate.set()
        await right
        assert made == ["b"]
        assert await whole(answer) == wanted(1, 5)
        runner.gate.clear()
        answer = engine.generate([1], max_tokens=5)
        runner.reading.clear()
        await until(runner.reading.is_set)
        late = asyncio.create_task(engine.between_steps(lambda _, __: None))
        await asyncio.sleep(0.01)
        closing = asyncio.create_task(engine.close())
        await asyncio.sleep(0.01)
        runner.gate.set()
        with pytest.raises(EngineClosed):
            await late
        await closing
        with pytest.raises(EngineClosed):
            await engine.between_steps(lambda _, __: None)

    run(steps)
