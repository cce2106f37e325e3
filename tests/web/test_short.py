"""A short test of the npm package in `make test`, collected where Node, Chromium and the built package are there."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from playwright.sync_api import Browser

from liveshape import load
from liveshape.shipped import shipped
from tests.support.browser import opened_page
from tests.web.page_graphs import read, spelled
from tests.web.page_host import hosted
from tests.web.test_node import WEB, in_node

SIZES = (64, 3)


def test_a_program_in_node_and_in_chromium(tmp_path: Path, gpu_browser: Browser) -> None:
    program = shipped("demo")
    assert program is not None
    x = np.random.default_rng(2).standard_normal((1, max(SIZES), 64)).astype(np.float32)
    with load(program) as model:
        wanted = [model(x[:, :size]) for size in SIZES]
    calls = spelled([[x[:, :size]] for size in SIZES])
    (tmp_path / "given.json").write_text(json.dumps([{"file": str(program), "calls": calls}]))
    (in_process,) = in_node("calls", str(tmp_path / "given.json"))
    body = """async (given) => {
        const { runCalls } = await import("/test/calls.js");
        return runCalls(await import("/dist/index.js"), given);
    }"""
    roots = {"dist": WEB / "dist", "test": WEB / "test", "demo": program.parent}
    with hosted(**roots) as (address, _), opened_page(gpu_browser, address) as page:
        in_page = page.evaluate(body, {"file": "/demo/block.pte", "calls": calls})
    for found in (in_process, in_page):
        assert "failed" not in found, found
        for (output,), right in zip(found["outputs"], wanted, strict=True):
            np.testing.assert_allclose(read(output), right, 1e-5, 1e-5)
