"""A shape that a program was not exported for is refused, with the input, the dimension and what is allowed."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import liveshape
from liveshape.cli import main
from liveshape.errors import InputError, LiveshapeError, ShapeError
from tests.runtime.shaped import CASES, arguments, exported, verdicts
from tests.support.exporting import cached, lower


@functools.cache
def model(name: str) -> Any:
    return liveshape.load(exported(name))


@pytest.fixture(scope="module", autouse=True)
def _closed() -> Iterator[None]:
    yield
    model.cache_clear()


@pytest.mark.parametrize("name", CASES)
def test_every_size_has_torchs_verdict(name: str) -> None:
    case, wrong = CASES[name], []
    eager = case.module()
    for shapes, legal in verdicts(name).items():
        given = arguments(case, shapes)
        try:
            found = model(name)(*given)
        except ShapeError:
            found = None
        if (found is not None) != legal:
            wrong.append((shapes, legal))
        if found is not None and legal:
            expected = eager(*given)
            pairs = zip(found, expected, strict=True) if isinstance(expected, tuple) else [(found, expected)]
            for got, wanted in pairs:
                torch.testing.assert_close(got, wanted, rtol=1e-5, atol=1e-5)
    assert not wrong, f"{len(wrong)} of {len(case.tried)}: {wrong[:5]}"
    assert 0 < sum(verdicts(name).values()) < len(case.tried)


def f(*shape: int) -> Any:
    return np.ones(shape, np.float32)


SUMS = (f(6, 4), f(12), f(7))
MIXED = (f(3, 5, 4), f(5, 3), 3)
ILLEGAL: list[tuple[str, tuple[Any, ...], dict[str, Any], str]] = [
    ("Mean", (f(3, 4),), {}, r"x: dimension 1 is 4, it is static at 8: \(3, 4\) was given; export with a dynamic"),
    ("Mean", (f(6, 7),), {}, "x: dimension 1 is 7, it is static at 8"),
    ("Mean", (f(2, 8),), {}, "x: dimension 0 is 2, 3 to 6 are allowed.*smaller min"),
    ("Mean", (f(0, 8),), {}, "x: dimension 0 is 0, 3 to 6 are allowed"),
    ("Mean", (f(7, 8),), {}, "x: dimension 0 is 7, up to 6 is allowed"),
    ("Mean", (f(8),), {}, "x: rank 1 was given, 2 is needed"),
    ("Mean", (f(3, 8).astype("f8"),), {}, r"x is float32, float64 was given; convert it with \.astype\('float32'\)"),
    (
        "Mean",
        (torch.ones(3, 8).double(),),
        {},
        r"x is float32, float64 was given; convert it with \.to\(torch\.float32",
    ),
    ("Mean", (None,), {}, "x is a tensor, None was given"),
    ("Mean", (), {}, "forward takes 1 input, 0 given: x missing"),
    ("Mean", (f(3, 8), f(3, 8)), {}, "takes 1 input, 2 given"),
    ("Mean", (), {"y": f(3, 8)}, "none is called 'y': x"),
    ("Mean", (f(3, 8),), {"x": f(3, 8)}, "x is given twice"),
    ("Mean", ([f(3, 8)],), {}, r"takes 1 input one by one, a list of 1 was given.*model\(x\), or model\(\*inputs\)"),
    ("Shared", (f(1, 3), f(2, 3), f(3)), {}, "y: dimension 0 is 2, it must equal dimension 0 of x, which is 1"),
    ("Shared", (f(2, 3), f(2, 3), f(1)), {}, "z: dimension 0 is 1, it must equal dimension 0 of x, which is 2"),
    ("Shared", (f(0, 3), f(0, 3), f(0)), {}, "x: dimension 0 is 0, 1 to 4 are allowed"),
    ("Shared", (f(2, 3), f(2, 2), f(2)), {}, "y: dimension 1 is 2, it is static at 3"),
    ("Shared", (), {"x": f(2, 3), "y": f(2, 3), "z": f(3)}, "z: dimension 0 is 3, it must equal dimension 0 of x"),
    ("Shared", (), {"x": f(2, 3), "z": f(2)}, "takes 3 inputs, 2 given: y missing"),
    ("Shared", ([f(2, 3), f(2, 3), f(2)],), {}, r"a list of 3 was given.*model\(x, y, z\), or model\(\*inputs\)"),
    (
        "Shared",
        (f(2), f(2, 3), f(2, 3)),
        {},
        r"x: rank 1 was given.*the inputs look swapped: forward takes \(x, y, z\)",
    ),
    ("Derived", (f(6, 4), f(11), f(7)), {}, "twice: dimension 0 is 11, multiples of 2 from 6 to 12 are allowed"),
    (
        "Derived",
        (f(5, 4), f(12), f(6)),
        {},
        r"twice: dimension 0 is 12, it must be 10: it is 2 \* size, dimension 0 of x",
    ),
    ("Derived", (f(5, 4), f(10), f(7)), {}, r"more: dimension 0 is 7, it must be 6: it is size \+ 1"),
    ("Blocks", (f(7),), {}, "x: dimension 0 is 7, multiples of 8 from 8 to 24 are allowed"),
    ("Blocks", (f(20),), {}, "x: dimension 0 is 20, multiples of 8 .* pad or cut it"),
    ("Mixed", (f(2, 5, 4), f(5, 3), 3), {}, "weights: dimension 1 is 3, it must equal dimension 0 of x, which is 2"),
    ("Mixed", (f(3, 2, 4), f(2, 3), 3), {}, "x: dimension 1 is 2, 3 to 5 are allowed"),
    ("Mixed", (f(3, 5, 4), f(5, 3), 4), {}, "k is fixed at 3 in this program, 4 was given"),
    ("Mixed", (f(5, 3), f(3, 5, 4), 3), {}, r"x: rank 2.*the inputs look swapped: forward takes \(x, weights, k\)"),
]


def test_there_are_thirty_of_them() -> None:
    assert len(ILLEGAL) >= 30


@pytest.mark.parametrize("call", ILLEGAL, ids=lambda call: f"{call[0]}: {call[3][:40]}")
def test_an_illegal_call_is_refused_by_name_and_harms_nothing(call: Any) -> None:
    name, given, named, message = call
    before = {
        "Mean": (f(3, 8),),
        "Shared": (f(2, 3), f(2, 3), f(2)),
        "Derived": SUMS,
        "Blocks": (f(16),),
        "Mixed": MIXED,
    }
    expected = model(name)(*before[name])
    with pytest.raises(LiveshapeError, match=message):
        model(name)(*given, **named)
    np.testing.assert_array_equal(np.asarray(model(name)(*before[name])[0]), np.asarray(expected[0]))


def test_what_a_model_says_of_its_inputs() -> None:
    (x,) = model("Blocks").inputs
    assert (x.name, x.bounds, x.dynamic) == ("x", (24,), True)
    assert x.dims == (liveshape.Dim("dynamic", 8, 24, 8, "8 * blocks"),)
    rows, width = model("Mean").inputs[0].dims
    assert (rows.status, rows.min, rows.max, rows.symbol) == ("dynamic", 3, 6, "rows")
    assert (width.status, width.max) == ("static", 8)
    assert "x: float32 (rows=3..6, 8)" in repr(model("Mean"))


def test_fixed_values_need_not_be_given() -> None:
    x, weights, _ = MIXED
    np.testing.assert_array_equal(model("Mixed")(x, weights=weights), model("Mixed")(*MIXED))


# Files of others


class Two(torch.nn.Module):
    """Its second result has the size of a static dimension alone, so the file calls it static."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x * 2.0, x.sum(0)


