"""Language models: legal calls, a sample of layers, decode beside prefill, kinds of activations beside float32."""

from __future__ import annotations

import itertools
import json
from typing import Any

import numpy as np
import pytest

from liveshape.check import generation
from liveshape.check.generation import EXACT, TOLERANCES, Way, spread_error
from liveshape.check.language_models import Language, language_of
from liveshape.check.layer_sample import layer_sample
from liveshape.cli import main
from liveshape.device.backends import open_device
from liveshape.errors import InputError
from liveshape.llm.engine.engine import Engine
from liveshape.llm.program.token_graph import constants_of
from liveshape.lower.lowering import examine
from liveshape.program.compile_target import CompileTarget
from liveshape.program.program import load_program
from liveshape.run.host import find_on_host
from liveshape.shipped import shipped, shipped_model
from liveshape.tools.commands import check as command
from tests.support.chat_model import write_gguf_model

CONTEXT, CHUNK, VOCABULARY = 512, 256, 4096  # of the story model


@pytest.fixture(scope="module")
def story() -> Language:
    program = load_program(CompileTarget(), shipped_model() / "model.pte")
    graph, _ = examine(program.file, "forward", program.data, find_on_host)
    found = language_of(graph, constants_of(program), open_device().limits)
    assert found is not None
    return found


@pytest.fixture(scope="module")
def gguf(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("models") / "tiny.gguf"
    write_gguf_model(path)
    return str(path)


def test_calls_are_legal(story: Language) -> None:
    steps = story.steps()
    assert {len(step.tokens) for step in steps} >= {1, 2, 7, 33, CHUNK}
    assert all(0 <= token < VOCABULARY for step in steps for token in step.tokens)
    assert max(step.position for step in steps) == CONTEXT - 1, "the last position"
    for before, step in itertools.pairwise(steps):
        assert not step.goes_on or step.position >= before.position + len(before.tokens)
    tokens, position = story.inputs(steps[1])
    assert (tokens.shape, position.tolist()) == ((1, 1), [7])


def test_lengths_that_are_asked_for(story: Language) -> None:
    steps = story.steps([None, None, 1])
    assert [(len(step.tokens), step.position, step.goes_on) for step in steps] == [
        (CHUNK, 0, False),
        (CHUNK, CHUNK, True),
        (1, 0, False),  # the context is full
    ]
    with pytest.raises(InputError, match="from 1 to 256 tokens"):
        story.steps([CHUNK + 1])


def test_another_program_is_no_language_model() -> None:
    program = load_program(CompileTarget(), shipped("demo"))
    graph, _ = examine(program.file, "forward", program.data, find_on_host)
    assert language_of(graph, constants_of(program), open_device().limits) is None


def test_a_sample_of_layers(story: Language) -> None:
    limits = open_device().limits
    few, one, whole = (layer_sample(story.graph, limits, count) for count in (None, 1, 1 << 30))
    assert (few.layers, few.chosen, one.chosen, whole.chosen) == (8, (0, 3, 7), (0,), tuple(range(8)))
    assert len(one.nodes) < len(few.nodes) < len(whole.nodes) == len(story.graph.nodes)
    with pytest.raises(InputError, match="at least one layer"):
        layer_sample(story.graph, limits, 0)


def test_logits_beside_others() -> None:
    random = np.random.default_rng(0)
    logits = random.standard_normal(1000) * 3 + 7
    assert spread_error(logits + 3e-3 * random.standard_normal(1000), logits) == pytest.approx(1e-3, rel=0.2)
    assert spread_error(np.full(1000, np.nan), logits) == np.inf
    assert TOLERANCES[EXACT] < min(each for way, each in TOLERANCES.items() if way != EXACT)
    assert str(Way("int8", True)) == "int8 activations, float16 cache"


def checked(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, dict[str, Any]]:
    code = main(["check", *arguments, "--no-cache", "--json"])
    (method,) = json.loads(capsys.readouterr().out)["methods"].values()
    return code, method


@pytest.mark.slow
def test_a_gguf_file(gguf: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, found = checked([gguf, "--shapes", "tokens=7,1,3"], capsys)
    assert code == 0, found
    assert found["steps"] == [{"tokens": 7, "position": 0}, {"tokens": 1, "position": 7}, {"tokens": 3, "position": 8}]
    rows = {(row["way"], row["compared"]): row for row in found["generation"]}
    exact = str(EXACT)
    assert (exact, "generation with the reference") in rows
    assert rows[exact, "decode with prefill"]["agree"] == 5
    assert rows[exact, "the same calls again"]["error"] == 0
    ways = {way for way, _ in rows} | found["left_out"].keys()
    assert ways == {str(way) for way in TOLERANCES}, "every way is compared, or said not to be"


def test_layers_that_are_left_out_are_said(
    gguf: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "compare_ways", lambda *given: ([], {}))
    code, found = checked([gguf, "--shapes", "tokens=2", "--layers", "1"], capsys)
    assert (code, found["layers"]["checked"], found["layers"]["all"] > 1) == (0, [0], True)
    assert found["layers"]["by_reference"] > 5
    assert main(["check", gguf, "--shapes", "tokens=2", "--layers", "1", "--no-cache"]) == 0
    assert "a sample: layers 0 of" in " ".join(capsys.readouterr().out.split())


def test_decode_that_is_not_prefill_is_named(
    gguf: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One token at a time, at the position before its own."""
    run = Engine.run

    def late(self: Any, tokens: Any, position: int, *rest: Any) -> Any:
        return run(self, tokens, position - (len(tokens) == 1 and position > 0), *rest)

    monkeypatch.setattr(Engine, "run", late)
    monkeypatch.setattr(generation, "TOLERANCES", {EXACT: TOLERANCES[EXACT]})
    code, found = checked([gguf, "--shapes", "tokens=3"], capsys)
    wrong = {row["compared"] for row in found["generation"] if row["way"] == str(EXACT) and not row["right"]}
    assert (code, wrong, found["right"]) == (1, {"decode with prefill"}, False)
    assert not found["divergences"], "the program itself is right"


def test_sizes_of_another_dimension(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "story", "--shapes", "rows=7"]) == 2
    assert "the dimension of a language model is tokens, from 1 to 256" in " ".join(capsys.readouterr().err.split())


@pytest.mark.slow
def test_the_story_model(capsys: pytest.CaptureFixture[str]) -> None:
    code, found = checked(["story"], capsys)
    assert (code, found["divergences"], found["unknown"]) == (0, [], {})
