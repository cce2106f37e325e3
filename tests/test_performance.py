"""docs/performance.md is what its measurements say, and what peers print is read as they mean it."""

from __future__ import annotations

import json
import xml.etree.ElementTree as xml
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from bench import peers, performance, rows
from bench.calls import milliseconds
from bench.llamacpp import NotHere, Settings, measure
from liveshape.tools.measuring import rates
from liveshape.tools.measuring.rates import Rates

SETTINGS = Settings("1b", [512, 8192], 128, [0, 512], [1, 8], 256, 2)

# A folder of llama.cpp as bench/llamacpp.py describes it, without llama.cpp.
STUB = """\
#!/bin/bash
speed=100
scatter=1
# Cold, or disturbed, as often as a file says.
cold=$(dirname "$0")/cold
if [ -s "$cold" ]; then speed=7; scatter=$(head -1 "$cold"); sed -i 1d "$cold"; fi
# As many repetitions as are asked for: the first one slow, the others apart by the scatter.
samples() {
  echo -n "[3.5"
  for each in $(seq 2 $REPS); do echo -n ", $((speed + (each % 2) * scatter)).5"; done
  echo -n "]"
}
for variant in $VARIANTS; do
  base=$RES/$MODELS.$variant
  for what in $ONLY; do
    : > $base.$what.jsonl
    case $what in
    pp) set -- $PP
        for prompt in ${1//,/ }; do for depth in $(echo ${3:-0} | tr , ' '); do
          echo "{\\"build_commit\\": \\"abc\\", \\"gpu_info\\": \\"a GPU\\", \\"n_prompt\\": $prompt, \\"n_gen\\": 0, \
\\"n_depth\\": $depth, \\"samples_ts\\": $(samples)}" >> $base.pp.jsonl
        done; done;;
    tg) for depth in ${DEPTH//,/ }; do
          echo "{\\"build_commit\\": \\"abc\\", \\"gpu_info\\": \\"a GPU\\", \\"n_prompt\\": 0, \\"n_gen\\": $TG, \
\\"n_depth\\": $depth, \\"samples_ts\\": $(samples)}" >> $base.tg.jsonl
        done;;
    batch) for pass in 9 0.32 0.64; do for size in $BATCHES; do
          echo "{\\"pl\\": $size, \\"tg\\": 32, \\"t_tg\\": $pass}" >> $base.batch.jsonl
        done; done;;
    esac
  done
  speed=50
done
"""


def stubbed(folder: Path) -> Path:
    (folder / "run.sh").write_text(STUB)
    return folder


def test_llama_cpp_is_read_by_the_names_that_we_have(tmp_path: Path) -> None:
    found = measure(stubbed(tmp_path), SETTINGS)
    fast, slow = found.speeds.values()
    assert list(fast) == ["pp512", "pp512 @ d512", "tg128", "tg128 @ d512", "pp8192"]
    assert fast["pp8192"] == pytest.approx((101.0, 0.5**0.5)), "the first of three repetitions is dropped"
    assert slow["pp512"] == pytest.approx((51.0, 0.5**0.5))
    assert found.rows["llama.cpp Vulkan"] == pytest.approx({1: 15.0, 8: 15.0}), "the first pass warms up"
    assert found.version == "abc on a GPU"


def test_llama_cpp_is_measured_warm_and_again_where_it_scatters(tmp_path: Path) -> None:
    (tmp_path / "cold").write_text("1\n9\n")  # the run that warms up, then one that was disturbed
    found = measure(stubbed(tmp_path), SETTINGS)
    assert found.speeds["llama.cpp Vulkan"]["pp512"] == pytest.approx((101.0, 0.5**0.5))
    assert found.dropped["llama.cpp Vulkan"] == dict.fromkeys(found.speeds["llama.cpp Vulkan"], 3.5)
    (tmp_path / "cold").write_text("9\n" * 9)
    with pytest.raises(NotHere, match="scatter by more than half of their mean in 3 runs"):
        measure(tmp_path, SETTINGS)