def foreign(module: type[torch.nn.Module]) -> Path:
    shapes = {"x": {0: torch.export.Dim("rows", max=6)}}
    return cached(f"foreign_{module.__name__}", module, lambda: lower(module(), (torch.zeros(6, 8),), shapes))


def inspected(path: Path, capsys: pytest.CaptureFixture[str]) -> tuple[str, Any]:
    assert main(["inspect", str(path)]) == 0
    text = capsys.readouterr().out
    assert main(["inspect", str(path), "--json"]) == 0
    return " ".join(text.split()), json.loads(capsys.readouterr().out)["methods"][0]


def test_a_static_result_proves_a_static_dimension(capsys: pytest.CaptureFixture[str]) -> None:
    with liveshape.load(foreign(Two)) as two:
        for rows in (6, 1, 4):
            assert [found.shape for found in two(f(rows, 8))] == [(rows, 8), (8,)]
        for width in (7, 7, 1):
            with pytest.raises(ShapeError, match=rf"input 0: dimension 1 is {width}, it is static at 8: .*output 1"):
                two(f(3, width))
        assert two(f(2, 8))[1].tolist() == [2.0] * 8
    _, report = inspected(foreign(Two), capsys)
    assert [dim["status"] for dim in report["inputs"][0]["dims"]] == ["dynamic", "static"]
    assert report["dynamic"] == {"input 0": [0], "output 0": [0]}


