"""`liveshape scale`: what it says of a model is what a load takes, and what its steps read."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from liveshape.device import backends
from liveshape.device.backends import open_device
from liveshape.errors import InputError, NoAdapterError
from liveshape.graph import Limits
from liveshape.llm.batch.loading import load_runner
from liveshape.shipped import shipped_model
from liveshape.tools.measuring.capacity import capacity_of, capacity_of_shape, on_paper
from tests.cli.calls import Capture, call

ROOT = Path(__file__).parents[2]
ROW = 8 * 2 * 4 * 32 * 4  # bytes of the keys and values of a token: layers, both, heads, their size, float32


def document(capsys: Capture, *words: object) -> dict[str, Any]:
    code, out, error = call(capsys, "scale", *words, "--json")
    assert code == 0, error
    found: dict[str, Any] = json.loads(out)
    return found


def test_memory_is_that_of_a_load(capsys: Capture) -> None:
    found = document(capsys, "--sequences", "1,8", "--context", "100", "--bandwidth", "50", "--memory", "64MiB")
    runner, _ = load_runner(shipped_model(), sequences=8, cache_bytes=1 << 20)
    try:
        memory, pages = runner.memory, runner.bounds.pages
    finally:
        runner.close()
    assert found["weights"] == memory.weights
    assert (found["page_size"], found["page_bytes"]) == (16, 16 * ROW)
    assert pages * found["page_bytes"] <= memory.state
    assert found["sequence_bytes"] == 7 * found["page_bytes"]
    assert found["fitting"] == ((64 << 20) - found["fixed_bytes"]) // found["sequence_bytes"] > 0
    assert memory.weights < found["fixed_bytes"] <= memory.total


def test_a_step_reads_weights_once_and_the_cache_of_every_sequence(capsys: Capture) -> None:
    found = document(capsys, "--sequences", "1,2,8", "--context", "100", "--bandwidth", "50")
    one, two, eight = found["steps"]
    assert [step["cache_bytes"] for step in found["steps"]] == [count * 101 * ROW for count in (1, 2, 8)]
    assert one["nbytes"] < two["nbytes"] < eight["nbytes"] < 2 * one["nbytes"]
    assert 6 * one["operations"] < eight["operations"] <= 8 * one["operations"]
    for step in found["steps"]:
        read = step["nbytes"] + step["cache_bytes"]
        assert step["tokens_per_second"] == pytest.approx(step["sequences"] * 50e9 / read)


def test_half_of_the_cache_and_quantized_activations(capsys: Capture) -> None:
    whole = document(capsys, "--shape", "tiny", "--sequences", "4", "--bandwidth", "50")
    half = document(capsys, "--shape", "tiny", "--sequences", "4", "--bandwidth", "50", "--half-cache")
    # Without f16 halves are kept in as many bytes as floats.
    assert (2 if open_device().limits.half else 1) * half["page_bytes"] == whole["page_bytes"]
    int8 = document(capsys, "--shape", "tiny", "--sequences", "4", "--bandwidth", "50", "--activations", "int8")
    assert int8["weights"] == whole["weights"]


def test_it_needs_no_device(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(*_: object) -> Any:
        raise NoAdapterError("there is none")

    monkeypatch.setattr("liveshape.tools.commands.scale.open_device", none)
    found = document(capsys, "--shape", "tiny", "--sequences", "1")
    assert found["bandwidth"] is None
    assert found["steps"][0]["tokens_per_second"] is None
    assert call(capsys, "scale", "--shape", "tiny", "--sequences", "1")[0] == 0
    assert call(capsys, "scale", "--device", "x")[0] == 3


def test_the_tables_are_for_people(capsys: Capture) -> None:
    code, out, _ = call(
        capsys, "scale", "--context", "64", "--bandwidth", "50", "--memory", "1GiB", "--sequences", "1,64"
    )
    assert code == 0
    for part in ("a page", "128.0 KiB", "64 tokens, 4 pages", "tokens/s at most", "1.0 GiB hold the model and"):
        assert part in out


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["story", "--shape", "tiny"], "give one of the two"),
        (["--shape", "9b"], "tiny, 135m, 1b, 8b"),
        (["--sequences", "0"], "at least one is needed"),
        (["--context", "99999"], "this model has up to"),
        (["--bandwidth", "0"], "above 0"),
    ],
)
def test_wrong_usage_is_told(capsys: Capture, words: list[str], reason: str) -> None:
    code, _, error = call(capsys, "scale", *words)
    assert code == 2
    assert reason in " ".join(error.split())


def test_more_sequences_than_rows_are_refused() -> None:
    found = capacity_of(shipped_model(), on_paper(Limits()), sequences=4)
    with pytest.raises(InputError, match="1 to 4 rows"):
        found.step(5, 10)


@pytest.mark.slow
def test_the_figures_of_the_page_are_those_of_the_command() -> None:
    device = backends.open_device()
    found = capacity_of_shape("1b", device, sequences=64, context=512)
    page = (ROOT / "docs" / "scale.md").read_text()
    rows = re.findall(r"^\| (\d+) \| ([\d,]+) \| ([\d,]+) \| ([\d,]+) \| ", page, re.MULTILINE)
    assert [int(row[0]) for row in rows] == [1, 8, 32, 64]
    for count, weights, cache, most in rows:
        step = found.step(int(count), 384)
        assert f"{step.nbytes / 1e6:,.0f}" == weights
        assert f"{step.cache_bytes / 1e6:,.0f}" == cache
        assert f"{step.tokens_per_second(3.92e12):,.0f}" == most
