"""The notebook of the examples in Pyodide, with the wheel and nothing registered: in Node on Dawn, and in a plain page.

Pyodide's own numpy is on no registry of npm, so that the numpy of a page stands in for it.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Browser

from liveshape import load
from liveshape.llm import LanguageModel, Sampling
from liveshape.shipped import shipped, shipped_model
from tests.support.browser import node, opened_page
from tests.web.page_host import hosted
from tests.web.test_node import IDS, WEB, environment

pytestmark = pytest.mark.slow

ROOT = WEB.parent
NOTEBOOK = json.loads((ROOT / "examples" / "notebook" / "liveshape.ipynb").read_text())
CELLS = ["".join(cell["source"]) for cell in NOTEBOOK["cells"] if cell["cell_type"] == "code"]
NUMPY = WEB / "python" / "numpy"
# What docs/web.md says for a browser without JSPI.
AWAITED = [
    CELLS[0],
    """
import numpy as np
import liveshape

try:
    liveshape.load("demo")
except liveshape.NoAdapterError as error:
    print(error)
""",
    """
device = await liveshape.open_page()
model = liveshape.load("demo")
x = np.arange(128 * 64, dtype="float32").reshape(1, 128, 64) * (1 / 8192)
for length in (128, 7, 1, 64):
    y = await model.call_async(x[:, :length])
    print(length, y.shape, float(y.max()))
""",
    """
try:
    model(x[:, :7])
except liveshape.DeviceError as error:
    print(error)
""",
    """
from liveshape.llm import LanguageModel, Sampling
from liveshape.shipped import shipped_model

story = LanguageModel.load(shipped_model())
tokens = [token async for token in story.stream([1, 403, 407, 261], Sampling(), max_tokens=20)]
print(tokens)
""",
]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(folder), str(ROOT)]
    subprocess.run(command, check=True, timeout=600, capture_output=True)
    (made,) = folder.glob("liveshape-*.whl")
    return made


def in_node(wheel: Path, tmp_path: Path, cells: list[str], *kind: str) -> list[str]:
    """What each cell prints."""
    (tmp_path / "cells.json").write_text(json.dumps(cells))
    given = [str(WEB / "test" / "notebook.mjs"), str(wheel), str(NUMPY), str(tmp_path / "cells.json"), *kind]
    run = subprocess.run([node(), *given], capture_output=True, text=True, env=environment(), timeout=1500, check=False)
    assert run.returncode == 0, run.stderr[-3000:]
    return printed([json.loads(line) for line in run.stdout.splitlines() if line.startswith("{")], cells)


def printed(found: list[dict[str, Any]], cells: list[str]) -> list[str]:
    assert "failed" not in found[-1], found[-1]["failed"]
    assert len(found) == len(cells)
    return [each["said"] for each in found]


@pytest.fixture
def x() -> Any:
    return np.arange(128 * 64, dtype="float32").reshape(1, 128, 64) * np.float32(1 / 8192)


def check_lengths(said: str, x: Any) -> None:
    """Lines of a length, a shape and the greatest number, each that of the native engine."""
    lines = re.findall(r"^(\d+) (\(.*\)) (\S+)$", said, re.MULTILINE)
    assert [int(length) for length, _, _ in lines] == [128, 7, 1, 64]
    with load(shipped("demo")) as model:
        for length, shape, greatest in lines:
            wanted = model(x[:, : int(length)])
            assert shape == str(wanted.shape)
            np.testing.assert_allclose(float(greatest), wanted.max(), 1e-5, 1e-5)


def check_notebook(said: list[str], x: Any) -> None:
    assert "Device(" in said[1]
    assert "Model(forward" in said[1]
    check_lengths(said[2], x)
    with load(shipped("demo")) as model:
        wanted = model(x[:, :7])
    shape, greatest = said[3].strip().rsplit(" ", 1)
    assert shape == str(wanted.shape)
    np.testing.assert_allclose(float(greatest), wanted.max(), 1e-5, 1e-5)
    check_tokens(said[4])


def check_awaited(said: list[str], x: Any) -> None:
    check_lengths(said[2], x)
    assert "use the async forms" in said[3]
    check_tokens(said[4])


def check_tokens(said: str) -> None:
    with LanguageModel.load(shipped_model()) as story:
        assert said.strip().splitlines()[-1] == str(list(story.stream(IDS, Sampling(), max_tokens=20)))


def test_a_wheel_has_what_a_page_needs(wheel: Path) -> None:
    from zipfile import ZipFile

    with ZipFile(wheel) as archive:
        names = set(archive.namelist())
        (about,) = (archive.read(name).decode() for name in names if name.endswith(".dist-info/METADATA"))
    assert "liveshape/device/page_gpu.js" in names
    kernels = (ROOT / "liveshape" / "kernels" / "wgsl").rglob("*.wgsl")
    assert {str(path.relative_to(ROOT)) for path in kernels} <= names
    (wgpu,) = re.findall("^Requires-Dist: (wgpu\\b.*)$", about, re.MULTILINE)
    assert re.search("sys_platform != .emscripten.", wgpu)


def test_the_notebook_in_node(wheel: Path, tmp_path: Path, x: Any) -> None:
    check_notebook(in_node(wheel, tmp_path, CELLS), x)


def test_the_block_of_the_docs_runs(wheel: Path, tmp_path: Path) -> None:
    text = (ROOT / "docs" / "web.md").read_text()
    (block,) = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    said = in_node(wheel, tmp_path, [block, "print(y.shape)"])
    assert said[1] == "(1, 7, 64)\n"


def test_texts_say_what_they_lack(wheel: Path, tmp_path: Path) -> None:
    cell = """
