"""What LIVESHAPE_DEBUG shows: each level what the one before does, and more; without it nothing."""

from __future__ import annotations

import logging
import os
import subprocess
import sys

import numpy as np
import pytest

from liveshape import debug_log
from liveshape.device.backends import open_device
from tests.support.chains import Chain, executor_of

RUN = """
import numpy as np
import liveshape
from liveshape.device.backends import open_device
from tests.support.chains import Chain, executor_of
chain = Chain()
x = chain.input((4, 8))
from liveshape.lower.lowering import optimized
relu = chain.node("aten.relu.default", x, chain.tensor((4, 8)))
positive = chain.node("aten.abs.default", x, chain.tensor((4, 8)))
graph = chain.graph(relu, chain.node("aten.add.Tensor", positive, x, 1, chain.tensor((4, 8))))
executor = executor_of(optimized(graph, open_device().limits), open_device())
executor.execute([np.ones((3, 8), np.float32)])
"""
TOLD = {
    "device": ("through", "blocks in all"),
    "steps": ("call 1: input 0 (3, 8); 1 commands", "read after"),
    "plans": ("aten.add.Tensor (node 2) (live: input 0 (3, 8))",),
    "shaders": (
        "@compute",
        "pointwise/clamp+abs+add",
        "add(abs(x0), x0), clamp(x0, n0, n1)",
        "fused: aten.abs.default + aten.add.Tensor",
    ),
}


@pytest.mark.parametrize("level", ["0", "2", "4"])
def test_levels(level: str) -> None:
    environment = {**os.environ, "LIVESHAPE_DEBUG": level, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", RUN], capture_output=True, text=True, check=True, env=environment)
    for place, (name, texts) in enumerate(TOLD.items()):
        shown = place < int(level)
        assert (f"ms liveshape.{name}: " in done.stderr) is shown, name
        assert all((text in done.stderr) is shown for text in texts), name


def test_a_program_may_log_them_itself(caplog: pytest.LogCaptureFixture) -> None:
    chain = Chain()
    x = chain.input((4, 8))
    executor = executor_of(chain.graph(chain.node("aten.relu.default", x, chain.tensor((4, 8)))), open_device())
    with caplog.at_level(logging.DEBUG, logger=debug_log.STEPS.name):
        executor.execute([np.ones((2, 8), np.float32)])
    told = [record.getMessage() for record in caplog.records if record.name == debug_log.STEPS.name]
    assert len(told) == 2
    assert "input 0 (2, 8)" in told[0]