def test_what_nothing_proves_is_unknown(capsys: pytest.CaptureFixture[str]) -> None:
    from tests.runtime.shaped import Mean

    text, report = inspected(foreign(Mean), capsys)
    assert [dim["status"] for dim in report["inputs"][0]["dims"]] == ["unknown", "unknown"]
    assert "unknown: dimension 0 up to 6, dimension 1 up to 8" in text
    assert "Nor does it say whether a bound is the one that was asked for" in text
    assert "liveshape export, which keeps bounds and writes down what is legal" in text
    assert "input 0, dimension 1: " in text
    assert "which is its bound: most likely it is static" in text
    assert list(report["baked"]["input 0"]) == ["1"]


def test_inspect_shows_what_is_legal(capsys: pytest.CaptureFixture[str]) -> None:
    text, report = inspected(exported("Derived"), capsys)
    assert "dynamic: dimension 0 from 6 to 12 in steps of 2 (2 * size)" in text
    assert "liveshape_signature" not in text
    assert report["signature"]
    assert report["dynamic"]["output 1"] == [0]
    assert report["inputs"][0]["dims"][0] == {"status": "dynamic", "min": 3, "max": 6, "multiple": 1, "symbol": "size"}
    text, report = inspected(exported("Mean"), capsys)
    assert report["dynamic"] == {"x": [0], "output 0": [0]}


def test_the_command_refuses_before_anything_is_loaded(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["run", str(exported("Mean")), "--input-shapes", "2x8"]) == 2
    assert "x: dimension 0 is 2, 3 to 6 are allowed" in capsys.readouterr().err
    assert main(["run", str(exported("Shared")), "--input-shapes", "2x3,3x3,2"]) == 2
    assert "y: dimension 0 is 3, it must equal dimension 0 of x, which is 2" in capsys.readouterr().err
    assert main(["run", str(exported("Mixed"))]) == 0
    for name, array in (("z", f(2)), ("a", f(2, 3)), ("b", 3 * f(2, 3))):
        np.save(tmp_path / f"{name}.npy", array)
    files = [f"z={tmp_path / 'z.npy'}", f"{tmp_path / 'a.npy'}", f"y={tmp_path / 'b.npy'}"]
    out = tmp_path / "out.npz"
    assert main(["run", str(exported("Shared")), "--output-file", str(out), "--inputs", *files]) == 0
    assert np.load(out)["output_1"].max() == 4
    assert main(["run", str(exported("Shared")), "--inputs", files[0], files[0]]) == 2
    assert "z is given twice" in capsys.readouterr().err


def test_executorch_loads_the_file_and_reads_the_signature() -> None:
    from executorch.runtime import Runtime

    program = Runtime.get().load_program(exported("Mean"))
    assert program.method_names == {"forward", "liveshape_signature"}
    (text,) = program.load_method("liveshape_signature").execute([])
    assert json.loads(text)["methods"]["forward"]["inputs"][0]["name"] == "x"


def test_a_number_in_the_place_of_a_list_is_no_list() -> None:
    with pytest.raises(InputError, match="takes a list of 1 input"):
        model("Mean")._method.execute(f(3, 8))