@pytest.mark.parametrize(
    ("script", "shape", "why"),
    [
        (None, "1b", "no run.sh"),
        ("exit 0", "135m", "1b and 8b, not 135m"),
        ("echo no driver; exit 3", "1b", "ended with 3: no driver"),
        ("exit 0", "1b", "gave nothing"),
    ],
)
def test_a_peer_that_is_not_here_says_why(tmp_path: Path, script: str | None, shape: str, why: str) -> None:
    if script is not None:
        (tmp_path / "run.sh").write_text(script)
    with pytest.raises(NotHere, match=why):
        measure(tmp_path, Settings(shape, [512], 128, [0], [1], 256, 1))


def measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What both commands write for the smallest shape, as fast as they can."""
    monkeypatch.setattr(rows, "milliseconds", partial(milliseconds, enough=0.0))
    monkeypatch.setattr(rates, "measure", lambda device, begin: Rates(1e9, 2e9, None, 3e9, "2026-01-01"))
    monkeypatch.setattr("liveshape.tools.commands.bench.WARM", 0.0)
    monkeypatch.setattr("bench.calls.WARM", 0.0)
    monkeypatch.setenv("LIVESHAPE_CACHE", str(tmp_path / "cache"))
    small = ["--shape", "tiny", "--rows", "1,2"]
    files = [tmp_path / "peers.json", tmp_path / "rows.json"]
    peers.main([*small, "-p", "4,6", "-n", "2", "-d", "0,8", "-r", "1", "--rows-depth", "8", "--out", str(files[0])])
    rows.main([*small, "--depth", "8", "--activations", "int8", "--out", str(files[1])])
    return [json.loads(file.read_text()) for file in files]


@pytest.mark.slow
def test_the_page_comes_from_the_commands(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found, over_rows = measured(tmp_path, monkeypatch)
    assert list(found["speeds"]) == ["liveshape float32", "liveshape float16", "liveshape int8"]
    assert list(found["speeds"]["liveshape int8"]) == ["pp4", "tg2", "pp4 @ d8", "tg2 @ d8", "pp6"]
    assert set(found["rows"]["liveshape float32"]) == {"1", "2"}
    assert found["absent"]["llama.cpp"] == "no --llamacpp FOLDER was given"
    assert "llama.cpp: not here: no --llamacpp FOLDER was given" in capsys.readouterr().out
    assert str(tmp_path) not in json.dumps([found, over_rows]), "where files lie here is nobody's business"
    # As if it were one of the page's shapes.
    documents = [document | {"model": "1b"} for document in (found, over_rows)]
    text = performance.page(documents)
    mean = found["speeds"]["liveshape int8"]["tg2 @ d8"][0]
    assert f"| {mean:,.{0 if mean >= 100 else 2}f} ± 0" in text
    assert "8b" not in text.partition("## How to measure")[0], "what was not measured is not there"
    pictures = {"unet": {"liveshape": [1.5, 1e-6]}, "resnet18": {"torch CUDA": [2.5, 1e-3]}}
    assert "| unet | 1.50 (off by 1e-06) | - |" in performance.tables(found | {"vision": pictures})
    assert "measured warm" not in text
    dropped = {"llama.cpp Vulkan": {"pp512": 13012.4, "tg128": 9.0}}
    assert (
        "llama.cpp Vulkan is measured warm; its first run after a start, dropped: pp512 13,012, tg128 9 tokens/s."
        in performance.tables(found | {"dropped": dropped})
    )
    drawings = performance.plots(documents)
    assert [name.split("-")[0] for name in drawings] == ["decode", "rows"]
    for name, drawing in drawings.items():
        assert xml.fromstring(drawing).tag.endswith("svg")
        assert f"](performance/{name})" in text


def test_the_page_is_up_to_date() -> None:
    documents = performance.read(sorted(performance.FOLDER.glob("*.json")))
    assert performance.PAGE.read_text() == performance.page(documents)
    drawings = performance.plots(documents)
    assert {file.name for file in performance.FOLDER.glob("*.svg")} == set(drawings)
    for name, drawing in drawings.items():
        assert (performance.FOLDER / name).read_text() == drawing
