"""Choosing a token on the device: the allowed set is that of Hugging Face, and draws follow its probabilities."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from liveshape.device.backends import open_device
from liveshape.errors import InputError, ShapeError
from liveshape.llm.program.token_graph import SETTINGS as NAMES
from liveshape.llm.sampling_settings import Sampling
from liveshape.plan.compiling import compile
from liveshape.run.executor import Executor
from tests.support.chains import Chain

SETTINGS_OF = NAMES[1:]
KINDS = (0.0, 0, 0.0, 0.0, 0.0, 0.0, 0.0, 0, 0)  # of the settings, in the order of the operator
NOTHING = np.empty((1, 0), np.int32)


class Sampler:
    """A graph of one sampling operator."""

    def __init__(
        self, width: int, rows: int | None = None, dtype: str = "float32", context: int = 64, **limits: int
    ) -> None:
        self.device = open_device()
        chain = Chain()
        logits = chain.input((1, width) if rows is None else (1, rows, width), dtype)
        history = chain.input((1, context), "int32")
        settings = [chain.scalar(given=True, value=kind) for kind in (0, 1, False, *KINDS)]
        self.out = chain.tensor((1, rows or 1), "int32")
        chain.node("liveshape.sample", logits, history, *settings, self.out)
        allowed = replace(self.device.limits, **limits) if limits else self.device.limits
        self.executor = Executor(compile(chain.graph(self.out), allowed), self.device)

    def __call__(self, logits: Any, sampling: Sampling, history: Any = NOTHING, length: int | None = None) -> int:
        (token,) = self.rows(logits, sampling, history, length, 1)
        return token

    def rows(self, logits: Any, sampling: Sampling, history: Any, length: int | None, rows: int) -> list[int]:
        given = (type(kind)(getattr(sampling, name)) for name, kind in zip(SETTINGS_OF, KINDS, strict=True))
        length = history.shape[1] if length is None else length
        self.executor.poison()
        values = [length, rows, True, *given]
        chosen: list[int] = self.executor.execute([logits, history, *values])[0].reshape(-1).tolist()
        return chosen

    def passed(self) -> Any:
        """Which tokens the last call let through, and the scores it gave them."""
        scores, _, _, _, limit = (self.executor.state(each) for each in self.executor.plan.scratch[0])
        scores = scores[0]
        bits = scores.view(np.uint32)
        keys = np.where(bits >> 31, ~bits, bits | 0x80000000)
        return (keys >= limit.view(np.uint32)[0]) & (scores > -3.4e38), scores


def reference(logits: Any, sampling: Sampling, history: Any = NOTHING) -> tuple[Any, Any, Any]:
    """Hugging Face's processors in float64: scores, which tokens pass, and which are too close to call."""
    scores = logits.astype(np.float64)
    for token in set(history.reshape(-1).tolist()):
        scores[token] *= sampling.repetition_penalty if scores[token] < 0 else 1 / sampling.repetition_penalty
    sampled = history.reshape(-1)[sampling.prompt_tokens :]
    for token in set(sampled.tolist()):
        times = (sampled == token).sum()
        scores[token] -= sampling.frequency_penalty * times + sampling.presence_penalty
    scores = scores / sampling.temperature
    passed = np.isfinite(scores)
    close = np.zeros(scores.shape, bool)
    if sampling.top_k:
        passed &= scores >= np.sort(scores)[::-1][min(sampling.top_k, len(scores)) - 1]
    if sampling.top_p < 1:
        probabilities = softmax(scores, passed)
        order = np.argsort(-scores, kind="stable")
        above = np.empty(len(scores))
        above[order] = np.concatenate([[0], np.cumsum(probabilities[order])[:-1]])
        # Equal scores pass together.
        above = np.array([above[scores == score].min() for score in scores]) if len(scores) < 2000 else above
        passed &= above < sampling.top_p
        close |= np.abs(above - sampling.top_p) < 1e-6
    if sampling.min_p:
        share = np.exp(scores - scores[passed].max())
        passed &= share >= sampling.min_p
        close |= np.abs(share / sampling.min_p - 1) < 1e-5
    return scores, passed, close


