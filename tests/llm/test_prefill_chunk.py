"""The prefill chunk as a choice of the load: longer calls than the file was made for give its logits."""

from __future__ import annotations

import contextlib
import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from liveshape.export.folder import Settings, export_folder
from liveshape.export.model.config import Quantization
from liveshape.export.sources.huggingface import open_folder
from liveshape.graph import Limits
from liveshape.graph.limits import MatrixShape
from liveshape.llm import language_model
from liveshape.llm.language_model import LanguageModel
from liveshape.llm.program.prefill_chunk import MATRIX_CHUNK, prefill_chunk
from liveshape.program.memory_use import Memory
from tests.export.family_models import MODELS, folder_of

PIECE, CHUNK, CONTEXT = 8, 50, 64
IDS = np.random.default_rng(7).integers(0, 90, CONTEXT).tolist()


def test_only_matrix_units_want_longer_chunks() -> None:
    matrices = Limits(matrices=(MatrixShape("float16", "float32", 16, 16, 16),))
    assert prefill_chunk(replace(matrices, half_inputs=True)) == MATRIX_CHUNK
    assert prefill_chunk(replace(matrices, half_inputs=True, one_order=True)) == 0, (
        "one order of sums takes no matrices"
    )
    assert prefill_chunk(matrices) == prefill_chunk(Limits(half_inputs=True)) == 0


def exported(folder: Path, name: str, full_logits: bool = False) -> Path:
    folder_of(folder / name, MODELS[name])
    settings = Settings(Quantization("none"), PIECE, CONTEXT, full_logits=full_logits)
    export_folder(open_folder(folder / name), folder / "out", settings)
    return folder / "out"


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in ("qwen2", "gemma3") else pytest.mark.slow) for name in MODELS]
)
def test_longer_calls_give_the_same_logits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    file = exported(tmp_path, name)
    with LanguageModel.load(file) as model:
        assert model.max_seq_len == PIECE
        expected = []
        for count in (1, 7, 50, 3, 3):
            held = model.position
            model.prefill(IDS[held : held + count])
            expected.append(model.logits())
    monkeypatch.setattr(language_model, "prefill_chunk", lambda limits: CHUNK)
    with LanguageModel.load(file) as model:
        assert model.max_seq_len == CHUNK
        assert model.max_context == CONTEXT
        for count, wanted in zip((1, 7, 50, 3, 3), expected, strict=True):
            held = model.position
            model.prefill(IDS[held : held + count])
            np.testing.assert_allclose(model.logits(), wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in ("qwen2", "gemma3") else pytest.mark.slow) for name in MODELS]
)
def test_a_small_context_takes_its_own_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """A file of chunks of 64 tokens: caches had a row for each of them, whatever context was asked for."""
    folder_of(tmp_path / name, MODELS[name])
    export_folder(open_folder(tmp_path / name), tmp_path / "out", Settings(Quantization("none"), CONTEXT, CONTEXT))

    def loaded(context: int | None) -> tuple[Memory, np.ndarray]:
        with LanguageModel.load(tmp_path / "out", max_context=context) as model:
            for count in (1, model.max_context // 2, model.max_context // 2 - 2):
                model.prefill(IDS[model.position : model.position + count])
            return model.memory, model.logits()

    contexts = (CONTEXT // 2, CONTEXT // 4, 4)
    found, whole = {context: loaded(context) for context in contexts}, loaded(None)[0]
    monkeypatch.setattr(language_model, "with_chunk_of_context", lambda graph, constants, context: (graph, constants))
    for context in contexts:
        memory, logits = found[context]
        old, expected = loaded(context)  # whose rotation may be that of this context
        np.testing.assert_allclose(logits, expected, rtol=1e-4, atol=1e-4)
        assert memory.state < old.state
        assert memory.state <= whole.state * max(context, 17) / CONTEXT * 1.1
        assert memory.activations < whole.activations


def test_a_chunk_is_no_longer_than_the_context(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = exported(tmp_path, "qwen2")
    monkeypatch.setattr(language_model, "prefill_chunk", lambda limits: 1000)
    with LanguageModel.load(file) as model:
        assert model.max_seq_len == CONTEXT
    with LanguageModel.load(file, max_context=20) as model:
        assert model.max_seq_len == 20


def test_logits_of_all_rows_stay_as_many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = exported(tmp_path, "qwen2", full_logits=True)
    monkeypatch.setattr(language_model, "prefill_chunk", lambda limits: CHUNK)
    with LanguageModel.load(file) as model:
        assert model.max_seq_len == PIECE


def same_logits(pair: tuple[LanguageModel, LanguageModel]) -> None:
    plain, raised = pair
    assert plain.tokens == raised.tokens
    if plain.position:
        np.testing.assert_allclose(raised.logits(), plain.logits(), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name == "gemma3" else pytest.mark.slow) for name in MODELS]
)
def test_forks_truncates_and_saved_caches_of_longer_calls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """The same random work on a model of the file's own calls and on one of longer ones; each restores what the other
    saved."""
    file, draw = exported(tmp_path, name), random.Random(name)
    saved = [tmp_path / "plain", tmp_path / "raised"]
    with contextlib.ExitStack() as opened:
        plain = opened.enter_context(LanguageModel.load(file))
        monkeypatch.setattr(language_model, "prefill_chunk", lambda limits: CHUNK)
        raised = opened.enter_context(LanguageModel.load(file))
        pairs = [(plain, raised)]
        for _ in range(40):
            pair = draw.choice(pairs)
            room, work = CONTEXT - pair[0].position, draw.randrange(7)
            if work <= 2 and room:
                ids = draw.choices(IDS, k=draw.randint(1, min(room, draw.choice((3, 45)))))
                for model in pair:
                    model.prefill(ids)
            elif work == 3:
                length = draw.randint(0, pair[0].position)
                for model in pair:
                    model.truncate(length)
            elif work == 4 and len(pairs) < 4:
                pairs.append((opened.enter_context(pair[0].fork()), opened.enter_context(pair[1].fork())))
            elif work == 5:
                for model, place in zip(pair, saved, strict=True):
                    model.save(place)
                other = draw.choice(pairs)
                for model, place in zip(other, reversed(saved), strict=True):
                    model.restore(place)
                same_logits(other)
            elif work == 6:
                for model in pair:
                    model.reset()
            same_logits(pair)
