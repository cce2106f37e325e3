"""Matrix units in the npm package, in Node on the Dawn of its own: a page's device asks for them as Python's does."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from liveshape.llm import Sampling
from liveshape.llm.language_model import LanguageModel
from tests.matrices.opened import with_matrices
from tests.support.browser import node
from tests.survival.subjects import STORY

pytestmark = pytest.mark.slow

WEB = Path(__file__).parents[2] / "web"
COUNT = 24


def test_prompts_in_node() -> None:
    """The tokens of Python's Dawn, after a prompt that matrix units take."""
    assert (WEB / "dist" / "liveshape.zip").exists(), "`make web` builds the npm package"
    device, _ = with_matrices()
    ids = [int(each) for each in np.random.default_rng(2).integers(3, 400, 70)]
    # On the libc of the driver, as this process is, where no GPU has matrices.
    driver = Path(sys.prefix) / "share" / "liveshape" / "vulkan-matrices"
    loader = [str(next(driver.glob("ld-linux-*"))), "--library-path", str(driver)] if device.adapter.software else []
    task = [str(WEB / "test" / "programs.mjs"), "matrices", str(STORY), json.dumps(ids), str(COUNT)]
    environment = {**os.environ, "LIVESHAPE_DAWN_FLAGS": "enable-dawn-features=allow_unsafe_apis"}
    run = subprocess.run(
        [*loader, node(), *task], capture_output=True, text=True, env=environment, timeout=900, check=False
    )
    assert run.returncode == 0, run.stderr[-3000:]
    (found,) = [json.loads(line) for line in run.stdout.splitlines() if line.startswith("{")]
    assert "failed" not in found, found
    assert found["device"]["matrices"]
    assert found["activations"] == "float16"
    assert found["kernels"] > 0
    with LanguageModel.load(STORY, device=device, activations="float16") as model:
        assert found["tokens"] == list(model.stream(ids, Sampling(), max_tokens=COUNT))
