"""`liveshape bench`: the rows it prints, in every form, and what it refuses before any weight is read."""

from __future__ import annotations

import csv
import io
import json
import re
import sys
import xml.etree.ElementTree as xml
from pathlib import Path
from statistics import mean

import pytest

from liveshape.tools.commands.bench import Row, bench, drawn
from liveshape.tools.console import work_bar
from liveshape.tools.measuring.plot import bars
from liveshape.tools.measuring.subject import Work
from tests.cli.calls import Capture, call
from tests.export.test_readers import WEIGHTS
from tests.export.tiny import LLAMA, write_folder

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
    code, out, _ = call(capsys, "bench", "demo", *shapes, "-r", 2, "-o", "csv")
    rows = list(csv.DictReader(io.StringIO(out)))
    assert code == 0
    assert [row["test"] for row in rows] == ["forward 1x7x64", "forward 1x3x64"]
    assert all(float(row["avg_ns"]) > 0 for row in rows)


@pytest.mark.slow
def test_a_conversion_is_measured_at_any_depth(
    capsys: Capture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The context is what the rows need: beyond the default, and up to what the model was trained for."""
    monkeypatch.setenv("LIVESHAPE_CACHE", str(tmp_path / "cache"))
    write_folder(tmp_path / "model", {**LLAMA, "max_position_embeddings": 2200}, WEIGHTS)
    options = ("-p", 2, "-n", 1, "-r", 1, "-o", "json")
    code, out, _ = call(capsys, "bench", tmp_path / "model", *options, "-d", "0,2100")
    assert code == 0
    assert [row["test"] for row in json.loads(out)] == ["pp2", "tg1", "pp2 @ d2100", "tg1 @ d2100"]
    (folder,) = (tmp_path / "cache" / "models").iterdir()
    code, _, err = call(capsys, "bench", tmp_path / "model", *options, "-d", 2199)
    assert code == 2
    assert "pp2 @ d2199 takes 2,201 tokens of context, model was trained for 2,200: give a smaller" in err
    assert "--max-context 2201 goes beyond" in err
    code, _, err = call(capsys, "bench", tmp_path / "model", *options, "-d", 20, "--max-context", 21)
    assert code == 2
    assert "takes 22 tokens of context, --max-context 21 was given" in err
    assert list((tmp_path / "cache" / "models").iterdir()) == [folder]


def test_what_a_model_was_not_trained_for_is_told_before_it_is_converted(
    capsys: Capture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LIVESHAPE_CACHE", str(tmp_path / "cache"))
    write_folder(tmp_path / "model", {**LLAMA, "max_position_embeddings": 2200}, WEIGHTS)
    for flags, problem in (
        (("-d", 9999), "was trained for 2,200"),
        (("--max-context", 5), "--max-context 5 was given"),
    ):
        code, _, err = call(capsys, "bench", tmp_path / "model", *flags)
        assert code == 2
        assert problem in err
    assert not (tmp_path / "cache").exists()


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_bars_count_what_is_done_from_0_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stderr", Terminal())
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    with work_bar(3) as begin:
        for name in ("one", "two [/odd]", "three"):
            begin(name)
        begin.tell("one: 7 t/s [/odd]")
    shown = sys.stderr.getvalue()  # type: ignore[attr-defined]
    assert "-1/3" not in shown
    assert [count for count in ("0/3", "1/3", "2/3", "3/3") if count in shown] == ["0/3", "1/3", "2/3"]
    assert "one: 7 t/s [/odd]" in shown
    assert "two [/odd]" in shown


def test_a_terminal_sees_each_row_as_it_is_done(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    monkeypatch.setattr("sys.stderr", Terminal())
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    assert bench(shape="tiny", prompts=[4], tokens=[2], repeats=1) == 0
    shown = sys.stderr.getvalue()  # type: ignore[attr-defined]
    assert shown.startswith("loading tiny: weights, then kernels\n")
    assert "pp4, warming up" in shown
    assert "tg2, run 1 of 1" in shown
    assert re.search(r"pp4: [\d.]+ ± 0\.00 t/s", shown)


@pytest.mark.parametrize("name", ["nowhere/plot.svg", "folder.svg"])
def test_a_plot_that_cannot_be_written_is_told_first(capsys: Capture, tmp_path: Path, name: str) -> None:
    (tmp_path / "folder.svg").mkdir()
    code, out, err = call(capsys, "bench", "--shape", "tiny", "--plot", tmp_path / name)
    assert (code, out) == (2, "")
    assert "--plot" in err


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("-d", "0,9999"), "pp512 @ d9999 takes 10,511 tokens of context, story has 512"),
        (("--shape", "7b"), "--shape 7b: there are tiny, 135m, 1b, 8b"),
        (("--shape", "tiny", "-p", 0, "-n", 0), "nothing to measure"),
        ((BLOCK.parent, "--shape", "tiny"), "give one of the two"),
        (("--shape", "tiny", "--plot", "plot.png"), "an .svg file"),
        (("/nonexistent/model",), "there is no such folder"),
        ((BLOCK, "--max-context", 64), "--max-context 64 is for language models"),
        ((BLOCK, "--quant", "4w"), "--quant 4w is for language models"),
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
