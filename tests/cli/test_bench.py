"""`liveshape bench`: the rows it prints, in every form, and what it refuses before any weight is read."""

from __future__ import annotations

import csv
import io
import json
import xml.etree.ElementTree as xml
from pathlib import Path
from statistics import mean

import pytest

from liveshape.tools.bench import Row, drawn
from liveshape.tools.plot import bars
from liveshape.tools.subject import Work
from tests.cli.test_cli import Capture, call

BLOCK = Path(__file__).parents[2] / "liveshape/demo/block.pte"


def test_rows_have_the_names_of_llama_bench(capsys: Capture, tmp_path: Path) -> None:
    plot = tmp_path / "plot.svg"
    options = ("-p", 6, "-n", 2, "-d", "0,8", "-r", 2)
    code, out, _ = call(capsys, "bench", "--shape", "tiny", *options, "-o", "json", "--plot", plot)
    assert code == 0
    rows = json.loads(out)
    assert [row["test"] for row in rows] == ["pp6", "tg2", "pp6 @ d8", "tg2 @ d8"]
    for row in rows:
        assert len(row["samples_ns"]) == 2, "the first run warms up"
        work = row["n_prompt"] or row["n_gen"]
        assert row["samples_ts"] == pytest.approx([1e9 * work / each for each in row["samples_ns"]], rel=1e-6)
        assert row["avg_ts"] == pytest.approx(mean(row["samples_ts"]))
    assert xml.parse(plot).getroot().tag.endswith("svg")


def test_a_program_has_a_time_per_call(capsys: Capture) -> None:
    shapes = ("--input-shapes", "1x7x64", "--input-shapes", "1x3x64")
    code, out, _ = call(capsys, "bench", BLOCK, *shapes, "-r", 2, "-o", "csv")
    rows = list(csv.DictReader(io.StringIO(out)))
    assert code == 0
    assert [row["test"] for row in rows] == ["forward 1x7x64", "forward 1x3x64"]
    assert all(float(row["avg_ns"]) > 0 for row in rows)


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("-d", "0,9999"), "pp512 @ d9999 takes 10,511 tokens of context, story has 512"),
        (("--shape", "7b"), "--shape 7b: there are tiny, 135m, 1b, 8b"),
        (("--shape", "tiny", "-p", 0, "-n", 0), "nothing to measure"),
        ((BLOCK.parent, "--shape", "tiny"), "give one of the two"),
        (("--shape", "tiny", "--plot", "plot.png"), "an .svg file"),
        (("/nonexistent/model",), "there is no such folder"),
    ],
)
def test_what_cannot_be_measured_is_2(capsys: Capture, arguments: tuple[object, ...], problem: str) -> None:
    code, _, err = call(capsys, "bench", *arguments)
    assert code == 2
    assert problem in err


def test_a_row_of_numbers_is_asked_for(capsys: Capture) -> None:
    code, _, err = call(capsys, "bench", "--shape", "tiny", "-d", "0,many")
    assert code == 2
    assert "such as 0,4096" in err


def test_generation_is_drawn_over_depth_and_everything_else_as_bars() -> None:
    rows = [Row(Work(tokens=8, depth=depth), (seconds,)) for depth, seconds in ((64, 2.0), (0, 1.0))]
    root = xml.fromstring(drawn("1b", "<a & b>", rows))
    (line,) = root.findall("{*}polyline")
    xs, ys = zip(*(map(float, point.split(",")) for point in line.attrib["points"].split()), strict=True)
    assert list(xs) == sorted(xs)
    assert ys[0] < ys[1], "the faster one is higher"
    heights = [float(bar.attrib["height"]) for bar in xml.fromstring(bars("", "", {"a": 4, "b": 8})).findall("{*}rect")]
    assert heights[2] == pytest.approx(2 * heights[1], rel=1e-3)
