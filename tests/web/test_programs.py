"""Exported programs through the npm package: a network of images, and a file of each family of operators, at live sizes
up and down, against the native engine on the same file."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from playwright.sync_api import Browser, Page
from torch import nn

from liveshape import load
from tests.support.browser import opened_page
from tests.support.programs import Input, TestProgram, programs
from tests.support.sweeping import live_rows
from tests.web.page_graphs import read, spelled
from tests.web.page_host import hosted
from tests.web.test_node import WEB, in_node

pytestmark = pytest.mark.slow

# Every other one, as `make test` has them: what they export is recorded.
PROGRAMS = [program for program in [*programs().values()][::2] if not program.broken]
BATCH = 12  # of one test, so that workers share them
BATCHES = [PROGRAMS[first : first + BATCH] for first in range(0, len(PROGRAMS), BATCH)]
MOST_CALLS = 7


class ImageNetwork(nn.Module):
    """What such networks are made of: strided, depthwise and pointwise convolutions, norms, a sum, scales, a head."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1), nn.BatchNorm2d(16), nn.ReLU())
        self.block = nn.Sequential(nn.Conv2d(16, 16, 3, 1, 1, groups=16), nn.Hardswish(), nn.Conv2d(16, 16, 1))
        self.down = nn.Sequential(nn.MaxPool2d(2), nn.Conv2d(16, 24, 3, 1, 1), nn.SiLU())
        self.scale = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(24, 24, 1), nn.Sigmoid())
        self.head = nn.Linear(24, 10)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x = self.stem(x)
        x = self.down(x + self.block(x))
        x = x * self.scale(x)
        return self.head(x.mean((2, 3))), x


IMAGE = TestProgram("web.image", ImageNetwork, (Input((1, 3, "4*side", "4*side")),), {"side": (2, 16)})
SIDES = (16, 2, 7, 16, 5)


def calls_of(program: TestProgram, rows: Sequence[dict[str, int]]) -> list[list[Any]]:
    """The inputs of calls at these live sizes."""
    draws = torch.Generator().manual_seed(7)
    return [[given.numpy() for given in program.make_inputs(sizes, draws)] for sizes in rows]


def rows_of(program: TestProgram) -> list[dict[str, int]]:
    """A few live sizes, up and down: the bound, the least, and some between."""
    rows = live_rows(program, np.random.default_rng(5))
    if len(rows) == 1:
        return rows * 2
    between = rows[1 : -1 : max(1, len(rows) // (MOST_CALLS - 3))]
    return [rows[-1], rows[0], *between[: MOST_CALLS - 3], rows[0]]


def asked(program: TestProgram, calls: list[list[Any]], file: str) -> dict[str, Any]:
    return {"file": file, "calls": [spelled(inputs) for inputs in calls]}


def check(program: TestProgram, calls: list[list[Any]], found: dict[str, Any]) -> None:
    """Shapes, types and whole numbers of the native engine, floats within the tolerance of the program."""
    assert "failed" not in found, f"{program.name}: {found['failed']}"
    assert found["memory"] == 0, program.name
    with load(program.pte()) as model:
        for turn, (inputs, outputs) in enumerate(zip(calls, found["outputs"], strict=True)):
            wanted = model(*inputs)
            wanted = wanted if isinstance(wanted, tuple) else (wanted,)
            for place, (ours, theirs) in enumerate(zip(outputs, wanted, strict=True)):
                where = f"{program.name}, call {turn}, output {place}"
                ours, theirs = np.asarray(read(ours)), np.asarray(theirs)
                assert (ours.shape, ours.dtype) == (theirs.shape, theirs.dtype), where
                if theirs.dtype.kind == "f":
                    wide = ours.astype(np.float64), theirs.astype(np.float64)
                    np.testing.assert_allclose(*wide, program.rtol, program.atol, err_msg=where)
                else:
                    np.testing.assert_array_equal(ours, theirs, err_msg=where)


def check_in_node(programs: Sequence[TestProgram], rows: Sequence[Any], tmp_path: Path) -> None:
    calls = [calls_of(program, each) for program, each in zip(programs, rows, strict=True)]
    given = [asked(*each, str(each[0].pte())) for each in zip(programs, calls, strict=True)]
    (tmp_path / "given.json").write_text(json.dumps(given))
    lines = in_node("calls", str(tmp_path / "given.json"), refused=True)
    for program, inputs, found in zip(programs, calls, lines, strict=True):
        check(program, inputs, found)


def test_images_of_many_sizes_in_node(tmp_path: Path) -> None:
    check_in_node([IMAGE], [[{"side": side} for side in SIDES]], tmp_path)


@pytest.mark.parametrize("batch", BATCHES, ids=lambda batch: batch[0].name)
def test_programs_in_node(batch: list[TestProgram], tmp_path: Path) -> None:
    check_in_node(batch, [rows_of(program) for program in batch], tmp_path)


@pytest.fixture(scope="module")
def page(gpu_browser: Browser) -> Iterator[Page]:
    folder = IMAGE.pte().parent
    with (
        hosted(dist=WEB / "dist", test=WEB / "test", exports=folder) as (address, _),
        opened_page(gpu_browser, address) as opened,
    ):
        yield opened


def check_in_page(page: Page, program: TestProgram, rows: Sequence[dict[str, int]]) -> None:
    calls = calls_of(program, rows)
    body = """async (given) => {
        const { runCalls } = await import("/test/calls.js");
        return runCalls(await import("/dist/index.js"), given);
    }"""
    check(program, calls, page.evaluate(body, asked(program, calls, f"/exports/{program.pte().name}")))


def test_images_of_many_sizes_in_chromium(page: Page) -> None:
    check_in_page(page, IMAGE, [{"side": side} for side in SIDES])


@pytest.mark.long
@pytest.mark.parametrize("program", PROGRAMS, ids=str)
def test_programs_in_chromium(page: Page, program: TestProgram) -> None:
    check_in_page(page, program, rows_of(program))
