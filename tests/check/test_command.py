"""`liveshape check`: what it prints, its exit code, and files that it is given."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from liveshape.check.live_shapes import parse_sizes, shapes_of_calls, symbols_of
from liveshape.cli import main
from liveshape.device.backends import open_device
from liveshape.errors import InputError
from liveshape.formats.signature import InputSignature, Signature, Size
from liveshape.kernels import Variant

SHAPES = ["--input-shapes", "1x7x64"]


@pytest.fixture
def _broken(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """RMSNorm or layer norm, whichever the block has, is a thousandth too large."""
    source = Variant.source

    def text(variant: Variant) -> str:
        made: str = source.fget(variant)  # type: ignore[attr-defined]
        return made.replace("inverseSqrt(", "1.001 * inverseSqrt(") if "normalization" in variant.kernel.name else made

    monkeypatch.setattr(Variant, "source", property(text))
    open_device()._pipelines.clear()
    yield
    open_device()._pipelines.clear()


def test_a_right_program(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "demo", *SHAPES, "--input-shapes", "1x1x64"]) == 0
    out = capsys.readouterr().out
    assert re.search("38 nodes and [1-9] fused compared with a reference, 2 calls", " ".join(out.split()))
    assert "no value differs" in out


@pytest.mark.usefixtures("_broken")
def test_a_wrong_one_is_told_saved_and_replayed(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    case = str(tmp_path / "case.npz")
    assert main(["check", "demo", *SHAPES, "--json", "--save", case]) == 1
    (method,) = json.loads(capsys.readouterr().out)["methods"].values()
    first = method["divergences"][0]
    assert (first["kind"], "norm" in first["operator"], method["right"]) == ("operator", True, False)
    assert first["sources"], "the node of the file"
    assert main(["check", "--replay", case, "--json"]) == 1
    replayed = json.loads(capsys.readouterr().out)
    assert (replayed["node"], replayed["kernels"]) == (first["node"], first["kernels"])
    assert main(["check", "demo", *SHAPES]) == 1
    assert "--save FILE keeps what the first one reads" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "takes a PROGRAM, or --replay"),
        (["demo", "--replay", "case.npz"], "takes a PROGRAM, or --replay"),
        (["demo", "--tol", "2"], "relative to the largest number"),
        (["demo", *SHAPES, "--shapes", "rows=1"], "give one of the two"),
        (["demo", "--shapes", "rows"], "is no SYMBOL=SIZE"),
        (["demo", "--shapes", "rows=1"], "there is no dimension 'rows'"),
        (["demo", "--input-shapes", "1x999x64"], "does not fit"),
        (["demo", "--device", "llvmpipe", "--activations", "float16"], "offers no matrix units that multiply float16"),
        (["--replay", "missing.npz"], "no such file"),
        (["demo", "--save", "no/such/folder.npz"], "does not exist"),
    ],
)
def test_wrong_usage(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", *arguments]) == 2
    assert said in " ".join(capsys.readouterr().err.split())


SIGNATURE = Signature(
    (
        InputSignature("x", (Size(2, 16, "batch"), Size(8, 8))),
        InputSignature("y", (Size(4, 32, "batch", 2),)),
        InputSignature("z", (Size(1, 9, "rows"),)),
    )
)


def test_symbols_have_one_size_in_a_call() -> None:
    assert symbols_of(SIGNATURE) == {"batch": (2, 16), "rows": (1, 9)}
    calls = list(shapes_of_calls(SIGNATURE, [(16, 8), (32,), (9,)]))
    assert calls[0] == [(16, 8), (32,), (9,)], "the bound comes first"
    assert all(y == (2 * x[0],) and 1 <= z[0] <= 9 for x, y, z in calls)
    assert {x[0] for x, _, _ in calls} >= {2, 16, 9, 15}
    assert list(shapes_of_calls(SIGNATURE, [(16, 8), (32,), (9,)], parse_sizes("batch=3,MAX rows=1"))) == [
        [(3, 8), (6,), (1,)],
        [(16, 8), (32,), (1,)],
    ]
    with pytest.raises(InputError, match="batch from 2 to 16"):
        list(shapes_of_calls(SIGNATURE, [(16, 8), (32,), (9,)], {"heads": [1]}))