def softmax(scores: Any, passed: Any) -> Any:
    weights = np.where(passed, np.exp(np.where(passed, scores, 0) - scores[passed].max()), 0)
    return weights / weights.sum()


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("width", [1, 2, 7, 1024, 1025, 5003])
def test_greedy_is_the_first_highest_logit(width: int, dtype: str) -> None:
    sampler = Sampler(width, rows=3, dtype=dtype)
    generator = np.random.default_rng(width)
    for rows in (1, 3, 2):
        logits = generator.integers(-9, 9, (1, rows, width)).astype(dtype)  # of small range: there are ties
        assert sampler(logits, Sampling()) == np.argmax(logits[0, -1])
        logits[0, -1, width // 2] = np.inf
        assert sampler(logits, Sampling()) == width // 2
        logits[0, -1, width - 1] = np.nan
        assert sampler(logits, Sampling()) == width - 1, "torch finds a NaN first"
    assert sampler(np.full((1, 1, width), -np.inf, dtype), Sampling()) == 0


SETTINGS = [
    Sampling(1.0),
    Sampling(0.7, top_k=1),
    Sampling(0.7, top_k=40),
    Sampling(2.5, top_k=4000),
    Sampling(0.1, top_p=0.9),
    Sampling(1.0, top_p=0.9),
    Sampling(1.0, top_p=0.3),
    Sampling(3.0, top_p=0.999),
    Sampling(1.0, top_p=1e-9),
    Sampling(1.0, min_p=0.05),
    Sampling(1.0, min_p=1.0),
    Sampling(0.8, top_k=50, top_p=0.95),
    Sampling(1.5, top_k=50, top_p=0.5, min_p=0.1),
    Sampling(0.9, top_k=500, top_p=0.9, min_p=0.02, repetition_penalty=1.3),
    Sampling(1.0, repetition_penalty=0.5, top_k=20),
    Sampling(0.8, frequency_penalty=0.7, presence_penalty=-0.4, prompt_tokens=11),
    Sampling(1.0, top_k=30, repetition_penalty=1.2, frequency_penalty=-1.5, presence_penalty=2, prompt_tokens=39),
    Sampling(1.0, top_p=0.9, presence_penalty=1.1),
]


@pytest.mark.parametrize("width", [1, 5, 300, 5003, 40000])
def test_what_passes_is_what_hugging_face_lets_pass(width: int) -> None:
    sampler = Sampler(width)
    generator = np.random.default_rng(width)
    for turn, sampling in enumerate(SETTINGS):
        spread = (0.5, 3, 12)[turn % 3]
        logits = (generator.standard_normal((1, width)) * spread + 5).astype(np.float32)
        if width > 5:
            logits[0, generator.integers(0, width, 3)] = -np.inf
        history = generator.integers(0, width, (1, 40)).astype(np.int32)
        token = sampler(logits, sampling, history)
        scores, passed, close = reference(logits[0], sampling, history)
        got, given = sampler.passed()
        if not sampling.limited:
            got = np.isfinite(scores)  # no filter, no limit
        np.testing.assert_allclose(given[np.isfinite(scores)], scores[np.isfinite(scores)], 2e-6, 1e-6)
        assert passed.any()
        assert close.sum() <= 2
        assert np.array_equal(got | close, passed | close), f"{sampling}: {got.sum()} pass, {passed.sum()} should"
        assert got[token]


def test_equal_logits_pass_together() -> None:
    sampler = Sampler(3000)
    logits = np.zeros((1, 3000), np.float32)
    logits[0, 100:110] = 4
    for sampling in (Sampling(1.0, top_k=3), Sampling(1.0, top_p=0.05), Sampling(1.0, min_p=0.5)):
        sampler(logits, sampling)
        assert np.flatnonzero(sampler.passed()[0]).tolist() == [*range(100, 110)]


def test_what_is_no_number_is_never_drawn() -> None:
    sampler = Sampler(50)
    logits = np.full((1, 50), -np.inf, np.float32)
    logits[0, ::2] = np.nan
    logits[0, 33] = -1e30
    for sampling in SETTINGS:
        assert sampler(logits, sampling) == 33
    logits[0, 7] = np.inf
    for sampling in SETTINGS:
        assert sampler(logits, sampling) == 7
    assert sampler(np.full((1, 50), np.nan, np.float32), SETTINGS[5]) == 0


@pytest.mark.parametrize("sampling", [SETTINGS[0], Sampling(0.8, top_k=6), Sampling(1.3, top_p=0.9, min_p=0.02)])
def test_draws_follow_the_probabilities(sampling: Sampling) -> None:
    sampler = Sampler(24)
    logits = np.random.default_rng(3).standard_normal((1, 24)).astype(np.float32) * 1.5
    scores, passed, _ = reference(logits[0], sampling)
    expected = softmax(scores, passed)
    draws = 700
    for by_position in (False, True):
        counts = np.zeros(24)
        for turn in range(draws):
            seed, position = (5, turn) if by_position else (turn, 5)
            counts[sampler(logits, replace(sampling, seed=seed), length=position)] += 1
        assert not counts[~passed].any()
        statistic = ((counts - draws * expected) ** 2 / np.maximum(draws * expected, 1e-9))[passed].sum()
        freedom = passed.sum() - 1
        assert statistic < freedom + 4 * np.sqrt(2 * freedom), "four standard deviations"


def test_the_same_seed_draws_the_same() -> None:
    logits = np.random.default_rng(1).standard_normal((1, 5003)).astype(np.float32)
    sampling = Sampling(1.0, top_k=200, top_p=0.9)
    first, second = Sampler(5003), Sampler(5003)
    tokens = [first(logits, replace(sampling, seed=seed), length=9) for seed in range(30)]
    assert tokens == [second(logits, replace(sampling, seed=seed), length=9) for seed in range(30)]
    assert len(set(tokens)) > 20
    assert tokens != [first(logits, replace(sampling, seed=seed), length=10) for seed in range(30)]


def test_the_penalty_counts_a_token_once_and_works_for_greedy() -> None:
    sampler = Sampler(1500, rows=2)
    logits = np.full((1, 2, 1500), -8, np.float32)
    logits[0, 1, [10, 20, 30]] = 6, 5, 4.8
    history = np.array([[10, 10, 10, 1499, -1, 9999, 20]], np.int32)  # what is no token changes nothing
    assert sampler(logits, Sampling(repetition_penalty=1.1), history, 3) == 10
    assert sampler(logits, Sampling(repetition_penalty=1.3), history, 3) == 20
    assert sampler(logits, Sampling(repetition_penalty=1.3), history) == 30
    assert sampler(logits, Sampling(repetition_penalty=1.3), history, 0) == 10
    sampler(logits, Sampling(0.5, top_k=5, repetition_penalty=1.3), history)
    scores = sampler.passed()[1]
    np.testing.assert_allclose(scores[[10, 20, 30, 40, 1499]], [6 / 0.65, 5 / 0.65, 9.6, -16, -20.8], 1e-6)


def test_what_was_sampled_is_counted_and_what_is_of_the_prompt_is_not() -> None:
    sampler = Sampler(1500, rows=2)
    logits = np.full((1, 2, 1500), -8, np.float32)
    logits[0, :, [10, 20, 30]] = np.array([6, 5, 4.8])[:, None]
    history = np.array([[20, 20, 20, 10, -1, 10, 9999, 30]], np.int32)
    sampler(logits, Sampling(1.0, frequency_penalty=0.5, presence_penalty=0.2, prompt_tokens=3), history)
    np.testing.assert_allclose(sampler.passed()[1][[10, 20, 30, 40]], [4.8, 5, 4.1, -8], 1e-6)
    both = Sampling(0.5, frequency_penalty=-1, repetition_penalty=2, prompt_tokens=2)
    sampler.rows(logits, both, history, None, 2)
    # The first row follows one token less: 30 is not there yet.
    scores = sampler.executor.state(sampler.executor.plan.scratch[0][0])
    np.testing.assert_allclose(scores[:, [10, 20, 30, 40]], [[10, 7, 9.6, -16], [10, 7, 6.8, -16]], 1e-6)
    greedy = Sampling(frequency_penalty=2, prompt_tokens=3)
    assert [sampler(logits, greedy, history, length) for length in (3, 4, 5, 6)] == [10, 20, 20, 20]


def test_small_workgroups_choose_the_same() -> None:
    logits = np.random.default_rng(8).standard_normal((1, 5003)).astype(np.float32) * 3
    large, small = Sampler(5003), Sampler(5003, max_invocations=64, max_groups=5)
    history = np.arange(40, dtype=np.int32)[None]
    for sampling in (Sampling(), Sampling(repetition_penalty=2.0), *SETTINGS):
        assert large(logits, sampling, history) == small(logits, sampling, history)


def test_tokens_are_recorded_at_their_positions() -> None:
    device = open_device()
    chain = Chain()
    tokens, position = chain.input((1, 5), "int64"), chain.scalar(given=True)
    history = chain.tensor((1, 11), "int32")
    chain.node("liveshape.record", tokens, position, history, None)
    executor = Executor(compile(chain.graph(history), device.limits), device)
    expected = np.zeros((1, 11), np.int32)
    for start, count in ((0, 5), (5, 1), (6, 5), (3, 2), (10, 1)):
        given = np.arange(100 * start, 100 * start + count)[None]
        expected[0, start : start + count] = given
        np.testing.assert_array_equal(executor.execute([given, start])[0], expected)
    with pytest.raises(ShapeError, match="5 tokens at position 7 do not fit a context of 11"):
        executor.execute([np.zeros((1, 5), np.int64), 7])


def test_greedy_is_a_temperature_of_zero() -> None:
    assert Sampling().greedy
    assert not Sampling(0.5).greedy


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"temperature": -1}, "temperature must be from 0"),
        ({"temperature": float("nan")}, "temperature must be a finite number, 'nan' was given"),
        ({"top_k": -1}, "top_k must be 0"),
        ({"top_k": 1.5}, "top_k must be a whole number, 1.5 was given"),
        ({"top_p": 0}, "top_p must be above 0 and at most 1"),
        ({"top_p": 1.1}, "1.1 was given"),
        ({"min_p": 2}, "min_p must be from 0"),
        ({"repetition_penalty": 0}, "repetition_penalty must be from 1e-06"),
        ({"seed": -1}, "seed must be from 0 to 4294967295, -1 was given"),
        ({"seed": "a"}, "seed must be a whole number"),
        ({"top_p": True}, "top_p must be a finite number"),
    ],
)
def test_wrong_settings_are_refused(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Sampling(**wrong)


def test_temperatures_at_their_ends() -> None:
    """The coldest that is no greedy choice keeps logits apart, and the hottest makes them alike; neither is NaN."""
    sampler = Sampler(300)
    logits = np.random.default_rng(1).standard_normal((1, 300)).astype(np.float32) * 3000
    logits[0, 7], logits[0, 200], logits[0, 250] = 60000, 60001, -np.inf
    for temperature in (0.0, 1e-45, 1e-38, 1e-31, 1e-30, 1e-20):
        for more in ({}, {"top_k": 40, "top_p": 0.9, "min_p": 0.01}):
            assert sampler(logits, Sampling(temperature, seed=5, **more)) == 200, (temperature, more)
    drawn = {sampler(logits, Sampling(3e38, seed=seed)) for seed in range(60)}
    assert len(drawn) > 30
    assert 250 not in drawn


@pytest.mark.parametrize(
    "sampling",
    [
        Sampling(),
        Sampling(repetition_penalty=3.0),
        Sampling(temperature=1.2, seed=4),
        Sampling(temperature=1.5, top_k=40, top_p=0.9, min_p=0.01, repetition_penalty=3.0, seed=9),
    ],
    ids=["greedy", "penalty", "drawn", "everything"],
)
def test_rows_together_are_rows_one_by_one(sampling: Sampling) -> None:
    """The last rows of the logits, each with its own history and its own draw."""
    given, width = 7, 5003
    generator = np.random.default_rng(3)
    logits = (generator.standard_normal((1, given, width)) * 2).astype(np.float32)
    history = generator.integers(0, width, (1, 20)).astype(np.int32)
    # The history of each row penalizes what it would choose.
    history[0, 13:20] = logits[0].argmax(-1)
    sampler = Sampler(width, given)
    expected = [sampler(logits[:, : row + 1], sampling, history, 20 - given + row + 1) for row in range(given)]
    assert len(set(expected)) > 3
    for rows in (1, 2, 5, 7):
        assert sampler.rows(logits, sampling, history, 20, rows) == expected[given - rows :]
    assert sampler.rows(logits[:, :3], sampling, history, 16, 7) == expected[:3], "as many as there are"
