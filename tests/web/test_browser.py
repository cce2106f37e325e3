"""The npm package in Chromium, on its software adapter: programs, tokens, errors, and a page that stays alive."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Page

from liveshape import load
from liveshape.llm import LanguageModel, Sampling
from liveshape.shipped import shipped, shipped_model
from tests.web.page_graphs import read, spelled

pytestmark = pytest.mark.slow

SIZES = (128, 1, 7, 64, 1)
IDS = [1, 403, 407, 261]


def run(page: Page, body: str, given: Any = None) -> Any:
    """What the body of an asynchronous function returns, with the package as `liveshape`."""
    script = f"async (given) => {{ const liveshape = await import('/dist/index.js'); {body} }}"
    return page.evaluate(script, given)


def test_a_program_at_many_live_shapes(page: Page) -> None:
    x = np.random.default_rng(1).standard_normal((1, 128, 64)).astype(np.float32)
    body = """
        const model = await liveshape.load("/demo/block.pte");
        const found = [];
        for (const size of given.sizes) {
            const data = new Float32Array(given.numbers.slice(0, size * 64));
            const out = await model.run({ data, shape: [1, size, 64] });
            found.push([out.shape, [...out.data]]);
        }
        await model.close();
        return [found, await liveshape.memory()];
    """
    found, memory = run(page, body, {"sizes": SIZES, "numbers": x.reshape(-1).tolist()})
    with load(shipped("demo")) as model:
        for size, (shape, data) in zip(SIZES, found, strict=True):
            wanted = model(x[:, :size])
            assert shape == list(wanted.shape)
            np.testing.assert_allclose(np.float32(data).reshape(shape), wanted, 1e-5, 1e-5)
    assert memory == 0


def test_golden_calls_of_the_story_model(page: Page) -> None:
    """The logits that torch had, at the lengths and positions of `liveshape demo`."""
    golden = np.load(shipped_model() / "golden.npz")
    starts = np.cumsum([0, *golden["calls"]])
    calls = [[golden["ids"][None, first:last], np.array([first])] for first, last in pairwise(starts)]
    body = "return (await import('/test/calls.js')).runCalls(liveshape, given);"
    found = run(page, body, {"file": "/story/model.pte", "calls": spelled(calls)})
    assert "failed" not in found, found
    with load(shipped_model() / "model.pte") as model:
        for (logits,), inputs, wanted in zip(found["outputs"], calls, golden["logits"], strict=True):
            np.testing.assert_allclose(read(logits)[0], wanted, 1e-3, 1e-3)
            np.testing.assert_allclose(read(logits), model(*inputs), 1e-4, 1e-4)


def test_tokens_are_those_of_python_and_the_page_stays_alive(page: Page) -> None:
    body = """
        const model = await liveshape.loadLanguageModel("/story/");
        let frames = 0, going = true;
        const count = () => { frames += 1; if (going) requestAnimationFrame(count); };
        requestAnimationFrame(count);
        const began = performance.now(), tokens = [];
        for await (const { token } of model.stream(given, { maxTokens: 100, temperature: 0 })) tokens.push(token);
        const seconds = (performance.now() - began) / 1000;
        going = false;
        await model.close();
        return { tokens, frames, seconds };
    """
    found = run(page, body, IDS)
    with LanguageModel.load(shipped_model()) as model:
        assert found["tokens"] == list(model.stream(IDS, Sampling(), max_tokens=100))
    assert found["frames"] > 10 * found["seconds"], "the page waited for the worker"


def test_a_worker_that_was_stopped_begins_anew(page: Page) -> None:
    body = """
        const model = await liveshape.load("/demo/block.pte");
        await liveshape.stop();
        const told = await model.run({ data: new Float32Array(64), shape: [1, 1, 64] }).catch((error) => error.message);
        const again = await liveshape.load("/demo/block.pte");
        const out = await again.run({ data: new Float32Array(64), shape: [1, 1, 64] });
        return [told, out.data.length];
    """
    told, size = run(page, body)
    assert "stopped" in told
    assert size == 64
