"""GGUF files and Hugging Face folders as they are, in Chromium: by URL with HTTP Range, and as a File."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page

from liveshape.export.folder import export_folder
from liveshape.export.sources.opening import open_checkpoint
from liveshape.llm import LanguageModel, Sampling
from tests.support.browser import opened_page
from tests.web.page_host import hosted
from tests.web.source_models import WIDE, write_model_folder, write_model_gguf
from tests.web.test_browser import run
from tests.web.test_node import WEB

pytestmark = pytest.mark.slow

IDS = [1, 259, 262, 270]
TOKENS = 12
LOADED = """
    const progress = [];
    const model = await liveshape.loadLanguageModel(source, { onProgress: (told) => progress.push(told) });
    const tokens = [];
    for await (const { token } of model.stream(given, { maxTokens: 12, temperature: 0 })) tokens.push(token);
    await model.close();
    return { tokens, progress, memory: await liveshape.memory() };
"""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("models")
    write_model_gguf(made / "tiny.gguf", "Q4_K")
    write_model_folder(made / "folder", WIDE)
    (made / "cut.gguf").write_bytes((made / "tiny.gguf").read_bytes()[:-1000])
    return made


@pytest.fixture(scope="module")
def page(home: Path, gpu_browser: Browser) -> Iterator[Page]:
    """One page for all: a worker boots once."""
    with (
        hosted(dist=WEB / "dist", example=WEB / "example", models=home) as (address, _),
        opened_page(gpu_browser, f"{address}/example/index.html") as found,
    ):
        yield found


@pytest.mark.parametrize(
    "source",
    [
        "const source = '/models/tiny.gguf';",
        "const blob = await (await fetch('/models/tiny.gguf')).blob(); const source = new File([blob], 'tiny.gguf');",
        "const source = '/models/folder';",
    ],
    ids=["url", "file", "folder"],
)
def test_tokens_are_those_of_python(source: str, page: Page, home: Path, tmp_path: Path) -> None:
    found = run(page, source + LOADED, IDS)
    export_folder(open_checkpoint(home / ("folder" if "folder" in source else "tiny.gguf")), tmp_path / "native")
    with LanguageModel.load(tmp_path / "native") as model:
        assert found["tokens"] == list(model.stream(IDS, Sampling(), max_tokens=TOKENS))
    stages = {each["stage"] for each in found["progress"]}
    assert "upload" in stages
    for stage in stages:  # what the page has compiled for another model is not compiled again
        told = [each for each in found["progress"] if each["stage"] == stage]
        done = [each["done"] for each in told]
        assert done == sorted(done), stage
        assert done[-1] == told[-1]["total"] > 0, stage
    assert found["memory"] == 0


def test_a_file_that_was_cut_is_told(page: Page) -> None:
    body = """
        return liveshape.loadLanguageModel("/models/cut.gguf").then(null, (error) => [error.name, error.message]);
    """
    name, message = run(page, body)
    assert name == "FormatError"
    assert "model.gguf: tensor " in message
    assert "ends at byte" in message
