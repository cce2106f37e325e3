"""How a model is called: by name, awaited, with torch tensors, from a folder."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import liveshape
from liveshape.errors import FormatError, InputError
from liveshape.runtime import Runtime
from tests.runtime.files import several
from tests.runtime.shaped import exported


@pytest.fixture(scope="module")
def shared() -> Any:
    with liveshape.load(exported("Shared")) as loaded:
        yield loaded


def f(*shape: int) -> Any:
    return np.ones(shape, np.float32)


@pytest.mark.parametrize("names", ["", "z", "zy", "xyz", "zyx", "yz"])
def test_inputs_come_in_order_by_name_or_both(shared: Any, names: str) -> None:
    given = {"x": f(2, 3), "y": 2 * f(2, 3), "z": -f(2)}
    in_order = [given[name] for name in "xyz" if name not in names]
    found = shared(*in_order, **{name: given[name] for name in names})
    for got, expected in zip(found, (2 * f(2, 3), 3 * f(2, 3), np.zeros(2)), strict=True):
        np.testing.assert_array_equal(got, expected)


def test_files_without_names_take_inputs_in_order() -> None:
    with liveshape.load(several(), method="sums") as sums:
        assert sums(f(2, 8), f(2, 8))[0].max() == 2
        with pytest.raises(InputError, match="none is called 'x': input 0, input 1"):
            sums(x=f(2, 8), y=f(2, 8))
        with pytest.raises(InputError, match=r"takes 2 inputs, 1 given: input 1 missing"):
            sums(f(2, 8))


def test_calls_can_be_awaited(shared: Any) -> None:
    async def both() -> Any:
        return await asyncio.gather(
            shared.call_async(f(1, 3), f(1, 3), z=f(1)), shared.call_async(f(3, 3), f(3, 3), f(3))
        )

    one, three = asyncio.run(both())
    assert [len(found) for found in (*one, *three)] == [1, 1, 1, 3, 3, 3]
    with pytest.raises(InputError, match="z missing"):
        asyncio.run(shared.call_async(f(1, 3), f(1, 3)))


def test_torch_tensors_come_back_where_one_was_given(shared: Any) -> None:
    given = torch.ones(2, 3), torch.ones(2, 3), torch.ones(2)
    method = Runtime().load_program(exported("Shared")).load_method("forward")
    for found in (shared(*given), shared(f(2, 3), y=given[1], z=f(2)), method.execute(list(given))):
        assert all(type(each) is torch.Tensor and each.dtype == torch.float32 for each in found)
        found[0].add_(1)  # its memory is its own
    assert all(type(each) is np.ndarray for each in shared(f(2, 3), f(2, 3), f(2)))
    (awaited, *_) = asyncio.run(method.execute_async(given))
    assert torch.equal(awaited, torch.full((2, 3), 2.0))


def test_torch_is_not_imported_for_it() -> None:
    code = (
        "import sys, numpy as np, liveshape\n"
        f"model = liveshape.load({str(exported('Shared'))!r})\n"
        "x = np.ones((2, 3), 'float32')\n"
        "model(x, x, x[:, 0])\n"
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


def test_a_folder_is_its_program(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from liveshape.cli import main

    shutil.copy(exported("Mean"), tmp_path / "model.pte")
    with liveshape.load(tmp_path) as model:
        np.testing.assert_array_equal(model(x=f(3, 8)), f(3))
    with liveshape.load(str(tmp_path)) as model:
        assert model.inputs[0].name == "x"
    assert main(["inspect", str(tmp_path)]) == 0
    assert "rows" in capsys.readouterr().out
    (tmp_path / "model.pte").unlink()
    (tmp_path / "config.json").write_text("{}")
    for call in (lambda: liveshape.load(tmp_path), lambda: liveshape.load(str(tmp_path))):
        with pytest.raises(FormatError, match=r"must hold a model\.pte .* liveshape export"):
            call()
    assert main(["inspect", str(tmp_path)]) == 2
    assert "liveshape export" in capsys.readouterr().err