from liveshape.llm.text.tokenizer import Tokenizer
from liveshape.shipped import shipped_model

try:
    Tokenizer.load(shipped_model())
except ImportError as error:
    print(error)
"""
    assert "tokenizers is not" in in_node(wheel, tmp_path, [CELLS[0], cell])[1]


def test_where_python_cannot_wait_calls_are_awaited(wheel: Path, tmp_path: Path, x: Any) -> None:
    said = in_node(wheel, tmp_path, AWAITED, "plain")
    assert "`await liveshape.open_page()` before" in said[1]
    check_awaited(said, x)


@pytest.fixture(scope="module")
def address(wheel: Path) -> Iterator[str]:
    pyodide = WEB / "node_modules" / "pyodide"
    with hosted(test=WEB / "test", pyodide=pyodide, numpy=NUMPY, wheel=wheel.parent) as (found, _):
        yield found


@pytest.mark.parametrize("kind", ["page", "without JSPI"])
def test_the_notebook_in_a_page(gpu_browser: Browser, address: str, wheel: Path, x: Any, kind: str) -> None:
    cells = CELLS if kind == "page" else AWAITED
    body = """async ({ wheel, cells, suspending }) => {
        const { loadPyodide } = await import("/pyodide/pyodide.mjs");
        const { runCells } = await import("/test/notebook.js");
        const text = async (name) => [name, await (await fetch(`/numpy/${name}`)).text()];
        const numpy = Object.fromEntries(await Promise.all(["__init__.py", "typing.py"].map(text)));
        const bytes = new Uint8Array(await (await fetch(`/wheel/${wheel}`)).arrayBuffer());
        const options = { indexURL: "/pyodide/" };
        return runCells({ loadPyodide, options, wheel: bytes, numpy, cells, suspending });
    }"""
    with opened_page(gpu_browser, address) as page:
        given = {"wheel": wheel.name, "cells": cells, "suspending": kind == "page"}
        said = printed(page.evaluate(body, given), cells)
    if kind == "page":
        check_notebook(said, x)
    else:
        check_awaited(said, x)
