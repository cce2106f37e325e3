"""Files that ExecuTorch's own test exporters write with their goldens: order of dispatches, and indexing."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import numpy as np

from liveshape.runtime import Runtime
from tests.support.catalogue import generated
from tests.support.exporting import quick, quiet

TESTS = "executorch.backends.webgpu.test.ops"


def written(name: str, module: str, function: str) -> Path:
    """The folder that an exporter of ExecuTorch fills, made once."""

    def write(out: Path) -> None:
        with quiet(), quick():
            getattr(import_module(f"{TESTS}.{module}"), function)(str(out))

    return generated(name, write)


def test_dispatches_run_in_order() -> None:
    """Chains up to 32 deep, in which every dispatch reads what the one before it wrote, in one compute pass."""
    folder = written("dispatch_order", "test_dispatch_order", "export_dispatch_order_cases")
    files = sorted(folder.glob("*.pte"))
    assert len(files) == 9
    for path in files:
        method = Runtime.get().load_program(path).load_method("forward")
        x = np.fromfile(path.with_suffix(".input.bin"), "<f4").reshape(method.inputs[0].bounds)
        golden = np.fromfile(path.with_suffix(".golden.bin"), "<f4")
        for _ in range(3):
            np.testing.assert_allclose(method.execute([x])[0].reshape(-1), golden, 1e-3, 1e-3, err_msg=path.name)


def test_index() -> None:
    folder = written("index", "index.test_index", "export_all_index_models")
    files = sorted(folder.glob("*.pte"))
    assert files
    for path in files:
        method = Runtime.get().load_program(path).load_method("forward")
        table = np.fromfile(path.with_suffix(".self.bin"), "<f4").reshape(method.inputs[0].bounds)
        rows = np.fromfile(path.with_suffix(".idx.bin"), "<i4").astype(method.inputs[1].dtype)
        golden = np.fromfile(path.with_suffix(".golden.bin"), "<f4")
        (got,) = method.execute([table, rows.reshape(method.inputs[1].bounds)])
        np.testing.assert_array_equal(got.reshape(-1), golden, err_msg=path.name)
