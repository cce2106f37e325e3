"""Sequences of one's own on an engine: fork, truncate, reset, save and restore keep their meaning, and are cheap."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

from liveshape.errors import FormatError, InputError
from liveshape.llm.batch.loading import load_runner
from liveshape.llm.engine import cache_file
from liveshape.llm.engine import origin as origin_module
from liveshape.llm.generation.responses import GenerationResponse
from liveshape.llm.language_model import LanguageModel
from liveshape.llm.serving.batch_engine import BatchEngine
from liveshape.llm.serving.engine_sequence import EngineSequence
from liveshape.llm.serving.queued_answer import QueuedAnswer
from liveshape.llm.text.tokenizer import Tokenizer
from liveshape.shipped import shipped_model
from tests.llm.batch.fake_runner import FakeRunner, fake_engine
from tests.llm.batch.pausing import Pausing
from tests.support.llamas import Tiny, program

TINY = Tiny("long context", max_context=96)
PAGE = 16 * 2 * 2 * 2 * 8 * 4  # rows, layers, keys and values, heads, head size, bytes
IDS = [random.Random(3).randint(4, 90) for _ in range(90)]
TOKENIZER = Tokenizer.load(shipped_model())  # of other words, which nobody reads
ENDS = TOKENIZER.eos_ids | {2, 3}
Engines = Callable[[int], BatchEngine]


@pytest.fixture(scope="module")
def model() -> Iterator[LanguageModel]:
    with LanguageModel.load(program(TINY)) as made:
        yield made


@pytest.fixture(scope="module")
def engines() -> Iterator[Engines]:
    """Engines on a pool of so many pages."""
    made: dict[int, BatchEngine] = {}

    def engine_of(pages: int) -> BatchEngine:
        if pages not in made:
            runner, description = load_runner(program(TINY), sequences=4, cache_bytes=pages * PAGE)
            assert runner.bounds.pages == pages
            made[pages] = BatchEngine(runner, TOKENIZER, description)
        return made[pages]

    yield engine_of
    for engine in made.values():
        asyncio.run(engine.close())


def run(steps: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(steps())


def alone(model: LanguageModel, ids: list[int], count: int) -> list[int]:
    model.reset()
    return list(model.stream(ids, max_tokens=count, stop_ids=ENDS))


async def said(sequence: EngineSequence, ids: list[int], count: int) -> tuple[list[int], int]:
    """The tokens of an answer, and how many of its prompt were in the cache."""
    responses = [response async for response in sequence.generate(ids, max_tokens=count, temperature=0)]
    return [response.token for response in responses], responses[0].cached_tokens


def test_an_answer_goes_on_from_the_tokens_and_is_part_of_them(model: LanguageModel, engines: Engines) -> None:
    engine = engines(20)

    async def steps() -> None:
        sequence = EngineSequence(engine)
        first, cached = await said(sequence, IDS[:20], 6)
        assert (first, cached) == (alone(model, IDS[:20], 6), 0)
        assert sequence.tokens == (*IDS[:20], *first[:-1])
        more = [*first[-1:], *IDS[30:35]]
        second, cached = await said(sequence, more, 4)
        assert second == alone(model, [*IDS[:20], *first[:-1], *more], 4)
        assert cached == 20 + len(first) - 1, "its last page is shared, too"
        pause = Pausing(1)
        answer = sequence.generate(IDS[40:44], max_tokens=20, temperature=0, logits_processors=[pause])
        await anext(answer)
        with pytest.raises(InputError, match="this sequence generates"):
            sequence.fork()
        await answer.aclose()
        pause.go_on()
        assert sequence.position == 20 + len(first) - 1 + len(more) + len(second) - 1
        with pytest.raises(InputError, match="cannot be cut to 99"):
            sequence.truncate(99)
        sequence.close()
        await asyncio.gather(*(said(EngineSequence(engine), IDS[50:53], 1) for _ in range(2)))

    run(steps)


def test_a_fork_copies_at_most_one_page(model: LanguageModel, engines: Engines) -> None:
    engine = engines(19)

    async def steps() -> None:
        sequence = EngineSequence(engine)
        await said(sequence, IDS[:36], 1)
        used = engine.status.pages_in_use
        assert used == 3
        forks = [sequence.fork() for _ in range(3)]
        forks[0].truncate(33)
        forks[1].truncate(20)
        assert engine.status.pages_in_use == used
        for fork in (*forks, sequence):
            ids = list(fork.tokens)
            found, cached = await said(fork, IDS[70:72], 3)
            assert found == alone(model, [*ids, *IDS[70:72]], 3)
            assert cached == len(ids)
        assert engine.status.pages_in_use <= used + 3
        for each in (*forks, sequence):
            each.close()
        assert engine.status.pages_in_use == 0

    run(steps)


def test_what_was_saved_is_restored_here_and_by_a_model(model: LanguageModel, engines: Engines, tmp_path: Path) -> None:
    engine, (mine, others) = engines(20), (tmp_path / "mine", tmp_path / "others")
    wanted = alone(model, IDS[:42], 5)

    async def steps() -> None:
        sequence, other = EngineSequence(engine), EngineSequence(engine)
        await said(sequence, IDS[:40], 1)
        await sequence.save(mine)
        model.restore(mine)
        assert model.tokens == tuple(IDS[:40])
        assert list(model.stream(IDS[40:42], max_tokens=5, stop_ids=ENDS)) == wanted
        model.reset()
        model.prefill(IDS[:40])
        model.save(others)
        assert mine.read_bytes()[:200] == others.read_bytes()[:200]
        # By rows that nobody finds by their tokens.
        for kept in engine._kept:
            kept.drop()
        for page in [engine._pool.take() for _ in range(engine._pool.available)]:
            assert page is not None
            engine._pool.release(page)
        await other.restore(others)
        assert await said(other, IDS[40:42], 5) == (wanted, 40)
        other.reset()
        others.write_bytes(others.read_bytes()[:-1])
        with pytest.raises(FormatError):
            await other.restore(others)
        assert other.tokens == ()
        await other.save(mine)
        await other.restore(mine)
        for each in (sequence, other):
            each.close()

    run(steps)


def test_what_is_closed_keeps_no_page(engines: Engines, tmp_path: Path) -> None:
    """Neither of an answer that runs, nor of a file that is being read."""

    async def steps() -> None:
        runner = FakeRunner(lambda tokens: 97)
        engine = fake_engine(runner)
        for first in range(3):
            sequence = EngineSequence(engine)
            runner.gate.clear()
            answer = sequence.generate([first, *range(20)], max_tokens=8)
            sequence.close()
            runner.gate.set()
            assert len([response async for response in answer]) == 8
            assert engine.status.pages_in_use == 0
            with pytest.raises(InputError, match="was closed"):
                sequence.generate([1])
        await engine.close()
        used = engines(20).status.pages_in_use
        saved, restored = EngineSequence(engines(20)), EngineSequence(engines(20))
        await said(saved, IDS[:30], 1)
        await saved.save(tmp_path / "saved")
        saved.close()
        write = restored._write

        def late(*given: Any) -> None:
            restored.close()
            write(*given)

        restored._write = late  # type: ignore[method-assign]
        await restored.restore(tmp_path / "saved")
        assert engines(20).status.pages_in_use == used

    run(steps)


def test_an_answer_is_kept_before_its_end_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """And stays, however much of it was read; one that is closed before leaves the sequence as it was."""
    positions, put = list[int](), QueuedAnswer.put

    async def steps() -> None:
        runner = FakeRunner(lambda tokens: 97)
        engine = fake_engine(runner)
        sequence = EngineSequence(engine)

        def told(answer: QueuedAnswer, response: GenerationResponse) -> None:
            positions.append(sequence.position)
            put(answer, response)

        monkeypatch.setattr(QueuedAnswer, "put", told)
        answer = sequence.generate([1, 2, 3], max_tokens=4)
        await anext(answer)
        while not answer.ended:
            await asyncio.sleep(0)
        await answer.aclose()
        assert positions == [0, 0, 0, 6]
        assert sequence.tokens == (1, 2, 3, 97, 97, 97)
        runner.gate.clear()
        answer = sequence.generate([4], max_tokens=4)
        await answer.aclose()
        runner.gate.set()
        assert sequence.position == 6
        await engine.close()

    run(steps)


def test_nothing_else_happens_while_it_is_saved_or_restored(
    model: LanguageModel, engines: Engines, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, file = engines(20), tmp_path / "saved"
    load, reading, go = cache_file.load, threading.Event(), threading.Event()

    hashing, pieces = list[threading.Thread](), origin_module.pieces

    def hashed(*given: Any) -> Any:
        hashing.append(threading.current_thread())
        return pieces(*given)

    def slowly(*given: Any) -> Any:
        reading.set()
        assert go.wait(1800), "the test never let the file be read"
        return load(*given)

    async def steps() -> None:
        sequence = EngineSequence(engine)
        await said(sequence, IDS[:30], 1)
        engine._runner.origin.__dict__.pop("checksum", None)
        monkeypatch.setattr(origin_module, "pieces", hashed)
        await sequence.save(file)
        assert hashing
        assert engine._thread not in hashing  # whose steps go on meanwhile
        monkeypatch.setattr(cache_file, "load", slowly)
        restored = asyncio.create_task(sequence.restore(file))
        await asyncio.to_thread(reading.wait, 1800)
        with pytest.raises(InputError, match="is being saved or restored"):
            sequence.generate(IDS[50:60])
        go.set()
        await restored
        assert (await said(sequence, IDS[30:32], 3))[0] == alone(model, IDS[:32], 3)
        sequence.close()

    run(steps)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        pytest.param(
            {"activations": "int8"},
            r"activations='int8', this model was loaded with activations='float32'.*or give",
            marks=pytest.mark.slow,
        ),
        ({"half_cache": True}, r"a KV cache of float16, this model was loaded with one of float32.* with --half-cache"),
    ],
    ids=str,
)
def test_states_of_other_options_are_refused(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    """As a model refuses them, whoever of the two saved the file, and the sequence keeps its tokens."""
    mine, others, ids = tmp_path / "mine", tmp_path / "others", IDS[:20]

    def engine_of(**options: Any) -> BatchEngine:
        runner, description = load_runner(shipped_model(), sequences=2, cache_bytes=4 << 20, **options)
        return BatchEngine(runner, TOKENIZER, description)

    async def steps() -> None:
        other, engine = engine_of(**options), engine_of()
        try:
            saved, sequence = EngineSequence(other), EngineSequence(engine)
            await said(saved, ids, 1)
            await saved.save(mine)
            await saved.restore(mine)
            with LanguageModel.load(shipped_model(), **options) as model:
                model.restore(mine)
                model.save(others)
            await said(sequence, ids[:3], 1)
            for file in (mine, others):
                with pytest.raises(InputError, match=message):
                    await sequence.restore(file)
                assert sequence.tokens == tuple(ids[:3])
            with LanguageModel.load(shipped_model()) as model, pytest.raises(InputError, match=message):
                model.restore(mine)
        finally:
            await other.close()
            await engine.close()

    run(steps)


def test_pages_that_others_need_are_computed_again(model: LanguageModel, engines: Engines, tmp_path: Path) -> None:
    engine = engines(6)

    async def steps() -> None:
        sequences = [EngineSequence(engine) for _ in range(3)]
        for place, sequence in enumerate(sequences):
            await said(sequence, IDS[place : place + 40], 1)
        assert engine.status.pages_in_use <= 6
        for place, sequence in enumerate(sequences):
            ids = [*IDS[place : place + 40], 7]
            assert (await said(sequence, [7], 4))[0] == alone(model, ids, 4)
        await sequences[0].save(tmp_path / "saved")
        assert sequences[0].position == 44
        for sequence in sequences:
            sequence.close()
        assert engine.status.pages_in_use == 0

    run(steps)
