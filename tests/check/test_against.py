"""`--against`: functions and torch modules of the user's own, named as `liveshape export` names them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from liveshape.check.against import against_of
from liveshape.check.checking import Check
from liveshape.check.findings import AGAINST
from liveshape.cli import main
from liveshape.device.backends import open_device
from liveshape.errors import InputError
from tests.support.chains import Chain

TEXT = """
import numpy
import torch


def twice(x):
    assert isinstance(x, torch.Tensor)
    return {"result": [x + x]}


class Twice(torch.nn.Module):
    def forward(self, x):
        return 2 * x


def build():
    return Twice(), (torch.ones(3),), None


module = Twice()
number = 7


def fails(x):
    raise ValueError("no idea")
"""
PLAIN = """
import numpy


def twice(x):
    assert isinstance(x, numpy.ndarray)
    return x * 2
"""


@pytest.fixture
def _files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "against_torch.py").write_text(TEXT)
    (tmp_path / "against_plain.py").write_text(PLAIN)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("name", ["twice", "build", "module", "module.forward"])
@pytest.mark.usefixtures("_files")
def test_what_may_be_named(name: str) -> None:
    for text in (f"against_torch:{name}", f"against_torch.py:{name}"):
        (found,) = against_of(text, ["float32"])([np.arange(3, dtype=np.float32)])
        assert found.tolist() == [0, 2, 4]


@pytest.mark.usefixtures("_files")
def test_without_torch_it_gets_arrays() -> None:
    (found,) = against_of("against_plain.py:twice", ["float32"])([np.ones(3, np.float32)])
    assert found.tolist() == [2, 2, 2]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("twice", "takes module:function"),
        ("no_such_module:twice", "No module named"),
        ("no/such.py:twice", "there is no file"),
        ("against_torch:number", "nothing that can be called"),
        ("against_torch:none", "has no attribute"),
    ],
)
@pytest.mark.usefixtures("_files")
def test_wrong_names(text: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        against_of(text, ["float32"])


@pytest.mark.usefixtures("_files")
def test_its_errors_are_said() -> None:
    with pytest.raises(InputError, match="ValueError: no idea"):
        against_of("against_torch:fails", ["float32"])([np.ones(3, np.float32)])


@pytest.mark.parametrize(("factor", "right"), [(1, True), (1.5, False)])
@pytest.mark.usefixtures("_files")
def test_a_program_beside_it(factor: float, right: bool) -> None:
    chain = Chain()
    x = chain.input((8,))
    graph = chain.graph(chain.node("aten.add.Tensor", x, x, factor, chain.tensor((8,))))
    device = open_device()
    against = against_of("against_torch:build", ["float32"])
    check = Check(graph, device, device.limits, against=against)
    for size in (8, 3):
        check.call([np.arange(size, dtype=np.float32)])
    check.close()
    assert [each.kind for each in check.found.divergences] == ([] if right else [AGAINST])


@pytest.mark.usefixtures("_files")
def test_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "demo", "--input-shapes", "1x2x64", "--against", "against_plain.py:twice", "--json"]) == 1
    (method,) = json.loads(capsys.readouterr().out)["methods"].values()
    assert [each["kind"] for each in method["divergences"]] == [AGAINST]
