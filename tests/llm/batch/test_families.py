"""Every family of decoders that we write runs many sequences in one graph, contexts longer than its window included."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from liveshape.errors import UnsupportedError
from liveshape.export.folder import MODEL, Settings, export_folder
from liveshape.export.model.config import Mode, Quantization
from liveshape.export.model.families import FAMILIES
from liveshape.export.sources.huggingface import open_folder
from liveshape.export.sources.huggingface_config import from_hugging_face
from liveshape.llm.batch.loading import load_runner
from liveshape.llm.batch.pages import PagePool
from liveshape.llm.batch.scheduler import Scheduler, Sequence
from liveshape.llm.generation.generating import stream_generate
from liveshape.llm.generation.responses import GenerationResponse
from liveshape.llm.language_model import LanguageModel
from liveshape.llm.sampling_settings import Sampling
from liveshape.llm.serving.batch_engine import BatchEngine
from liveshape.llm.serving.engine_sequence import EngineSequence
from liveshape.llm.text.tokenizer import Tokenizer
from liveshape.shipped import shipped_model
from tests.export.family_models import CONTEXT, MODELS, folder_of, settings_of

PIECE, SEQUENCES = 24, 3
# Tokens of the prompt and of the answer: within every window and beyond, in one piece and in several, up to the end.
LENGTHS = ((3, 14), (30, 9), (1, 30), (40, 24), (12, 5), (21, 20))
WINDOWS = {"sliding_window": 7, "layer_types": ["full_attention", "sliding_attention"]}
EVERY = {
    **MODELS,
    "llama": settings_of("LlamaForCausalLM", "llama"),
    "ministral": settings_of("MinistralForCausalLM", "ministral", **WINDOWS),
    "qwen3": settings_of("Qwen3ForCausalLM", "qwen3", head_dim=20, use_sliding_window=True, **WINDOWS),
}
QUICK = ("mistral", "gemma2", "gpt2")


def exported(name: str, path: Path, mode: Mode = "none", **settings: Any) -> Path:
    folder, _ = folder_of(path / "folder", EVERY[name])
    export_folder(open_folder(folder), path / "exported", Settings(Quantization(mode), PIECE, CONTEXT, **settings))
    return path / "exported" / MODEL


def check(file: Path, **options: Any) -> None:
    """Sequences that come and go beside each other have the tokens that each has alone."""
    draw = np.random.default_rng(3)
    context = options.get("max_context", CONTEXT)
    lengths = [(length, most) for length, most in LENGTHS if length + most <= context]
    requests: list[tuple[list[int], dict[str, Any]]] = [
        (draw.integers(3, 128, length).tolist(), {"max_tokens": most, "temperature": 0}) for length, most in lengths
    ]
    tokenizer = Tokenizer.load(shipped_model())  # of other words, which nobody reads
    # A single sequence has no float16 cache where attention is spelled out; these ids do not hang on it.
    alone = {name: value for name, value in options.items() if name != "half_cache"}
    with LanguageModel.load(file, **alone) as model:
        wanted = []
        for prompt, given in requests:
            model.reset()
            wanted.append([response.token for response in stream_generate(model, tokenizer, prompt, **given)])
    assert sum(len(ids) for ids in wanted) > 25

    async def ids_of(answer: AsyncGenerator[GenerationResponse, None]) -> list[int]:
        return [response.token async for response in answer]

    async def steps() -> None:
        runner, description = load_runner(file, sequences=SEQUENCES, **options)
        engine = BatchEngine(runner, tokenizer, description)
        try:
            # More than run at once: the later ones join while others are at work.
            got = await asyncio.gather(*(ids_of(engine.generate(prompt, **given)) for prompt, given in requests))
            assert got == wanted
        finally:
            await engine.close()

    asyncio.run(steps())


@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in EVERY]
)
def test_ids_are_those_that_each_has_alone(name: str, tmp_path: Path) -> None:
    check(exported(name, tmp_path))


def test_no_family_is_left_out() -> None:
    assert {from_hugging_face(settings).family for settings in EVERY.values()} == set(FAMILIES)


def test_pages_behind_the_windows_of_all_layers_are_given_back(tmp_path: Path) -> None:
    """A sequence that is longer than the whole pool has the tokens that it has alone."""
    file, context = exported("mistral", tmp_path), 3 * CONTEXT
    page = 16 * 2 * 2 * 2 * 16 * 4  # rows, layers, keys and values, heads, head size, bytes
    runner, _ = load_runner(file, sequences=2, max_context=context, cache_bytes=6 * page)
    bounds = runner.bounds
    assert (runner.window, bounds.pages) == (9, 6)
    pool = PagePool(bounds.pages, bounds.page_size)
    scheduler = Scheduler(pool, bounds.rows, bounds.sequences, window=runner.window)
    prompt = np.random.default_rng(3).integers(3, 128, 2 * CONTEXT).tolist()
    sequence = Sequence(prompt, len(prompt) + 40)
    scheduler.add(sequence)
    most = 0
    while len(sequence.tokens) < sequence.limit:
        step = scheduler.schedule()
        assert step is not None
        (tokens,) = runner.submit(step, [Sampling()] * step.lines).result()
        scheduler.read(step, tokens.reshape(-1).tolist())
        most = max(most, pool.in_use)
    runner.close()
    assert most <= 3  # eight keys before a piece of 24 rows
    with LanguageModel.load(file, max_context=context) as model:
        assert sequence.tokens[len(prompt) :] == list(model.stream(prompt, max_tokens=40))


def test_a_file_has_the_rows_that_were_behind_the_window(tmp_path: Path) -> None:
    """Cut, or with a penalty for its whole history, what was saved is what it was, in a model and in an engine."""
    file, saved = exported("mistral", tmp_path), tmp_path / "saved"
    tokenizer = Tokenizer.load(shipped_model())
    prompt = np.random.default_rng(3).integers(3, 128, 50).tolist()
    cases = [([*prompt[:20], 7], 1.0), ([*prompt, 7], 1.8)]

    def said(model: LanguageModel, ids: list[int], penalty: float) -> list[int]:
        sampling = Sampling(repetition_penalty=penalty)
        return list(model.stream(ids, sampling, max_tokens=6, stop_ids=tokenizer.eos_ids))

    async def steps(model: LanguageModel) -> None:
        wanted = []
        for ids, penalty in cases:
            model.reset()
            wanted.append(said(model, ids, penalty))
        for place, (ids, penalty) in enumerate(cases):
            runner, description = load_runner(file, sequences=2)
            assert runner.window == 9
            engine = BatchEngine(runner, tokenizer, description)
            sequence = EngineSequence(engine)
            if place == 0:
                _ = [response async for response in sequence.generate(prompt, max_tokens=1)]
                await sequence.save(saved)
                assert sequence.tokens == tuple(prompt)
                sequence.reset()
            await sequence.restore(saved)
            sequence.truncate(len(ids) - 1)
            answer = sequence.generate([7], repetition_penalty=penalty, temperature=0, max_tokens=6)
            assert [response.token async for response in answer] == wanted[place]
            model.restore(saved)
            model.truncate(len(ids) - 1)
            assert said(model, [7], penalty) == wanted[place]
            await engine.close()

    with LanguageModel.load(file) as model:
        asyncio.run(steps(model))


@pytest.mark.slow
def test_nothing_is_given_back_where_a_layer_sees_all(tmp_path: Path) -> None:
    runner, _ = load_runner(exported("ministral", tmp_path))
    assert runner.window is None
    runner.close()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mistral", "gemma2", "gpt2", "gpt_oss"])
@pytest.mark.parametrize(
    ("settings", "options"),
    [
        ({"mode": "none"}, {"half_cache": True}),
        ({"mode": "4w"}, {"activations": "int8"}),
        ({"mode": "8da4w", "full_logits": True}, {}),
        ({"mode": "none", "half": True}, {}),
        ({"mode": "none", "full_logits": True}, {"max_context": CONTEXT // 2}),
        ({"mode": "4w"}, {"max_context": 2 * CONTEXT}),
    ],
    ids=["half cache", "int8", "8da4w, all logits", "half", "shorter", "longer"],
)
def test_in_other_forms(name: str, settings: dict[str, Any], options: dict[str, Any], tmp_path: Path) -> None:
    file = exported(name, tmp_path, **settings)
    if (name, options) == ("gpt2", {"max_context": 2 * CONTEXT}):
        with pytest.raises(UnsupportedError, match="ends at position 64"):
            load_runner(file, **options)
        return
    check(file, **options)
