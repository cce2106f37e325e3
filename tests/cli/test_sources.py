"""Commands that take a model before it is exported, and the cache of what they made of it."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from liveshape.export.conversions import entries
from liveshape.tools.commands.cache import _context
from tests.cli.calls import Capture, call
from tests.export.test_readers import gguf_of_weights


@pytest.fixture
def gguf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LIVESHAPE_CACHE", str(tmp_path / "cache"))
    gguf_of_weights(tmp_path / "tiny.gguf")
    return tmp_path / "tiny.gguf"


@pytest.mark.slow
def test_every_command_takes_a_gguf_file(gguf: Path, capsys: Capture, tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("<s>" * 40)  # the only words of this tokenizer
    small = ("--max-context", 64)
    code, out, err = call(capsys, "generate", gguf, "-p", "t5", "-n", 3, "--raw", "--json", *small)
    assert code == 0
    assert len(json.loads(out)["tokens"]) <= 3
    assert json.loads(out)["model"] == str(gguf)
    assert f"converting {gguf} once" in err
    code, out, err = call(capsys, "bench", gguf, "-p", 4, "-n", 2, "-r", 1, "-o", "json", *small)
    assert code == 0
    assert "tiny.gguf" in out
    assert f"{gguf}, as converted before" in err
    assert call(capsys, "perplexity", gguf, tmp_path / "text.txt", "-c", 16, *small)[0] == 0
    code, out, _ = call(capsys, "run", gguf, "--input-shapes", "1x3,1")
    assert code == 0
    assert "1, 130" in out.replace("x", ", ")
    assert call(capsys, "generate", gguf, "-p", "t5", "-n", 1, "--raw", "--no-cache", *small)[0] == 0
    assert len(list((tmp_path / "cache" / "models").iterdir())) == 1


def test_a_profile_too(gguf: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    from liveshape.tools.commands import profile
    from liveshape.tools.measuring.rates import Rates

    monkeypatch.setattr(profile, "rates_of", lambda *_: Rates(1e9, 1e9, None, None, ""))
    code, out, _ = call(capsys, "profile", gguf, "-p", 0, "-n", 2, "-r", 1, "--max-context", 32, "--json")
    assert code == 0
    assert json.loads(out)["profiles"]


def test_the_cache_is_listed_and_cleared(gguf: Path, capsys: Capture, tmp_path: Path) -> None:
    assert "no converted models" in call(capsys, "cache")[1]
    for quant in ("4w", "none"):
        run = ("run", gguf, "--quant", quant, "--input-shapes", "1x1,1", "--print", "none")
        assert call(capsys, *run)[0] == 0
    out = call(capsys, "cache")[1]
    assert out.count(str(gguf)) == 2
    assert "stale" not in out
    assert re.search(r"4w +128 ", out)
    assert _context(replace(entries()[0], context=32)) == "32 of 128"
    assert "0 models removed" in call(capsys, "cache", "--clear", "stale")[1]
    gguf.rename(tmp_path / "moved.gguf")
    models = json.loads(call(capsys, "cache", "--json")[1])["models"]
    assert [model["stale"] for model in models] == [True, True]
    assert "2 models removed" in call(capsys, "cache", "--clear")[1]
    assert not list((tmp_path / "cache" / "models").iterdir())


def test_options_are_checked_before_anything_is_converted(gguf: Path, capsys: Capture, tmp_path: Path) -> None:
    (tmp_path / "short.txt").write_text("<s>" * 9)
    for arguments, message in (
        (("generate", gguf, "-p", "a", "--temp", -1), "temperature"),
        (("generate", gguf, "-p", "a", "--quant", "5w"), "invalid choice"),
        (("bench", gguf, "-p", 0, "-n", 0), "nothing to measure"),
        (("bench", gguf, "--shape", "1b"), "give one of the two"),
        (("bench", gguf, "-d", 1 << 20), "was trained for"),
        (("perplexity", gguf, tmp_path / "text.txt", "-c", 3), "a window has at least 4 tokens"),
        (("perplexity", gguf, tmp_path / "text.txt", "-c", 9, "--max-context", 8), "--context 9 does not fit"),
        (("perplexity", gguf, tmp_path / "nowhere.txt"), "No such file"),
        (("chat", tmp_path / "nowhere.gguf"), "No such file"),
        (("generate", gguf, "-p", "<s>" * 99, "--raw", "--max-context", 50), "the context of this model is 50"),
        (("perplexity", gguf, tmp_path / "short.txt", "-c", 99), "is shorter than a context of 99"),
    ):
        code, _, err = call(capsys, *arguments)
        assert code == 2
        assert message in err
    assert not (tmp_path / "cache").exists()


def test_an_export_tells_what_it_cost(gguf: Path, capsys: Capture, tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("<s></s></s><s>" * 20)
    arguments = ("export", gguf, "--max-context", 32, "--max-seq-len", 16, "--evaluate", tmp_path / "text.txt")
    divergences = {}
    for quant in ("none", "4w"):
        code, out, _ = call(capsys, *arguments, "-o", tmp_path / quant, "--quant", quant)
        assert code == 0
        found = re.search(r"perplexity (\S+), the source's (\S+) .*; divergence (\S+);", out)
        assert found is not None
        divergences[quant] = float(found[3])
        assert (found[1] == found[2]) == (quant == "none")
    assert divergences["none"] == 0 < divergences["4w"] < 0.5
    code, _, _ = call(capsys, *arguments[:-1], tmp_path / "nowhere.txt", "-o", tmp_path / "other")
    assert code == 2
    assert not (tmp_path / "other").exists()
    assert "leave it out" in call(capsys, "export", "my:module", "-o", tmp_path / "other", "--evaluate")[2]
