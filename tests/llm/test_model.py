"""One graph as a language model: chunks, single tokens, streams and every way to change the cache agree with torch."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from liveshape.device.backends import open_device
from liveshape.errors import FormatError, InputError, UnsupportedError
from liveshape.llm.language_model import LanguageModel
from liveshape.llm.sampling_settings import Sampling
from tests.support.exporting import MethodSource, cached, lower_methods
from tests.support.llamas import Tiny, logits_of, program

LAST = Tiny("last", quantization="none")
ALL = Tiny("all", quantization="none", layers=1, full_logits=True)
IDS = np.random.default_rng(11).integers(0, LAST.vocabulary, 40).tolist()
DRAWN = Sampling(temperature=1.0, top_k=30, top_p=0.95, repetition_penalty=1.1, seed=5)


@pytest.fixture(scope="module")
def loaded() -> LanguageModel:
    return LanguageModel.load(program(LAST))


@pytest.fixture
def model(loaded: LanguageModel) -> LanguageModel:
    loaded.reset()
    return loaded


def close(got: Any, expected: Any) -> None:
    np.testing.assert_allclose(got, expected, 1e-4, 1e-4)


def stepwise(model: LanguageModel, ids: list[int], sampling: Sampling, count: int) -> list[int]:
    """Generation without a stream."""
    model.prefill(ids)
    tokens = [model.next_token(sampling)]
    while len(tokens) < count:
        model.prefill(tokens[-1:])
        tokens.append(model.next_token(sampling))
    return tokens


def test_the_file_says_what_the_model_is(model: LanguageModel) -> None:
    assert (model.max_seq_len, model.max_context, model.vocab_size) == (8, 40, 97)
    assert (model.eos_ids, model.bos_id, model.position) == ((2, 3), 1, 0)
    assert model.memory.weights > 97 * 32 * 4
    assert model.memory.state == 2 * 2 * 40 * 2 * 8 * 4 + 160  # the caches and the history
    assert model.device is open_device()


@pytest.mark.parametrize("sizes", [(1, 1, 1), (7,), (8, 8, 1), (3, 20, 1, 16), (40,), (23, 17)])
def test_chunks_of_any_size_agree_with_torch(model: LanguageModel, sizes: tuple[int, ...]) -> None:
    expected = logits_of(LAST, IDS)
    for size in sizes:
        model.prefill(IDS[model.position : model.position + size])
        close(model.logits(), expected[model.position - 1])
        assert model.next_token() == expected[model.position - 1].argmax()
    assert model.tokens == tuple(IDS[: sum(sizes)])


@pytest.mark.parametrize("tiny", [LAST, ALL], ids=lambda tiny: tiny.name)
def test_logits_of_every_position(tiny: Tiny) -> None:
    model = LanguageModel.load(program(tiny))
    model.prefill(IDS[:5])
    close(model.evaluate(IDS[5:24]), logits_of(tiny, IDS[:24])[5:])
    close(model.logits(), logits_of(tiny, IDS[:24])[-1])
    assert model.position == 24
    assert model.evaluate([]).shape == (0, 97)
    model.reset()
    pieces = list(model.evaluate_chunks(IDS[:10]))
    assert [len(piece) for piece in pieces] == [8, 2]
    close(np.concatenate(pieces), logits_of(tiny, IDS[:10]))


@pytest.mark.parametrize("sampling", [Sampling(), Sampling(repetition_penalty=1.5), Sampling(0.8), DRAWN])
def test_a_stream_equals_step_by_step(model: LanguageModel, sampling: Sampling) -> None:
    expected = stepwise(model, IDS[:11], sampling, 20)
    model.reset()
    stream = model.stream(IDS[:11], sampling, max_tokens=20)
    assert list(stream) == expected
    assert stream.finish_reason == "length"
    assert model.tokens == (*IDS[:11], *expected[:-1])
    model.truncate(11)
    assert list(model.stream([], sampling, max_tokens=20)) == expected, "from the cache, without new tokens"


def test_greedy_equals_torch(model: LanguageModel) -> None:
    ids = IDS[:4]
    for token in model.stream(ids, max_tokens=12):
        ids = [*ids, token]
        assert token == logits_of(LAST, ids[:-1])[-1].argmax()


def test_a_stream_ends_at_a_stop_token(model: LanguageModel) -> None:
    expected = stepwise(model, IDS[:5], DRAWN, 12)
    stop = expected[6]
    end = expected.index(stop)
    model.reset()
    stream = model.stream(IDS[:5], DRAWN, max_tokens=12, stop_ids=[stop, 1000])
    assert list(stream) == expected[: end + 1]
    assert stream.finish_reason == "stop"
    assert model.tokens == (*IDS[:5], *expected[:end]), "the step ahead is rolled back"
    assert list(model.stream([stop], DRAWN, max_tokens=12 - end - 1)) == expected[end + 1 :]


def test_a_stream_ends_with_the_context(model: LanguageModel) -> None:
    expected = stepwise(model, IDS[:37], DRAWN, 4)
    model.reset()
    stream = model.stream(IDS[:37], DRAWN)
    assert list(stream) == expected
    assert (stream.finish_reason, model.position) == ("length", 40)
    nothing = model.stream([], DRAWN, max_tokens=0)
    assert (list(nothing), nothing.finish_reason) == ([], "length")


def test_a_stream_can_be_left_and_the_text_goes_on(model: LanguageModel) -> None:
    expected = stepwise(model, IDS[:9], DRAWN, 10)
    model.reset()
    stream = model.stream(IDS[:9], DRAWN)
    got = [next(stream) for _ in range(4)]
    stream.close()
    assert model.tokens == (*IDS[:9], *expected[:4])
    assert [*got, *model.stream([], DRAWN, max_tokens=6)] == expected
    older = model.stream([], DRAWN)
    next(older)
    model.truncate(9)
    with pytest.raises(InputError, match="used otherwise"):
        next(older)
    assert list(older) == []


def test_questions_between_the_tokens_of_a_stream(model: LanguageModel) -> None:
    expected = stepwise(model, IDS[:9], DRAWN, 8)
    model.reset()
    got = []
    for token in model.stream(IDS[:9], DRAWN, max_tokens=8):
        got.append(token)
        close(model.logits(), logits_of(LAST, list(model.tokens))[-1])
        model.next_token(Sampling(1.0, seed=99))
    assert got == expected


def test_truncate_is_exact(model: LanguageModel) -> None:
    expected = stepwise(model, IDS[:13], DRAWN, 8)
    model.prefill(IDS[20:30])
    for length in (13, 12, 1):
        model.truncate(length)
        model.prefill(IDS[length:13])
        close(model.logits(), logits_of(LAST, IDS[:13])[-1])
        assert list(model.stream([], DRAWN, max_tokens=8)) == expected
        model.prefill(IDS[30:35])
    model.truncate(7)
    close(model.logits(), logits_of(LAST, IDS[:7])[-1])
    with pytest.raises(InputError, match="holds 7 tokens and cannot be cut to 8"):
        model.truncate(8)


def test_a_saved_cache_goes_on_where_it_was(model: LanguageModel, tmp_path: Path) -> None:
    expected = stepwise(model, IDS[:13], DRAWN, 8)
    model.truncate(13)
    model.save(tmp_path / "cache")
    other = LanguageModel.load(program(LAST))
    other.prefill(IDS[20:])
    other.restore(tmp_path / "cache")
    assert other.tokens == tuple(IDS[:13])
    assert list(other.stream([], DRAWN, max_tokens=8)) == expected
    foreign = LanguageModel.load(program(ALL))
    with pytest.raises(InputError, match=r"of another program: \w+, this one is \w+"):
        foreign.restore(tmp_path / "cache")
    (tmp_path / "nonsense").write_bytes(b"nonsense")
    with pytest.raises(FormatError, match="is not a saved cache"):
        model.restore(tmp_path / "nonsense")
    model.reset()
    model.save(tmp_path / "empty")
    other.restore(tmp_path / "empty")
    assert other.position == 0


def test_forks_are_independent_and_share_the_weights(model: LanguageModel) -> None:
    left = stepwise(model, [*IDS[:10], 5], DRAWN, 6)
    model.reset()
    right = stepwise(model, [*IDS[:10], 6], DRAWN, 6)
    model.reset()
    model.prefill(IDS[:10])
    other = model.fork()
    assert model.turn is model.lock is other.lock, "one lock, by its former name, too"
    buffers = model.device.counters.buffers
    streams = [model.stream([5], DRAWN, max_tokens=6), other.stream([6], DRAWN, max_tokens=6)]
    assert list(zip(*streams, strict=True)) == list(zip(left, right, strict=True)), "turn by turn"
    assert model.tokens == (*IDS[:10], 5, *left[:-1])
    assert model.device.counters.buffers <= buffers + 12, "a swap needs a copy of the cache, not of the model"
    other.truncate(10)
    third = other.fork()
    model.reset()
    assert stepwise(third, [5], DRAWN, 6) == left
    assert stepwise(other, [6], DRAWN, 6) == right


def test_what_does_not_fit_is_refused_before_anything_runs(model: LanguageModel) -> None:
    model.prefill(IDS[:30])
    submits = model.device.counters.submits
    with pytest.raises(InputError, match="30 in the cache and 11 tokens given, the context holds 40"):
        model.prefill(IDS[:11])
    with pytest.raises(InputError, match="41 tokens given, the context holds 40"):
        model.stream([1] * 41)
    with pytest.raises(InputError, match="token 97 is outside the vocabulary of 97"):
        model.prefill([1, 97])
    with pytest.raises(InputError, match="max_tokens must be 0 or above"):
        model.stream([1], max_tokens=-1)
    assert (model.position, model.device.counters.submits) == (30, submits)
    model.reset()
    with pytest.raises(InputError, match="the cache is empty"):
        model.next_token()


@pytest.mark.parametrize("sampling", [Sampling(), DRAWN])
def test_a_token_in_steady_state_makes_nothing(model: LanguageModel, sampling: Sampling) -> None:
    stream = model.stream(IDS[:3], sampling)
    next(stream)
    counters = model.device.counters
    made = counters.buffers, counters.pipelines, counters.bind_groups
    submits = counters.submits
    tokens = [next(stream) for _ in range(30)]
    assert len(tokens) == 30
    assert (counters.buffers, counters.pipelines, counters.bind_groups) == made
    assert counters.submits == submits + 30, "one submit a token"


def test_a_stream_does_not_wait_for_the_step_ahead(model: LanguageModel, monkeypatch: pytest.MonkeyPatch) -> None:
    stepwise(model, IDS[:3], Sampling(), 3)  # at home, and nothing under way
    model.reset()
    order: list[str] = []
    device = type(model.device)
    submit, read = device.submit, device.read

    def submitted(self: Any, commands: Any = (), *others: Any, **named: Any) -> Any:
        if commands:  # not what the end of another test's model waits for, whenever it is collected
            order.append("submit")
        return submit(self, commands, *others, **named)

    monkeypatch.setattr(device, "submit", submitted)
    monkeypatch.setattr(device, "read", lambda *args, **named: (order.append("read"), read(*args, **named))[1])
    assert len(list(model.stream(IDS[:3], max_tokens=5))) == 5
    assert order == ["submit", "submit", "read", "submit", "read", "submit", "read", "submit", "read", "read"]


class Recurrent(torch.nn.Module):
    """A state that is no cache: each token turns it."""

    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(1)
        self.register_buffer("state", torch.zeros(1, 6))
        self.register_buffer("table", torch.randn(19, 6, generator=generator))

    def forward(self, tokens: torch.Tensor, input_pos: torch.Tensor) -> torch.Tensor:
        row = torch.nn.functional.embedding(tokens, self.table)[:, 0]
        self.state.copy_(torch.tanh(self.state * 0.7 + row))
        return torch.nn.functional.linear(self.state * 3, self.table)


class Absent(torch.nn.Module):
    """No cache at all."""

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return tokens.to(torch.float32)


def recurrent() -> Path:
    def make() -> bytes:
        args = (torch.zeros(1, 1, dtype=torch.long), torch.zeros(1, dtype=torch.long))
        constants = {"get_max_context_len": 50}
        options = {"compile_options": {"alias_buffer_mutations": True}}
        return lower_methods({"forward": MethodSource(Recurrent(), args)}, constants, **options)

    return cached("llm/recurrent", (Recurrent, recurrent), make)


def test_a_program_whose_state_is_no_cache(tmp_path: Path) -> None:
    model = LanguageModel.load(recurrent())
    assert (model.max_seq_len, model.max_context, model.vocab_size) == (1, 50, 19)
    assert (model.eos_ids, model.bos_id) == ((), None)
    module = Recurrent()
    for token in (3, 1, 4, 1, 5):
        expected = module(torch.tensor([[token]]), torch.zeros(1, dtype=torch.long))
        model.prefill([token])
        close(model.logits(), expected[0].numpy())
    assert model.position == 5
    expected_tokens = [*model.stream([], DRAWN, max_tokens=6)]
    with pytest.raises(UnsupportedError, match="it can go back to the start, not to 3"):
        model.truncate(3)
    model.reset()
    other = model.fork()
    assert [*model.stream([3, 1, 4, 1, 5], DRAWN, max_tokens=6)] == expected_tokens
    other.prefill([3, 1, 4])
    other.save(tmp_path / "state")
    model.restore(tmp_path / "state")
    assert [*model.stream([1, 5], DRAWN, max_tokens=6)] == expected_tokens
    assert [*other.stream([1, 5], DRAWN, max_tokens=6)] == expected_tokens


def absent() -> Iterator[Path]:
    args = (torch.zeros(1, 4, dtype=torch.long),)
    yield cached("llm/absent", (Absent,), lambda: lower_methods({"forward": MethodSource(Absent(), args)}))


def test_other_programs_are_refused_with_what_they_are(tmp_path: Path) -> None:
    (path,) = absent()
    with pytest.raises(UnsupportedError, match=r"it takes \(int64 \[1, 4\]\) and gives \(float32 \[1, 4\]\); expected"):
        LanguageModel.load(path)
    with pytest.raises(FormatError, match=r"must hold a model.pte or a single .pte, it has none at all"):
        LanguageModel.load(tmp_path)
    (tmp_path / "any.pte").write_bytes(program(LAST).read_bytes())
    with LanguageModel.load(tmp_path) as model:
        assert model.max_context == 40


def test_a_cache_of_halves_takes_half_the_memory_and_agrees(model: LanguageModel) -> None:
    half = LanguageModel.load(program(LAST), half_cache=True)
    smaller = 2 if model.device.limits.half else 1  # a device without halves keeps them as floats
    assert half.memory.state - 160 == (model.memory.state - 160) // smaller  # the history beside them stays
    for sizes in ((5, 1, 1, 8, 20), (1, 8)):
        half.reset()
        start = 0
        for size in sizes:
            half.prefill(IDS[start : start + size])
            start += size
            model.reset()
            model.prefill(IDS[:start])
            np.testing.assert_allclose(half.logits(), model.logits(), 2e-2, 2e-2)
