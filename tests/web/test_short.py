"""The npm package in `make test`, in Chromium: a program at live shapes down and up, and an error of the package."""

from __future__ import annotations

import numpy as np
import pytest
from playwright.sync_api import Browser

from liveshape import LiveshapeError, load
from liveshape.shipped import shipped
from tests.support.browser import opened_page
from tests.web.page_graphs import read, spelled
from tests.web.page_host import hosted
from tests.web.test_node import WEB

SIZES = (64, 3, 128, 1)


def test_a_program_in_chromium(gpu_browser: Browser) -> None:
    program = shipped("demo")
    assert program is not None
    x = np.random.default_rng(2).standard_normal((1, max(SIZES), 64)).astype(np.float32)
    too_long = np.zeros((1, max(SIZES) + 1, 64), np.float32)
    with load(program) as model:
        wanted = [model(x[:, :size]) for size in SIZES]
        with pytest.raises(LiveshapeError) as refused:
            model(too_long)
    body = """async (given) => {
        const { runCalls } = await import("/test/calls.js");
        return runCalls(await import("/dist/index.js"), given);
    }"""
    roots = {"dist": WEB / "dist", "test": WEB / "test", "demo": program.parent}
    with hosted(**roots) as (address, _), opened_page(gpu_browser, address) as page:
        calls = [[[x[:, :size]] for size in SIZES], [[too_long]]]
        found, error = (page.evaluate(body, {"file": "/demo/block.pte", "calls": spelled(each)}) for each in calls)
    assert "failed" not in found, found
    for (output,), right in zip(found["outputs"], wanted, strict=True):
        np.testing.assert_allclose(read(output), right, 1e-5, 1e-5)
    assert error["failed"].endswith(str(refused.value)), error
