"""The npm package in Firefox, on the software adapter: the block at many live shapes, and tokens, as natively.

Skipped where there is no Firefox, or where it has no adapter for WebGPU without a display.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from liveshape import load
from liveshape.llm import LanguageModel, Sampling
from liveshape.shipped import shipped, shipped_model
from tests.support.firefox import Firefox, firefox, firefox_path
from tests.web.page_graphs import read, spelled
from tests.web.page_host import hosted
from tests.web.test_node import IDS, SIZES, WEB, environment

pytestmark = pytest.mark.slow

LACKING = """async () => {
    if (!navigator.gpu) return "no WebGPU";
    if (!(await navigator.gpu.requestAdapter())) return "no adapter for WebGPU";
    return "Suspending" in WebAssembly ? "" : "no JSPI";
}"""


@pytest.fixture(scope="module")
def page() -> Iterator[Firefox]:
    if firefox_path() is None:
        pytest.skip("no Firefox is installed")
    program = shipped("demo")
    assert program is not None
    roots = {"dist": WEB / "dist", "test": WEB / "test", "story": shipped_model(), "demo": program.parent}
    with hosted(**roots) as (address, _), firefox(environment()) as opened:
        opened.goto(address)
        lacking = opened.evaluate(LACKING)
        if lacking:
            pytest.skip(f"Firefox has {lacking} here")
        yield opened


def test_a_program_at_many_live_shapes(page: Firefox) -> None:
    x = np.random.default_rng(1).standard_normal((1, 128, 64)).astype(np.float32)
    body = """async (given) => {
        const { runCalls } = await import("/test/calls.js");
        return runCalls(await import("/dist/index.js"), given);
    }"""
    calls = [[x[:, :size]] for size in SIZES]
    found = page.evaluate(body, {"file": "/demo/block.pte", "calls": spelled(calls)})
    assert "failed" not in found, found
    assert found["memory"] == 0
    with load(shipped("demo")) as model:
        for inputs, (output,) in zip(calls, found["outputs"], strict=True):
            wanted = model(*inputs)
            np.testing.assert_allclose(read(output), wanted, 1e-5, 1e-5)


def test_tokens_are_those_of_python(page: Firefox) -> None:
    body = """async (given) => {
        const liveshape = await import("/dist/index.js");
        const model = await liveshape.loadLanguageModel("/story/");
        const tokens = [];
        for await (const { token } of model.stream(given, { maxTokens: 30, temperature: 0 })) tokens.push(token);
        await model.close();
        return tokens;
    }"""
    found = page.evaluate(body, IDS)
    with LanguageModel.load(shipped_model()) as model:
        assert found == list(model.stream(IDS, Sampling(), max_tokens=30))
