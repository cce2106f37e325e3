"""What torch.export says of a program becomes a signature: other ways to declare sizes, and guards of any kind."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.export import Dim

from liveshape.export.module import torch_export as road
from liveshape.export.module import traced_module
from liveshape.export.module.symbolic_shapes import _guards
from liveshape.formats import Signature, open_program
from liveshape.formats.signature import MAX_GUARDS, read_signatures, signature_text
from tests.formats.test_signature import method, tensor

X = ["L['x']", "L['xs'][0]"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("L['x'].size()[0] == 2*L['xs'][0].size()[1]", [("==", ("size", 0, 0), ("*", 2, ("size", 1, 1)))]),
        ("L['x'].size()[0] % 8 != 0", [("!=", ("%", ("size", 0, 0), 8), 0)]),
        ("max(1, L['x'].size()[0]) <= 7", [("<=", ("max", 1, ("size", 0, 0)), 7)]),
        (
            "-L['x'].size()[0] < L['x'].size()[1]**2",
            [("<", ("-", 0, ("size", 0, 0)), ("*", ("size", 0, 1), ("size", 0, 1)))],
        ),
        ("L['x'].size()[0] > 2 and L['x'].size()[1] >= 3", [(">", ("size", 0, 0), 2), (">=", ("size", 0, 1), 3)]),
        ("L['x'].size()[0] > 2 or L['x'].size()[1] >= 3", []),
        ("L['x'].stride()[0] == 1", []),
        ("L['y'].size()[0] == 1", []),
        ("L['x'].size()[0] / 2 == 1", []),
        ("2 < L['x'].size()[0] < 9", []),
        ("not a guard", []),
    ],
)
def test_guards_of_sizes_are_kept_and_others_are_not(text: str, expected: list[Any]) -> None:
    assert _guards(text, X) == expected


class Nested(torch.nn.Module):
    def forward(self, xs: Any, options: Any, k: int, last: torch.Tensor | None = None) -> Any:
        return xs[0] * options["scale"] + xs[1] * k


def text_of(module: torch.nn.Module, args: tuple[Any, ...], shapes: Any) -> str:
    source = road.ModuleSource(module, args, shapes)
    return signature_text({"forward": traced_module.signature_of_inputs(source, traced_module.exported(source))})


@pytest.mark.parametrize("form", ["mapping", "row", "collection"])
def test_every_way_to_declare_sizes(form: str) -> None:
    rows = Dim("rows", min=1, max=9)
    xs, scale = [torch.zeros(9, 4), torch.zeros(9, 4)], torch.zeros(9, 4)
    args = (xs, {"scale": scale}, 3, None)
    shapes: Any = {"xs": [{0: rows}, [rows, None]], "options": {"scale": {0: rows}}, "k": None, "last": None}
    if form == "row":
        shapes = tuple(shapes.values())
    if form == "collection":
        shapes = torch.export.ShapesCollection()
        for each in (*xs, scale):
            shapes[each] = {0: rows}
    found = json.loads(text_of(Nested(), args, shapes))["methods"]["forward"]["inputs"]
    size = {"symbol": "rows", "min": 1, "max": 9}
    assert found == [
        {"name": "xs_0", "dims": [size, 4]},
        {"name": "xs_1", "dims": [size, 4]},
        {"name": "options_scale", "dims": [size, 4]},
        {"name": "k", "value": 3},
        {"name": "last", "value": None},
    ]


class Rows(torch.nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> Any:
        return x.reshape(-1, 8).sum(1), x.reshape(-1) + y


def test_sizes_that_torch_found_itself_are_held_by_its_guards() -> None:
    every = {0: Dim.AUTO, 1: Dim.AUTO}
    text = text_of(Rows(), (torch.zeros(4, 6), torch.zeros(24)), {"x": every, "y": {0: Dim.AUTO}})
    bounds = method("forward", (tensor(8, 12), tensor(96)), (0, 1), (0,))
    found: Signature = read_signatures({"forward": bounds, "liveshape_signature": method("", (text,), (), (0,))})[
        "forward"
    ]
    assert [len(each.sizes or ()) for each in found.inputs] == [2, 1]
    assert ("==", ("%", ("*", ("size", 0, 1), ("size", 0, 0)), 8), 0) in found.guards
    assert ("==", ("*", ("size", 0, 1), ("size", 0, 0)), ("size", 1, 0)) in found.guards


def test_more_guards_than_a_reader_takes_are_left_out(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    source = road.ModuleSource(torch.nn.ReLU(), (torch.zeros(9, 4),), {"input": {0: Dim("rows", max=9)}})
    traced = traced_module.exported(source)
    deep = "L['input'].size()[0]" + " * 1" * 60
    monkeypatch.setattr(
        traced, "_guards_code", [f"{deep} >= 0", *(f"L['input'].size()[0] != {100 + i}" for i in range(3000))]
    )
    monkeypatch.setattr(traced_module, "exported", lambda _: traced)
    road.lower(source, tmp_path / "relu.pte")
    with open_program(tmp_path / "relu.pte") as program:
        assert len(program.signatures["forward"].guards) == MAX_GUARDS
