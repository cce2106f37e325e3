"""SmolLM2-135M, a real model, exported from its GGUF file and run by the npm package: tokens as natively."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from liveshape.export.folder import Settings, export_folder
from liveshape.export.sources.opening import open_checkpoint
from liveshape.llm import LanguageModel, Sampling
from tests.export.real_models import smollm2
from tests.support.browser import opened_page
from tests.web.page_host import hosted
from tests.web.test_node import WEB, in_node

pytestmark = [pytest.mark.slow, pytest.mark.long]

IDS = [1, 504, 3575, 282, 4649, 314]
COUNT = 12


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("smollm2")
    export_folder(open_checkpoint(str(smollm2())), made, Settings())
    return made


@pytest.fixture(scope="module")
def wanted(folder: Path) -> list[int]:
    with LanguageModel.load(folder) as model:
        return list(model.stream(IDS, Sampling(), max_tokens=COUNT))


def test_tokens_in_node(folder: Path, wanted: list[int]) -> None:
    lines = in_node("ids", str(folder), json.dumps(IDS), str(COUNT))
    assert lines[-1]["tokens"] == wanted


def test_tokens_in_chromium(gpu_browser: Browser, folder: Path, wanted: list[int]) -> None:
    body = """async ({ ids, count }) => {
        const liveshape = await import("/dist/index.js");
        const model = await liveshape.loadLanguageModel("/model/");
        const tokens = [];
        for await (const { token } of model.stream(ids, { maxTokens: count, temperature: 0 })) tokens.push(token);
        return tokens;
    }"""
    with hosted(dist=WEB / "dist", model=folder) as (address, _), opened_page(gpu_browser, address, 1_800_000) as page:
        assert page.evaluate(body, {"ids": IDS, "count": COUNT}) == wanted
