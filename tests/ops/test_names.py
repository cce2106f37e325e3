"""Every operator of ExecuTorch's own registry has a kernel here, or a reason why not."""

from __future__ import annotations

import subprocess
import sys

import pytest

from liveshape.ops import OPS

MISSING = {"aten::convolution_backward.out": "a gradient: programs that train use the delegate's operators"}


@pytest.mark.slow
def test_every_name_of_the_registry_is_known() -> None:
    # In a process of its own: what other tests import registers more.
    code = "from executorch.runtime import Runtime; print(*Runtime.get().operator_registry.operator_names)"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    names = set(result.stdout.split())
    assert len(names) > 200  # the registry was read
    assert names - set(OPS) == set(MISSING)
